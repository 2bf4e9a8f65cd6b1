//! Pools from the objects of other systems: Calico, ClusterCIDR, and Cilium's CiliumPodIPPool.
//!
//! Converts only settings that a NodeIPPool can express exactly, and refuses all others at their field. Notes name every
//! field that is not used. It does not check the result: [`check`](super::check) does.

use serde_json::Value;

use self::calico::Kind;
use self::conversion::Conversion;
use super::json::text;

mod calico;
mod cluster_cidr;
mod conversion;
mod merge;
mod pod_ip_pool;
mod predicate;
mod selector;

pub use self::calico::Settings;
pub use self::conversion::Imported;
pub use self::merge::merge;

/// A kind of another system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Calico(Kind),
    ClusterCidr,
    PodIpPool,
}

fn source(document: &Value) -> Option<Source> {
    let group = text(&document["apiVersion"]).split('/').next()?;
    match (group, text(&document["kind"])) {
        ("networking.k8s.io" | "networking.x-k8s.io", "ClusterCIDR") => Some(Source::ClusterCidr),
        ("cilium.io", "CiliumPodIPPool") => Some(Source::PodIpPool),
        _ => Kind::of(document).map(Source::Calico),
    }
}

/// Whether the document is of a kind from which pools are made.
#[must_use]
pub fn has_pools(document: &Value) -> bool {
    matches!(
        source(document),
        Some(Source::Calico(Kind::IpPool | Kind::Installation) | Source::ClusterCidr | Source::PodIpPool)
    )
}

/// Whether the document is a ClusterCIDR. Several objects of this kind may have one range.
#[must_use]
pub fn is_cluster_cidr(document: &Value) -> bool {
    source(document) == Some(Source::ClusterCidr)
}

/// The pools of a document, and every setting in it that is not used; `None` if it is of another kind. `settings` are
/// those of all documents.
#[must_use]
pub fn convert(document: &Value, settings: &Settings) -> Option<Imported> {
    let source = source(document)?;
    let mut conversion = Conversion::of(document);
    let name = text(&document["metadata"]["name"]);
    match source {
        Source::Calico(kind) => calico::convert(kind, &mut conversion, settings),
        Source::ClusterCidr => conversion.add(name, cluster_cidr::pool),
        Source::PodIpPool => conversion.add(name, pod_ip_pool::pool),
    }
    Some(conversion.imported)
}

#[cfg(test)]
mod tests;
