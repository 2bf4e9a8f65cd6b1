//! CiliumNodeConfigs: settings of administrators for the agents of some nodes, in place of those in `cilium-config`.
//!
//! They are no kind of the world: no address follows from them.

use std::collections::BTreeMap;
use std::fmt;

use kube_core::{Expression, Selector, SelectorExt};

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

/// A change of one label of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relabelling {
    /// The key.
    pub key: String,
    /// The new value; `None` if the label is removed.
    pub value: Option<String>,
}

impl Relabelling {
    /// These labels after the change.
    #[must_use]
    pub fn applied_to(&self, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut labels = labels.clone();
        match &self.value {
            Some(value) => labels.insert(self.key.clone(), value.clone()),
            None => labels.remove(&self.key),
        };
        labels
    }

    /// Whether a person gives the label. Kubernetes and clouds give those of its domains: host name, zone, instance type.
    #[must_use]
    pub fn is_of_a_person(&self) -> bool {
        let domain = self.key.split_once('/').map_or("", |(domain, _)| domain);
        !domain.ends_with("kubernetes.io") && !domain.ends_with("k8s.io")
    }

    /// The changes that may decide whether a node satisfies an expression.
    fn of(expression: Expression) -> Vec<Self> {
        let set = |key: &str, value: String| Self { key: key.to_owned(), value: Some(value) };
        let (key, mut changes) = match expression {
            Expression::Equal(key, value) | Expression::NotEqual(key, value) => {
                let changes = vec![set(&key, value)];
                (key, changes)
            }
            Expression::In(key, values) | Expression::NotIn(key, values) => {
                let changes = values.into_iter().map(|value| set(&key, value)).collect();
                (key, changes)
            }
            Expression::Exists(key) | Expression::DoesNotExist(key) => {
                let changes = vec![set(&key, String::new())];
                (key, changes)
            }
        };
        changes.push(Self { key, value: None });
        changes
    }
}

impl fmt::Display for Relabelling {
    /// As an argument of `kubectl label`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.key),
            None => write!(f, "{}-", self.key),
        }
    }
}

impl NodeConfig {
    /// The changes of one label that may decide whether it is for a node.
    pub fn relabellings(&self) -> impl Iterator<Item = Relabelling> + use<> {
        self.selector.clone().into_iter().flatten().flat_map(Relabelling::of)
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
