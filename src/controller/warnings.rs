//! Logs the warnings of the API server, each text once: that it will stop serving a version of a kind, for one. They
//! come in the header `Warning` (RFC 7234, section 5.5).
//!
//! Does not know which request an answer is for.

use std::collections::BTreeSet;

use http::HeaderMap;
use http::header::WARNING;
use tokio::sync::watch;
use tracing::warn;

/// How many texts are remembered and logged. A server has a few; an admission webhook may make up one per object.
const LIMIT: usize = 100;

/// The warnings that were logged. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Warnings {
    logged: watch::Sender<BTreeSet<String>>,
}

impl Warnings {
    /// Logs the new warnings of an answer with these headers.
    pub(super) fn note(&self, headers: &HeaderMap) {
        for text in headers.get_all(WARNING).iter().filter_map(|value| text_of(value.to_str().ok()?)) {
            if self.is_new(&text) {
                warn!(text, "the API server warns");
            }
        }
    }

    fn is_new(&self, text: &str) -> bool {
        self.logged.send_if_modified(|logged| logged.len() < LIMIT && logged.insert(text.to_owned()))
    }
}

/// The text of `299 - "text"`.
fn text_of(value: &str) -> Option<String> {
    let quoted = value.split_once('"')?.1.trim_end().strip_suffix('"')?;
    let mut text = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_warning_is_read() {
        let check = |value: &str, expected: Option<&str>| assert_eq!(text_of(value).as_deref(), expected);
        let text = "cilium.io/v2alpha1 CiliumPodIPPool is deprecated; use cilium.io/v2 CiliumPodIPPool";
        check(&format!("299 - \"{text}\""), Some(text));
        check(r#"299 - "unknown field \"spec.x\"""#, Some(r#"unknown field "spec.x""#));
        check("299 - text", None);
        check("299 - \"", None);
        check("", None);
    }

    #[test]
    fn each_text_is_new_once_and_their_number_is_bounded() {
        let warnings = Warnings::default();
        assert!(warnings.is_new("a") && !warnings.clone().is_new("a") && warnings.is_new("b"));
        let n_new = (0..2 * LIMIT).filter(|number| warnings.is_new(&number.to_string())).count();
        assert_eq!(n_new, LIMIT - 2);
    }
}
