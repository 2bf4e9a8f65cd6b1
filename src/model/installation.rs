//! The facts around the world that decide whether the controller can be installed: versions, settings of Cilium, other
//! allocators and rights.
//!
//! Made by `crate::wire::installation` and the command that reads them. No decision about a node depends on them.

use std::collections::BTreeMap;

use super::kind::Kind;
use super::surroundings::{OldDefinition, OtherRange};

/// A fact, or the reason why it could not be read.
pub type Seen<T> = Result<T, String>;

/// The facts of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The version of the API server, such as `v1.35.4`.
    pub server: Seen<String>,
    /// The namespace of Cilium.
    pub cilium_namespace: String,
    /// The namespace of the controller.
    pub namespace: String,
    /// The data of `cilium-config`; `None` if it does not exist.
    pub settings: Seen<Option<BTreeMap<String, String>>>,
    /// The kinds of the world that could not be listed, each with the cause. The world has no object of them.
    pub unlisted: BTreeMap<Kind, String>,
    /// The definitions of this project that exist.
    pub definitions: Seen<Vec<Definition>>,
    /// The APIServices that are not available.
    pub unavailable: Seen<Vec<ApiService>>,
    /// The DaemonSets of all namespaces.
    pub daemon_sets: Seen<Vec<DaemonSet>>,
    /// The processes of cilium-operator.
    pub operators: Seen<Vec<Process>>,
    /// The processes of kube-controller-manager.
    pub controller_managers: Seen<Vec<Process>>,
    /// The value of `--routes` of the controller; `None` if it is not installed, or has no such flag.
    pub exporter: Seen<Option<String>>,
    /// The ranges of Services, load balancers and devices.
    pub ranges: Vec<OtherRange>,
    /// The kinds with such ranges that could not be listed, each with the cause.
    pub unlisted_ranges: Vec<String>,
    /// The webhooks and policies that can stop writes of the controller.
    pub guards: Seen<Vec<Guard>>,
    /// The rights that the user needs for the installation.
    pub user: Seen<Vec<Right>>,
    /// The rights of the controller's ServiceAccount; `None` if that does not exist.
    pub controller: Seen<Option<Vec<Right>>>,
}

/// A CustomResourceDefinition of this project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// Whether it is being deleted, with all its objects.
    pub deleting: bool,
    /// The features that it lacks, if it is of another version.
    pub old: Option<OldDefinition>,
}

/// An APIService that is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiService {
    /// Its name, such as `v1beta1.metrics.k8s.io`.
    pub name: String,
    /// The reason in its status.
    pub reason: String,
}

/// A webhook or policy of admission that covers objects of the controller and fails closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// The kind of its object.
    pub kind: String,
    /// The name of its object, and that of the webhook in it.
    pub name: String,
    /// The resources that it covers, of those that the controller writes in some mode.
    pub resources: Vec<String>,
}

/// A DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSet {
    /// Its namespace and name, as `namespace/name`.
    pub name: String,
    /// The images of its containers, also of its init containers.
    pub images: Vec<String>,
}

/// A process with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its Deployment or Pod, as `namespace/name`.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Process {
    /// The last value of a flag; a flag without a value is `true`.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<&str> {
        self.arguments.iter().rev().find_map(|argument| {
            let rest =
                argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?.strip_prefix(name)?;
            match rest.strip_prefix('=') {
                Some(value) => Some(value),
                None => rest.is_empty().then_some("true"),
            }
        })
    }
}

/// A right, and whether it is granted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The right, such as `create customresourcedefinitions`.
    pub name: String,
    /// Whether it is granted.
    pub granted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_flag_counts() {
        let process = |arguments: &[&str]| Process {
            name: "a/b".to_owned(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        };
        for (arguments, expected) in [
            (&["--ipam=crd", "--ipam=kubernetes"][..], Some("kubernetes")),
            (&["-ipam=crd"], Some("crd")),
            (&["--ipam"], Some("true")),
            (&["--ipam-other=1"], None),
            (&[], None),
        ] {
            assert_eq!(process(arguments).flag("ipam"), expected, "{arguments:?}");
        }
    }
}
