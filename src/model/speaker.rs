//! Objects that make Cilium's own BGP announce the blocks of nodes.
//!
//! If the controller announces them too, a withdrawal by one of both has no effect. Does not know how they are written
//! on the wire.

use super::news::News;
use super::stable_names;

stable_names! {
    /// The kind of such an object, named as Kubernetes names it.
    pub enum SpeakerKind {
        /// From Cilium 1.16 on.
        Advertisement => "CiliumBGPAdvertisement",
        /// Up to Cilium 1.17.
        PeeringPolicy => "CiliumBGPPeeringPolicy",
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
