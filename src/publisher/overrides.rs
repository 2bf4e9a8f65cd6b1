//! The effect of CiliumNodeConfigs on one node: the publisher of its mode with settings of its own, or that the node
//! is not served.
//!
//! Agents read them when they start, as they do `cilium-config`. The addresses that are reserved for an agent itself
//! in crd mode are the same for all nodes.

use std::collections::BTreeSet;

use super::Publisher;
use super::crd::Crd;
use super::ipam_mode::IpamMode;
use super::multi_pool::{Bgp, MultiPool};
use super::settings::{self, ANNOTATE_KEY, BGP_KEY, DEFAULT_POOL_KEY, FAMILY_KEYS, IPAM_KEY};
use super::static_mode::{Kubernetes, NodeField, Static};
use crate::model::node_config::{Overrides, Setting};
use crate::net::cidr::Family;

impl Publisher {
    /// The publisher for a node with these settings, or why the node must not be served.
    pub fn with(&self, overrides: &Overrides) -> Result<Self, String> {
        if let Some(ipam) = overrides.get(IPAM_KEY) {
            self.check_mode(ipam)?;
        }
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

    /// An agent in another mode reads other fields, and other writers may write these.
    fn check_mode(&self, ipam: &Setting) -> Result<(), String> {
        let (served, Setting { value, by }) = (self.ipam_mode(), ipam);
        if value.parse::<IpamMode>().is_ok_and(|mode| mode == served) {
            return Ok(());
        }
        let served = served.as_str();
        Err(format!(
            "CiliumNodeConfig {by} sets `ipam: {value}` for this node, and cilium-config sets `ipam: \
             {served}`; the node keeps its blocks and gets no more; remove the node from the nodeSelector or \
             the key from the object, and restart the agent"
        ))
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
