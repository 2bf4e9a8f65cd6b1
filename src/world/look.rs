//! The result of the last read of a node's Pods: the address of each pod, and the running agent.
//!
//! This read comes before each step that takes addresses from a node. It also comes before a node gets blocks without
//! others that it had. The watch of the agents' Pods may be late. A pod may have an address that its agent does not
//! list (`docs/cilium.md`, An address that left the pool).

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::World;
use crate::model::agent::{PodSnapshot, PodsOnNode};
use crate::model::carrier::Carrier;
use crate::model::names::NodeName;
use crate::model::revision::AnyRevision;
use crate::model::time::Now;
use crate::net::cidr::Cidr;

impl World {
    /// The result of the last read of a node's Pods.
    #[must_use]
    pub fn look(&self, node: &NodeName) -> Option<&PodSnapshot> {
        self.remembered(node)?.look.as_deref()
    }

    /// The same, if it was read after this version of the node's carrier was known.
    #[must_use]
    pub fn look_after(&self, carrier: Carrier<'_>) -> Option<&PodSnapshot> {
        self.look(carrier.name()).filter(|look| look.after == carrier.revision())
    }

    /// Takes in the result of a read of a node's Pods. All of it is kept: a claim of a block that the node has had for
    /// long may come a moment later.
    pub(super) fn observe_pods_of(
        &mut self,
        node: &NodeName,
        after: AnyRevision,
        found: Result<PodsOnNode, String>,
        now: Now,
    ) {
        let mut unlisted = BTreeSet::new();
        if let (Ok(pods), Some(carrier)) = (&found, self.carrier(node)) {
            let is_listed =
                |address: IpAddr| self.reader_of(node).n_used_in(carrier, Cidr::single(address)) > 0;
            unlisted.extend(pods.holders.keys().copied().filter(|address| !is_listed(*address)));
        }
        self.remember_of(node).look = Some(Box::new(PodSnapshot { after, at: now.uptime, found, unlisted }));
    }
}
