//! The reports of the oracle, in the words of its protocol.

use serde::Deserialize;

/// One breach of a rule.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Finding {
    pub(crate) rule: String,
    #[serde(default)]
    pub(crate) revision: i64,
    #[serde(default)]
    pub(crate) detail: String,
    #[serde(default)]
    pub(crate) nodes: Vec<String>,
    #[serde(default)]
    pub(crate) cidr: String,
    /// The test had announced it.
    #[serde(default)]
    pub(crate) planted: bool,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at revision {}: {}", self.rule, self.revision, self.detail)
    }
}

/// The state of the oracle. The lists have at most a thousand entries, the totals count all.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OracleReport {
    /// The revision of the store when the oracle was asked; everything up to it was judged.
    #[serde(default)]
    pub(crate) revision: i64,
    pub(crate) events: i64,
    pub(crate) claims: usize,
    pub(crate) nodes: usize,
    pub(crate) violations: Vec<Finding>,
    #[serde(default)]
    pub(crate) violations_total: usize,
    pub(crate) planted: Vec<Finding>,
    #[serde(default)]
    pub(crate) planted_total: usize,
}
