//! The places of the requests that run at the same time: as many as `--max-parallel-writes`.
//!
//! Knows no requests. Keeps one invariant: a request that waits until an administrator grants a right, or mends
//! something else, takes no place from the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of the requests that run at the same time.
#[derive(Debug, Clone)]
pub(super) struct WriteSlots {
    slots: Arc<Semaphore>,
    n_aside: Arc<AtomicUsize>,
}

impl WriteSlots {
    pub(super) fn new(n_places: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(n_places)), n_aside: Arc::default() }
    }

    /// Waits for a place; `None` when the process is about to exit.
    pub(super) async fn take(&self) -> Option<Place> {
        let slot = self.slots.clone().acquire_owned().await.ok()?;
        Some(Place { slot: Mutex::new(Some(slot)), n_aside: self.n_aside.clone() })
    }

    /// How many requests run beside those that have a place.
    pub(super) fn n_aside(&self) -> usize {
        self.n_aside.load(Ordering::Relaxed)
    }

    /// Whether no request gets a place any more.
    pub(super) fn are_closed(&self) -> bool {
        self.slots.is_closed()
    }

    /// From now on no request gets a place.
    pub(super) fn close(&self) {
        self.slots.close();
    }
}

/// The place of a request, until it is dropped.
#[derive(Debug)]
pub struct Place {
    slot: Mutex<Option<OwnedSemaphorePermit>>,
    n_aside: Arc<AtomicUsize>,
}

impl Place {
    /// Leaves the place to another request. This one continues without a place.
    pub(super) fn yield_slot(&self) {
        let slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        if slot.is_some() {
            self.n_aside.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.slot.get_mut().unwrap_or_else(PoisonError::into_inner).is_none() {
            self.n_aside.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
