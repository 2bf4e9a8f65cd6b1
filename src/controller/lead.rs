//! The lead of this process: until when it may write, and the fence that checks that when each write is sent.
//!
//! Does not know how a lead is won. Also keeps the time of the last write, for the Lease. Keeps one invariant: no
//! write is sent through the fence after the lead is over. That holds however late a timer or a task notices the end:
//! a process that was stopped by SIGSTOP continues where it was.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::model::leadership::Leadership;
use crate::model::time::Timestamp;

/// Until when the process leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    /// Without an end: there is no election.
    Unelected,
    /// Until this time, unless it is renewed before.
    Until(Instant),
    /// It does not lead.
    Ended,
}

impl Term {
    fn holds(self) -> bool {
        match self {
            Self::Unelected => true,
            Self::Until(end) => Instant::now() < end,
            Self::Ended => false,
        }
    }
}

/// The lead of this process. Clones share it.
#[derive(Debug, Clone)]
pub struct Lead {
    term: watch::Sender<Term>,
    last_write: watch::Sender<Option<Timestamp>>,
}

impl Lead {
    /// The lead of a process that runs without an election: it never expires.
    #[must_use]
    pub fn unelected() -> Self {
        Self::of(Term::Unelected)
    }

    /// The lead of a process that has yet to win one.
    #[must_use]
    pub fn to_be_won() -> Self {
        Self::of(Term::Ended)
    }

    fn of(term: Term) -> Self {
        Self { term: watch::Sender::new(term), last_write: watch::Sender::new(None) }
    }

    /// Whether the process may write now.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.term.borrow().holds()
    }

    /// The same, as the world takes it.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        if self.holds() { Leadership::Leads } else { Leadership::StandsBy }
    }

    /// A write of the loop took effect at this time.
    pub(super) fn has_written(&self, at: Timestamp) {
        self.last_write.send_replace(Some(at));
    }

    /// When a write of the loop last took effect in this process.
    pub(super) fn last_write(&self) -> Option<Timestamp> {
        *self.last_write.borrow()
    }

    /// It lasts until this time now.
    pub(super) fn lasts_until(&self, end: Instant) {
        self.term.send_replace(Term::Until(end));
    }

    /// Gives the lead up at once.
    pub(super) fn end(&self) {
        self.term.send_replace(Term::Ended);
    }

    /// Waits until the process may write. Cancel-safe.
    pub(super) async fn begun(&self) {
        // The sender is `self`, so it is never gone.
        let _ = self.term.subscribe().wait_for(|term| term.holds()).await;
    }

    /// Waits until the process may not write any more. Cancel-safe.
    pub(super) async fn ended(&self) {
        let mut term = self.term.subscribe();
        loop {
            let current = *term.borrow_and_update();
            match current {
                Term::Ended => return,
                Term::Until(end) if end <= Instant::now() => return,
                Term::Until(end) => {
                    // A renewal moves the end.
                    let _ = tokio::time::timeout_at(end, term.changed()).await;
                }
                // The sender is `self`, so it is never gone.
                Term::Unelected => term.changed().await.unwrap_or(()),
            }
        }
    }
}

/// Why the fence has stopped a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fenced {
    /// It was not sent.
    #[error("not sent: this replica does not hold the Lease")]
    NotSent,
    /// It was sent, and its answer was not awaited.
    #[error("the Lease was lost before the answer")]
    Unanswered,
}

impl Fenced {
    /// How the fence stopped the request with this error, if it did.
    pub(super) fn of(error: &kube::Error) -> Option<Self> {
        match error {
            kube::Error::Service(error) => error.downcast_ref().copied(),
            _ => None,
        }
    }
}

/// Lets writes pass only while a lead holds. When the lead is over, a write that waits for its answer or for a
/// connection is dropped.
#[derive(Debug, Clone)]
pub(super) struct Fence(pub(super) Lead);

impl<S> Layer<S> for Fence {
    type Service = Behind<S>;

    fn layer(&self, inner: S) -> Behind<S> {
        Behind { inner, lead: self.0.clone() }
    }
}

/// A client behind the fence.
#[derive(Debug, Clone)]
pub(super) struct Behind<S> {
    inner: S,
    lead: Lead,
}

impl<S, B> Service<Request<Body>> for Behind<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_read = *request.method() == Method::GET;
        if !is_read && !self.lead.holds() {
            return Box::pin(async { Err(Fenced::NotSent.into()) });
        }
        let answer = self.inner.call(request);
        let lead = self.lead.clone();
        Box::pin(async move {
            if is_read {
                return answer.await.map_err(Into::into);
            }
            // The process may have been stopped since the call.
            if !lead.holds() {
                return Err(Fenced::NotSent.into());
            }
            let mut answer = pin!(answer);
            tokio::select! {
                biased;
                // An answer that is there counts, even if the lead is over since.
                answer = answer.as_mut() => answer.map_err(Into::into),
                () = lead.ended() => Err(Fenced::Unanswered.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tower::ServiceExt as _;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The outcome of a request that the server answers after this time, and how many requests the server got.
    async fn send(lead: &Lead, method: Method, takes: Duration) -> (Result<(), Option<Fenced>>, usize) {
        let got = Arc::new(AtomicUsize::new(0));
        let counter = got.clone();
        let server = tower::service_fn(move |_: Request<Body>| {
            counter.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(takes).await;
                Ok::<_, std::convert::Infallible>(Response::new(()))
            }
        });
        let request = Request::builder().method(method).body(Body::empty()).unwrap();
        let end = Fence(lead.clone()).layer(server).oneshot(request).await;
        let end = end.map(|_| ()).map_err(|error| error.downcast_ref::<Fenced>().copied());
        (end, got.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_passes_only_while_the_lead_holds() {
        let lead = Lead::to_be_won();
        assert_eq!(send(&lead, Method::PATCH, SECOND).await, (Err(Some(Fenced::NotSent)), 0));
        assert_eq!(send(&lead, Method::GET, SECOND).await, (Ok(()), 1));
        lead.lasts_until(Instant::now() + 10 * SECOND);
        assert_eq!(send(&lead, Method::PATCH, SECOND).await, (Ok(()), 1));
        // No task has looked at a timer: the time alone is enough.
        tokio::time::advance(10 * SECOND).await;
        assert_eq!(send(&lead, Method::POST, SECOND).await, (Err(Some(Fenced::NotSent)), 0));
        assert_eq!(send(&Lead::unelected(), Method::DELETE, SECOND).await, (Ok(()), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lead_begins_when_it_is_won_and_not_before() {
        let lead = Lead::to_be_won();
        let (begun, ()) = tokio::join!(tokio::time::timeout(2 * SECOND, lead.begun()), async {
            tokio::time::sleep(SECOND).await;
            lead.lasts_until(Instant::now() + SECOND);
        });
        assert!(begun.is_ok());
        tokio::time::advance(SECOND).await;
        assert!(tokio::time::timeout(SECOND, lead.begun()).await.is_err(), "it has ended");
        Lead::unelected().begun().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_is_dropped_when_the_lead_ends_and_not_before() {
        let lead = Lead::to_be_won();
        lead.lasts_until(Instant::now() + 10 * SECOND);
        assert_eq!(send(&lead, Method::PATCH, 11 * SECOND).await, (Err(Some(Fenced::Unanswered)), 1));
        lead.lasts_until(Instant::now() + 10 * SECOND);
        let (end, ()) = tokio::join!(send(&lead, Method::PATCH, 11 * SECOND), async {
            tokio::time::sleep(9 * SECOND).await;
            lead.lasts_until(Instant::now() + 10 * SECOND);
        });
        assert_eq!(end, (Ok(()), 1));
        let (end, ()) = tokio::join!(send(&lead, Method::PATCH, 5 * SECOND), async {
            tokio::time::sleep(SECOND).await;
            lead.end();
        });
        assert_eq!(end, (Err(Some(Fenced::Unanswered)), 1));
    }
}
