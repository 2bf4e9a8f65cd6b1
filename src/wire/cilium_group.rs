//! The API group of Cilium's kinds, and its versions that this controller knows.
//!
//! Cilium promotes one kind after another, and a server may serve a kind in several versions. Where it serves a kind in
//! two, the objects are the same in each. Does not know which version a server serves.

/// The API group.
pub const GROUP: &str = "cilium.io";

/// A version of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiVersion {
    /// CiliumNodeConfigs from Cilium 1.16 on, and CiliumPodIPPools after 1.20.
    V2,
    /// CiliumNodeConfigs from Cilium 1.13 on and the only version up to 1.15, and CiliumPodIPPools from 1.14 on.
    V2Alpha1,
}

impl ApiVersion {
    /// All versions, the one to prefer first.
    pub const NEWEST_FIRST: [Self; 2] = [Self::V2, Self::V2Alpha1];

    /// Its name in paths.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V2Alpha1 => "v2alpha1",
        }
    }
}
