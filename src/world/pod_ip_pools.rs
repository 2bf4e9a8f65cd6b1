//! The known CiliumPodIPPools, by name.
//!
//! They are followed beside the kinds of the world ([`PodIpPoolNews`]), and only in a mode that has such names. A world
//! without them is complete: it serves, and can't check whether they fit. Keeps one invariant: no older version of an
//! object replaces a newer one, whether a watch or an answer shows it.

use std::collections::{BTreeMap, BTreeSet};

use super::index::differing;
use crate::model::names::PodIpPoolName;
use crate::model::pod_ip_pool::{PodIpPool, PodIpPoolNews};
use crate::model::revision::Revision;

/// The known CiliumPodIPPools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodIpPools {
    /// They, or why they have not been listed.
    known: Result<BTreeMap<PodIpPoolName, PodIpPool>, String>,
    /// The latest version or deletion that the watch has shown.
    position: Option<Revision>,
}

/// Why they are unknown before the first news.
const NOT_REPORTED: &str = "they are not listed yet";

impl Default for PodIpPools {
    fn default() -> Self {
        Self { known: Err(NOT_REPORTED.to_owned()), position: None }
    }
}

/// The names whose CiliumPodIPPools have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Changed {
    Names(BTreeSet<PodIpPoolName>),
    /// All names: for each it is now known whether it has an object, or why this is unknown.
    All,
}

impl PodIpPools {
    /// Takes in news of them.
    pub(super) fn observe(&mut self, news: PodIpPoolNews) -> Changed {
        self.position = self.position.max(news.latest(|pool| pool.revision));
        let changed = match (&mut self.known, news) {
            // Pools report the reason.
            (Err(before), PodIpPoolNews::Unlisted(why)) => {
                *before = why;
                return Changed::All;
            }
            (Err(_), PodIpPoolNews::Listed(pools)) => {
                self.known = Ok(by_name(pools));
                return Changed::All;
            }
            (Ok(before), PodIpPoolNews::Listed(pools)) => {
                let after = by_name(pools);
                let changed = differing(before, &after).cloned().collect();
                *before = after;
                changed
            }
            (Ok(known), PodIpPoolNews::Applied(pool)) => enter(known, pool),
            (Ok(known), PodIpPoolNews::Deleted(gone)) => {
                if known.get(&gone.name).is_some_and(|pool| pool.revision <= gone.revision) {
                    known.remove(&gone.name);
                }
                [gone.name].into()
            }
            // A list comes before news of single objects, and stays valid after it.
            (Err(_), PodIpPoolNews::Applied(_) | PodIpPoolNews::Deleted(_))
            | (Ok(_), PodIpPoolNews::Unlisted(_)) => BTreeSet::new(),
        };
        Changed::Names(changed)
    }

    /// Takes in an object as our write left it, unless the watch has overtaken the answer and shows a later state.
    pub(super) fn observe_answer(&mut self, pool: PodIpPool) -> Changed {
        Changed::Names(match &mut self.known {
            Ok(known) if Some(pool.revision) > self.position => enter(known, pool),
            Ok(_) | Err(_) => BTreeSet::new(),
        })
    }

    /// Whether there was any news of them.
    pub(super) fn are_known(&self) -> bool {
        self.known != Err(NOT_REPORTED.to_owned())
    }

    /// The object of a name, or why it is unknown.
    pub(super) fn get(&self, name: &PodIpPoolName) -> Result<Option<&PodIpPool>, &str> {
        self.known.as_ref().map(|known| known.get(name)).map_err(String::as_str)
    }
}

fn by_name(pools: Vec<PodIpPool>) -> BTreeMap<PodIpPoolName, PodIpPool> {
    pools.into_iter().map(|pool| (pool.name.clone(), pool)).collect()
}

/// Enters an object in the place of its earlier version.
fn enter(known: &mut BTreeMap<PodIpPoolName, PodIpPool>, pool: PodIpPool) -> BTreeSet<PodIpPoolName> {
    if known.get(&pool.name).is_some_and(|before| before.revision > pool.revision) {
        return BTreeSet::new();
    }
    let name = pool.name.clone();
    known.insert(name.clone(), pool);
    [name].into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod_ip_pool::PodIpRanges;
    use crate::net::cidr::Family;

    fn object(name: &str, mask_size: u8, revision: u64) -> PodIpPool {
        let ranges = PodIpRanges { mask_size, cidrs: vec!["10.0.0.0/8".to_owned().into()] };
        PodIpPool {
            name: name.into(),
            uid: "u".into(),
            revision: Revision::of(revision),
            families: [(Family::V4, ranges)].into(),
            is_ours: false,
        }
    }

    fn mask_size(pools: &PodIpPools, name: &str) -> Option<u8> {
        pools.get(&name.into()).unwrap().map(|object| object.families[&Family::V4].mask_size)
    }

    fn names(names: &[&str]) -> Changed {
        Changed::Names(names.iter().map(|name| PodIpPoolName::from(*name)).collect())
    }

    #[test]
    fn news_tell_which_names_they_are_about() {
        let mut pools = PodIpPools::default();
        assert!(pools.get(&"a".into()).is_err());
        assert_eq!(pools.observe(PodIpPoolNews::Applied(object("a", 24, 5))), names(&[]), "before any list");
        assert_eq!(pools.observe(PodIpPoolNews::Unlisted("forbidden".to_owned())), Changed::All);
        assert_eq!(pools.get(&"a".into()), Err("forbidden"));
        let (a, b) = (object("a", 24, 5), object("b", 26, 6));
        assert_eq!(pools.observe(PodIpPoolNews::Listed(vec![a.clone(), b])), Changed::All);
        assert_eq!(pools.observe(PodIpPoolNews::Unlisted("too late".to_owned())), names(&[]));
        assert_eq!(pools.observe(PodIpPoolNews::Listed(vec![a.clone(), object("b", 28, 7)])), names(&["b"]));
        assert_eq!(mask_size(&pools, "b"), Some(28));
        assert_eq!(
            pools.observe(PodIpPoolNews::Applied(object("b", 26, 6))),
            names(&[]),
            "an earlier version"
        );
        assert_eq!(mask_size(&pools, "b"), Some(28));
        assert_eq!(pools.observe(PodIpPoolNews::Deleted(object("b", 28, 8))), names(&["b"]));
        assert_eq!(mask_size(&pools, "b"), None);
        assert_eq!(pools.observe(PodIpPoolNews::Listed(Vec::new())), names(&["a"]));
        assert_eq!(mask_size(&pools, "a"), None);
    }
}
