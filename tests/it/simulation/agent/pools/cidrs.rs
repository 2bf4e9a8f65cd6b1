//! The CIDRs that a multi-pool agent has of one family of a Cilium pool (`pkg/ipam/pool.go` of 1.20.2).

use std::collections::BTreeSet;
use std::net::IpAddr;

use cilium_node_ipam::net::cidr::Cidr;

use super::super::super::mode::given_of;

/// The CIDRs that an agent has of one family of a Cilium pool.
#[derive(Debug, Clone, Default)]
pub(super) struct Cidrs {
    /// In the order in which it allocates from them.
    pub(super) allocators: Vec<Allocator>,
    /// Released, and still shown in the last version that it has seen.
    pub(super) released: BTreeSet<Cidr>,
    /// Removed while in use: no address of them is given out any more.
    pub(super) removed: BTreeSet<Cidr>,
}

/// One CIDR and its used addresses.
#[derive(Debug, Clone)]
pub(super) struct Allocator {
    pub(super) cidr: Cidr,
    pub(super) used: BTreeSet<IpAddr>,
}

impl Allocator {
    pub(super) const fn new(cidr: Cidr) -> Self {
        Self { cidr, used: BTreeSet::new() }
    }

    pub(super) fn free(&self) -> impl Iterator<Item = IpAddr> + '_ {
        given_of(self.cidr).filter(|address| !self.used.contains(address))
    }
}

impl Cidrs {
    pub(super) fn n_used(&self) -> usize {
        self.allocators.iter().map(|allocator| allocator.used.len()).sum()
    }

    pub(super) fn n_free(&self) -> usize {
        self.allocators.iter().map(|allocator| allocator.free().count()).sum()
    }

    /// The allocators that it gives addresses from.
    pub(super) fn open(&self) -> impl Iterator<Item = &Allocator> {
        self.allocators.iter().filter(|allocator| !self.removed.contains(&allocator.cidr))
    }

    /// It sees that its CiliumNode shows these CIDRs.
    pub(super) fn update(&mut self, shown: &[Cidr]) {
        self.released.retain(|cidr| shown.contains(cidr));
        let gone = self.allocators.iter().filter(|allocator| !shown.contains(&allocator.cidr));
        self.removed.extend(gone.filter(|allocator| !allocator.used.is_empty()).map(|used| used.cidr));
        self.allocators.retain(|allocator| shown.contains(&allocator.cidr) || !allocator.used.is_empty());
        for cidr in shown {
            let is_known = self.allocators.iter().any(|allocator| allocator.cidr == *cidr);
            if !is_known && !self.released.contains(cidr) {
                self.allocators.push(Allocator::new(*cidr));
            }
        }
    }

    /// Releases CIDRs that are empty and surplus, the last first, and takes released ones again that it needs. At least
    /// `needed` addresses must be free afterwards. Returns the CIDRs that it has taken again.
    pub(super) fn release_excess(&mut self, needed: usize, takes_back: bool) -> Vec<Cidr> {
        let mut free = self.n_free();
        let mut again = Vec::new();
        for cidr in self.released.clone().into_iter().filter(|_| takes_back) {
            if free < needed {
                self.released.remove(&cidr);
                self.allocators.push(Allocator::new(cidr));
                free += given_of(cidr).count();
                again.push(cidr);
            }
        }
        let mut kept = Vec::new();
        for allocator in std::mem::take(&mut self.allocators).into_iter().rev() {
            let n_free = allocator.free().count();
            if allocator.used.is_empty() && free - n_free >= needed {
                free -= n_free;
                self.released.insert(allocator.cidr);
            } else {
                kept.push(allocator);
            }
        }
        // So each time the order is reversed.
        self.allocators = kept;
        again
    }

    /// Gives out an address of the first CIDR that has a free one: `pick` chooses it, if any.
    pub(super) fn allocate(&mut self, pick: impl FnOnce(&[IpAddr]) -> Option<IpAddr>) -> Option<IpAddr> {
        let removed = &self.removed;
        let mut open = self.allocators.iter_mut().filter(|allocator| !removed.contains(&allocator.cidr));
        let allocator = open.find(|allocator| allocator.free().next().is_some())?;
        let address = pick(&allocator.free().collect::<Vec<_>>())?;
        allocator.used.insert(address);
        Some(address)
    }

    /// A pod has this address already.
    pub(super) fn restore(&mut self, address: IpAddr) -> bool {
        let allocator = self.allocators.iter_mut().find(|allocator| allocator.cidr.contains(address));
        allocator.is_some_and(|allocator| allocator.used.insert(address))
    }
}
