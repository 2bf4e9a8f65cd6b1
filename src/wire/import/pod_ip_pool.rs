//! Pools from CiliumPodIPPools.

use serde_json::json;

use super::conversion::{Conversion, Draft, UNKNOWN};
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::net::notation::Span;
use crate::wire::FieldError;
use crate::wire::json::text;

/// The fields that Cilium keeps reading.
const KEPT: [&str; 4] = ["podSelector", "namespaceSelector", "allowFirstIP", "allowLastIP"];

/// The pool of a CiliumPodIPPool, which keeps serving it.
pub(super) fn pool(conversion: &mut Conversion<'_>) -> Draft {
    let mut draft = Draft::default();
    conversion.note_others("spec", &[&["ipv4", "ipv6"], &KEPT[..]].concat(), UNKNOWN);
    for family in ["ipv4", "ipv6"] {
        let field = format!("spec.{family}");
        if conversion.at(&field).is_null() {
            continue;
        }
        conversion.note_others(&field, &["cidrs", "pool", "maskSize"], UNKNOWN);
        let (mut cidrs, mut reserved) = (Vec::new(), AddressSet::new());
        // Up to 1.20 `cidrs`, and later `pool`, whose entries may have reserved ranges.
        let lists = ["cidrs", "pool"].map(|list| conversion.list(&format!("{field}.{list}")));
        for (path, entry) in lists.into_iter().flatten() {
            let (path_of_cidr, cidr) = if entry.is_string() {
                (path.clone(), entry)
            } else {
                (format!("{path}.cidr"), &entry["cidr"])
            };
            let of_entry = conversion.cidrs(&path_of_cidr, cidr);
            reserved_ranges(conversion, &path, &of_entry, &mut reserved);
            cidrs.extend(of_entry);
        }
        draft.family(family, conversion.at(&format!("{field}.maskSize")), cidrs, None);
        draft.exclude(family, &reserved);
    }
    for field in KEPT.map(|field| format!("spec.{field}")) {
        if !conversion.at(&field).is_null() {
            conversion.note(&field, "Cilium keeps reading it from the CiliumPodIPPool, which must stay");
        }
    }
    draft.0.insert("podIPPool".to_owned(), json!(conversion.at("metadata.name")));
    draft
}

/// Adds the reserved ranges of an entry.
fn reserved_ranges(conversion: &mut Conversion<'_>, path: &str, cidrs: &[String], reserved: &mut AddressSet) {
    conversion.note_others(path, &["cidr", "reservedRanges"], UNKNOWN);
    let offered: AddressSet = cidrs.iter().filter_map(|cidr| cidr.parse::<Cidr>().ok()).collect();
    for (path, range) in conversion.list(&format!("{path}.reservedRanges")) {
        conversion.note_others(&path, &["start", "end"], UNKNOWN);
        let ends = text(&range["start"]).parse().ok().zip(text(&range["end"]).parse().ok());
        let Some(span) = ends.and_then(|(start, end)| Span::between(start, end)) else {
            let rule = "a reserved range has `start` and `end`, two addresses of one family";
            conversion.imported.errors.push(FieldError::new(path, range, rule));
            continue;
        };
        let range: AddressSet = span.cidrs().into_iter().collect();
        if range.cidrs().any(|cidr| !offered.covers(cidr)) {
            conversion
                .imported
                .notes
                .push(format!("{path}: only its addresses inside of its CIDR are excluded"));
        }
        reserved.extend_with(&range);
    }
}
