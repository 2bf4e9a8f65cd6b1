//! Sets of addresses of both families.
//!
//! Knows no blocks, only the [`Cidr`]s that callers pass. Its members are positions on the number line of
//! [`crate::net::cidr`], in a [`RunSet`], whose invariant makes equal sets equal values.

use std::fmt;
use std::net::IpAddr;

use crate::net::cidr::{Cidr, address, position};
use crate::net::runs::RunSet;

/// A set of addresses.
///
/// Costs grow with the number of runs of consecutive addresses, not with the number of addresses. The pool of a node is
/// one run per block.
///
/// ```
/// use cilium_node_ipam::net::addresses::AddressSet;
/// use cilium_node_ipam::net::cidr::Cidr;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let block: Cidr = "10.0.0.0/29".parse()?;
/// let mut offered = AddressSet::from_iter([block]);
/// offered.remove(block.first_address());
/// offered.remove(block.last_address());
/// assert_eq!(offered.len(), 6);
/// assert!(offered.intersects(block) && !offered.covers(block));
/// assert_eq!(offered.count_in("10.0.0.0/30".parse()?), 3);
///
/// // As the fewest prefixes that together are the set.
/// let cidrs: Vec<String> = offered.cidrs().map(|cidr| cidr.to_string()).collect();
/// assert_eq!(cidrs, ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]);
///
/// // One set holds both families.
/// offered.insert("fd00::1".parse()?);
/// assert_eq!(offered.iter().last(), Some("fd00::1".parse()?));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    positions: RunSet,
}

impl AddressSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { positions: RunSet::new() }
    }

    /// Whether it has no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// How many addresses it has; saturates.
    #[must_use]
    pub fn len(&self) -> u128 {
        self.positions.len()
    }

    /// Its addresses in numeric order.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.positions.runs().flat_map(|(first, last)| (first..=last).map(address))
    }

    /// The part of it that lies in `cidr`.
    #[must_use]
    pub fn within(&self, cidr: Cidr) -> Self {
        Self { positions: self.positions.within(cidr.first(), cidr.last()) }
    }

    /// The fewest prefixes that together are the set.
    pub fn cidrs(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.positions.runs().flat_map(|(first, last)| Cidr::cover_of(first, last))
    }

    /// Whether the address is in it.
    #[must_use]
    pub fn contains(&self, member: IpAddr) -> bool {
        self.positions.contains(position(member))
    }

    /// How many of its addresses lie in `cidr`; saturates.
    #[must_use]
    pub fn count_in(&self, cidr: Cidr) -> u128 {
        self.positions.count_within(cidr.first(), cidr.last())
    }

    /// Whether it shares an address with `cidr`.
    #[must_use]
    pub fn intersects(&self, cidr: Cidr) -> bool {
        self.positions.runs_within(cidr.first(), cidr.last()).next().is_some()
    }

    /// Whether all of `cidr` is in it.
    #[must_use]
    pub fn covers(&self, cidr: Cidr) -> bool {
        self.positions.covers(cidr.first(), cidr.last())
    }

    /// Adds one address.
    pub fn insert(&mut self, member: IpAddr) {
        self.insert_cidr(Cidr::single(member));
    }

    /// Adds all of `cidr`.
    pub fn insert_cidr(&mut self, cidr: Cidr) {
        self.positions.insert_run(cidr.first(), cidr.last());
    }

    /// Removes one address.
    pub fn remove(&mut self, member: IpAddr) {
        self.remove_cidr(Cidr::single(member));
    }

    /// Removes all of `cidr`.
    pub fn remove_cidr(&mut self, cidr: Cidr) {
        self.positions.remove_run(cidr.first(), cidr.last());
    }

    /// Adds every address of `other`.
    pub fn extend_with(&mut self, other: &Self) {
        self.positions.extend_with(&other.positions);
    }

    /// Removes every address of `other`.
    pub fn remove_all(&mut self, other: &Self) {
        self.positions.remove_all(&other.positions);
    }
}

impl FromIterator<IpAddr> for AddressSet {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        addresses.into_iter().map(Cidr::single).collect()
    }
}

impl FromIterator<Cidr> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Cidr>>(cidrs: I) -> Self {
        let mut set = Self::new();
        for cidr in cidrs {
            set.insert_cidr(cidr);
        }
        set
    }
}

impl fmt::Debug for AddressSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.cidrs()).finish()
    }
}
