//! The lag of the watches: the time from the answer to a write until the watch of its kind shows that version or a
//! later one.
//!
//! Knows only the clock of this process, so a kind that this process never writes has no lag here.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::kind::Kind;
use crate::model::observation::Observation;
use crate::model::outcome::{Answer, Outcome, Seen};
use crate::model::request::Request;
use crate::model::revision::AnyRevision;

/// The maximum number of awaited writes per kind: more than a second of writes at the highest rate. A watch that is
/// further behind is broken, and the metric of lapses reports it.
const MAX_AWAITED: usize = 1024;

/// The writes that the watches have not shown yet, by kind.
#[derive(Debug, Default)]
pub(super) struct WatchLag {
    kinds: BTreeMap<Kind, Shown>,
}

/// The progress of the watch of a kind.
#[derive(Debug, Default)]
struct Shown {
    /// The latest version from the watch.
    reached: Option<AnyRevision>,
    /// Later versions with the times of their answers: the [`MAX_AWAITED`] oldest.
    awaited: Vec<(AnyRevision, Instant)>,
}

impl WatchLag {
    /// Notes the outcome of a request. Returns the kind of the written object if its watch was faster.
    pub(super) fn finished(&mut self, outcome: &Outcome, now: Instant) -> Option<Kind> {
        let (kind, version) = version_of(outcome)?;
        let shown = self.kinds.entry(kind).or_default();
        if shown.reached >= Some(version) {
            return Some(kind);
        }
        if shown.awaited.len() < MAX_AWAITED {
            shown.awaited.push((version, now));
        }
        None
    }

    /// Notes an observation. Returns its kind, and the lag of each write that it shows.
    pub(super) fn observed(
        &mut self,
        observation: &Observation,
        now: Instant,
    ) -> Option<(Kind, Vec<Duration>)> {
        let (kind, version) = match observation {
            Observation::Listed(listing) => (listing.kind, listing.at_least),
            Observation::Applied(object) => (object.kind(), object.revision()?),
            Observation::Deleted { kind, revision, .. } => (*kind, *revision),
        };
        let shown = self.kinds.entry(kind).or_default();
        shown.reached = Some(version);
        let late = shown.awaited.extract_if(.., |(awaited, _)| *awaited <= version);
        Some((kind, late.map(|(_, since)| now.saturating_duration_since(since)).collect()))
    }
}

/// The kind and version of an object of the world after a write.
fn version_of(outcome: &Outcome) -> Option<(Kind, AnyRevision)> {
    let (Request::Write(_), Answer::Done) = (&outcome.request, &outcome.answer) else { return None };
    match &outcome.seen {
        Seen::Claim(claim) => Some((Kind::Claim, claim.revision.into())),
        Seen::CiliumNode(cilium_node) => Some((Kind::CiliumNode, cilium_node.revision.into())),
        Seen::PatchedNode(node) => Some((Kind::Node, node.revision.into())),
        Seen::Pool(pool) => Some((Kind::Pool, pool.revision.into())),
        Seen::Nothing
        | Seen::PodIpPool(_)
        | Seen::Frr(_)
        | Seen::Deleted(_)
        | Seen::Absent(_)
        | Seen::Node { .. }
        | Seen::PodsOf { .. }
        | Seen::ClaimsOf { .. }
        | Seen::Unreadable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::cluster::{Cluster, pool, ranges};
    use super::*;
    use crate::model::names::PoolName;
    use crate::model::observation::{Object, PoolObject};
    use crate::model::revision::Revision;
    use crate::plan::{self, Policy};

    /// The only pool of a cluster in which its status is due, and the write of that.
    fn written() -> (PoolObject, Request) {
        let Cluster { mut world, now, .. } = Cluster::of(&[&pool(&ranges("10.0.0.0/24"))]);
        let name = PoolName::from("p");
        let plan = plan::pool(&world, &name, Policy::DEFAULT, now);
        world.begin_status(&name, &plan, now);
        let write = plan.into_writes().pop().expect("it writes");
        (world.pool_object(&name).unwrap().clone(), write.into())
    }

    #[test]
    fn a_watch_is_as_late_as_it_shows_a_write_after_its_answer() {
        let (pool, request) = written();
        let at = |number: u64| PoolObject { revision: Revision::of(number), ..pool.clone() };
        let answer = |number: u64| Outcome {
            request: request.clone(),
            answer: Answer::Done,
            seen: Seen::Pool(Box::new(at(number))),
        };
        let shows = |number: u64| Observation::Applied(Box::new(Object::Pool(at(number))));
        let (mut lag, start) = (WatchLag::default(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(lag.finished(&answer(105), after(0)), None);
        assert_eq!(lag.observed(&shows(104), after(1)), Some((Kind::Pool, Vec::new())), "an earlier version");
        assert_eq!(lag.finished(&answer(106), after(2)), None);
        let late = [Duration::from_secs(3), Duration::from_secs(1)];
        assert_eq!(lag.observed(&shows(106), after(3)), Some((Kind::Pool, late.to_vec())), "both at once");
        assert_eq!(lag.observed(&shows(107), after(4)), Some((Kind::Pool, Vec::new())), "each counts once");
        assert_eq!(lag.finished(&answer(107), after(5)), Some(Kind::Pool), "the watch was faster");
        let refused = Outcome { answer: Answer::Refused(String::new(), None), ..answer(108) };
        assert_eq!(lag.finished(&refused, after(5)), None);
        assert_eq!(lag.observed(&shows(108), after(6)), Some((Kind::Pool, Vec::new())));
    }
}
