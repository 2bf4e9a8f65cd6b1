//! The traits of a mode of Cilium, which are the same for every node.

use crate::model::kind::Kind;

/// The traits of a mode, which are the same for every node. A mode states each of them: none has a default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, and a mode answers all")]
pub struct Traits {
    /// The kind of the carrier.
    pub carrier: Kind,
    /// Whether a node gets one block of each family and never another. Then its pools neither size nor shrink it.
    pub gives_one_block: bool,
    /// Whether the first block of each family on a carrier is the primary one, which stays, while others may leave.
    pub has_primary_blocks: bool,
    /// Whether agents report how many addresses they need, and release the surplus. Then no threshold of a pool
    /// counts.
    pub agents_request_addresses: bool,
    /// Whether agents report on the carrier which addresses they use. If not, they are not asked, and there are no
    /// reports about use.
    pub shows_use: bool,
    /// Whether agents assign every address of a block except the first and last one, and can't be kept from single
    /// ones.
    pub gives_whole_blocks: bool,
    /// Whether blocks are published under names of Pod IP pools. Agents count each name separately.
    pub has_pod_ip_pools: bool,
    /// Whether one write removes a block and asks the agent whether it keeps using it. Such a block is absent when
    /// the agent has answered without it. If the agent writes the block back, no new pod gets an address of it.
    pub removes_with_query: bool,
    /// Whether Cilium's own BGP can announce the blocks of a node.
    pub may_announce_blocks: bool,
    /// Whether agents announce blocks according to the objects of Pod IP pools.
    pub announces: bool,
}
