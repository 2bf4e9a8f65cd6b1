//! The facts that must hold at the end, each as one sentence that is true or not.

use std::fmt;

use crate::mode::Growth;
use crate::script::{FULL, MISTAKE, RELIEF, SPARE, SPILLING, Script};
use crate::stage::Stage;
use crate::state::State;

/// A sentence, and whether it holds.
pub(crate) struct Check {
    pub(crate) holds: bool,
    sentence: String,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<4}  {}", if self.holds { "ok" } else { "FAIL" }, self.sentence)
    }
}

/// All of them, in the order in which the scenes cause them. The most expensive come last.
pub(crate) async fn all(script: &Script, stage: &Stage, seen: &State) -> Vec<Check> {
    let mut checks = vec![served(script, seen), relieved(script, stage, seen)];
    match script.mode.growth() {
        Growth::ByUse | Growth::ByRequest => {
            checks.extend([expanded(script, stage), spilled(seen), taken_over(script, seen)]);
        }
        Growth::Never => checks.push(shared(seen)),
    }
    checks.push(returned(stage));
    if script.mode.growth() == Growth::ByUse {
        checks.push(undone(seen));
    }
    checks.extend([agreed(seen), reported(stage), started(stage), settled(stage).await, lawful(stage).await]);
    checks
}

fn check(holds: bool, sentence: String) -> Check {
    Check { holds, sentence }
}

fn served(script: &Script, seen: &State) -> Check {
    let (n_served, n_nodes) = (seen.n_served(), script.n_nodes());
    let all = if n_served == n_nodes { "all" } else { "not all" };
    check(
        n_served == n_nodes && seen.nodes.len() == n_nodes,
        format!("{all} {n_nodes} nodes are served: the agents of {n_served} have addresses"),
    )
}

fn relieved(script: &Script, stage: &Stage, seen: &State) -> Check {
    let pools = seen.pools_of_nodes();
    let relieved = &stage.crew.relieved;
    let out_of_relief = relieved
        .iter()
        .filter(|node| pools.get(node.as_str()).is_some_and(|pools| pools.iter().eq([&RELIEF])))
        .count();
    check(
        relieved.len() == script.n_waiting && out_of_relief == script.n_waiting,
        format!(
            "{} nodes waited while {FULL} was full, and {out_of_relief} of them were then served by {RELIEF}",
            relieved.len()
        ),
    )
}

fn expanded(script: &Script, stage: &Stage) -> Check {
    let (n_expanded, n_nodes) = (stage.chronicle.n_expanded(), script.n_nodes());
    check(
        n_expanded * 3 >= n_nodes,
        format!(
            "{n_expanded} of {n_nodes} nodes got a further block after their agents had crossed the threshold, or asked for more"
        ),
    )
}

fn spilled(seen: &State) -> Check {
    let held = seen.pools_of_nodes();
    let n_spilled = held.values().filter(|pools| pools.contains(SPILLING) && pools.contains(SPARE)).count();
    let full = seen.pools.iter().any(|pool| pool.name == SPILLING && pool.free_blocks == 0);
    check(
        full && n_spilled > 0,
        format!(
            "{SPILLING} {}: {n_spilled} nodes with a block of it went on with one of {SPARE}",
            if full { "spilled over" } else { "is not full" }
        ),
    )
}

/// For modes in which a node never gets a second block.
fn shared(seen: &State) -> Check {
    let held = seen.pools_of_nodes();
    let n_of = |pool: &str| held.values().filter(|pools| pools.contains(pool)).count();
    let (n_spilling, n_spare) = (n_of(SPILLING), n_of(SPARE));
    let full = seen.pools.iter().any(|pool| pool.name == SPILLING && pool.free_blocks == 0);
    check(
        full && n_spare > 0,
        format!(
            "{SPILLING} {} with {n_spilling} nodes, and {n_spare} nodes have their block of {SPARE}",
            if full { "is full" } else { "is not full" }
        ),
    )
}

/// Each node got its last block after the first controller had been killed.
fn taken_over(script: &Script, seen: &State) -> Check {
    let n_complete = seen.nodes.values().filter(|node| node.n_blocks == script.blocks_at_end()).count();
    let n_nodes = script.n_nodes();
    check(
        n_complete == n_nodes,
        format!(
            "the controller was killed, and its successor gave {n_complete} of {n_nodes} nodes their next block"
        ),
    )
}

fn returned(stage: &Stage) -> Check {
    let lost = &stage.crew.lost;
    let n_same = lost.iter().filter(|(node, had)| stage.chronicle.regained(node).is_superset(had)).count();
    check(
        !lost.is_empty() && n_same == lost.len(),
        format!(
            "{} nodes left and returned, and {n_same} of them got back the very blocks that they had",
            lost.len()
        ),
    )
}

fn undone(seen: &State) -> Check {
    let is_gone = !seen.pools.iter().any(|pool| pool.name == MISTAKE);
    let n_left = seen.claims.iter().filter(|claim| claim.pool == MISTAKE).count();
    let pool = if is_gone { "is gone" } else { "is still there" };
    check(
        is_gone && n_left == 0,
        format!("pool {MISTAKE}, which was made by mistake, {pool}, and nodes keep {n_left} of its blocks"),
    )
}

fn agreed(seen: &State) -> Check {
    check(
        seen.n_pools_up_to_date() == seen.pools.len() && seen.n_used_by_pools() == seen.n_used(),
        format!(
            "{} of {} pools agree with their blocks; they count {} addresses in use, the agents {}",
            seen.n_pools_up_to_date(),
            seen.pools.len(),
            seen.n_used_by_pools(),
            seen.n_used()
        ),
    )
}

/// Does not count the events: the controller makes some twenty a second, those of pools first, and a killed one loses
/// the events that wait.
fn reported(stage: &Stage) -> Check {
    let by_reason = stage.events.by_reason();
    let tally: Vec<String> = by_reason.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    check(
        ["BlocksPublished", "Exhausted"].iter().all(|reason| by_reason.contains_key(*reason)),
        format!("events told of it on Nodes and pools: {}", tally.join(", ")),
    )
}

fn started(stage: &Stage) -> Check {
    let fleet = &stage.crew.fleet;
    match fleet.refused().first() {
        None => check(true, format!("every one of {} pods got its address when it started", fleet.n_pods())),
        Some(first) => check(
            false,
            format!("{} pods got no address when they started; the first: {first}", fleet.refused().len()),
        ),
    }
}

/// A fresh controller would do the work that this one left undone.
async fn settled(stage: &Stage) -> Check {
    match stage.rig.assert_settled().await {
        Ok(()) => {
            check(true, "a second controller, asked what it would write, would write nothing".to_owned())
        }
        Err(error) => {
            check(false, format!("a second controller would write, or an address is in doubt: {error:#}"))
        }
    }
}

async fn lawful(stage: &Stage) -> Check {
    match stage.rig.control_plane.oracle().await {
        Ok(report) => {
            let n_found = report.violations_total.max(report.violations.len());
            let what =
                report.violations.first().map(|first| format!("; the first: {first}")).unwrap_or_default();
            check(
                n_found == 0,
                format!(
                    "the oracle read {} versions of {} blocks and {} CiliumNodes and found {} violations{what}",
                    report.events,
                    report.claims,
                    report.nodes,
                    if n_found == 0 { "no".to_owned() } else { n_found.to_string() }
                ),
            )
        }
        Err(error) => check(false, format!("the oracle could not be asked: {error:#}")),
    }
}
