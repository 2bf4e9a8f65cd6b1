//! The versions of Cilium that the controller supports in crd mode, and how far (`docs/cilium.md`, Support).

use crate::model::release::{Minor, Release};
use crate::publisher::support::Support;

/// The first patch release of each minor release whose agents do not change `podCIDRs`. Agents of earlier minors
/// overwrite it, and those of later ones never did.
const KEEPS_POD_CIDRS: [Release; 3] =
    [Release::new(1, 12, 18), Release::new(1, 13, 11), Release::new(1, 14, 2)];

/// The first minor release that skips addresses whose owner does not exist.
const FENCES: Minor = Minor(1, 13);

/// The first minor release that pauses after a conflict. In earlier ones, ten conflicts in a row make an agent exit
/// within a moment. The handshake may cause those.
const SURVIVES_CONFLICTS: Minor = Minor(1, 14);

/// How far the controller supports agents of a version.
pub(super) fn support(release: Option<Release>) -> Support {
    let Some(release) = release else {
        return Support::Unknown;
    };
    if first_that_works(release) > release {
        Support::None
    } else if release.minor < FENCES {
        Support::WithoutFence
    } else if release.minor < SURVIVES_CONFLICTS {
        Support::ReclaimOptIn
    } else {
        Support::Full
    }
}

/// The first patch release of the same minor that works, or that of the next minor that has one.
fn first_that_works(release: Release) -> Release {
    let of_minor = KEEPS_POD_CIDRS.into_iter().find(|fixed| fixed.minor >= release.minor);
    of_minor.filter(|fixed| *fixed > release).unwrap_or(release)
}

/// Why nothing is published for an agent of this version, and the remedy, for a person.
pub(super) fn why_unsupported(release: Release) -> String {
    let first = first_that_works(release);
    let newest = KEEPS_POD_CIDRS[KEEPS_POD_CIDRS.len() - 1];
    let or_newer = if first == newest {
        format!("{first} or newer")
    } else {
        format!("{first}, or to {newest} or newer")
    };
    format!(
        "agents of Cilium {release} overwrite spec.ipam.podCIDRs in crd mode: their nodes keep their blocks \
         and get no more; upgrade these agents to {or_newer}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publisher::support::Reclaiming;

    #[test]
    fn each_release_works_as_far_as_its_code_allows() {
        use Support::{Full, None, ReclaimOptIn, WithoutFence};
        for (release, expected) in [
            ("0.15.0", None),
            ("1.9.18", None),
            ("1.11.20", None),
            ("1.12.0", None),
            ("1.12.17", None),
            ("1.12.18", WithoutFence),
            ("1.12.19", WithoutFence),
            ("1.13.0", None),
            ("1.13.10", None),
            ("1.13.11", ReclaimOptIn),
            ("1.13.18", ReclaimOptIn),
            ("1.14.0", None),
            ("1.14.1", None),
            ("1.14.2", Full),
            ("1.14.19", Full),
            ("1.15.0-rc.0", Full),
            ("1.15.19", Full),
            ("1.17.8", Full),
            ("1.20.2", Full),
            ("1.21.0", Full),
            ("2.0.0", Full),
        ] {
            assert_eq!(support(release.parse().ok()), expected, "{release}");
        }
        assert_eq!(support(Option::None), Support::Unknown);
    }

    #[test]
    fn a_weaker_support_never_allows_more() {
        let rank = |reclaiming| match reclaiming {
            Reclaiming::Never => 0,
            Reclaiming::OptIn => 1,
            Reclaiming::Allowed => 2,
        };
        for pair in Support::ALL.windows(2) {
            let [weaker, stronger] = pair else { panic!("two") };
            assert!(weaker < stronger);
            assert!(weaker.publishes() <= stronger.publishes(), "{weaker:?}");
            assert!(rank(weaker.reclaiming()) <= rank(stronger.reclaiming()), "{weaker:?}");
        }
        assert!(!Support::None.publishes() && Support::Unknown.publishes());
        assert_eq!(Support::Full.reclaiming(), Reclaiming::Allowed);
    }

    #[test]
    fn the_way_out_is_the_nearest_release_that_works() {
        for (release, expected) in [
            ("1.9.18", "1.12.18, or to 1.14.2 or newer"),
            ("1.12.3", "1.12.18, or to 1.14.2 or newer"),
            ("1.13.10", "1.13.11, or to 1.14.2 or newer"),
            ("1.14.1", "1.14.2 or newer"),
        ] {
            let why = why_unsupported(release.parse().unwrap());
            assert!(why.starts_with(&format!("agents of Cilium {release} overwrite ")), "{why}");
            assert!(why.ends_with(&format!("upgrade these agents to {expected}")), "{why}");
        }
    }
}
