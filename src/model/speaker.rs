//! Objects that make Cilium's own BGP announce the blocks of nodes.
//!
//! If the controller announces them too, a withdrawal by one of both has no effect. Does not know how they are written
//! on the wire.

use super::news::News;

/// The kind of such an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpeakerKind {
    /// From Cilium 1.16 on.
    Advertisement,
    /// Up to Cilium 1.17.
    PeeringPolicy,
}

impl SpeakerKind {
    /// The kind in Kubernetes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Advertisement => "CiliumBGPAdvertisement",
            Self::PeeringPolicy => "CiliumBGPPeeringPolicy",
        }
    }
}

/// An object of one of these kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// Its name.
    pub name: String,
    /// Whether it announces blocks, and not only the addresses of Services.
    pub announces_blocks: bool,
}

/// News of the objects of a kind.
pub type SpeakerNews = News<Speaker>;
