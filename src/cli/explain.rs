//! `cilium-node-ipam explain`: the texts of the reference, for those who have only the binary.
//!
//! The pages of the documents are the source: they are compiled in, and an entry is the text below its heading.

use std::process::ExitCode;

use anyhow::bail;

use super::program::program;
use super::{screen, site};

/// Explain an id of `check`, a finding, a condition or its reason, an event, or an alert: meaning and remedy.
///
/// The texts are those of the documents of this version. Without a name, it lists all names.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam explain NIP0302\n  cilium-node-ipam explain NoPool\n  \
                        cilium-node-ipam explain NodesWaiting"
)]
pub struct Args {
    /// The name, in upper or lower case. An alert may be without its prefix `CiliumNodeIPAM`.
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// A page with one entry per heading.
#[derive(Debug)]
struct Reference {
    /// Each entry is one of these.
    kind: &'static str,
    /// The page in the documents.
    page: &'static str,
    text: &'static str,
    /// The start of the headings.
    heading: &'static str,
}

const REFERENCES: [Reference; 5] = [
    Reference {
        kind: "id of check",
        page: "reference/checks",
        text: include_str!("../../docs/reference/checks.md"),
        heading: "### ",
    },
    Reference {
        kind: "finding",
        page: "reference/findings",
        text: include_str!("../../docs/reference/findings.md"),
        heading: "## ",
    },
    Reference {
        kind: "condition of a pool",
        page: "reference/conditions",
        text: CONDITIONS,
        heading: "## Condition ",
    },
    Reference {
        kind: "reason of a condition",
        page: "reference/conditions",
        text: CONDITIONS,
        heading: "### ",
    },
    Reference {
        kind: "event",
        page: "reference/events",
        text: include_str!("../../docs/reference/events.md"),
        heading: "## ",
    },
];

const CONDITIONS: &str = include_str!("../../docs/reference/conditions.md");

/// The start of the name of each alert.
const ALERT: &str = "CiliumNodeIPAM";

/// The pages about alerts. Each names its alerts in a line of its own.
macro_rules! runbooks {
    ($($page:literal),+ $(,)?) => {
        const RUNBOOKS: [(&str, &str); [$($page),+].len()] =
            [$((concat!("how-to/", $page), include_str!(concat!("../../docs/how-to/", $page, ".md")))),+];
    };
}

runbooks! {
    "broken-invariant",
    "controller-absent",
    "definition-deleted",
    "drain-blocked",
    "duplicate-addresses",
    "finding-remains",
    "frozen",
    "no-leader",
    "nodes-blocked",
    "nodes-waiting",
    "nodes-without-addresses",
    "nodes-without-pool",
    "not-serving",
    "passive",
    "pool-full",
    "pool-not-ready",
    "restarts",
    "second-allocator",
    "shared-internal-ip",
    "slow-grants",
    "standby-missing",
    "unsupported-agents",
    "watch-not-followed",
    "writes-paced",
    "writes-refused",
    "writes-undone",
}

/// A text about one name.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    page: &'static str,
    anchor: String,
    pub(crate) text: &'static str,
}

/// Every entry, in the order of the pages.
pub(crate) fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for reference in &REFERENCES {
        let mut rest = reference.text;
        while let Some((_, found)) = rest.split_once(&format!("\n{}", reference.heading)) {
            rest = found;
            let (name, text) = found.split_once('\n').unwrap_or((found, ""));
            // The text is that before the next heading of the same or a higher level.
            let level = reference.heading.chars().take_while(|c| *c == '#').count();
            let next = (1..=level).filter_map(|n| text.find(&format!("\n{} ", "#".repeat(n))));
            let text = text[..next.min().unwrap_or(text.len())].trim();
            let anchor = format!("{}{name}", reference.heading.trim_start_matches('#').trim_start());
            let anchor = anchor.to_lowercase().replace(' ', "-");
            entries.push(Entry { name, kind: reference.kind, page: reference.page, anchor, text });
        }
    }
    for (page, text) in RUNBOOKS {
        let names = text.lines().find(|line| line.starts_with("Alert")).unwrap_or_default();
        let names = names.split('`').skip(1).step_by(2);
        entries.extend(names.map(|name| Entry { name, kind: "alert", page, anchor: String::new(), text }));
    }
    entries
}

/// Whether a person who writes `asked` means this name.
fn is_meant(name: &str, asked: &str) -> bool {
    let is = |name: &str| name.eq_ignore_ascii_case(asked);
    is(name) || name.strip_prefix(ALERT).is_some_and(is)
}

/// The text without the targets of links, which lead to files.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        plain.push(']');
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let entries = entries();
    let Some(asked) = &args.name else {
        screen::print_own(names(&entries).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let found: Vec<String> = entries.iter().filter(|entry| is_meant(entry.name, asked)).map(shown).collect();
    if found.is_empty() {
        bail!("there is no text about {asked}: `{} explain` lists all names", program());
    }
    screen::print_own(found.join("\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn shown(entry: &Entry) -> String {
    let Entry { name, kind, page, anchor, text } = entry;
    let address = site::address(page, anchor).map(|address| format!("{address}\n")).unwrap_or_default();
    format!("{name} ({kind})\n{address}\n{}\n", plain(text).trim_end())
}

/// All names, those of one kind below each other.
fn names(entries: &[Entry]) -> String {
    let lines = entries.chunk_by(|one, other| one.kind == other.kind).flat_map(|entries| {
        let title = format!("{}:", entries[0].kind);
        std::iter::once(title).chain(entries.iter().map(|entry| format!("  {}", entry.name)))
    });
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::finding::FindingKind;
    use crate::model::status::ConditionReason;
    use crate::telemetry::event_reason::EventReason;
    use crate::view::audit::catalog::Check;

    fn kinds(asked: &str) -> Vec<&'static str> {
        entries().iter().filter(|entry| is_meant(entry.name, asked)).map(|entry| entry.kind).collect()
    }

    #[test]
    fn every_id_finding_condition_event_and_alert_has_a_text() {
        let ids = Check::ALL.iter().map(|check| (check.id(), "id of check"));
        let findings = FindingKind::ALL.iter().map(|kind| (kind.as_str(), "finding"));
        let conditions =
            ConditionReason::ALL.iter().map(|reason| (reason.condition().as_str(), "condition of a pool"));
        let reasons = ConditionReason::ALL.iter().map(|reason| (reason.as_str(), "reason of a condition"));
        let events = EventReason::all().map(|reason| (reason.as_str(), "event"));
        let alerts = include_str!("../../manifests/alerts.yaml");
        let alerts = alerts.lines().filter_map(|line| Some((line.split_once("- alert: ")?.1, "alert")));
        let expected: BTreeSet<_> =
            ids.chain(findings).chain(conditions).chain(reasons).chain(events).chain(alerts).collect();
        let entries = entries();
        let found: BTreeSet<_> = entries.iter().map(|entry| (entry.name, entry.kind)).collect();
        assert_eq!(found, expected);
        assert_eq!(found.len(), entries.len());
        for entry in &entries {
            assert!(
                entry.text.contains("Remedy") && !entry.text.contains("\n## Condition"),
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn a_name_may_be_of_several_kinds_in_any_case_and_an_alert_without_its_prefix() {
        assert_eq!(kinds("nip0302"), ["id of check"]);
        assert_eq!(kinds("Exhausted"), ["condition of a pool", "reason of a condition", "event"]);
        assert_eq!(kinds("nodeswaiting"), ["alert"]);
        assert_eq!(kinds("CiliumNodeIPAMNodesWaiting"), ["alert"]);
        assert_eq!(kinds("Nonsense"), [""; 0]);
    }

    #[test]
    fn a_text_has_the_words_of_its_links_without_their_targets() {
        assert_eq!(plain("see [Health](health.md#a), and [x](y)."), "see [Health], and [x].");
        let entries = entries();
        let entry = entries.iter().find(|entry| entry.name == "NIP0203").unwrap();
        let shown = shown(entry);
        assert!(
            shown.starts_with("NIP0203 (id of check)\n") && shown.ends_with(" once no pod uses it.\n"),
            "{shown}"
        );
    }
}
