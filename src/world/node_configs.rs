//! The settings of single nodes by CiliumNodeConfigs, and the publisher of each such node that follows from them.
//!
//! They are followed beside the kinds of the world ([`NodeConfigNews`]). A world without them is complete: it serves
//! every node as `cilium-config` says.

use std::collections::{BTreeMap, BTreeSet};

use super::index::{differing, remove};
use crate::model::names::{NodeName, PodIpPoolName};
use crate::model::node_config::{NodeConfig, NodeConfigNews, Overrides, Relabelling};
use crate::publisher::Publisher;
use crate::publisher::ipam_mode::{IPAM_KEY, IpamMode};
use crate::publisher::mode::Publishers;

/// The known CiliumNodeConfigs, and the publishers that follow from them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct NodeConfigs {
    /// By name, which is the order in which they count.
    known: BTreeMap<String, NodeConfig>,
    is_known: bool,
    /// Why they can't be listed.
    unlisted: Option<String>,
    /// For each node with settings of its own: its publisher, or why it is not served.
    own: BTreeMap<NodeName, Result<Publisher, String>>,
    /// The nodes among these with a default Cilium pool, by that pool.
    default_pools: BTreeMap<PodIpPoolName, BTreeSet<NodeName>>,
}

impl NodeConfigs {
    /// Takes in news of them. The publishers of nodes are not derived yet.
    pub(super) fn observe(&mut self, news: NodeConfigNews) {
        self.is_known = true;
        match news {
            NodeConfigNews::Unlisted(why) => self.unlisted = Some(why),
            NodeConfigNews::Listed(configs) => {
                self.unlisted = None;
                self.known = configs.into_iter().map(|config| (config.name.clone(), config)).collect();
            }
            NodeConfigNews::Applied(config) => {
                self.known.insert(config.name.clone(), config);
            }
            NodeConfigNews::Deleted(config) => {
                self.known.remove(&config.name);
            }
        }
    }

    /// Whether there was any news of them.
    pub(super) fn are_known(&self) -> bool {
        self.is_known
    }

    /// Why they can't be listed.
    pub(super) fn unlisted(&self) -> Option<&str> {
        self.unlisted.as_deref()
    }

    /// The publisher of a node, if it is not that of all nodes.
    pub(super) fn of(&self, node: &NodeName) -> Option<&Publisher> {
        self.own.get(node)?.as_ref().ok()
    }

    /// Why a node is not served.
    pub(super) fn set_aside(&self, node: &NodeName) -> Option<&str> {
        self.own.get(node)?.as_ref().err().map(String::as_str)
    }

    /// The names that are the default of such nodes.
    pub(super) fn default_pools(&self) -> impl Iterator<Item = &PodIpPoolName> {
        self.default_pools.keys()
    }

    /// The nodes with a publisher of their own and this default name.
    pub(super) fn nodes_with_default(&self, name: &PodIpPoolName) -> Option<&BTreeSet<NodeName>> {
        self.default_pools.get(name)
    }

    /// The nodes with an entry that does not follow from these publishers.
    pub(super) fn differing(
        &self,
        expected: &BTreeMap<NodeName, Result<Publisher, String>>,
    ) -> BTreeSet<NodeName> {
        let wrong = differing(expected, &self.own);
        let noted =
            self.default_pools.iter().flat_map(|(name, nodes)| nodes.iter().map(move |node| (name, node)));
        let noted: BTreeSet<(&PodIpPoolName, &NodeName)> = noted.collect();
        let defaults = expected.iter().filter_map(|(node, own)| Some((default_pool(own)?, node)));
        let defaults: BTreeSet<(&PodIpPoolName, &NodeName)> = defaults.collect();
        let wrong_defaults = noted.symmetric_difference(&defaults).map(|(_, node)| (*node).clone());
        wrong.cloned().chain(wrong_defaults).collect()
    }

    /// The publisher of a node with these labels, if it is not that of all nodes, or why the node is not served.
    pub(super) fn own(
        &self,
        of_all: &Publishers,
        labels: &BTreeMap<String, String>,
    ) -> Option<Result<Publisher, String>> {
        let overrides = Overrides::of(self.known.values().filter(|config| config.selects(labels)));
        if overrides.is_empty() {
            return None;
        }
        let own = of_all.with(&overrides);
        (own.as_ref() != Ok(&**of_all)).then_some(own)
    }

    /// The change of one label of a node with these labels by which it comes to a mode that is wanted.
    pub(super) fn relabelling(
        &self,
        of_all: &Publishers,
        labels: &BTreeMap<String, String>,
        is_wanted: impl Fn(IpamMode) -> bool,
    ) -> Option<Relabelling> {
        let with_mode = self.known.values().filter(|config| config.defaults.contains_key(IPAM_KEY));
        with_mode.flat_map(NodeConfig::relabellings).filter(Relabelling::is_of_a_person).find(|change| {
            match self.own(of_all, &change.applied_to(labels)) {
                Some(Ok(own)) => is_wanted(own.ipam_mode()),
                Some(Err(_)) => false,
                None => is_wanted(of_all.ipam_mode()),
            }
        })
    }

    /// A node now has this publisher of its own, or that of all nodes. Returns whether this is a change.
    pub(super) fn set(&mut self, node: &NodeName, own: Option<Result<Publisher, String>>) -> bool {
        let before = self.own.get(node);
        if before == own.as_ref() {
            return false;
        }
        if let Some(name) = before.and_then(default_pool) {
            remove(&mut self.default_pools, name, node);
        }
        match own {
            Some(own) => {
                if let Some(name) = default_pool(&own) {
                    self.default_pools.entry(name.clone()).or_default().insert(node.clone());
                }
                self.own.insert(node.clone(), own);
            }
            None => {
                self.own.remove(node);
            }
        }
        true
    }
}

/// The default Cilium pool of a node.
fn default_pool(own: &Result<Publisher, String>) -> Option<&PodIpPoolName> {
    own.as_ref().ok()?.default_pool()
}
