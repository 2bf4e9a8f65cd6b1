//! Nodes by their labels in arguments, as kubectl's `--selector` takes them.
//!
//! An empty text is refused, although kubectl reads it as every node: a script with an empty variable must not act on all
//! nodes. Does not know the nodes of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::core::{Expression, Selector, SelectorExt};

/// The labels of the nodes that a command is about.
#[derive(Debug, Clone)]
pub(super) struct NodeSelector {
    text: String,
    selector: Selector,
}

impl NodeSelector {
    /// Whether a node with these labels is meant.
    pub(super) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads conditions as kubectl takes them, separated by commas.
pub(super) fn nodes(text: &str) -> Result<NodeSelector, String> {
    let conditions: Option<Vec<Expression>> = parts(text).into_iter().map(condition).collect();
    let selector = conditions.filter(|conditions| !conditions.is_empty()).ok_or_else(|| {
        format!(
            "`{text}` must be KEY=VALUE, KEY!=VALUE, KEY, !KEY or KEY in (VALUE, VALUE), separated by commas"
        )
    })?;
    Ok(NodeSelector { text: text.to_owned(), selector: selector.into_iter().collect() })
}

/// The parts between the commas that are in no parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    text.split(move |char: char| {
        match char {
            '(' => is_inside = true,
            ')' => is_inside = false,
            _ => {}
        }
        char == ',' && !is_inside
    })
    .map(str::trim)
    .collect()
}

/// One condition; `None` if it can't be read.
fn condition(text: &str) -> Option<Expression> {
    if let Some((head, values)) = text.split_once('(') {
        let values = values.strip_suffix(')')?.split(',').map(value).collect::<Option<BTreeSet<_>>>()?;
        let mut words = head.split_whitespace();
        let (Some(name), Some(operator), None) = (words.next(), words.next(), words.next()) else {
            return None;
        };
        return match operator {
            "in" => Some(Expression::In(key(name)?, values)),
            "notin" => Some(Expression::NotIn(key(name)?, values)),
            _ => None,
        };
    }
    if let Some((name, of_label)) = text.split_once("!=") {
        return Some(Expression::NotEqual(key(name)?, value(of_label)?));
    }
    if let Some((name, of_label)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Expression::Equal(key(name)?, value(of_label)?));
    }
    match text.strip_prefix('!') {
        Some(name) => Some(Expression::DoesNotExist(key(name)?)),
        None => Some(Expression::Exists(key(text)?)),
    }
}

fn key(text: &str) -> Option<String> {
    value(text)
        .or_else(|| {
            let (prefix, name) = text.trim().split_once('/')?;
            Some(format!("{}/{}", value(prefix)?, value(name)?))
        })
        .filter(|key| !key.is_empty() && !key.starts_with('/') && !key.ends_with('/'))
}

fn value(text: &str) -> Option<String> {
    let text = text.trim();
    let is_plain = text.chars().all(|char| char.is_ascii_alphanumeric() || "-._".contains(char));
    is_plain.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_selected_as_kubectl_selects_them() {
        let labels = |text: &str| -> BTreeMap<String, String> {
            let label =
                |label: &str| label.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
            text.split(' ').filter_map(label).collect()
        };
        let selected = |text: &str| -> String {
            let selector = nodes(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let nodes = ["a zone=r1", "b zone=r2 test=", "c zone=r3", "d"];
            nodes.into_iter().filter(|node| selector.selects(&labels(node))).map(|node| &node[..1]).collect()
        };
        for (text, expected) in [
            ("zone=r1", "a"),
            ("zone == r1", "a"),
            ("zone!=r1", "bcd"),
            ("zone", "abc"),
            ("!zone", "d"),
            ("zone in (r1, r2)", "ab"),
            ("zone in (r1,r2),!test", "a"),
            ("zone notin (r1, r2)", "cd"),
            ("test=", "b"),
            ("topology.kubernetes.io/zone=r1", ""),
        ] {
            assert_eq!(selected(text), expected, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            " ",
            "zone=r1,",
            "=r1",
            "zone in r1",
            "zone in (r1",
            "zone at (r1)",
            "a/b/c=d",
            "/a=b",
            "zone=r 1",
        ] {
            assert!(
                nodes(text).is_err_and(|error| error.starts_with(&format!("`{text}` must be"))),
                "{text}"
            );
        }
    }
}
