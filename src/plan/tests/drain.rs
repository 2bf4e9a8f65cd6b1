//! Tests of blocks that leave nodes that live: when each begins, how it goes on, and when it stays after all.

use super::*;
use crate::model::carrier::CarrierChange;
use crate::model::crd::{CrdChange, MarkChange};
use crate::model::request::WithdrawalStep;

mod kept;
mod report;
mod start;
mod steps;

/// A node with a primary and a second block, whose agent runs.
pub(super) const NODE: &str =
    "node a 1\nagent a 1.20.2\nclaim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Held @31";
pub(super) const BOTH: &str = "10.0.0.0/28 10.0.0.16/28";
pub(super) const FENCED: &str = "10.0.0.0/28 10.0.0.16/28 fenced=10.0.0.16/28";

pub(super) const DRAIN: &str = "drain 10.0.0.16/28 of node a";
pub(super) const FENCE: &str = "close [10.0.0.16/28] on CiliumNode a to new pods";
pub(super) const ASK: &str = "send a usage query to the agent of node a";
const END_QUERY: &str = "clear the usage query on CiliumNode a";
const TOUCH: &str = "touch ciliumnode a to get a later version";
const LOOK: &str = "read the pods of node a";
pub(super) const MARK: &str = "ask the agent of node a to release [10.0.0.16/28]";
const RELEASE: &str = "release 10.0.0.16/28 of node a (Reclaimed)";
pub(super) const CONFIRM: &str = "confirm the release of [10.0.0.16/28] to the agent of node a";
pub(super) const REMOVE: &str = "remove [10.0.0.16/28] from CiliumNode a";
const COOL: &str = "cool 10.0.0.16/28 of node a";
const HOLD: &str = "hold 10.0.0.16/28 for node a again";
pub(super) const CLEAR: &str = "clear the release marks of [10.0.0.16/28] on CiliumNode a";

impl Cluster {
    /// A node whose use is known: one of sixteen addresses of its primary block.
    fn known(pool: &str) -> Self {
        let mut cluster = Self::of(&format!("{pool}\n{NODE}\nciliumnode a @50 {BOTH} used=10.0.0.0/31"));
        cluster.observe(&format!("ciliumnode a @101 {BOTH} used=10.0.0.0/32"));
        cluster
    }

    /// What was asked of the node is answered: the request ends, and the watch shows these objects.
    #[track_caller]
    fn done(&mut self, expected: &str, shown: &[&str]) {
        self.expect("a", expected);
        let request = self.in_flight.remove(0);
        self.finish(request, Seen::Nothing);
        for line in shown {
            self.observe(line);
        }
        self.pass(2);
    }

    /// The node has needed one block less for as long as its pool asks.
    fn wait_until_surplus(&mut self) {
        self.expect("a", "nothing");
        self.pass(600);
    }

    /// A node that has needed one block less for long enough.
    pub(super) fn surplus() -> Self {
        let mut cluster = Self::known("pool p 10.0.0.0/24 28 reclaim=enabled");
        cluster.wait_until_surplus();
        cluster
    }

    /// The claim of the second block drains.
    pub(super) fn draining() -> Self {
        let mut cluster = Self::surplus();
        cluster.done(DRAIN, &["claim 10.0.0.16/28 a 1 Draining @110"]);
        cluster
    }

    /// The same, and the block is fenced and empty in this version.
    pub(super) fn fenced() -> Self {
        let mut cluster = Self::draining();
        cluster.done(
            FENCE,
            &[&format!("ciliumnode a @111 {FENCED} used=10.0.0.0/32"), "claim 10.0.0.0/28 a 1 Held @111"],
        );
        cluster
    }

    /// The same, and the agent has answered that it uses nothing of the block.
    fn queried() -> Self {
        let mut cluster = Self::fenced();
        cluster.done(ASK, &[&format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32 ping=marked")]);
        cluster.expect("a", "nothing");
        cluster.observe(&format!("ciliumnode a @113 {FENCED} used=10.0.0.0/32 ping=answered"));
        cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
        cluster
    }

    /// The same, and no Pod of the node has an address of it.
    pub(super) fn answered() -> Self {
        let mut cluster = Self::queried();
        cluster.looked(&[]);
        cluster
    }

    /// The same, and the agent was asked to let its addresses go.
    fn marked() -> Self {
        let mut cluster = Self::answered();
        cluster.done(MARK, &[&format!("ciliumnode a @114 {FENCED} used=10.0.0.0/32 marked=10.0.0.16/28")]);
        cluster
    }

    /// The same, and the agent has let every address go.
    fn ready() -> Self {
        let mut cluster = Self::marked();
        cluster.expect("a", "nothing");
        cluster.observe(&format!("ciliumnode a @115 {FENCED} used=10.0.0.0/32 ready=10.0.0.16/28"));
        cluster.observe("claim 10.0.0.0/28 a 1 Held @115");
        cluster
    }

    /// The same, and the claim is being released.
    pub(super) fn releasing() -> Self {
        let mut cluster = Self::ready();
        cluster.looked(&[]);
        cluster.done(RELEASE, &["claim 10.0.0.16/28 a 1 Releasing/Reclaimed @116"]);
        cluster
    }

    /// The same, and the agent has been told that it is released.
    pub(super) fn confirmed() -> Self {
        let mut cluster = Self::releasing();
        cluster
            .done(CONFIRM, &[&format!("ciliumnode a @117 {FENCED} used=10.0.0.0/32 released=10.0.0.16/28")]);
        cluster.observe("claim 10.0.0.0/28 a 1 Held @117");
        cluster
    }
}
