//! Cilium's own configuration: whether the controller may write at all, and for which families.
//!
//! It is read from the `cilium-config` ConfigMap. A key that is absent has the default of the agent (`docs/cilium.md`,
//! Configuration).

use std::collections::{BTreeMap, BTreeSet};

use super::Publisher;
use super::crd::Crd;
use super::ipam_mode::{IPAM_KEY, IpamMode};
use super::mode::{Mode, Publishers};
use super::multi_pool::{Bgp, MultiPool};
use super::static_mode::{ClusterPool, Kubernetes, NodeField, Static};
use crate::net::cidr::{Cidr, Family};

/// The keys of `cilium-config` that turn families on.
pub(super) const FAMILY_KEYS: [(Family, &str); 2] =
    [(Family::V4, "enable-ipv4"), (Family::V6, "enable-ipv6")];

/// The key of `cilium-config` that names the Cilium pool of Pods that ask for none.
pub(super) const DEFAULT_POOL_KEY: &str = "ipam-default-ip-pool";

/// The key of `cilium-config` that has agents write annotations onto their Nodes, and read them.
pub(super) const ANNOTATE_KEY: &str = "annotate-k8s-node";

/// The keys of `cilium-config` with the ranges of cilium-operator's allocator.
const OPERATOR_RANGE_KEYS: [&str; 2] = ["cluster-pool-ipv4-cidr", "cluster-pool-ipv6-cidr"];

/// The key of `cilium-config` that turns Cilium's BGP control plane on.
pub(super) const BGP_KEY: &str = "enable-bgp-control-plane";

/// The settings of an administrator about how Cilium is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The modes in which the controller may write.
    pub modes: BTreeSet<IpamMode>,
    /// Which addresses are reserved for agents themselves, in crd mode.
    pub own: OwnAddresses,
    /// Which part of a Node is written, in kubernetes mode.
    pub node_field: NodeField,
    /// Whether these are the flags of the controller, and no assumption about them.
    pub are_known: bool,
}

impl Settings {
    /// The defaults, in every mode: for a command that does not know the flags of the controller.
    #[must_use]
    pub fn of_every_mode() -> Self {
        Self { modes: IpamMode::ALL.into(), are_known: false, ..Self::default() }
    }
}

impl Default for Settings {
    /// The values that apply if an administrator sets nothing.
    fn default() -> Self {
        Self {
            modes: [IpamMode::Crd].into(),
            own: OwnAddresses::Kept,
            node_field: NodeField::Spec,
            are_known: true,
        }
    }
}

/// Whether the lowest addresses of a node's first block are reserved for its agent itself (`docs/cilium.md`, Owners).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnAddresses {
    /// They are. So they are never in a block that must leave the node.
    Kept,
    /// They are not. The agent uses any address, and the block of that address stays for the life of the node.
    Anywhere,
}

/// The mode that follows from the data of `cilium-config`.
#[must_use]
pub fn from_config(config: &BTreeMap<String, String>, settings: &Settings) -> Mode {
    publishers(config, settings).map_or_else(Mode::Passive, Mode::Active)
}

/// The publishers, or why the controller may not write.
fn publishers(config: &BTreeMap<String, String>, settings: &Settings) -> Result<Publishers, String> {
    let ipam = config.get(IPAM_KEY).map_or("", String::as_str);
    let mode = ipam.parse::<IpamMode>().map_err(|error| {
        format!("cilium-config says `ipam: {ipam}`, and the controller does not support that mode: {error}")
    })?;
    if !settings.modes.contains(&mode) {
        let modes: Vec<&str> = settings.modes.iter().map(|mode| mode.as_str()).collect();
        return Err(format!(
            "cilium-config says `ipam: {ipam}`, and --modes allows only {}: another allocator may serve these \
             nodes",
            modes.join(", ")
        ));
    }
    let of_all = Publishers::from(publisher(mode, config, settings)?);
    let others = settings.modes.iter().filter(|other| **other != mode && other.may_be_beside(mode));
    let others = others.map(|other| (*other, publisher(*other, config, settings))).collect();
    let publishers = of_all.beside(others, operator_ranges(config));
    Ok(if settings.are_known { publishers } else { publishers.assumed() })
}

/// The ranges of cilium-operator's allocator. A text that is no range is left out, as no operator starts with it.
fn operator_ranges(config: &BTreeMap<String, String>) -> Vec<Cidr> {
    let texts = OPERATOR_RANGE_KEYS.into_iter().filter_map(|key| config.get(key));
    let texts = texts.flat_map(|text| text.split([' ', ',']));
    texts.filter_map(|text| text.trim().parse().ok()).collect()
}

/// The publisher of a mode, or why the controller may not write in it.
fn publisher(
    mode: IpamMode,
    config: &BTreeMap<String, String>,
    settings: &Settings,
) -> Result<Publisher, String> {
    let families: BTreeSet<Family> = FAMILY_KEYS
        .into_iter()
        .filter(|(_, key)| is_on(config, key, IfAbsent::On))
        .map(|(family, _)| family)
        .collect();
    if families.is_empty() {
        return Err("cilium-config enables neither enable-ipv4 nor enable-ipv6".to_owned());
    }
    Ok(match mode {
        IpamMode::Crd => Publisher::Crd(crd(config, families, settings.own)),
        IpamMode::MultiPool => {
            let bgp = if is_on(config, BGP_KEY, IfAbsent::Off) { Bgp::On } else { Bgp::Off };
            let default_pool = config.get(DEFAULT_POOL_KEY).map_or("default", |name| name.trim()).into();
            Publisher::MultiPool(MultiPool { families, default_pool, bgp })
        }
        IpamMode::ClusterPool => Publisher::ClusterPool(Static::new(families, ClusterPool)),
        IpamMode::Kubernetes => {
            let writes = settings.node_field;
            let agents_read_annotations = is_on(config, ANNOTATE_KEY, IfAbsent::Off);
            if writes == NodeField::Annotations && !agents_read_annotations {
                return Err(format!(
                    "agents read no annotations: cilium-config does not say `{ANNOTATE_KEY}: true`, and \
                     --node-field is annotations"
                ));
            }
            let kubernetes = Kubernetes { writes, agents_read_annotations };
            Publisher::Kubernetes(Static::new(families, kubernetes))
        }
    })
}

fn crd(config: &BTreeMap<String, String>, families: BTreeSet<Family>, own: OwnAddresses) -> Crd {
    let health = is_on(config, "enable-health-checking", IfAbsent::On)
        && is_on(config, "enable-endpoint-health-checking", IfAbsent::On);
    let ingress = ["enable-ingress-controller", "enable-gateway-api", "enable-envoy-config"]
        .iter()
        .any(|key| is_on(config, key, IfAbsent::Off));
    let owners = [("router", true), ("health", health), ("ingress", ingress)];
    let run = owners.into_iter().filter(|(_, is_run)| *is_run).map(|(owner, _)| owner);
    Crd { families, infrastructure: reserved_owners(run, own) }
}

fn reserved_owners(run: impl IntoIterator<Item = &'static str>, own: OwnAddresses) -> Vec<&'static str> {
    run.into_iter().filter(|_| own == OwnAddresses::Kept).collect()
}

/// The publisher if an administrator says that Cilium runs in crd mode with these families.
#[must_use]
pub fn assumed(families: BTreeSet<Family>, own: OwnAddresses) -> Publisher {
    Publisher::Crd(Crd { families, infrastructure: reserved_owners(["router", "health"], own) })
}

/// The agent's default for a key that is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfAbsent {
    /// The agent does it.
    On,
    /// The agent does not do it.
    Off,
}

/// Whether `cilium-config` turns a key on.
#[must_use]
pub fn is_on(config: &BTreeMap<String, String>, key: &str, default: IfAbsent) -> bool {
    config.get(key).map_or(default == IfAbsent::On, |value| is_true(value))
}

/// Whether it is one of the values that Go's `strconv.ParseBool` reads as true.
pub(super) fn is_true(value: &str) -> bool {
    matches!(value.trim().to_ascii_lowercase().as_str(), "true" | "t" | "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &[(&str, &str)], expected: &str) {
        let config = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let shown = match from_config(&config, &Settings::default()) {
            Mode::Passive(why) => format!("passive: {why}"),
            Mode::Active(publishers) => match &*publishers {
                Publisher::Crd(crd) => {
                    let families: Vec<String> = crd.families.iter().map(ToString::to_string).collect();
                    format!("{} {}", families.join(","), crd.infrastructure.join(","))
                }
                other => format!("{other:?}"),
            },
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn nothing_is_kept_for_an_agent_that_may_take_any_address() {
        let config = [("ipam".to_owned(), "crd".to_owned())].into();
        for (own, expected) in
            [(OwnAddresses::Kept, &["router", "health"][..]), (OwnAddresses::Anywhere, &[])]
        {
            let mode = from_config(&config, &Settings { own, ..Settings::default() });
            let Mode::Active(publishers) = mode else { panic!("{own:?}") };
            let Publisher::Crd(crd) = &*publishers else { panic!("{own:?}") };
            assert_eq!(crd.infrastructure, expected);
            let Publisher::Crd(crd) = assumed(BTreeSet::from([Family::V4]), own) else { panic!("{own:?}") };
            assert_eq!(crd.infrastructure, expected);
        }
    }

    #[test]
    fn only_modes_that_an_administrator_has_named_are_served() {
        let no_mode = "is not one of crd, multi-pool, cluster-pool, kubernetes";
        check(
            &[],
            &format!(
                "passive: cilium-config says `ipam: `, and the controller does not support that mode: `` {no_mode}"
            ),
        );
        check(
            &[("ipam", "eni")],
            &format!(
                "passive: cilium-config says `ipam: eni`, and the controller does not support that mode: `eni` {no_mode}"
            ),
        );
        check(
            &[("ipam", "cluster-pool")],
            "passive: cilium-config says `ipam: cluster-pool`, and --modes allows only crd: another allocator \
             may serve these nodes",
        );
        check(
            &[("ipam", "crd"), ("enable-ipv4", "false"), ("enable-ipv6", "false")],
            "passive: cilium-config enables neither enable-ipv4 nor enable-ipv6",
        );
    }

    #[test]
    fn annotations_are_written_where_agents_read_them() {
        let mode = |annotate: &str, writes: NodeField| {
            let config = [("ipam", "kubernetes"), ("enable-ipv6", "false"), (ANNOTATE_KEY, annotate)];
            let config = config.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            let modes = [IpamMode::Kubernetes].into();
            from_config(&config, &Settings { modes, node_field: writes, ..Settings::default() })
        };
        for (annotate, agents_read_annotations, writes) in [
            ("false", false, NodeField::Spec),
            ("true", true, NodeField::Spec),
            ("true", true, NodeField::Annotations),
        ] {
            let expected = Static::new([Family::V4].into(), Kubernetes { writes, agents_read_annotations });
            assert_eq!(mode(annotate, writes), Mode::from(Publisher::Kubernetes(expected)));
        }
        let Mode::Passive(why) = mode("false", NodeField::Annotations) else { panic!() };
        assert_eq!(
            why,
            "agents read no annotations: cilium-config does not say `annotate-k8s-node: true`, and \
             --node-field is annotations"
        );
    }

    #[test]
    fn bgp_is_off_unless_it_is_turned_on() {
        let settings = Settings { modes: [IpamMode::MultiPool].into(), ..Settings::default() };
        for (value, expected) in [(None, Bgp::Off), (Some("false"), Bgp::Off), (Some("true"), Bgp::On)] {
            let mut config = BTreeMap::from([("ipam".to_owned(), "multi-pool".to_owned())]);
            config.extend(value.map(|value| ("enable-bgp-control-plane".to_owned(), value.to_owned())));
            let Mode::Active(publishers) = from_config(&config, &settings) else { panic!("{value:?}") };
            let Publisher::MultiPool(mode) = &*publishers else { panic!("{value:?}") };
            assert_eq!(mode.bgp, expected, "{value:?}");
        }
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
