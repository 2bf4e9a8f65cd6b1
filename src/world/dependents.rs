//! The nodes and pools that decide again when something changes.
//!
//! A decision about a node depends on its own objects and on the occupants of its blocks. It also depends on the
//! carriers of nodes with overlapping claims, and on the free blocks of its pools. A change names only itself; its
//! dependents are derived here, and nowhere else. `crate::plan` has a test that changes every object in turn and
//! compares.

use std::collections::BTreeSet;
use std::time::Duration;

use super::agents::Changed;
use super::{World, pod_ip_pools};
use crate::ledger::Occupant;
use crate::model::agent::AgentNews;
use crate::model::freeze::Switch;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PodIpPoolName, PoolName};
use crate::model::plan::TimedState;
use crate::model::pod_ip_pool::{PodIpPool, PodIpPoolNews};
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

impl World {
    /// An object of a node or one of its claims has changed. The nodes of claims that overlap its claims look at its
    /// carrier too: of two such claims the one that may be in use stays (safety rule 2).
    pub(super) fn node_changed(&mut self, node: &NodeName) {
        self.mark(node);
        self.mark_pools_of(node);
        let claims: Vec<Cidr> = self.blocks_of(node).to_vec();
        for cidr in claims {
            self.mark_occupants(cidr);
        }
        // Overlapped nodes report its addresses without a claim, in the ranges that it lists.
        let carried: Vec<Cidr> = self.ledger.carried(node).into_iter().flat_map(AddressSet::cidrs).collect();
        for cidr in carried {
            self.mark_occupants(cidr);
        }
    }

    /// Takes in news of the agents' Pods. A node that is not known yet decides when it is.
    pub fn observe_agents(&mut self, news: AgentNews) {
        // However briefly an agent was Ready, it may have given addresses to pods since their last read. A list does not
        // show the states before it.
        let may_serve = match &news {
            AgentNews::Listed(_) => true,
            AgentNews::Applied(pod) => self.agents.may_serve(pod),
            AgentNews::Deleted(_) | AgentNews::Unlisted(_) | AgentNews::Vouched(_) => false,
        };
        match self.agents.observe(news) {
            Changed::All => self.mark_all(),
            Changed::Nodes(nodes) => {
                for node in nodes {
                    if !self.is_gone(&node) {
                        if may_serve {
                            self.remember_of(&node).serving.begin_anew(TimedState::FormerModeOver);
                        }
                        self.node_changed(&node);
                    }
                }
            }
        }
    }

    /// Takes in news of CiliumPodIPPools.
    pub fn observe_pod_ip_pools(&mut self, news: PodIpPoolNews) {
        let changed = self.pod_ip_pools.observe(news);
        self.pod_ip_pools_changed(changed);
    }

    /// Takes in a CiliumPodIPPool as our write left it.
    pub(super) fn observe_written_pod_ip_pool(&mut self, pool: PodIpPool) {
        let changed = self.pod_ip_pools.observe_answer(pool);
        self.pod_ip_pools_changed(changed);
    }

    fn pod_ip_pools_changed(&mut self, changed: pod_ip_pools::Changed) {
        match changed {
            pod_ip_pools::Changed::All => self.mark_all(),
            pod_ip_pools::Changed::Names(names) => {
                for name in names {
                    self.pod_ip_pool_changed(&name);
                }
            }
        }
    }

    /// The CiliumPodIPPool of a name has changed. The pools that give blocks under that name report it. It also decides
    /// whether nodes get such blocks: nodes that these pools select, or with an earlier claim of the name. Such an
    /// object is created with its pool and hardly ever changes, so a pass over the claims is cheap enough.
    fn pod_ip_pool_changed(&mut self, name: &PodIpPoolName) {
        self.mark_pools_under(name);
        let selected = self.pools_under(name).flat_map(|pool| self.nodes_of_pool(&pool.name));
        let mut nodes: BTreeSet<NodeName> = selected.cloned().collect();
        let claims = self.claims.values().map(|known| &known.claim);
        let of_name = claims.filter(|claim| {
            let carrier = self.carrier(&claim.node);
            let reader = self.reader_of(&claim.node);
            carrier.is_some_and(|carrier| reader.pool_name_on(carrier, claim).as_ref() == Some(name))
        });
        nodes.extend(of_name.map(|claim| claim.node.clone()));
        self.mark_nodes(nodes);
    }

    /// Puts the pools on the agenda that give blocks under a name.
    pub(super) fn mark_pools_under(&mut self, name: &PodIpPoolName) {
        let pools: Vec<PoolName> = self.pools_under(name).map(|pool| pool.name.clone()).collect();
        for pool in pools {
            self.agenda.mark_pool(&pool);
        }
    }

    /// A new occupant takes addresses of `cidr`.
    pub(super) fn addresses_taken(&mut self, cidr: Cidr) {
        self.mark_pools_over(cidr);
        self.mark_occupants(cidr);
        self.mark_frozen_over(cidr);
        // A node that can't start within its limits is reported as waiting only if its pools have no block that helps.
        // Then a block of another pool may serve it. A node that waits for another family is reported only if they
        // have none for it. Both look soon ([`Self::look_on`]).
        self.waiting.note_taken(self.ledger.pools_over(cidr));
    }

    /// The passive waiters look again, if a block of one of their pools was taken and it is time.
    pub(super) fn look_on(&mut self, now: Duration) {
        let pools = self.waiting.look(now);
        if pools.is_empty() {
            return;
        }
        let is_over = |node: &&NodeName| self.selection_of(node).iter().any(|pool| pools.contains(pool));
        let nodes: Vec<NodeName> = self.waiting.passive_waiters().filter(is_over).cloned().collect();
        self.mark_nodes(nodes);
    }

    /// While writes are frozen, a node that would claim a block reports its shortage. So it looks again when another
    /// occupant takes that block. Without a freeze it has the block or waits for one.
    fn mark_frozen_over(&mut self, cidr: Cidr) {
        if !self.freeze.is_on(Switch::Writes) {
            return;
        }
        let pools: BTreeSet<PoolName> = self.ledger.pools_over(cidr).cloned().collect();
        let nodes: BTreeSet<NodeName> =
            pools.iter().flat_map(|pool| self.nodes_of_pool(pool)).cloned().collect();
        self.mark_nodes(nodes);
    }

    /// An occupant has released addresses of `cidr`, or another reason against giving out its blocks is gone.
    pub(super) fn addresses_released(&mut self, cidr: Cidr) {
        self.addresses_taken(cidr);
        self.wake_waiting(cidr);
    }

    /// The nodes that take addresses of `cidr` themselves: other occupants there keep them from publishing, and from
    /// recreating a claim (safety rules 2 and 6).
    fn mark_occupants(&mut self, cidr: Cidr) {
        let mut nodes = BTreeSet::new();
        for (range, occupant) in self.ledger.overlapping(cidr) {
            match occupant {
                Occupant::Claim => {
                    nodes.extend(self.claims.get(&range).map(|known| known.claim.node.clone()));
                }
                Occupant::Carried(node) => {
                    nodes.insert(node.clone());
                }
                Occupant::LostClaim(node) => nodes.extend(node.clone()),
                // A node with a request in flight looks again after it. An unreadable object belongs to no node.
                Occupant::Pending | Occupant::Unreadable(..) => {}
            }
        }
        self.mark_nodes(nodes);
    }

    /// Puts the pools on the agenda whose status may show this node or its claims.
    pub(super) fn mark_pools_of(&mut self, node: &NodeName) {
        let Some(entry) = self.entries.get(node) else { return };
        for pool in &entry.selection {
            self.agenda.mark_pool(pool);
        }
        for cidr in &entry.claims {
            if let Some(known) = self.claims.get(cidr) {
                self.agenda.mark_pool(&known.claim.pool);
            }
        }
    }

    /// Puts the pools on the agenda whose ranges hold an address of `cidr`. Blocks of other pools and published
    /// addresses may lie there too, and count for the free space.
    pub(super) fn mark_pools_over(&mut self, cidr: Cidr) {
        for pool in self.ledger.pools_over(cidr) {
            self.agenda.mark_pool(pool);
        }
    }

    /// A block that shares an address with `cidr` may be free now: the pools over it are offered to the nodes that wait
    /// for them. A node at its limit waits for none.
    fn wake_waiting(&mut self, cidr: Cidr) {
        let pools: BTreeSet<PoolName> = self.ledger.pools_over(cidr).cloned().collect();
        for pool in pools {
            for family in Family::ALL {
                if self.ledger.has_free_in(&pool, family, cidr) {
                    self.waiting.offer((pool.clone(), family), cidr);
                }
            }
        }
    }

    /// Puts every node and pool on the agenda.
    pub fn mark_all(&mut self) {
        // Claims outlive their Node, and a CiliumNode may have none yet. An unreadable object or a lost claim may be
        // all that is left of a node.
        let unreadable =
            [Kind::Node, Kind::CiliumNode].into_iter().flat_map(|kind| self.unreadable.of_kind(kind));
        let unreadable = unreadable.map(|unreadable| NodeName::from(unreadable.name.as_str()));
        let lost = self.lost_claims.keys().flatten();
        let known = self.entries.iter().filter(|(_, entry)| !entry.has_no_objects()).map(|(name, _)| name);
        let nodes: BTreeSet<NodeName> = known.chain(lost).cloned().chain(unreadable).collect();
        self.mark_nodes(nodes);
        self.mark_all_pools();
    }

    /// Puts every pool on the agenda.
    pub(super) fn mark_all_pools(&mut self) {
        for pool in self.pools.keys() {
            self.agenda.mark_pool(pool);
        }
    }
}
