//! The findings of the planner, under the ids of the audit, and the facts that need no comparison.

use std::collections::BTreeMap;

use super::catalog::Check;
use super::found::Found;
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::ten_of;
use crate::model::plan::NodePlan;
use crate::model::surroundings::Surroundings;
use crate::view::{definitions, failures, pod_ip_pools};
use crate::world::World;

pub(super) fn look(world: &World, plans: &[NodePlan], found: &mut Found) {
    let of_world = definitions::findings(world);
    let of_world: Vec<Finding> =
        of_world.chain(pod_ip_pools::findings(world)).chain(failures::findings(world)).collect();
    let mut by_kind: BTreeMap<FindingKind, Vec<&Finding>> = BTreeMap::new();
    for finding in plans.iter().flat_map(|plan| &plan.findings).chain(&of_world) {
        by_kind.entry(finding.kind).or_default().push(finding);
    }
    for (kind, findings) in by_kind {
        let Some(check) = check_of(kind) else { continue };
        let is_general = matches!(check, Check::NodeFinding | Check::PoolFinding | Check::WaitFinding);
        let are_equal = findings.iter().all(|other| other.message == findings[0].message);
        for finding in &findings {
            // The names in a message would make a line of each object.
            let cause = match (is_general, are_equal) {
                (false, _) => finding.message.clone(),
                (true, true) => format!("{}: {}", kind.as_str(), finding.message),
                (true, false) => format!("{}, for example: {}", kind.as_str(), findings[0].message),
            };
            found.add(check, finding.subject.as_str(), finding.name.clone(), cause, String::new());
        }
    }
    for (kind, unreadable) in world.all_unreadable() {
        let cause = unreadable.reason.clone();
        found.add(Check::Unreadable, kind.as_str(), unreadable.name.clone(), cause, String::new());
    }
    for pool in world.pool_objects() {
        if let Err(invalid) = &pool.pool {
            let cause = invalid.findings.join("; ");
            found.add(Check::Unreadable, "NodeIPPool", pool.name.as_str(), cause, String::new());
        }
    }
}

/// Other writers, and old definitions.
pub(super) fn look_around(around: &Surroundings, found: &mut Found) {
    for writer in &around.writers {
        let cause = format!("{} has set `{}`, which only the controller sets", writer.manager, writer.field);
        found.add(Check::OtherWriter, writer.kind, writer.name.clone(), cause, String::new());
    }
    for definition in &around.old_definitions {
        let cause = "it lacks fields, columns or rules of this program".to_owned();
        let detail = ten_of(&definition.missing);
        found.add(Check::DefinitionOld, "CustomResourceDefinition", definition.name.clone(), cause, detail);
    }
}

/// The check under which the audit lists a finding of the planner; `None` where the audit compares the objects itself,
/// and for no problem.
fn check_of(kind: FindingKind) -> Option<Check> {
    let is_left_out = matches!(
        kind,
        FindingKind::UnreadableObject
            | FindingKind::PodCIDRConflict
            | FindingKind::PodCIDROutsidePools
            | FindingKind::NodeNetworkInPool
            | FindingKind::SharedInternalIP
            | FindingKind::LeftOverClaims
            | FindingKind::NodeMissing
            | FindingKind::ForeignAddresses
            | FindingKind::RouteInVrf
            | FindingKind::WouldReclaim
    );
    (!is_left_out).then(|| Check::of(kind))
}
