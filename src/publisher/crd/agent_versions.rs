//! The versions of Cilium that the controller supports in crd mode (`docs/cilium.md`, Support).

use crate::model::cilium_version::CiliumVersion;
use crate::publisher::support::Support;

/// The oldest supported version. Agents of most earlier versions overwrite `podCIDRs` whenever they write their
/// CiliumNode, and ten conflicts in a row make an agent before 1.14 exit within a moment. The handshake of a reclaim
/// may cause those.
const OLDEST: CiliumVersion = CiliumVersion::new(1, 14, 2);

/// How far the controller supports agents of a version.
pub(super) fn support(release: Option<CiliumVersion>) -> Support {
    match release {
        None => Support::Unknown,
        Some(release) if release < OLDEST => Support::Outdated,
        Some(_) => Support::Full,
    }
}

/// Why agents of this version are not supported, and the remedy, for a person.
pub(super) fn why_unsupported(release: CiliumVersion) -> String {
    format!(
        "agents of Cilium {release} are older than {OLDEST} and may overwrite spec.ipam.podCIDRs: their nodes \
         get blocks, and none is reclaimed; upgrade these agents to {OLDEST} or newer"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_supported_from_the_oldest_on() {
        use Support::{Full, Outdated, Unknown};
        for (release, expected) in [
            ("0.15.0", Outdated),
            ("1.12.19", Outdated),
            ("1.13.18", Outdated),
            ("1.14.0", Outdated),
            ("1.14.1", Outdated),
            ("1.14.2", Full),
            ("1.14.19", Full),
            ("1.15.0-rc.0", Full),
            ("1.20.2", Full),
            ("2.0.0", Full),
            ("by digest", Unknown),
        ] {
            assert_eq!(support(release.parse().ok()), expected, "{release}");
        }
    }
}
