//! The shares of what a node has: each is counted, and grows, by itself.

use crate::model::names::PodIpPoolName;
use crate::net::cidr::Family;

/// The blocks of one family; where agents tell Pod IP pools apart, those under one name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// The family.
    pub family: Family,
    /// The Pod IP pool under whose name they are carried; `None` in modes that have no such names.
    pub pod_ip_pool: Option<PodIpPoolName>,
}

impl Share {
    /// What there is of it, for a person: `ipv4 blocks of the Cilium pool mars`.
    #[must_use]
    pub fn named(&self, what: &str) -> String {
        match &self.pod_ip_pool {
            Some(name) => format!("{} {what} of the Cilium pool {name}", self.family),
            None => format!("{} {what}", self.family),
        }
    }
}
