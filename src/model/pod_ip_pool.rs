//! CiliumPodIPPools: Cilium's own objects of the names under which nodes have CIDRs in multi-pool mode.
//!
//! Agents read these objects, and not the controller's pools. They are no kind of the world: no address follows from
//! them.

use std::collections::BTreeMap;
use std::fmt;

use super::names::{PodIpPoolName, Uid};
use super::news::News;
use super::revision::Revision;
use crate::net::cidr::Family;

/// A CiliumPodIPPool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIpPool {
    /// Its name.
    pub name: PodIpPoolName,
    /// Its uid.
    pub uid: Uid,
    /// The version that was read.
    pub revision: Revision,
    /// The ranges in its `spec`, by family. A family that can't be read is absent.
    pub families: BTreeMap<Family, PodIpRanges>,
    /// Whether this controller has created it and keeps it right.
    pub is_ours: bool,
}

/// The ranges of a CiliumPodIPPool in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIpRanges {
    /// `maskSize`: the prefix length of the CIDRs that are announced.
    pub mask_size: u8,
    /// `cidrs`.
    pub cidrs: Vec<PodIpRange>,
}

/// An entry of `cidrs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIpRange {
    /// Its CIDR as it was read; empty if it names none.
    pub cidr: String,
    /// The whole entry as JSON, if it is more than a CIDR: a patch replaces the list, so it is written as it was read.
    pub entry: Option<String>,
}

impl From<String> for PodIpRange {
    fn from(cidr: String) -> Self {
        Self { cidr, entry: None }
    }
}

/// News of CiliumPodIPPools.
pub type PodIpPoolNews = News<PodIpPool>;

/// How the CiliumPodIPPool of a name does not fit the blocks under that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misfit {
    /// It does not exist.
    Missing,
    /// It lacks this family.
    Family(Family),
    /// It has another `maskSize` of this family than the blocks have.
    MaskSize {
        /// The family.
        family: Family,
        /// Its `maskSize`.
        found: u8,
        /// The prefix length of the blocks.
        of_blocks: u8,
    },
}

impl Misfit {
    /// How this object does not fit blocks of a family and a prefix length, if it does not.
    #[must_use]
    pub fn of(object: Option<&PodIpPool>, family: Family, of_blocks: u8) -> Option<Self> {
        let Some(object) = object else { return Some(Self::Missing) };
        match object.families.get(&family) {
            None => Some(Self::Family(family)),
            Some(ranges) if ranges.mask_size != of_blocks => {
                Some(Self::MaskSize { family, found: ranges.mask_size, of_blocks })
            }
            Some(_) => None,
        }
    }
}

/// For a person, after the name of the object: `has no spec.ipv4`.
impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("does not exist"),
            Self::Family(family) => write!(f, "has no spec.{family}"),
            Self::MaskSize { family, found, of_blocks } => {
                write!(f, "has spec.{family}.maskSize {found}, and the blocks are /{of_blocks}")
            }
        }
    }
}
