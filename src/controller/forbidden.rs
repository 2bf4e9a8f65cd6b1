//! Events about requests that the API server forbids (403), for the administrator who can grant the right.
//!
//! A server that starts forbids everything until it has read its roles, so an event names only rights that have been
//! missing for [`REPORTED_FROM`]; `/readyz` names them at once.

use std::time::Duration;

use super::events::{Event, Subject};
use crate::model::request::{Target, UsageQuery, Withdrawal, Write};
use crate::telemetry::api_health::{ApiHealth, OR_ADMISSION, Right};
use crate::telemetry::event_reason::EventReason;
use crate::wire::watched::Wire;
use crate::wire::{CiliumNodes, Claims, Nodes, Pools, cilium_group, pod_ip_pool};

/// For how long something must have been forbidden before an event says so.
const REPORTED_FROM: Duration = Duration::from_secs(10);

/// The right that is missing for such a write, and the rule that gives it, if the server forbids such writes.
pub(super) fn rule_for(api_health: &ApiHealth, write: &Write) -> Option<String> {
    note(api_health, |right| rights_for(write).contains(right))
}

/// The event about lists and watches, if the server forbids any.
pub(super) fn event_of_reads(api_health: &ApiHealth) -> Option<Event> {
    let note = note(api_health, |right| matches!(right.verb, "list" | "watch"))?;
    Some(Event {
        subject: Subject::ClusterRole,
        reason: EventReason::ReadForbidden,
        note,
        about: String::new(),
    })
}

fn note(api_health: &ApiHealth, concerns: impl Fn(&Right) -> bool) -> Option<String> {
    let forbidden: Vec<Right> = api_health.forbidden(REPORTED_FROM).into_iter().filter(concerns).collect();
    let lines: Vec<String> = forbidden
        .iter()
        .map(|right| format!("the controller is not allowed to {right}: {}", right.remedy()))
        .collect();
    (!lines.is_empty()).then(|| format!("{}; {OR_ADMISSION}", lines.join("; ")))
}

/// The rights that a write needs.
fn rights_for(write: &Write) -> Vec<Right> {
    let right = |verb, group: &str, resource: &str| Right {
        verb,
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: None,
        name: None,
    };
    let claims = |verb| right(verb, Claims::GROUP, Claims::PLURAL);
    let cilium_nodes = |verb| right(verb, CiliumNodes::GROUP, CiliumNodes::PLURAL);
    let status = |group, plural| right("patch", group, &format!("{plural}/status"));
    match write {
        Write::CreateClaim(_) => vec![claims("create")],
        // A deletion may remove the finalizer first.
        Write::UpdateClaim(_) => vec![claims("patch"), claims("delete")],
        Write::Publish(_) | Write::BumpVersion(_) => match write.target() {
            Target::Node(_) => vec![right("patch", Nodes::GROUP, Nodes::PLURAL)],
            Target::CiliumNode(_)
            | Target::Claim(_)
            | Target::Pool(_)
            | Target::NodeCondition(_)
            | Target::PodIpPool(_)
            | Target::Frr(_)
            | Target::ClaimsOf(_)
            | Target::PodsOf(_) => vec![cilium_nodes("patch")],
        },
        Write::UsageQuery(UsageQuery { change, .. }) | Write::Withdraw(Withdrawal { change, .. }) => {
            vec![if change.is_of_status() {
                status(CiliumNodes::GROUP, CiliumNodes::PLURAL)
            } else {
                cilium_nodes("patch")
            }]
        }
        Write::CreateCiliumNode(_) => vec![cilium_nodes("create")],
        Write::PoolStatus(_) => vec![status(Pools::GROUP, Pools::PLURAL)],
        Write::PoolFinalizers(_) => vec![right("patch", Pools::GROUP, Pools::PLURAL)],
        Write::ClaimStatus(_) => vec![status(Claims::GROUP, Claims::PLURAL)],
        Write::NodeCondition(_) => vec![status(Nodes::GROUP, Nodes::PLURAL)],
        Write::PodIpPool(write) => {
            let verb = if write.on.is_some() { "patch" } else { "create" };
            vec![right(verb, cilium_group::GROUP, pod_ip_pool::PLURAL)]
        }
        // The refusal is a finding of its node.
        Write::Frr(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::request::NewCiliumNode;

    fn right(verb: &'static str, resource: &str) -> Right {
        let (group, resource) = (CiliumNodes::GROUP.to_owned(), resource.to_owned());
        Right { verb, group, resource, namespace: None, name: None }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forbidden_for_ten_seconds_is_reported_on_its_object() {
        let api_health = ApiHealth::default();
        let write = Write::CreateCiliumNode(NewCiliumNode {
            node: "a".into(),
            node_uid: "u".into(),
            labels: [].into(),
            addresses: Vec::new(),
        });
        api_health.forbid(right("create", "ciliumnodes"));
        api_health.forbid(right("watch", "ciliumnodes"));
        assert_eq!(rule_for(&api_health, &write), None, "a server that starts");
        assert_eq!(event_of_reads(&api_health), None);
        tokio::time::advance(REPORTED_FROM).await;
        let rule = rule_for(&api_health, &write).expect("a rule is missing");
        assert!(
            rule.starts_with("the controller is not allowed to create ciliumnodes of cilium.io: "),
            "{rule}"
        );
        assert!(!rule.contains("watch"), "{rule}");
        let reported = event_of_reads(&api_health).expect("it is reported");
        assert_eq!((reported.subject, reported.reason), (Subject::ClusterRole, EventReason::ReadForbidden));
        assert!(
            reported.note.contains("not allowed to watch ciliumnodes of cilium.io: "),
            "{}",
            reported.note
        );
        api_health.allow(&right("create", "ciliumnodes"));
        assert_eq!(rule_for(&api_health, &write), None);
    }
}
