//! CiliumNodeConfigs: settings of administrators for the agents of some nodes, in place of those in `cilium-config`.
//!
//! They are no kind of the world: no address follows from them.

use std::collections::BTreeMap;

use kube_core::{Selector, SelectorExt};

use super::news::News;

/// A CiliumNodeConfig.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    /// Its name, which orders several that select a node.
    pub name: String,
    /// The nodes that it selects; `None` for none, as agents read an object without a selector.
    pub selector: Option<Selector>,
    /// The keys of `cilium-config` that it sets, and their values.
    pub defaults: BTreeMap<String, String>,
}

impl NodeConfig {
    /// Whether it is for a node with these labels.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

/// News of CiliumNodeConfigs.
pub type NodeConfigNews = News<NodeConfig>;

/// The settings of one node: the value of each key, and the CiliumNodeConfig that sets it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides(BTreeMap<String, Setting>);

/// A value that is set for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The value.
    pub value: String,
    /// The CiliumNodeConfig that sets it.
    pub by: String,
}

impl Overrides {
    /// The settings of these, in the order in which they count: if two set one key, the last one counts.
    pub fn of<'a>(configs: impl Iterator<Item = &'a NodeConfig>) -> Self {
        let settings = configs.flat_map(|config| {
            let setting =
                |value: &String| Setting { value: value.trim().to_owned(), by: config.name.clone() };
            config.defaults.iter().map(move |(key, value)| (key.clone(), setting(value)))
        });
        Self(settings.collect())
    }

    /// The setting of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Setting> {
        self.0.get(key)
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
