//! The address families that the agents of a cluster run.

use std::net::IpAddr;

/// The families that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Families {
    V4,
    V6,
    Dual,
}

/// One family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Families {
    pub(crate) fn ipv4(self) -> bool {
        self != Self::V6
    }

    pub(crate) fn ipv6(self) -> bool {
        self != Self::V4
    }

    /// The families, IPv6 first: the order in which Cilium asks for addresses.
    pub(crate) fn each(self) -> impl Iterator<Item = Family> {
        [(self.ipv6(), Family::V6), (self.ipv4(), Family::V4)]
            .into_iter()
            .filter_map(|(on, family)| on.then_some(family))
    }
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The family of a CIDR or an address in text, by its colon.
    pub(crate) fn of_text(text: &str) -> Self {
        if text.contains(':') { Self::V6 } else { Self::V4 }
    }
}
