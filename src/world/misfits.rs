//! Whether the CiliumPodIPPool of a name fits the blocks under that name, and which blocks it keeps back if it does
//! not.
//!
//! The publisher says which misfits matter to an agent.

use std::collections::BTreeSet;

use super::{World, readable};
use crate::model::address_class::AddressClass;
use crate::model::cilium_version::CiliumVersion;
use crate::model::names::{NodeName, PodIpPoolName};
use crate::model::pod_ip_pool::{Misfit, PodIpPool};
use crate::model::pool::Pool;

impl World {
    /// The CiliumPodIPPool of a name, or why it is unknown whether one exists.
    pub fn pod_ip_pool(&self, name: &PodIpPoolName) -> Result<Option<&PodIpPool>, &str> {
        self.pod_ip_pools.get(name)
    }

    /// Whether there was news of them: a list, or that they can't be listed.
    #[must_use]
    pub fn knows_of_pod_ip_pools(&self) -> bool {
        self.pod_ip_pools.are_known()
    }

    /// The pools whose blocks are published under a name.
    pub fn pools_under<'a>(&'a self, name: &'a PodIpPoolName) -> impl Iterator<Item = &'a Pool> {
        readable(&self.pools).filter(move |pool| self.gives_under(pool, name))
    }

    /// Why a node gets no blocks of a class although pools have them: the CiliumPodIPPool of their name does not fit,
    /// and that would harm its agent. The node keeps its present blocks.
    #[must_use]
    pub fn harmful_misfit(&self, node: &NodeName, class: &AddressClass, of_blocks: u8) -> Option<Misfit> {
        let object = self.pod_ip_pools.get(class.pod_ip_pool.as_ref()?).ok()?;
        let misfit = Misfit::of(object, class.family, of_blocks)?;
        let reader = self.reader_of(node);
        let mut releases = self.agents.releases_on(node).peekable();
        let is_harmed = if releases.peek().is_none() {
            reader.misfit_harms(misfit, None)
        } else {
            releases.any(|release| reader.misfit_harms(misfit, release))
        };
        is_harmed.then_some(misfit)
    }

    /// Why a node gets no new block of a class from a pool: the block would harm its agent, or the CiliumPodIPPool has
    /// another size of this pool. A CiliumPodIPPool has one size for its life.
    #[must_use]
    pub fn misfit_of_new_block(&self, node: &NodeName, class: &AddressClass, pool: &Pool) -> Option<Misfit> {
        let size = self.size_for(node, pool, class.family)?;
        let of_another_size = || {
            let object = self.pod_ip_pools.get(class.pod_ip_pool.as_ref()?).ok()?;
            Misfit::of(object, class.family, size).filter(|misfit| self.is_of_another_size_of(pool, *misfit))
        };
        self.harmful_misfit(node, class, size).or_else(of_another_size)
    }

    /// Whether the CiliumPodIPPool has another size of this pool, which has or had blocks of several sizes.
    #[must_use]
    pub fn is_of_another_size_of(&self, pool: &Pool, misfit: Misfit) -> bool {
        match misfit {
            Misfit::MaskSize { family, found, .. } => self.sizes_of(pool, family).contains(&found),
            Misfit::Missing | Misfit::Family(_) => false,
        }
    }

    /// Whether a misfit matters to an agent of these nodes. Agents of unknown version count only if no version is
    /// known.
    pub fn is_minded<'a>(&self, nodes: impl Iterator<Item = &'a NodeName>, misfit: Misfit) -> bool {
        let mut known: BTreeSet<CiliumVersion> = BTreeSet::new();
        for node in nodes {
            let releases: Vec<CiliumVersion> = self.agents.releases_on(node).flatten().collect();
            let own = self.node_configs.of(node);
            if own
                .is_some_and(|own| releases.iter().any(|release| own.misfit_matters(misfit, Some(*release))))
            {
                return true;
            }
            known.extend(releases);
        }
        if known.is_empty() {
            return self.reader().misfit_matters(misfit, None);
        }
        known.into_iter().any(|release| self.reader().misfit_matters(misfit, Some(release)))
    }
}
