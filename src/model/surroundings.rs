//! Objects around the world that only an audit looks at: Pods, ranges of other systems, writers, and definitions.
//!
//! Made by `crate::wire::surroundings`. No decision about a node depends on them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::names::NodeName;
use super::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// The objects around the world, as they were listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// The Pods with addresses of their own, without those on the network of their host.
    pub pods: Vec<PodAddresses>,
    /// The Pods that are bound to a node and have no address yet, without those on the network of their host.
    pub waiting: Vec<WaitingPod>,
    /// The pods for which agents report addresses as used, as `namespace/name`.
    pub users: BTreeMap<IpAddr, String>,
    /// The ranges that belong to other systems.
    pub ranges: Vec<OtherRange>,
    /// The fields of the controller that another writer has set.
    pub writers: Vec<OtherWriter>,
    /// The definitions in the cluster that lack something of this program's definitions.
    pub old_definitions: Vec<OldDefinition>,
}

impl Surroundings {
    /// The pods by their addresses: as the Pods say, or else as agents report.
    #[must_use]
    pub fn by_address(&self) -> BTreeMap<IpAddr, String> {
        let mut found = self.users.clone();
        for pod in &self.pods {
            found.extend(pod.addresses.iter().map(|address| (*address, pod.name.clone())));
        }
        found
    }
}

/// A Pod and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAddresses {
    /// Its namespace and name, as `namespace/name`.
    pub name: String,
    /// The node that it is bound to.
    pub node: Option<NodeName>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// A Pod that is bound to a node and has no address yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingPod {
    /// Its namespace and name, as `namespace/name`.
    pub name: String,
    /// The node that it is bound to.
    pub node: NodeName,
    /// When it was bound, or else created.
    pub since: Timestamp,
}

/// The system that a range belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeOwner {
    /// The addresses of Services inside the cluster.
    Services,
    /// The addresses of Services outside of it: those of load balancers, and `externalIPs`.
    LoadBalancers,
    /// The addresses that Cilium gives to devices of pods (dynamic resource allocation).
    Devices,
}

/// Ranges of another system, and the object that has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherRange {
    /// The system.
    pub owner: RangeOwner,
    /// The kind of the object.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its ranges.
    pub cidrs: Vec<Cidr>,
}

impl OtherRange {
    /// The ranges of these addresses that it has too.
    #[must_use]
    pub fn shared_with(&self, addresses: &AddressSet) -> Vec<Cidr> {
        self.cidrs.iter().flat_map(|cidr| addresses.within(*cidr).cidrs().collect::<Vec<_>>()).collect()
    }
}

/// A writer that set fields which only the controller should set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherWriter {
    /// The kind of the object.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The field manager.
    pub manager: String,
    /// The field, such as `spec`.
    pub field: &'static str,
}

/// A CustomResourceDefinition in the cluster that lacks something of this program's definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldDefinition {
    /// Its name.
    pub name: String,
    /// The fields, columns and rules that it lacks.
    pub missing: Vec<String>,
}
