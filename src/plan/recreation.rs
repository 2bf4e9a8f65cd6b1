//! Claims that are created again for the node that has their block. These are lost claims, and claims of blocks that
//! the CiliumNode has without a claim.
//!
//! Another writer deleted such a claim after removing its finalizer. The block belongs to the node, and no other node
//! can get it.

use super::subject::Subject;
use crate::ledger::Occupant;
use crate::model::claim::Claim;
use crate::model::names::{NodeName, PodIpPoolName, PoolName, Uid};
use crate::model::node::Node;
use crate::model::request::{NewClaim, Request, Target, Write};
use crate::model::time::Now;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::world::World;

/// A new claim of a block for a node. `created_for` is the present carrier, if no earlier one can have carried the
/// block.
pub(super) fn new_claim(
    node: &Node,
    cidr: Cidr,
    pool: &PoolName,
    pod_ip_pool: Option<PodIpPoolName>,
    excluded: AddressSet,
    created_for: Option<Uid>,
    now: Now,
) -> Request {
    let new = NewClaim {
        cidr,
        pool: pool.clone(),
        node: node.name.clone(),
        node_uid: node.uid.clone(),
        pod_ip_pool,
        excluded,
        created_for,
        since: now.wall,
    };
    Write::CreateClaim(new).into()
}

/// Recreates the lost claims of a node that this process knew before, with all their immutable fields.
///
/// This waits neither for a Node nor for a CiliumNode. Only this process knows of such a claim. If it exited first,
/// the block would be free while the agent keeps using it.
pub(super) fn of_lost_claims(world: &World, name: &NodeName, now: Now) -> Vec<Request> {
    let lost = world.lost_claims_of(name).filter(|lost| world.is_recreated(name, lost));
    let lost = lost.filter_map(|lost| lost.claim.as_ref()).filter(|claim| world.claim(claim.cidr).is_none());
    let node_uid = world.node(name).map(|node| &node.uid);
    lost.map(|claim| recreate(claim, node_uid.unwrap_or(&claim.node_uid), now)).collect()
}

fn recreate(lost: &Claim, node_uid: &Uid, now: Now) -> Request {
    let new = NewClaim {
        cidr: lost.cidr,
        pool: lost.pool.clone(),
        node: lost.node.clone(),
        node_uid: node_uid.clone(),
        pod_ip_pool: lost.pod_ip_pool.clone(),
        excluded: lost.excluded.clone(),
        created_for: lost.created_for.clone(),
        since: now.wall,
    };
    Write::CreateClaim(new).into()
}

impl Subject<'_> {
    /// Claims the blocks of the carrier that have no claim, lie in a pool, and have addresses that its agent can
    /// assign. It is unknown which other CiliumNodes have carried them.
    pub(super) fn claim_carried_blocks(&self, now: Now) -> Vec<Request> {
        let has_no_claim = |cidr: Cidr| {
            self.world.claim(cidr).is_none()
                && !self.world.is_in_flight(&Target::Claim(cidr))
                && self.world.ledger().overlapping(cidr).all(
                    |(_, occupant)| matches!(occupant, Occupant::Carried(holder) if *holder == self.node.name),
                )
        };
        let blocks = self.publisher.blocks(self.carrier).into_iter();
        blocks
            .filter(|cidr| has_no_claim(*cidr))
            .filter_map(|cidr| {
                // Several pools may cut this block, and give it under different names.
                let mut pools = self.world.pools_of_block(cidr);
                let pool = pools.find(|pool| self.publisher.is_of_pool(self.carrier, cidr, pool))?;
                let pod_ip_pool = self.publisher.pod_ip_pool_of(pool).cloned();
                let excluded = self.publisher.unavailable_in(self.carrier, cidr);
                Some(new_claim(self.node, cidr, &pool.name, pod_ip_pool, excluded, None, now))
            })
            .collect()
    }
}
