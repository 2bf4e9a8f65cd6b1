//! FRRConfigurations and FRRNodeStates of frr-k8s: the configuration of its daemons, and their reports.
//!
//! They are no kinds of the world: no address follows from them. Does not know how they are written on the wire.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::names::{FrrName, NodeName, Uid};
use super::news::News;
use super::revision::Revision;
use crate::net::cidr::Cidr;

/// The label of Nodes by which an FRRConfiguration of the controller selects its node.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// The annotation of a template with the VRFs that announce no routes of nodes, separated by commas.
pub const LEFT_OUT_VRFS: &str = "nodeipam.io/vrfs-without-prefixes";

/// The annotation of a template with the nodes that it is for: labels as `KEY=VALUE`, separated by commas. A node must have
/// all of them. Without the annotation it is for every node.
pub const FOR_NODES: &str = "nodeipam.io/nodes";

/// The start of the name of an FRRConfiguration of the controller.
const NAME_PREFIX: &str = "nodeipam-";

/// The name of the FRRConfiguration of a node. It has a hash in place of the node's name, because a name of 253
/// characters leaves no room for a prefix.
#[must_use]
pub fn name_of(node: &NodeName) -> FrrName {
    // FNV-1a with 128 bits: the same in every version and on every machine.
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = node.as_str().bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    format!("{NAME_PREFIX}{hash:032x}").into()
}

/// Everything of an FRRConfiguration except its selector and its prefixes: routers, neighbors, timers, BFD. The core
/// only compares and copies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions(Arc<str>);

impl Sessions {
    /// The text that `wire` has made of it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Sessions {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// The nodes that an FRRConfiguration is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Those with this value of [`HOSTNAME_LABEL`], without any other condition.
    Hostname(String),
    /// All nodes.
    Every,
    /// Others.
    Other,
}

/// An FRRConfiguration in the namespace of the daemons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrrConfiguration {
    /// Its name.
    pub name: FrrName,
    /// Its uid.
    pub uid: Uid,
    /// The version that was read.
    pub revision: Revision,
    /// The node for which the controller has created it; `None` for those of other writers.
    pub of_node: Option<NodeName>,
    /// The nodes that it selects.
    pub selector: Selector,
    /// Every prefix in it that is announced, or may be.
    pub prefixes: BTreeSet<Cidr>,
    /// Its sessions.
    pub sessions: Sessions,
    /// How many routers it has.
    pub n_routers: usize,
    /// The VRFs of those routers that get the prefixes of nodes.
    pub vrfs: BTreeSet<String>,
    /// The labels of the nodes that it is for, where it is a template; the text that can't be read.
    pub for_nodes: Result<BTreeMap<String, String>, String>,
    /// Whether it is being deleted, and waits for a finalizer of another writer.
    pub is_deleting: bool,
    /// Whether the controller would write exactly this for these sessions and prefixes.
    pub is_exact: bool,
}

impl FrrConfiguration {
    /// Whether it announces an address of this block.
    #[must_use]
    pub fn overlaps(&self, block: Cidr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.overlaps(block))
    }

    /// Whether its name is one that the controller gives. If another writer removes its labels, its prefixes stay
    /// announced.
    #[must_use]
    pub fn has_our_name(&self) -> bool {
        self.name.as_str().starts_with(NAME_PREFIX)
    }

    /// Whether it announces every address of this block.
    #[must_use]
    pub fn covers(&self, block: Cidr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.covers(block))
    }
}

/// The report of the daemon of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrrNodeState {
    /// The node.
    pub node: NodeName,
    /// The version that was read.
    pub revision: Revision,
    /// The networks of its running configuration; `None` if it can't be read.
    pub networks: Option<BTreeSet<Cidr>>,
}

/// News of FRRConfigurations.
pub type FrrConfigurationNews = News<FrrConfiguration>;

/// News of FRRNodeStates.
pub type FrrNodeStateNews = News<FrrNodeState>;

/// A write to an FRRConfiguration of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrrWrite {
    /// Its name.
    pub name: FrrName,
    /// Its node.
    pub node: NodeName,
    /// The change.
    pub change: FrrChange,
}

/// A change of an FRRConfiguration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrrChange {
    /// Create it without prefixes. So a late creation announces nothing, and its selector is read back before it has
    /// any.
    Create {
        /// The value of [`HOSTNAME_LABEL`] of its node.
        hostname: String,
        /// Its sessions.
        sessions: Sessions,
    },
    /// Replace it.
    Replace {
        /// The uid of the version that it was decided on.
        uid: Uid,
        /// That version.
        revision: Revision,
        /// The value of [`HOSTNAME_LABEL`] of its node.
        hostname: String,
        /// Its sessions.
        sessions: Sessions,
        /// Its prefixes.
        prefixes: BTreeSet<Cidr>,
        /// Its purpose.
        purpose: FrrPurpose,
    },
    /// Delete it.
    Delete {
        /// The uid of the version that it was decided on.
        uid: Uid,
        /// That version.
        revision: Revision,
    },
}

/// Why an FRRConfiguration is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrrPurpose {
    /// Other prefixes.
    Prefixes,
    /// The sessions of the template.
    Sessions,
    /// A version later than this revision of a claim: it proves that no earlier write can announce the block.
    LaterThan(Revision),
}

impl FrrWrite {
    /// Whether `found` is the object that this write leaves.
    #[must_use]
    pub fn is_shown_by(&self, found: &FrrConfiguration) -> bool {
        let is = |host: &String, of: &Sessions, prefixes: &BTreeSet<Cidr>| {
            found.selector == Selector::Hostname(host.clone())
                && found.sessions == *of
                && found.prefixes == *prefixes
                && found.is_exact
        };
        match &self.change {
            FrrChange::Create { hostname, sessions } => is(hostname, sessions, &BTreeSet::new()),
            FrrChange::Replace { hostname, sessions, prefixes, .. } => is(hostname, sessions, prefixes),
            FrrChange::Delete { .. } => false,
        }
    }
}

impl fmt::Display for FrrWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, node, change } = self;
        match change {
            FrrChange::Create { .. } => {
                write!(f, "create FRRConfiguration {name} of node {node} without prefixes")
            }
            FrrChange::Replace { prefixes, purpose: FrrPurpose::Prefixes, .. } => {
                let prefixes: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
                write!(f, "announce [{}] for node {node} in FRRConfiguration {name}", prefixes.join(" "))
            }
            FrrChange::Replace { purpose: FrrPurpose::Sessions, .. } => {
                write!(f, "copy the template into FRRConfiguration {name} of node {node}")
            }
            FrrChange::Replace { purpose: FrrPurpose::LaterThan(_), .. } => {
                write!(f, "touch FRRConfiguration {name} of node {node} to get a later version")
            }
            FrrChange::Delete { .. } => write!(f, "delete FRRConfiguration {name} of node {node}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upgrade must not rename the objects of a cluster: every route would flap.
    #[test]
    fn names_are_the_same_in_every_version() {
        assert_eq!(name_of(&"node-a".into()).as_str(), "nodeipam-a791ac72dd3c64bf6ef0e977a2e07cc3");
        let long = "n".repeat(253);
        assert!(name_of(&long.as_str().into()).as_str().len() < 63);
    }
}
