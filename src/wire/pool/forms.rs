//! The right form of a value that was refused: its meaning as it is written, and the form that the user probably meant.
//!
//! Only words for messages. The rules that refuse a value do not depend on them.

use serde_json::{Value, json};

use crate::net::cidr::{Cidr, Family};
use crate::net::notation::{Span, address_and_prefix, other_notation};

/// The maximum number of prefixes that a message proposes for one text of the user.
const MOST_CIDRS: usize = 64;
/// The same for the second guess, that a prefix with host bits means as many addresses from its own address on.
const MOST_FOR_HOST_BITS: usize = 4;

/// The right form of `text`, as the last part of a sentence about it; `None` if its meaning is not certain.
pub(super) fn of_range(text: &str, family: Family) -> Option<String> {
    if let Some((first, prefix)) = address_and_prefix(text) {
        if prefix.family() != family {
            return Some(of_other_family(prefix.family(), family));
        }
        // An IPv4-mapped IPv6 prefix is IPv4 on the number line, and IPv6 as text.
        return (text.contains(':') == (family == Family::V6)).then(|| of_prefix(first, prefix));
    }
    if let Ok(single) = text.trim().parse().map(Cidr::single) {
        return Some(if single.family() == family {
            format!("did you mean {single}?")
        } else {
            of_other_family(single.family(), family)
        });
    }
    let pieces: Vec<&str> = text.split([',', ' ', ';']).filter(|piece| !piece.is_empty()).collect();
    if pieces.len() > 1 && pieces.iter().all(|piece| piece.parse::<Cidr>().is_ok()) {
        return Some(format!("write each as an entry of its own: {}", pieces.join(", ")));
    }
    let span = other_notation(text)?;
    let meant = format!("{span} is written as {}", listed(&span.cidrs()));
    Some(if span.family() == family {
        meant
    } else {
        format!("{meant}; {}", of_other_family(span.family(), family))
    })
}

fn of_other_family(family: Family, expected: Family) -> String {
    format!("this is {family}, so it belongs in spec.{family}, not in spec.{expected}")
}

/// A prefix that is not masked, or not in canonical form.
fn of_prefix(first: std::net::IpAddr, prefix: Cidr) -> String {
    if first == prefix.first_address() {
        return format!("did you mean {prefix}?");
    }
    let whole = format!("it means {}: write {prefix} for them", Span::from(prefix));
    match Span::as_long_as(first, prefix).map(|span| (span, span.cidrs())) {
        Some((span, cidrs)) if cidrs.len() <= MOST_FOR_HOST_BITS => {
            format!("{whole}, or for {span} write {}", listed(&cidrs))
        }
        Some(_) | None => whole,
    }
}

/// `a`, `a and b`, `a, b and c`; of very many the first ones and the number of the others.
fn listed(cidrs: &[Cidr]) -> String {
    let shown = cidrs.iter().take(MOST_CIDRS).map(Cidr::to_string).collect::<Vec<_>>();
    match shown.split_last() {
        Some((last, [])) => last.clone(),
        Some(_) if cidrs.len() > MOST_CIDRS => {
            format!("{} and {} more", shown.join(", "), cidrs.len() - MOST_CIDRS)
        }
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The right form of a value that has the wrong type at this field; `None` if its meaning is not certain.
pub(in crate::wire) fn of_wrong_type(field: &str, value: &Value) -> Option<String> {
    let rest = field.strip_prefix("spec.ipv4.").or_else(|| field.strip_prefix("spec.ipv6."))?;
    let right = match rest {
        "cidrs" => {
            format!("cidrs: {}", flow(&entries(value)?.into_iter().map(entry).collect::<Option<Vec<_>>>()?))
        }
        "exclude" => format!(
            "exclude: [{}]",
            entries(value)?.into_iter().map(text_of).collect::<Option<Vec<_>>>()?.join(", ")
        ),
        "blockSize" => {
            let size: u8 = value.as_str()?.trim().trim_start_matches('/').parse().ok()?;
            format!("blockSize: {size}")
        }
        _ if rest.starts_with("cidrs[") && rest.ends_with(']') => flow_entry(&entry(value)?),
        _ if rest.starts_with("exclude[") => text_of(value)?,
        _ => return None,
    };
    Some(format!("write {right}"))
}

/// The entries of the list that was meant: those of the value, or the value as the only one.
fn entries(value: &Value) -> Option<Vec<&Value>> {
    match value {
        Value::Array(entries) => Some(entries.iter().collect()),
        Value::String(_) => Some(vec![value]),
        // `cidrs: {cidr: 10.0.0.0/24}`.
        Value::Object(fields) if fields.contains_key("cidr") => Some(vec![value]),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// An entry of `cidrs`.
fn entry(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => Some(json!({ "cidr": text })),
        Value::Object(fields) if fields.contains_key("cidr") => Some(value.clone()),
        _ => None,
    }
}

/// An entry of `exclude`.
fn text_of(value: &Value) -> Option<String> {
    let text = value.as_str().or_else(|| value["cidr"].as_str())?;
    Some(quoted(text))
}

fn flow(entries: &[Value]) -> String {
    format!("[{}]", entries.iter().map(flow_entry).collect::<Vec<_>>().join(", "))
}

/// A text as YAML: a colon in it needs quotes.
fn quoted(text: &str) -> String {
    if text.contains(':') { format!("\"{text}\"") } else { text.to_owned() }
}

/// An entry of `cidrs` as YAML.
fn flow_entry(entry: &Value) -> String {
    let field = |(name, value): (&String, &Value)| {
        format!("{name}: {}", value.as_str().map_or_else(|| value.to_string(), quoted))
    };
    format!("{{{}}}", entry.as_object().into_iter().flatten().map(field).collect::<Vec<_>>().join(", "))
}
