//! Pools from the objects of other systems: Calico's IPPool with its IPReservations, ClusterCIDR, and CiliumPodIPPool.
//!
//! Converts only settings that a NodeIPPool can express exactly, and refuses all others at their field. Notes name every
//! field that is not used. It does not check the result: [`check`](super::check) does.

use serde_json::{Map, Value, json};

use super::json::text;
use super::{FieldError, GROUP, VERSION};
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::net::notation::{Span, any_notation};

mod selector;

/// A pool from an object of another system.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The NodeIPPool.
    pub pool: Value,
    /// Settings that have no counterpart here and do not change who gets which addresses, a sentence each.
    pub notes: Vec<String>,
}

/// Whether the document is of a kind that can be imported.
#[must_use]
pub fn is_known(document: &Value) -> bool {
    source(document).is_some()
}

/// The addresses that an IPReservation of Calico keeps from all IPPools; `None` for another document.
#[must_use]
pub fn reserved_by(document: &Value) -> Option<Result<AddressSet, Vec<FieldError>>> {
    if group_of(document) != Some(CALICO) || document["kind"] != "IPReservation" {
        return None;
    }
    let (mut reserved, mut errors) = (AddressSet::new(), Vec::new());
    let list = document["spec"]["reservedCIDRs"].as_array().into_iter().flatten();
    for (index, entry) in list.enumerate() {
        let text = text(entry);
        let single = text.parse().ok().map(|address| vec![Cidr::single(address)]);
        match single.or_else(|| any_notation(text)) {
            Some(cidrs) => cidrs.into_iter().for_each(|cidr| reserved.insert_cidr(cidr)),
            None => errors.push(FieldError::new(
                format!("spec.reservedCIDRs[{index}]"),
                entry,
                "must be an address or a CIDR",
            )),
        }
    }
    Some(if errors.is_empty() { Ok(reserved) } else { Err(errors) })
}

/// The pool of a document, or each of its settings that a NodeIPPool can't express. `reserved` are the addresses that
/// IPReservations keep from the IPPools of Calico.
pub fn pool_of(document: &Value, reserved: &AddressSet) -> Result<Imported, Vec<FieldError>> {
    let mut import = Import { document, errors: Vec::new(), notes: Vec::new(), spec: Map::new() };
    import.note_unknown("", document, &DOCUMENT);
    match source(document) {
        Some(Source::Calico) => import.calico(reserved),
        Some(Source::ClusterCidr) => import.cluster_cidr(),
        Some(Source::PodIpPool) => import.pod_ip_pool(),
        None => import.refuse("kind", "is neither IPPool, ClusterCIDR nor CiliumPodIPPool"),
    }
    if !import.errors.is_empty() {
        return Err(import.errors);
    }
    let pool = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "NodeIPPool",
        "metadata": {"name": document["metadata"]["name"]},
        "spec": import.spec,
    });
    Ok(Imported { pool, notes: import.notes })
}

/// A kind of another system.
#[derive(Debug, Clone, Copy)]
enum Source {
    Calico,
    ClusterCidr,
    PodIpPool,
}

/// The group of Calico, which has two names.
const CALICO: &str = "projectcalico.org";

fn group_of(document: &Value) -> Option<&str> {
    let group = document["apiVersion"].as_str()?.split('/').next()?;
    Some(if group == "crd.projectcalico.org" { CALICO } else { group })
}

fn source(document: &Value) -> Option<Source> {
    match (group_of(document)?, document["kind"].as_str()?) {
        (CALICO, "IPPool") => Some(Source::Calico),
        ("networking.k8s.io" | "networking.x-k8s.io", "ClusterCIDR") => Some(Source::ClusterCidr),
        ("cilium.io", "CiliumPodIPPool") => Some(Source::PodIpPool),
        _ => None,
    }
}

/// One conversion.
struct Import<'a> {
    document: &'a Value,
    errors: Vec<FieldError>,
    notes: Vec<String>,
    spec: Map<String, Value>,
}

impl<'a> Import<'a> {
    /// The value at a path such as `spec.ipv4`.
    fn at(&self, path: &str) -> &'a Value {
        path.split('.').fold(self.document, |value, key| &value[key])
    }

    fn refuse(&mut self, field: &str, rule: &str) {
        let value = self.at(field).clone();
        self.errors.push(if value.is_null() {
            FieldError::absent(field, rule)
        } else {
            FieldError::new(field, &value, rule)
        });
    }

    /// Notes a setting without a counterpart.
    fn note(&mut self, field: &str, why: &str) {
        if !matches!(self.at(field), Value::Null | Value::Bool(false)) && *self.at(field) != json!("Never") {
            self.notes.push(format!("{field} is left out: {why}"));
        }
    }

    /// Notes each field of the object at `path`, which is empty for the document, that is not among `known`.
    fn note_unknown(&mut self, path: &str, object: &Value, known: &[&str]) {
        let fields = object.as_object().into_iter().flat_map(|fields| fields.keys());
        for field in fields.filter(|field| !known.contains(&field.as_str())) {
            let dot = if path.is_empty() { "" } else { "." };
            self.notes.push(format!("{path}{dot}{field} is left out: import does not know this field"));
        }
    }

    /// Keeps these addresses from pods, as far as the CIDRs of a family have them.
    fn exclude(&mut self, family: &str, reserved: &AddressSet) {
        let Some(ranges) = self.spec.get_mut(family) else { return };
        let listed = ranges["cidrs"].as_array().into_iter().flatten();
        let declared = listed.filter_map(|entry| text(&entry["cidr"]).parse::<Cidr>().ok());
        let mut excluded = AddressSet::new();
        for cidr in declared {
            excluded.extend_with(&reserved.within(cidr));
        }
        if !excluded.is_empty() {
            ranges["exclude"] = excluded.cidrs().map(|cidr| cidr.to_string()).collect();
        }
    }

    fn calico(&mut self, reserved: &AddressSet) {
        let known = [
            "cidr",
            "blockSize",
            "disabled",
            "nodeSelector",
            "namespaceSelector",
            "assignmentMode",
            "allowedUses",
            "natOutgoing",
            "ipipMode",
            "vxlanMode",
            "disableBGPExport",
        ];
        self.note_unknown("spec", self.at("spec"), &known);
        let cidr = self.at("spec.cidr").clone();
        let Some(text) = cidr.as_str() else {
            self.refuse("spec.cidr", "must be set");
            return;
        };
        let (family, default_size) = if text.contains(':') { ("ipv6", 122) } else { ("ipv4", 26) };
        let size = match self.at("spec.blockSize") {
            Value::Null => json!(default_size),
            size => size.clone(),
        };
        let state = if *self.at("spec.disabled") == json!(true) { "Cordoned" } else { "Active" };
        let cidrs = self.cidrs("spec.cidr", std::slice::from_ref(&cidr), state);
        self.spec.insert(family.to_owned(), json!({"blockSize": size, "cidrs": cidrs}));
        self.exclude(family, reserved);
        let text = self.at("spec.nodeSelector").as_str().unwrap_or("all()").to_owned();
        match selector::requirements(&text) {
            Ok(terms) => self.select(&terms),
            Err(why) => self.refuse("spec.nodeSelector", &why),
        }
        let all = [json!("all()"), json!(""), Value::Null];
        if !all.contains(self.at("spec.namespaceSelector")) {
            self.refuse("spec.namespaceSelector", "a pool selects nodes, not namespaces");
        }
        if *self.at("spec.assignmentMode") == json!("Manual") {
            self.refuse("spec.assignmentMode", "a pool serves all nodes that it selects");
        }
        let uses = self.at("spec.allowedUses");
        if uses.as_array().is_some_and(|uses| !uses.contains(&json!("Workload"))) {
            self.refuse("spec.allowedUses", "the addresses of a pool are for pods (Workload)");
        }
        self.note("spec.natOutgoing", "masquerading is a setting of Cilium");
        self.note("spec.ipipMode", "tunnels are a setting of Cilium");
        self.note("spec.vxlanMode", "tunnels are a setting of Cilium");
        self.note("spec.disableBGPExport", "routes are a setting of Cilium or of --routes");
    }

    fn cluster_cidr(&mut self) {
        self.note_unknown("spec", self.at("spec"), &["perNodeHostBits", "ipv4", "ipv6", "nodeSelector"]);
        let Some(bits) = self.at("spec.perNodeHostBits").as_u64() else {
            self.refuse("spec.perNodeHostBits", "must be a number");
            return;
        };
        for (family, length) in [("ipv4", 32u64), ("ipv6", 128)] {
            let field = format!("spec.{family}");
            let cidr = self.at(&field).clone();
            if cidr.as_str().is_none_or(str::is_empty) {
                continue;
            }
            let cidrs = self.cidrs(&field, std::slice::from_ref(&cidr), "Active");
            let size = length.saturating_sub(bits);
            self.spec.insert(family.to_owned(), json!({"blockSize": size, "cidrs": cidrs}));
        }
        let terms = self.at("spec.nodeSelector.nodeSelectorTerms").as_array().cloned().unwrap_or_default();
        match terms.as_slice() {
            [] if self.at("spec.nodeSelector").is_null() => {}
            [] => self.refuse("spec.nodeSelector", "without a term it selects no node"),
            [term] if is_empty(term) => {
                self.refuse("spec.nodeSelector.nodeSelectorTerms", "an empty term selects no node");
            }
            [term] => self.node_selector_term(term),
            [_, _, ..] => self.refuse(
                "spec.nodeSelector.nodeSelectorTerms",
                "one of several terms is enough here, and all terms of a pool must match: create a ClusterCIDR per \
                 term",
            ),
        }
        self.notes.push(
            "a node gets further blocks when it is nearly full: `perNode.maxBlocks: 1` keeps it at one"
                .to_owned(),
        );
    }

    fn node_selector_term(&mut self, term: &Value) {
        let field = "spec.nodeSelector.nodeSelectorTerms[0]";
        if term["matchFields"].as_array().is_some_and(|fields| !fields.is_empty()) {
            self.errors.push(FieldError::new(
                format!("{field}.matchFields"),
                &term["matchFields"],
                "a pool selects nodes by labels, not by fields",
            ));
        }
        let expressions = term["matchExpressions"].as_array().cloned().unwrap_or_default();
        for (index, expression) in expressions.iter().enumerate() {
            let operator = text(&expression["operator"]);
            if !["In", "NotIn", "Exists", "DoesNotExist"].contains(&operator) {
                self.errors.push(FieldError::new(
                    format!("{field}.matchExpressions[{index}].operator"),
                    &expression["operator"],
                    "a pool knows In, NotIn, Exists and DoesNotExist",
                ));
            }
        }
        self.select(&expressions);
    }

    fn pod_ip_pool(&mut self) {
        self.note_unknown("spec", self.at("spec"), &["ipv4", "ipv6", "podSelector", "namespaceSelector"]);
        for family in ["ipv4", "ipv6"] {
            let field = format!("spec.{family}");
            if self.at(&field).is_null() {
                continue;
            }
            self.note_unknown(&field, self.at(&field), &["cidrs", "pool", "maskSize"]);
            let (mut cidrs, mut reserved) = (Vec::new(), AddressSet::new());
            // Up to 1.20 `cidrs`, and later `pool`, whose entries may have reserved ranges.
            for path in [format!("{field}.cidrs"), format!("{field}.pool")] {
                let entries = self.at(&path).as_array().cloned().unwrap_or_default();
                for (index, entry) in entries.iter().enumerate() {
                    self.reserved_ranges(&format!("{path}[{index}]"), entry, &mut reserved);
                }
                let plain =
                    |entry: Value| if entry["cidr"].is_string() { entry["cidr"].clone() } else { entry };
                let listed: Vec<Value> = entries.into_iter().map(plain).collect();
                cidrs.extend(self.cidrs(&path, &listed, "Active"));
            }
            let size = self.at(&field)["maskSize"].clone();
            self.spec.insert(family.to_owned(), json!({"blockSize": size, "cidrs": cidrs}));
            self.exclude(family, &reserved);
        }
        for field in ["spec.podSelector", "spec.namespaceSelector"] {
            if !self.at(field).is_null() {
                self.notes.push(format!(
                    "{field} is left out: Cilium keeps reading it from the CiliumPodIPPool, which must stay"
                ));
            }
        }
        let name = self.document["metadata"]["name"].clone();
        self.spec.insert("podIPPool".to_owned(), name);
    }

    /// Adds the reserved ranges of an entry of a CiliumPodIPPool, and notes its other fields.
    fn reserved_ranges(&mut self, path: &str, entry: &Value, reserved: &mut AddressSet) {
        self.note_unknown(path, entry, &["cidr", "reservedRanges"]);
        for (index, range) in entry["reservedRanges"].as_array().into_iter().flatten().enumerate() {
            let ends = text(&range["start"]).parse().ok().zip(text(&range["end"]).parse().ok());
            match ends.and_then(|(start, end)| Span::between(start, end)) {
                Some(span) => span.cidrs().into_iter().for_each(|cidr| reserved.insert_cidr(cidr)),
                None => self.errors.push(FieldError::new(
                    format!("{path}.reservedRanges[{index}]"),
                    range,
                    "a reserved range has `start` and `end`, two addresses of one family",
                )),
            }
        }
    }

    /// The entries of `cidrs`; a range from one address to another becomes the CIDRs that are exactly this range.
    fn cidrs(&mut self, field: &str, list: &[Value], state: &str) -> Vec<Value> {
        let mut cidrs = Vec::new();
        for value in list {
            let text = text(value).trim();
            let Some((from, to)) = text.split_once(['-', '–']) else {
                cidrs.push(text.to_owned());
                continue;
            };
            let ends = from.trim().parse().ok().zip(to.trim().parse().ok());
            match ends.and_then(|(from, to)| Span::between(from, to)) {
                Some(span) => cidrs.extend(span.cidrs().iter().map(ToString::to_string)),
                None => self.errors.push(FieldError::new(
                    field,
                    text,
                    "a range is FIRST-LAST, two addresses of one family",
                )),
            }
        }
        let entry = |cidr: String| match state {
            "Active" => json!({"cidr": cidr}),
            _ => json!({"cidr": cidr, "state": state}),
        };
        cidrs.into_iter().map(entry).collect()
    }

    fn select(&mut self, expressions: &[Value]) {
        if !expressions.is_empty() {
            self.spec.insert("nodeSelector".to_owned(), json!({"matchExpressions": expressions}));
        }
    }
}

/// The fields of a document that are read, or that only the server sets.
const DOCUMENT: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// Whether a term has no expression.
fn is_empty(term: &Value) -> bool {
    ["matchExpressions", "matchFields"].iter().all(|list| term[list].as_array().is_none_or(Vec::is_empty))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::check_document;

    fn calico(spec: &Value) -> Result<Imported, Vec<FieldError>> {
        let name = json!({"name": "a"});
        pool_of(
            &json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": name, "spec": spec}),
            &AddressSet::new(),
        )
    }

    fn cluster_cidr(spec: &Value) -> Result<Imported, Vec<FieldError>> {
        let name = json!({"name": "a"});
        pool_of(
            &json!({"apiVersion": "networking.k8s.io/v1alpha1", "kind": "ClusterCIDR", "metadata": name, "spec": spec}),
            &AddressSet::new(),
        )
    }

    /// The fields that are refused.
    fn refused(outcome: Result<Imported, Vec<FieldError>>) -> Vec<String> {
        outcome.expect_err("it is refused").into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_pool_of_calico_becomes_a_pool_that_the_server_accepts() {
        let imported = calico(&json!({
            "cidr": "10.48.0.0/20", "blockSize": 27, "disabled": true, "natOutgoing": true, "ipipMode": "Never",
            "nodeSelector": "zone == 'a' && rack not in {\"r1\", \"r2\"} && has(pods) && !has(gpu)",
        }))
        .unwrap();
        assert_eq!(check_document(&imported.pool), []);
        assert_eq!(
            imported.pool["spec"],
            json!({
                "nodeSelector": {"matchExpressions": [
                    {"key": "zone", "operator": "In", "values": ["a"]},
                    {"key": "rack", "operator": "NotIn", "values": ["r1", "r2"]},
                    {"key": "pods", "operator": "Exists"},
                    {"key": "gpu", "operator": "DoesNotExist"},
                ]},
                "ipv4": {"blockSize": 27, "cidrs": [{"cidr": "10.48.0.0/20", "state": "Cordoned"}]},
            })
        );
        assert_eq!(imported.notes, ["spec.natOutgoing is left out: masquerading is a setting of Cilium"]);
        let v6 = calico(&json!({"cidr": "fd00:1::/64"})).unwrap();
        assert_eq!(v6.pool["spec"], json!({"ipv6": {"blockSize": 122, "cidrs": [{"cidr": "fd00:1::/64"}]}}));
    }

    #[test]
    fn a_setting_that_a_pool_can_not_express_is_refused_at_its_field() {
        let with = |field: &str, value: Value| {
            let mut spec = json!({"cidr": "10.48.0.0/20"});
            spec[field] = value;
            refused(calico(&spec))
        };
        assert_eq!(with("nodeSelector", json!("zone == 'a' || zone == 'b'")), ["spec.nodeSelector"]);
        assert_eq!(with("namespaceSelector", json!("team == 'a'")), ["spec.namespaceSelector"]);
        assert_eq!(with("assignmentMode", json!("Manual")), ["spec.assignmentMode"]);
        assert_eq!(with("allowedUses", json!(["Tunnel"])), ["spec.allowedUses"]);
        assert_eq!(with("cidr", json!("10.0.0.9-10.0.0.1")), ["spec.cidr"]);
        let term = |expression: Value| json!({"matchExpressions": [expression]});
        let of = |terms: Value| {
            cluster_cidr(
                &json!({"ipv4": "10.0.0.0/16", "perNodeHostBits": 6, "nodeSelector": {"nodeSelectorTerms": terms}}),
            )
        };
        let zone = term(json!({"key": "zone", "operator": "In", "values": ["a"]}));
        assert_eq!(refused(of(json!([zone, zone]))), ["spec.nodeSelector.nodeSelectorTerms"]);
        let cores = term(json!({"key": "cores", "operator": "Gt", "values": ["4"]}));
        assert_eq!(
            refused(of(json!([cores]))),
            ["spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator"]
        );
        let imported = of(json!([zone])).unwrap();
        assert_eq!(check_document(&imported.pool), []);
        assert_eq!(imported.pool["spec"]["ipv4"]["blockSize"], 26);
    }

    #[test]
    fn a_pool_of_cilium_keeps_its_name_and_its_ranges() {
        let imported = pod_ip_pool(&json!({
            "ipv4": {"cidrs": ["10.20.0.0/16", "10.30.0.0-10.30.2.255"], "maskSize": 27},
        }))
        .unwrap();
        assert_eq!(check_document(&imported.pool), []);
        let cidrs = json!([{"cidr": "10.20.0.0/16"}, {"cidr": "10.30.0.0/23"}, {"cidr": "10.30.2.0/24"}]);
        let spec = &imported.pool["spec"];
        assert_eq!((&spec["ipv4"]["cidrs"], &spec["podIPPool"]), (&cidrs, &json!("mars")));
    }

    fn pod_ip_pool(spec: &Value) -> Result<Imported, Vec<FieldError>> {
        let name = json!({"name": "mars"});
        pool_of(
            &json!({"apiVersion": "cilium.io/v2", "kind": "CiliumPodIPPool", "metadata": name, "spec": spec}),
            &AddressSet::new(),
        )
    }

    #[test]
    fn reserved_ranges_become_exclude() {
        let entry = |ranges: Value| json!({"cidr": "10.20.0.0/16", "reservedRanges": ranges});
        let of = |ranges: Value| pod_ip_pool(&json!({"ipv4": {"pool": [entry(ranges)], "maskSize": 27}}));
        let imported = of(json!([{"start": "10.20.0.0", "end": "10.20.0.5"}])).unwrap();
        assert_eq!(check_document(&imported.pool), []);
        let expected = json!({"blockSize": 27, "cidrs": [{"cidr": "10.20.0.0/16"}],
                              "exclude": ["10.20.0.0/30", "10.20.0.4/31"]});
        assert_eq!((&imported.pool["spec"]["ipv4"], &imported.notes[..]), (&expected, &[][..]));
        assert_eq!(refused(of(json!([{"start": "10.20.0.9"}]))), ["spec.ipv4.pool[0].reservedRanges[0]"]);

        let reservation = |cidrs: Value| json!({"apiVersion": "projectcalico.org/v3", "kind": "IPReservation", "spec": {"reservedCIDRs": cidrs}});
        let reserved = reserved_by(&reservation(json!(["10.48.0.0/29", "10.9.0.1"]))).unwrap().unwrap();
        let pool = json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": "a"},
                          "spec": {"cidr": "10.48.0.0/20"}});
        let imported = pool_of(&pool, &reserved).unwrap();
        assert_eq!(check_document(&imported.pool), []);
        assert_eq!(imported.pool["spec"]["ipv4"]["exclude"], json!(["10.48.0.0/29"]));
        assert_eq!(reserved_by(&reservation(json!(["any"]))).unwrap().unwrap_err().len(), 1);
        assert_eq!(reserved_by(&pool), None);
    }

    #[test]
    fn every_field_that_is_not_used_is_named() {
        let imported = calico(&json!({"cidr": "10.48.0.0/20", "numBlocks": 3})).unwrap();
        assert_eq!(imported.notes, ["spec.numBlocks is left out: import does not know this field"]);
        let imported = pod_ip_pool(&json!({
            "allowFirstIP": true,
            "ipv4": {"cidrs": [{"cidr": "10.20.0.0/16", "state": "x"}], "maskSize": 27, "order": 1},
        }))
        .unwrap();
        let fields: Vec<&str> = imported.notes.iter().filter_map(|note| note.split(' ').next()).collect();
        assert_eq!(fields, ["spec.allowFirstIP", "spec.ipv4.order", "spec.ipv4.cidrs[0].state"]);
    }
}
