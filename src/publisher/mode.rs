//! Whether the controller may write at all, and the publishers of a cluster: that of `cilium-config`, and those of the
//! other modes in which its nodes may run.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use super::Publisher;
use super::ipam_mode::{IPAM_KEY, IpamMode};
use crate::model::kind::Kind;
use crate::model::node::Node;
use crate::model::node_config::{Overrides, Setting};
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// Whether the controller may write at all, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// It may not write, for this reason.
    Passive(String),
    /// It may write, because Cilium runs in a mode that these publishers serve.
    Active(Publishers),
}

impl From<Publisher> for Mode {
    /// All nodes have this mode.
    fn from(of_all: Publisher) -> Self {
        Self::Active(of_all.into())
    }
}

impl Mode {
    /// The mode of a process that has served `served` so far. Agents change their mode one by one, when they restart,
    /// and their objects are of the old mode until then. So a running process does not follow a change.
    #[must_use]
    pub fn after(self, served: Option<IpamMode>) -> Self {
        match (self, served) {
            (Self::Active(publisher), Some(served)) if publisher.ipam_mode() != served => {
                let now = publisher.ipam_mode().as_str();
                Self::Passive(format!(
                    "cilium-config has changed from `ipam: {}` to `ipam: {now}`, and agents follow when they \
                     restart: change it back, or restart this controller as docs/migration.md says",
                    served.as_str()
                ))
            }
            (mode, _) => mode,
        }
    }

    /// The mode where CiliumNodeConfigs can't be listed for this reason. With several modes they decide about each
    /// node, so nothing may be written without them.
    #[must_use]
    pub fn without_node_configs(self, unlisted: Option<&str>) -> Self {
        match (self, unlisted) {
            (Self::Active(publishers), Some(why)) if publishers.are_several() => Self::Passive(format!(
                "{why}; with several --modes, CiliumNodeConfigs say in which of them a node runs"
            )),
            (mode, _) => mode,
        }
    }

    /// The mode of Cilium that is served, if one is.
    #[must_use]
    pub fn ipam_mode(&self) -> Option<IpamMode> {
        match self {
            Self::Active(publisher) => Some(publisher.ipam_mode()),
            Self::Passive(_) => None,
        }
    }
}

/// The publishers of a cluster. A node has that of `cilium-config`, unless a CiliumNodeConfig gives it another mode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Publishers {
    /// That of `cilium-config`.
    of_all: Publisher,
    /// For each further mode that nodes may have: its publisher, or why no node of that mode is served.
    others: BTreeMap<IpamMode, Result<Publisher, String>>,
    /// The ranges of cilium-operator's allocator, as `cilium-config` has them.
    operator_ranges: Vec<Cidr>,
    /// Whether the further modes are an assumption, because the flags of the controller are unknown.
    is_assumed: bool,
}

impl From<Publisher> for Publishers {
    /// Those of a cluster whose nodes all have one mode.
    fn from(of_all: Publisher) -> Self {
        Self { of_all, others: BTreeMap::new(), operator_ranges: Vec::new(), is_assumed: false }
    }
}

impl fmt::Display for Publishers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.of_all, f)?;
        self.others.keys().try_for_each(|mode| write!(f, ", {mode}"))
    }
}

/// Those of the cluster answer as that of `cilium-config`.
impl Deref for Publishers {
    type Target = Publisher;

    fn deref(&self) -> &Publisher {
        &self.of_all
    }
}

impl Publishers {
    /// Those of a cluster whose nodes may have other modes too.
    #[must_use]
    pub fn beside(
        self,
        others: BTreeMap<IpamMode, Result<Publisher, String>>,
        operator_ranges: Vec<Cidr>,
    ) -> Self {
        Self { others, operator_ranges, ..self }
    }

    /// The same for a command, which does not know `--modes`: only nodes that have another mode now count for it.
    #[must_use]
    pub fn assumed(self) -> Self {
        Self { is_assumed: true, ..self }
    }

    /// The publisher of a mode that nodes may have, also where that is an assumption.
    #[must_use]
    pub fn of_mode(&self, mode: IpamMode) -> Option<&Publisher> {
        if self.of_all.ipam_mode() == mode {
            return Some(&self.of_all);
        }
        self.others.get(&mode)?.as_ref().ok()
    }

    /// Whether nodes may have different modes, so that the CiliumNodeConfigs decide about each.
    #[must_use]
    pub fn are_several(&self) -> bool {
        !self.others.is_empty() && !self.is_assumed
    }

    /// The publisher of a node with these settings, or why the node must not be served.
    pub fn with(&self, overrides: &Overrides) -> Result<Publisher, String> {
        let base = overrides.get(IPAM_KEY).map_or(Ok(&self.of_all), |ipam| self.in_mode(ipam))?;
        base.with(overrides)
    }

    /// An agent in another mode reads other fields, and other writers may write these.
    fn in_mode(&self, ipam: &Setting) -> Result<&Publisher, String> {
        let (of_all, Setting { value, by }) = (self.of_all.ipam_mode(), ipam);
        let mode = value.parse::<IpamMode>().ok();
        if mode == Some(of_all) {
            return Ok(&self.of_all);
        }
        match mode.and_then(|mode| self.others.get(&mode)) {
            Some(Ok(publisher)) => Ok(publisher),
            Some(Err(why)) => Err(format!("CiliumNodeConfig {by} sets `ipam: {value}` for this node: {why}")),
            None => Err(format!(
                "CiliumNodeConfig {by} sets `ipam: {value}` for this node, and cilium-config sets `ipam: \
                 {of_all}`; the node keeps its blocks and gets no more; {}",
                match mode {
                    Some(mode) if mode.may_be_beside(of_all) => format!(
                        "set `--modes {of_all},{mode}` to serve both, or remove the node from the nodeSelector",
                    ),
                    Some(_) | None =>
                        "remove the node from the nodeSelector or the key from the object, and \
                                       restart the agent"
                            .to_owned(),
                },
                of_all = of_all.as_str(),
            )),
        }
    }

    fn served(&self) -> impl Iterator<Item = &Publisher> {
        let others = self.others.values().filter(|_| !self.is_assumed);
        std::iter::once(&self.of_all).chain(others.filter_map(|other| other.as_ref().ok()))
    }

    /// Whether agents of some node may use the podCIDRs of their Nodes.
    #[must_use]
    pub fn agents_read_nodes(&self) -> bool {
        self.served().any(|publisher| publisher.traits().carrier == Kind::Node)
    }

    /// Every address on a Node that its agent uses in one of the modes. In another mode the agent may use them again
    /// after its next restart.
    #[must_use]
    pub fn carried_by_node(&self, node: &Node) -> AddressSet {
        let mut carried = AddressSet::new();
        self.served().for_each(|publisher| carried.extend_with(&publisher.carried_by_node(node)));
        carried
    }

    /// The ranges in which cilium-operator may give blocks to nodes in cluster-pool mode, if nodes may have it.
    #[must_use]
    pub fn operator_ranges(&self) -> &[Cidr] {
        let serves = self.served().any(|publisher| publisher.ipam_mode() == IpamMode::ClusterPool);
        if serves { &self.operator_ranges } else { &[] }
    }
}
