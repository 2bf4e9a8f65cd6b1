//! The effect of CiliumNodeConfigs on one node: the publisher of its mode with settings of its own, or that the node
//! is not served.
//!
//! Agents read them when they start, as they do `cilium-config`. The addresses that are reserved for an agent itself
//! in crd mode are the same for all nodes.

use std::collections::BTreeSet;

use super::Publisher;
use super::crd::Crd;
use super::multi_pool::{Bgp, MultiPool};
use super::settings::{self, ANNOTATE_KEY, BGP_KEY, DEFAULT_POOL_KEY, FAMILY_KEYS};
use super::static_mode::{Kubernetes, NodeField, Static};
use crate::model::node_config::Overrides;
use crate::net::cidr::Family;

impl Publisher {
    /// The publisher for a node of this mode with these settings, or why the node must not be served.
    pub(super) fn with(&self, overrides: &Overrides) -> Result<Self, String> {
        let families = self.families_with(overrides)?;
        let is_on = |key: &str, else_as: bool| {
            overrides.get(key).map_or(else_as, |setting| settings::is_true(&setting.value))
        };
        Ok(match self {
            Self::Crd(mode) => Self::Crd(Crd { families, ..mode.clone() }),
            Self::MultiPool(mode) => {
                let default_pool = overrides.get(DEFAULT_POOL_KEY);
                Self::MultiPool(MultiPool {
                    families,
                    default_pool: default_pool
                        .map_or_else(|| mode.default_pool.clone(), |name| name.value.as_str().into()),
                    bgp: if is_on(BGP_KEY, mode.bgp == Bgp::On) { Bgp::On } else { Bgp::Off },
                })
            }
            Self::ClusterPool(mode) => Self::ClusterPool(Static::new(families, *mode.mode())),
            Self::Kubernetes(mode) => {
                let agents_read_annotations = is_on(ANNOTATE_KEY, mode.mode().agents_read_annotations);
                if mode.mode().writes == NodeField::Annotations && !agents_read_annotations {
                    return Err(format!(
                        "a CiliumNodeConfig turns {ANNOTATE_KEY} off for this node, so its agent reads no \
                         annotations; --node-field is annotations"
                    ));
                }
                let kubernetes = Kubernetes { writes: mode.mode().writes, agents_read_annotations };
                Self::Kubernetes(Static::new(families, kubernetes))
            }
        })
    }

    fn families_with(&self, overrides: &Overrides) -> Result<BTreeSet<Family>, String> {
        let is_run = |(family, key): &(Family, &str)| {
            overrides
                .get(key)
                .map_or(self.families().contains(family), |setting| settings::is_true(&setting.value))
        };
        let families: BTreeSet<Family> =
            FAMILY_KEYS.into_iter().filter(is_run).map(|(family, _)| family).collect();
        if families.is_empty() {
            return Err(
                "CiliumNodeConfigs turn off every family that cilium-config enables: the agent can't \
                 start"
                    .to_owned(),
            );
        }
        Ok(families)
    }
}
