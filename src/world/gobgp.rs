//! The table of a GoBGP daemon as it was last listed and changed, and the state of the requests to the daemon. News of
//! the daemon is only a reason to list the table again.
//!
//! Knows no world. Keeps two invariants: at most one request is in flight; and the table proves that a path is gone
//! only if no earlier request can still change it ([`Gobgp::proves_since`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::pause::{Cause, Pause};
use crate::model::gobgp::{BestPath, Rib, RibChange, RibFailure, RibNews, RibOutcome, RibRequest};
use crate::model::names::NodeName;
use crate::model::plan::RoutesPlan;
use crate::model::time::Now;
use crate::net::cidr::Cidr;

/// The maximum time in which the daemon carries out an unanswered request, from when it has answered a later one. It
/// reads both from its sockets at the same time, so this is ample.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// Why the table is unknown at the start.
const NOT_LISTED: &str = "its table is not listed yet";

/// Whether the routes of nodes are announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announcing {
    /// The blocks of all nodes are announced.
    Blocks,
    /// None is, and the paths of the exporter are withdrawn.
    Nothing,
}

/// How a daemon announces routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GobgpPolicy {
    /// Whether it announces them.
    pub announcing: Announcing,
    /// The daemon, as findings name it.
    pub daemon: String,
    /// The maximum number of paths of the exporter.
    pub max_prefixes: usize,
}

/// The table of a daemon.
#[derive(Debug, Clone)]
pub struct Gobgp {
    policy: GobgpPolicy,
    rib: Result<Rib, String>,
    /// When the last answered list was decided.
    listed: Option<Duration>,
    in_flight: Option<InFlight>,
    /// The news since the request was sent.
    heard: BTreeMap<Cidr, BestPath>,
    /// Whether the table may have changed since the last list was decided, other than by this process.
    is_suspect: bool,
    /// Whether a change was sent after the last list.
    has_changed: bool,
    pause: Pause,
    /// The changes that the daemon has refused, each with its answer.
    refused: BTreeMap<Cidr, (String, Pause)>,
    /// The time after which a list proves that no earlier request can change the table; `None` until the daemon has
    /// answered a list. Until then it may still carry out an earlier change without an answer. Another replica may have
    /// sent that.
    settles: Option<Duration>,
    /// The nodes whose claims are being read, and those whose claims were read since this process leads.
    asked: BTreeSet<NodeName>,
    claims_read: BTreeSet<NodeName>,
}

/// The request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InFlight {
    /// It was decided at this time, since this process leads.
    Present(Duration),
    /// It was decided before that. Its outcome does not show the present table.
    Earlier,
}

impl Gobgp {
    pub(super) fn new(policy: GobgpPolicy) -> Self {
        Self {
            policy,
            rib: Err(NOT_LISTED.to_owned()),
            listed: None,
            in_flight: None,
            heard: BTreeMap::new(),
            is_suspect: false,
            has_changed: false,
            pause: Pause::default(),
            refused: BTreeMap::new(),
            settles: None,
            asked: BTreeSet::new(),
            claims_read: BTreeSet::new(),
        }
    }

    /// How routes are announced.
    #[must_use]
    pub fn policy(&self) -> &GobgpPolicy {
        &self.policy
    }

    /// The table, or why it is unknown.
    pub fn rib(&self) -> Result<&Rib, &str> {
        self.rib.as_ref().map_err(String::as_str)
    }

    /// Whether a request is in flight.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.in_flight.is_some()
    }

    /// When the last answered list was decided.
    #[must_use]
    pub fn listed(&self) -> Option<Duration> {
        self.listed
    }

    /// Whether the daemon shows something else than the known table.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// Whether a change was sent after the last list.
    #[must_use]
    pub fn has_changed_since_listed(&self) -> bool {
        self.has_changed
    }

    /// Whether the known table is later than this time, and no request from before the last list can change it.
    #[must_use]
    pub fn proves_since(&self, since: Duration) -> bool {
        self.settles.is_some_and(|settled| self.listed > Some(since.max(settled)))
    }

    /// The time after which a list proves that no earlier request can change the table.
    #[must_use]
    pub fn settles(&self) -> Option<Duration> {
        self.settles
    }

    /// How long the next request waits because the last ones have failed.
    #[must_use]
    pub fn pause(&self) -> Pause {
        self.pause
    }

    /// The changes that the daemon has refused, each with its answer and the wait until it is sent again.
    #[must_use]
    pub fn refused(&self) -> &BTreeMap<Cidr, (String, Pause)> {
        &self.refused
    }

    /// Whether all claims of a node were read since this process leads. The watch may show an older state: the last
    /// leader may have given the node's blocks to other nodes.
    #[must_use]
    pub fn knows_claims_of(&self, node: &NodeName) -> bool {
        self.claims_read.contains(node)
    }

    /// Another term starts: other replicas may have changed everything.
    pub(super) fn forget(&mut self) {
        self.rib = Err(NOT_LISTED.to_owned());
        self.listed = None;
        self.is_suspect = false;
        self.settles = None;
        self.pause = Pause::default();
        self.refused.clear();
        self.asked.clear();
        self.claims_read.clear();
        self.in_flight = self.in_flight.map(|_| InFlight::Earlier);
    }

    /// The routes of all nodes have been decided, and these requests are being sent.
    pub(super) fn begin(&mut self, plan: &RoutesPlan, now: Now) {
        self.asked.extend(plan.requests.iter().filter_map(|request| request.node()).cloned());
        if let Some(request) = &plan.rib {
            self.in_flight = Some(InFlight::Present(now.uptime));
            self.has_changed = *request != RibRequest::List;
            self.is_suspect &= self.has_changed;
        }
    }

    /// All claims of a node were read. Returns whether routes may depend on it.
    pub(super) fn claims_were_read(&mut self, node: &NodeName) -> bool {
        let is_asked = self.asked.remove(node);
        if is_asked {
            self.claims_read.insert(node.clone());
        }
        is_asked
    }

    /// The request in flight has an outcome.
    pub(super) fn finish(&mut self, outcome: RibOutcome, now: Now) {
        let Some(in_flight) = self.in_flight.take() else { return };
        if let InFlight::Present(decided) = in_flight {
            self.take_in(outcome, decided, now);
        }
        self.compare_with_heard();
    }

    /// Takes in news of the table from the daemon itself. A daemon that has restarted may have lost all paths.
    pub(super) fn hear(&mut self, news: RibNews) {
        match news {
            RibNews::Joined => {
                self.is_suspect = true;
                // The daemon can be reached.
                self.pause.end();
            }
            RibNews::Changed(paths) => {
                self.heard.extend(paths);
                self.compare_with_heard();
            }
        }
    }

    /// News during a request may be its own effect, so it is compared afterwards.
    fn compare_with_heard(&mut self) {
        if self.in_flight.is_some() {
            return;
        }
        let heard = std::mem::take(&mut self.heard);
        // An unknown table is listed anyway.
        let Ok(rib) = &self.rib else { return };
        self.is_suspect |= heard.iter().any(|(prefix, best)| !rib.agrees(*prefix, best));
    }

    fn take_in(&mut self, outcome: RibOutcome, decided: Duration, now: Now) {
        match outcome {
            RibOutcome::Listed(rib) => {
                self.rib = Ok(rib);
                self.listed = Some(decided);
                self.pause.end();
                self.settles.get_or_insert(now.uptime + SETTLES_WITHIN);
            }
            RibOutcome::Changed { applied, refused, failure } => {
                for change in applied {
                    self.refused.remove(&change.prefix());
                    self.apply(change);
                }
                for (change, why) in refused {
                    let (reported, pause) = self.refused.entry(change.prefix()).or_default();
                    *reported = why;
                    pause.lengthen(Cause::Nothing, now);
                }
                match failure {
                    Some(failure) => self.failed(failure, now),
                    None => self.pause.end(),
                }
            }
            RibOutcome::Unlisted(failure) => self.failed(failure, now),
        }
    }

    fn apply(&mut self, change: RibChange) {
        let Ok(rib) = &mut self.rib else { return };
        match change {
            RibChange::Add(prefix, path) => drop(rib.own.insert(prefix, Ok(path))),
            RibChange::Withdraw(prefix) => drop(rib.own.remove(&prefix)),
        }
    }

    /// The daemon may have been restarted since. It must be listed before the next change.
    fn failed(&mut self, failure: RibFailure, now: Now) {
        self.pause.lengthen(Cause::Nothing, now);
        self.listed = None;
        match failure {
            RibFailure::NotSent(why) => self.rib = Err(why),
            RibFailure::Unanswered(why) => {
                self.settles = None;
                self.rib = Err(why);
            }
        }
    }
}
