//! The classes of a node's blocks: each is counted, and grows, by itself.

use crate::model::names::PodIpPoolName;
use crate::net::cidr::Family;

/// The blocks of one family; if agents distinguish Cilium pools, those under one of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressClass {
    /// The family.
    pub family: Family,
    /// The Cilium pool that they are published under; `None` in modes without such pools.
    pub pod_ip_pool: Option<PodIpPoolName>,
}

impl AddressClass {
    /// The class, with a noun for its contents, for a person: `ipv4 blocks of the Cilium pool mars`.
    #[must_use]
    pub fn named(&self, what: &str) -> String {
        match &self.pod_ip_pool {
            Some(name) => format!("{} {what} of the Cilium pool {name}", self.family),
            None => format!("{} {what}", self.family),
        }
    }
}
