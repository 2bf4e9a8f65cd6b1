//! Pools from the objects of Calico: its pools and its Installation, with its reservations and limits.

use serde_json::{Value, json};

use super::conversion::{Conversion, Draft, UNKNOWN};
use super::selector;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::net::notation::any_notation;
use crate::wire::FieldError;
use crate::wire::json::text;
use crate::wire::rules::MAX_BLOCKS_PER_NODE;

/// The settings of Calico for all its pools.
#[derive(Debug, Default)]
pub struct Settings {
    /// The addresses that IPReservations keep from all pools.
    reserved: AddressSet,
    /// The maximum number of blocks of one node.
    max_blocks: Option<u64>,
    /// The addresses of all pools.
    ranges: AddressSet,
    /// The IPPools by their range.
    ip_pools: Vec<(Vec<Cidr>, String)>,
}

/// A kind of Calico's that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    IpPool,
    Installation,
    IpReservation,
    IpamConfiguration,
}

impl Kind {
    pub(super) fn of(document: &Value) -> Option<Self> {
        let group = text(&document["apiVersion"]).split('/').next()?;
        match (group, text(&document["kind"])) {
            ("operator.tigera.io", "Installation") => Some(Self::Installation),
            ("projectcalico.org" | "crd.projectcalico.org", kind) => match kind {
                "IPPool" => Some(Self::IpPool),
                "IPReservation" => Some(Self::IpReservation),
                // Calico's own server has the first name, its definitions the second.
                "IPAMConfiguration" | "IPAMConfig" => Some(Self::IpamConfiguration),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Settings {
    /// Collects them from these documents, those of other systems among them.
    pub fn of<'a>(documents: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut settings = Self::default();
        for document in documents {
            match Kind::of(document) {
                Some(Kind::IpPool) => {
                    let range = range_of(&document["spec"]);
                    settings.ranges.extend_with(&range.iter().copied().collect());
                    settings.ip_pools.push((range, text(&document["metadata"]["name"]).to_owned()));
                }
                Some(Kind::Installation) => {
                    let pools = document["spec"]["calicoNetwork"]["ipPools"].as_array().into_iter().flatten();
                    settings.ranges.extend_with(&pools.flat_map(range_of).collect());
                }
                Some(Kind::IpReservation) => {
                    let entries = document["spec"]["reservedCIDRs"].as_array().into_iter().flatten();
                    settings.reserved.extend_with(&entries.filter_map(reserved_range).flatten().collect());
                }
                Some(Kind::IpamConfiguration) => {
                    settings.max_blocks = max_blocks(document).or(settings.max_blocks);
                }
                None => {}
            }
        }
        settings
    }
}

fn range_of(pool: &Value) -> Vec<Cidr> {
    any_notation(text(&pool["cidr"])).unwrap_or_default()
}

fn reserved_range(entry: &Value) -> Option<Vec<Cidr>> {
    let single = text(entry).parse().ok().map(|address| vec![Cidr::single(address)]);
    single.or_else(|| any_notation(text(entry)))
}

/// Calico reads only the limits with this name.
const DEFAULT: &str = "default";

fn max_blocks(document: &Value) -> Option<u64> {
    let limit = document["spec"]["maxBlocksPerHost"].as_u64()?;
    (document["metadata"]["name"] == DEFAULT && (1..=MAX_BLOCKS_PER_NODE.into()).contains(&limit))
        .then_some(limit)
}

/// Converts an object of Calico.
pub(super) fn convert(kind: Kind, conversion: &mut Conversion<'_>, settings: &Settings) {
    match kind {
        Kind::IpPool => {
            let name = text(conversion.at("metadata.name")).to_owned();
            conversion.add(&name, |conversion| pool(conversion, "spec", settings));
        }
        Kind::Installation => installation(conversion, settings),
        Kind::IpReservation => ip_reservation(conversion, settings),
        Kind::IpamConfiguration => ipam_configuration(conversion),
    }
}

/// The fields of a pool that are read.
const POOL: [&str; 13] = [
    "name",
    "cidr",
    "blockSize",
    "disabled",
    "nodeSelector",
    "namespaceSelector",
    "assignmentMode",
    "allowedUses",
    "natOutgoing",
    "encapsulation",
    "ipipMode",
    "vxlanMode",
    "disableBGPExport",
];

/// The pool at a path: the spec of an IPPool, or an entry of an Installation.
fn pool(conversion: &mut Conversion<'_>, path: &str, settings: &Settings) -> Draft {
    let field = |name: &str| format!("{path}.{name}");
    let mut draft = Draft::default();
    conversion.note_others(path, &POOL, UNKNOWN);
    let cidr = conversion.at(&field("cidr"));
    let Some(written) = cidr.as_str() else {
        conversion.refuse(&field("cidr"), "must be set");
        return draft;
    };
    let (family, default_size) = if written.contains(':') { ("ipv6", 122) } else { ("ipv4", 26) };
    let size = match conversion.at(&field("blockSize")) {
        Value::Null => json!(default_size),
        size => size.clone(),
    };
    let state = (*conversion.at(&field("disabled")) == json!(true)).then_some("Cordoned");
    let cidrs = conversion.cidrs(&field("cidr"), cidr);
    draft.family(family, &size, cidrs, state);
    draft.exclude(family, &settings.reserved);
    if let Some(limit) = settings.max_blocks {
        draft.0.insert("perNode".to_owned(), json!({"maxBlocks": limit}));
    }
    let selector = conversion.at(&field("nodeSelector")).as_str().unwrap_or("all()");
    let found = selector::parse(selector).and_then(|predicate| predicate.requirements());
    conversion.select(&mut draft, &field("nodeSelector"), found);
    if !["", "all()"].contains(&text(conversion.at(&field("namespaceSelector")))) {
        conversion.refuse(&field("namespaceSelector"), "a pool selects nodes, not namespaces");
    }
    if *conversion.at(&field("assignmentMode")) == json!("Manual") {
        conversion.refuse(&field("assignmentMode"), "a pool serves all nodes that it selects");
    }
    if let Some(uses) = conversion.at(&field("allowedUses")).as_array().filter(|uses| !uses.is_empty()) {
        if !uses.contains(&json!("Workload")) {
            conversion.refuse(&field("allowedUses"), "the addresses of a pool are for pods (Workload)");
        } else if uses.len() > 1 {
            conversion.note(&field("allowedUses"), "all addresses of a pool are for pods (Workload)");
        }
    }
    conversion.note_if_on(&field("natOutgoing"), "masquerading is a setting of Cilium");
    for tunnel in ["encapsulation", "ipipMode", "vxlanMode"] {
        conversion.note_if_on(&field(tunnel), "tunnels are a setting of Cilium");
    }
    conversion.note_if_on(&field("disableBGPExport"), "routes are a setting of Cilium or of --routes");
    draft
}

/// The pools that Calico's operator creates.
fn installation(conversion: &mut Conversion<'_>, settings: &Settings) {
    const PATH: &str = "spec.calicoNetwork.ipPools";
    conversion.note_others("spec", &["calicoNetwork"], "it is no setting of pools");
    conversion.note_others("spec.calicoNetwork", &["ipPools"], "it is no setting of pools");
    let pools = conversion.list(PATH);
    if pools.is_empty() {
        conversion.refuse(PATH, "has no pool: import the IPPools that the operator has created");
    }
    let mut named = Vec::new();
    for (path, entry) in pools {
        let range = range_of(entry);
        if let Some((_, of)) =
            settings.ip_pools.iter().find(|(other, _)| *other == range && !range.is_empty())
        {
            conversion.note(&path, &format!("IPPool/{of} of the input has its range"));
            continue;
        }
        let name = match text(&entry["name"]) {
            "" => default_name(text(&entry["cidr"]), &named),
            name => name.to_owned(),
        };
        named.push(name.clone());
        conversion.add(&name, |conversion| pool(conversion, &path, settings));
    }
}

/// A name as the operator generates them: the first pool of a family is the default one, others are named by range.
fn default_name(cidr: &str, named: &[String]) -> String {
    let default = if cidr.contains(':') { "default-ipv6-ippool" } else { "default-ipv4-ippool" };
    if named.iter().any(|name| name == default) {
        cidr.replace(['.', ':', '/'], "-").replace("--", "-")
    } else {
        default.to_owned()
    }
}

/// The addresses are taken by [`Settings::of`].
fn ip_reservation(conversion: &mut Conversion<'_>, settings: &Settings) {
    conversion.note_others("spec", &["reservedCIDRs"], UNKNOWN);
    for (path, entry) in conversion.list("spec.reservedCIDRs") {
        match reserved_range(entry) {
            None => conversion.refuse(&path, "must be an address or a CIDR"),
            Some(cidrs) if !cidrs.iter().any(|cidr| settings.ranges.intersects(*cidr)) => {
                conversion
                    .note(&path, &format!("no pool of Calico in the input has addresses of {}", text(entry)));
            }
            Some(_) => {}
        }
    }
}

/// The limit is taken by [`Settings::of`].
fn ipam_configuration(conversion: &mut Conversion<'_>) {
    if *conversion.at("metadata.name") != DEFAULT {
        conversion.note("spec", "Calico reads only the configuration that is named `default`");
        return;
    }
    conversion.note_others("spec", &["strictAffinity", "maxBlocksPerHost", "autoAllocateBlocks"], UNKNOWN);
    if *conversion.at("spec.strictAffinity") != json!(true) {
        conversion.note("spec.strictAffinity", "a node never uses addresses in blocks of other nodes here");
    }
    match conversion.at("spec.maxBlocksPerHost").as_u64() {
        None | Some(0) => {
            conversion.note(
                "spec.maxBlocksPerHost",
                "without a limit the default of `perNode.maxBlocks` applies, 16",
            );
        }
        Some(limit) if limit > MAX_BLOCKS_PER_NODE.into() => {
            let rule = format!("`perNode.maxBlocks` is at most {MAX_BLOCKS_PER_NODE}");
            conversion.imported.errors.push(FieldError::new("spec.maxBlocksPerHost", &limit, rule));
        }
        Some(_) => {}
    }
    if *conversion.at("spec.autoAllocateBlocks") == json!(false) {
        conversion.refuse("spec.autoAllocateBlocks", "a pool gives blocks to all nodes that it selects");
    }
}
