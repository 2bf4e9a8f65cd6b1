//! Tests of what the loop tells: lines in the log, and events.

use super::super::log_lines::LogLines;
use super::*;
use crate::model::plan::{Verdict, Wait};
use crate::telemetry::metrics::tests::world;

fn plan(verdict: Verdict, messages: &[&str]) -> NodePlan {
    let finding = |message: &&str| {
        Finding::new(FindingKind::Overlap, Kind::Claim, "10.0.0.0-28", (*message).to_owned())
    };
    NodePlan {
        node: "n".into(),
        verdict,
        unmet: BTreeSet::new(),
        refusals: Vec::new(),
        findings: messages.iter().map(finding).collect(),
        wake: None,
        cooling: Vec::new(),
        lasting: BTreeSet::new(),
        too_many_leave: false,
        scope: Scope::Whole,
    }
}

#[test]
fn a_finding_that_ends_has_a_line() {
    let telemetry = Telemetry::start();
    let events = Events::channel(telemetry.metrics.clone()).0;
    let mut reporter = Reporter::new(telemetry, events);
    let lines = LogLines::capture();
    let world = world();
    let mut check = |plan: NodePlan, expected: &str| {
        reporter.plan(&world, &plan);
        assert_eq!(lines.take(), expected);
    };
    let overlap = r#" finding="Overlap" kind="NodeIPBlock" name="10.0.0.0-28""#;
    check(plan(Verdict::AtRest, &["one overlaps it"]), &format!(" WARN one overlaps it{overlap}\n"));
    // The same in other words goes on.
    check(plan(Verdict::AtRest, &["two overlap it"]), &format!(" WARN two overlap it{overlap}\n"));
    // A plan that stopped before it had seen everything says nothing of what it did not see.
    check(plan(Verdict::Wait(Wait::Pause), &[]), "");
    check(plan(Verdict::AtRest, &[]), &format!(" INFO no longer found: two overlap it{overlap}\n"));
    check(plan(Verdict::AtRest, &[]), "");
}
