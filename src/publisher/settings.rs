//! Cilium's own configuration: whether the controller may write at all, and for which families.
//!
//! It is read from the `cilium-config` ConfigMap. A key that is absent has the default of the agent (`docs/cilium.md`,
//! Configuration).

use std::collections::{BTreeMap, BTreeSet};

use super::crd::Crd;
use super::{Mode, Publisher};
use crate::net::cidr::Family;

/// Whether the lowest addresses of a node's first block are kept for its agent itself (`docs/cilium.md`, Owners).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnAddresses {
    /// They are. So they are never in a block that is to leave the node.
    Kept,
    /// They are not: the agent takes any address, and the block of that stays for as long as the node lives.
    Anywhere,
}

/// The mode that follows from the data of `cilium-config`.
#[must_use]
pub fn from_config(config: &BTreeMap<String, String>, own: OwnAddresses) -> Mode {
    let ipam = config.get("ipam").map_or("", String::as_str);
    if ipam != "crd" {
        return Mode::Passive(format!(
            "cilium-config says `ipam: {ipam}`; this controller writes only where it says `ipam: crd`"
        ));
    }
    let families: BTreeSet<Family> = [(Family::V4, "enable-ipv4"), (Family::V6, "enable-ipv6")]
        .into_iter()
        .filter(|(_, key)| is_on(config, key, Default::On))
        .map(|(family, _)| family)
        .collect();
    if families.is_empty() {
        return Mode::Passive("cilium-config enables neither enable-ipv4 nor enable-ipv6".to_owned());
    }
    let health = is_on(config, "enable-health-checking", Default::On)
        && is_on(config, "enable-endpoint-health-checking", Default::On);
    let ingress = ["enable-ingress-controller", "enable-gateway-api", "enable-envoy-config"]
        .iter()
        .any(|key| is_on(config, key, Default::Off));
    let owners = [("router", true), ("health", health), ("ingress", ingress)];
    let run = owners.into_iter().filter(|(_, is_run)| *is_run).map(|(owner, _)| owner);
    Mode::Active(Publisher::Crd(Crd { families, infrastructure: kept(run, own) }))
}

fn kept(run: impl IntoIterator<Item = &'static str>, own: OwnAddresses) -> Vec<&'static str> {
    run.into_iter().filter(|_| own == OwnAddresses::Kept).collect()
}

/// The publisher if an administrator says that Cilium runs in crd mode with these families.
#[must_use]
pub fn assumed(families: BTreeSet<Family>, own: OwnAddresses) -> Publisher {
    Publisher::Crd(Crd { families, infrastructure: kept(["router", "health"], own) })
}

/// The agent's default for a key that is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Default {
    On,
    Off,
}

fn is_on(config: &BTreeMap<String, String>, key: &str, default: Default) -> bool {
    match config.get(key).map(|value| value.trim().to_ascii_lowercase()) {
        None => default == Default::On,
        // The values that Go's strconv.ParseBool reads as true.
        Some(value) => matches!(value.as_str(), "true" | "t" | "1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &[(&str, &str)], expected: &str) {
        let config = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let shown = match from_config(&config, OwnAddresses::Kept) {
            Mode::Passive(why) => format!("passive: {why}"),
            Mode::Active(Publisher::Crd(crd)) => {
                let families: Vec<String> = crd.families.iter().map(ToString::to_string).collect();
                format!("{} {}", families.join(","), crd.infrastructure.join(","))
            }
            Mode::Active(other) => format!("{other:?}"),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn nothing_is_kept_for_an_agent_that_may_take_any_address() {
        let config = [("ipam".to_owned(), "crd".to_owned())].into();
        for (own, expected) in
            [(OwnAddresses::Kept, &["router", "health"][..]), (OwnAddresses::Anywhere, &[])]
        {
            let Mode::Active(Publisher::Crd(crd)) = from_config(&config, own) else { panic!("{own:?}") };
            assert_eq!(crd.infrastructure, expected);
            let Publisher::Crd(crd) = assumed(BTreeSet::from([Family::V4]), own) else { panic!("{own:?}") };
            assert_eq!(crd.infrastructure, expected);
        }
    }

    #[test]
    fn only_crd_mode_is_served() {
        check(
            &[],
            "passive: cilium-config says `ipam: `; this controller writes only where it says `ipam: crd`",
        );
        check(
            &[("ipam", "cluster-pool")],
            "passive: cilium-config says `ipam: cluster-pool`; this controller writes only where it says `ipam: crd`",
        );
        check(
            &[("ipam", "crd"), ("enable-ipv4", "false"), ("enable-ipv6", "false")],
            "passive: cilium-config enables neither enable-ipv4 nor enable-ipv6",
        );
    }

    #[test]
    fn families_and_owners_are_those_that_the_agents_run() {
        check(&[("ipam", "crd"), ("enable-ipv6", "false")], "ipv4 router,health");
        check(
            &[("ipam", "crd"), ("enable-ipv4", "true"), ("enable-ipv6", "true")],
            "ipv4,ipv6 router,health",
        );
        check(
            &[
                ("ipam", "crd"),
                ("enable-ipv4", "false"),
                ("enable-endpoint-health-checking", "false"),
                ("enable-ingress-controller", "true"),
            ],
            "ipv6 router,ingress",
        );
    }
}
