//! A claim: the record that one node holds one block. A block is held if and only if its claim exists.
//!
//! Made from a NodeIPBlock by `crate::wire::block`. The claim fixes which addresses of the block are offered.

use std::fmt;
use std::net::IpAddr;

use crate::model::names::{NodeName, PodIpPoolName, PoolName, Uid};
use crate::model::revision::Revision;
use crate::model::stable_names;
use crate::model::status::ClaimStatus;
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// A NodeIPBlock that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The block.
    pub cidr: Cidr,
    /// The pool that it was cut from.
    pub pool: PoolName,
    /// The node that holds it.
    pub node: NodeName,
    /// The uid of the Node object that it was given to.
    pub node_uid: Uid,
    /// The Cilium pool under which the carrier lists the block; `None` if the claim was made in a mode without such
    /// pools.
    pub pod_ip_pool: Option<PodIpPoolName>,
    /// The addresses in it that are not offered.
    pub excluded: AddressSet,
    /// Its state.
    pub state: ClaimState,
    /// The start of that state.
    pub since: Timestamp,
    /// The carrier that existed when the block was claimed; `None` if the block, or an address of it, may have been on
    /// any other one.
    pub created_for: Option<Uid>,
    /// The claim object itself.
    pub uid: Uid,
    /// The version that was read.
    pub revision: Revision,
    /// When the object was created; it decides the order of the CIDRs on the CiliumNode.
    pub created: Timestamp,
    /// Whether the object is being deleted. As long as our finalizer keeps it, it counts as before.
    pub deleting: bool,
    /// All of its finalizers: ours ([`Claim::FINALIZER`]) and those of others.
    pub finalizers: Vec<String>,
    /// Its status. It is for people, and no decision follows from it.
    pub status: ClaimStatus,
}

/// The state of a claim (`docs/invariants.md`, The states of a claim), with the data that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimState {
    /// Published on the node's carrier, or about to be.
    Held,
    /// Published on the CiliumNode of this uid; from the fence on its agent gives none of the addresses to new pods.
    Draining(Uid),
    /// Being removed from the node, for this reason; no replica may publish it any more.
    Releasing(Reason),
    /// Removed from the node, and cooling before another node may get it. The reason is that of the release.
    Cooling(Reason),
}

impl ClaimState {
    /// The name that the API uses.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Held => "Held",
            Self::Draining(_) => "Draining",
            Self::Releasing(_) => "Releasing",
            Self::Cooling(_) => "Cooling",
        }
    }

    /// Why the claim left its node, if it did.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Held | Self::Draining(_) => None,
            Self::Releasing(reason) | Self::Cooling(reason) => Some(*reason),
        }
    }
}

impl fmt::Display for ClaimState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

stable_names! {
    /// Why a claim left its node.
    pub enum Reason {
        /// The agent consented.
        Reclaimed,
        /// The Node object and its CiliumNode no longer exist.
        NodeGone,
        /// It was never published, or a user gave it up.
        Unused,
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Claim {
    /// The finalizer that keeps a claim when a user deletes it (safety rule 1). Only the last write removes it, when
    /// the block is free.
    pub const FINALIZER: &str = "nodeipam.io/claim";

    /// Whether it was released while its node exists, so that no replica may publish its block any more.
    #[must_use]
    pub fn is_reclaimed(&self) -> bool {
        self.state == ClaimState::Releasing(Reason::Reclaimed)
    }

    /// Whether it is being deleted and no longer has our finalizer. It is gone as soon as other writers remove theirs,
    /// and the controller can't keep it.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.deleting && !self.has_finalizer()
    }

    /// Whether it has our finalizer.
    #[must_use]
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == Self::FINALIZER)
    }

    /// Whether its block is proven to be removed from its node, so that the claim may be deleted when it has cooled.
    #[must_use]
    pub const fn may_be_deleted(&self) -> bool {
        match self.state {
            ClaimState::Cooling(_) => true,
            ClaimState::Held | ClaimState::Draining(_) | ClaimState::Releasing(_) => false,
        }
    }

    /// The addresses that it offers.
    #[must_use]
    pub fn offered(&self) -> AddressSet {
        let mut offered = AddressSet::from_iter([self.cidr]);
        offered.remove_all(&self.excluded);
        offered
    }

    /// Whether it offers this address.
    #[must_use]
    pub fn offers(&self, address: IpAddr) -> bool {
        self.cidr.contains(address) && !self.excluded.contains(address)
    }

    /// How many addresses it offers.
    #[must_use]
    pub fn offered_count(&self) -> u128 {
        self.cidr.size() - self.excluded.count_in(self.cidr)
    }

    /// Whether its CIDR belongs on the carrier in this state.
    #[must_use]
    pub fn is_published_state(&self) -> bool {
        matches!(self.state, ClaimState::Held | ClaimState::Draining(_))
    }
}

/// The name of the claim of this block: the CIDR in the alphabet of object names.
///
/// `100.162.224.32-27`; IPv6 exploded, `fd00-0010-0001-0000-0000-0000-0000-0040-122`. One block has one name. So the
/// API server, which keeps names unique, is the lock on the block.
#[must_use]
pub fn block_name(block: Cidr) -> String {
    match block.first_address() {
        IpAddr::V4(v4) => format!("{v4}-{}", block.prefix_len()),
        IpAddr::V6(v6) => {
            let groups: Vec<String> = v6.segments().iter().map(|group| format!("{group:04x}")).collect();
            format!("{}-{}", groups.join("-"), block.prefix_len())
        }
    }
}

/// The block whose claim has this name; the inverse of [`block_name`].
#[must_use]
pub fn block_named(name: &str) -> Option<Cidr> {
    let (address, length) = name.rsplit_once('-')?;
    let address = if address.contains('.') { address.to_owned() } else { address.replace('-', ":") };
    let block = Cidr::containing(address.parse().ok()?, length.parse().ok()?)?;
    (block_name(block) == name).then_some(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_canonical() {
        for (text, name) in [
            ("100.162.224.32/27", "100.162.224.32-27"),
            ("0.0.0.0/0", "0.0.0.0-0"),
            ("10.0.0.1/32", "10.0.0.1-32"),
            ("fd00:10:1::40/122", "fd00-0010-0001-0000-0000-0000-0000-0040-122"),
            ("::/0", "0000-0000-0000-0000-0000-0000-0000-0000-0"),
        ] {
            assert_eq!(block_name(text.parse().unwrap()), name);
        }
        for name in ["10.0.0.1-24", "10.0.0.0-024", "fd00--40-122", "10.0.0.0", "x-1"] {
            assert_eq!(block_named(name), None, "{name}");
        }
    }

    fn any_block() -> impl Strategy<Value = Cidr> {
        let (v4, v6) = ((any::<[u8; 4]>(), 0u8..=32), (any::<[u8; 16]>(), 0u8..=128));
        // An IPv4-mapped address is IPv4, and may have fewer bits than the prefix length.
        prop_oneof![
            v4.prop_map(|(member, length)| Cidr::containing(member.into(), length).unwrap()),
            v6.prop_filter_map("IPv4-mapped", |(member, length)| Cidr::containing(member.into(), length)),
        ]
    }

    proptest! {
        #[test]
        fn names_are_as_distinct_as_blocks(a in any_block(), b in any_block()) {
            prop_assert_eq!(a == b, block_name(a) == block_name(b));
            prop_assert_eq!(block_named(&block_name(a)), Some(a));
        }
    }
}
