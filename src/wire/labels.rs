//! The syntax of labels, as the API server checks it.

use super::rules;

/// Whether the text is a label key: an optional DNS subdomain and `/`, then a name.
pub(super) fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => {
            prefix.len() <= rules::MAX_LABEL_PREFIX && prefix.split('.').all(is_dns_part) && is_name(name)
        }
        None => is_name(text),
    }
}

/// Whether the text is a label value: a name, or nothing.
pub(super) fn is_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// Whether the text is a DNS-1123 subdomain, as names of objects are.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_part)
}

fn is_name(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(is_end)
        && text.ends_with(is_end)
        && text.chars().all(|c| is_end(c) || matches!(c, '-' | '_' | '.'))
}

fn is_dns_part(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(|c| is_end(c) || c == '-')
}
