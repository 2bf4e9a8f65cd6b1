//! A value that one task writes and others read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value. Clones are one value.
#[derive(Default)]
pub(crate) struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    /// The value, also after a task has panicked with it: it is only shown.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
