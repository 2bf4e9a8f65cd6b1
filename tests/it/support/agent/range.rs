//! The CIDRs from which an agent gives addresses by itself, as Cilium does in every mode but crd.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::support::families::Family;

/// A CIDR, and the addresses that are taken of it.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) cidr: IpNet,
    /// The addresses as numbers.
    taken: BTreeSet<u128>,
}

impl Range {
    pub(super) fn new(cidr: IpNet) -> Self {
        Self { cidr: cidr.trunc(), taken: BTreeSet::new() }
    }

    pub(super) fn family(&self) -> Family {
        Family::of(self.cidr.addr())
    }

    /// The first and the last address that may be given out: of more than two, all but the outermost.
    fn given(&self) -> (u128, u128) {
        let (first, last) = (number(self.cidr.network()), number(self.cidr.broadcast()));
        if last - first < 2 { (first, last) } else { (first + 1, last - 1) }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.taken.is_empty()
    }

    pub(super) fn n_taken(&self) -> u128 {
        self.taken.len() as u128
    }

    pub(super) fn n_free(&self) -> u128 {
        let (first, last) = self.given();
        last - first + 1 - self.n_taken()
    }

    /// Takes a free address: a random one, or the next free one.
    pub(super) fn take_any(&mut self, rng: &mut fastrand::Rng) -> Option<IpAddr> {
        if self.n_free() == 0 {
            return None;
        }
        let (first, last) = self.given();
        let mut chosen = rng.u128(first..=last);
        while !self.taken.insert(chosen) {
            chosen = if chosen == last { first } else { chosen + 1 };
        }
        Some(self.address(chosen))
    }

    /// Takes exactly this address, if it may be given out and is free.
    pub(super) fn take(&mut self, address: IpAddr) -> bool {
        let (first, last) = self.given();
        let number = number(address);
        self.cidr.contains(&address) && (first..=last).contains(&number) && self.taken.insert(number)
    }

    /// Takes an address back, if it is of this CIDR.
    pub(super) fn give_back(&mut self, address: IpAddr) {
        if self.cidr.contains(&address) {
            self.taken.remove(&number(address));
        }
    }

    fn address(&self, number: u128) -> IpAddr {
        match self.cidr {
            IpNet::V4(_) => {
                let number = u32::try_from(number).expect("it lies in an IPv4 CIDR");
                Ipv4Addr::from(number).into()
            }
            IpNet::V6(_) => Ipv6Addr::from(number).into(),
        }
    }
}

/// The CIDRs of an agent, and the owners of their addresses.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// In the order in which it allocates from them.
    pub(super) each: Vec<Range>,
    allocated: BTreeMap<IpAddr, String>,
}

impl Ranges {
    pub(super) fn of(&self, family: Family) -> impl Iterator<Item = &Range> {
        self.each.iter().filter(move |range| range.family() == family)
    }

    /// Any free address of a family, from the first range that is open and has one.
    pub(super) fn allocate_next(
        &mut self,
        family: Family,
        owner: &str,
        rng: &mut fastrand::Rng,
        is_open: impl Fn(&Range) -> bool,
    ) -> Option<IpAddr> {
        let mut open = self.each.iter_mut().filter(|range| range.family() == family && is_open(range));
        let address = open.find_map(|range| range.take_any(rng))?;
        self.allocated.insert(address, owner.to_owned());
        Some(address)
    }

    /// Exactly this address. `false` if it is in no range, or in use.
    pub(super) fn allocate(&mut self, address: IpAddr, owner: &str) -> bool {
        let is_taken = self.each.iter_mut().any(|range| range.take(address));
        if is_taken {
            self.allocated.insert(address, owner.to_owned());
        }
        is_taken
    }

    pub(super) fn release(&mut self, address: IpAddr) -> Result<(), String> {
        self.allocated.remove(&address).ok_or_else(|| format!("IP {address} is not allocated"))?;
        self.each.iter_mut().for_each(|range| range.give_back(address));
        Ok(())
    }

    pub(super) fn allocated(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        self.allocated.iter().map(|(address, owner)| (*address, owner.as_str()))
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}
