//! Nodes whose agent ran in another mode of Cilium, where a first set of addresses may cost pods their network.
//!
//! An agent that finds no address waits, and its pods keep running. An agent that finds a part of them restores only
//! the pods in that part, and deletes all others for ever (`docs/cilium.md`, Start of an agent). So a carrier that offers
//! nothing gets nothing while it shows addresses beyond the blocks that the first patch completes.
//!
//! The addresses of the former mode stay on the carrier when its pods no longer exist. So the node is served when two
//! facts hold. No agent of the node is Ready: one of this mode never is before it has addresses, and one of the former mode
//! can give an address to a pod right after any read. And two reads of the node's Pods, a minute apart, find no pod
//! with an address beyond the blocks. Pods that wait for an address do not count: they wait for this node's blocks.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use super::draft::{Detail, Draft, End, NEXT, Step, act_now};
use super::subject::Subject;
use crate::model::agent::{AgentPod, PodSnapshot, PodsOnNode};
use crate::model::claim::Claim;
use crate::model::counted::counted;
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::ten_of;
use crate::model::node::IGNORE_FORMER_MODE;
use crate::model::patience::READS_APART;
use crate::model::plan::{TimedState, Wait};
use crate::model::request::Read;
use crate::model::time::Timestamp;
use crate::net::cidr::Cidr;

/// How often the Pods are read while an agent of the former mode runs. They are only counted then.
const COUNTED_EVERY: Duration = Duration::from_secs(5 * 60);

/// The age of a Node from which a new CiliumNode may be one that was deleted under a running agent. Then it shows
/// nothing of the agent.
const MAY_BE_RECREATED_AFTER: Duration = Duration::from_secs(5 * 60);

impl Subject<'_> {
    /// Waits until no pod of the node can lose its network by the first addresses of the carrier, which are those of
    /// these claims.
    pub(super) fn await_end_of_former_mode(&self, draft: &mut Draft, completed: &[&Claim]) -> Step {
        let Some(ranges) = self.unsettled_ranges(completed) else { return NEXT };
        let look = self.world.look(&self.node.name);
        if ranges.is_empty() && look.is_some_and(|look| look.found.is_err()) {
            // In a cluster that got Cilium late every CiliumNode is new, and none is more suspect than another.
            draft.findings.push(self.pods_unchecked());
            return NEXT;
        }
        let due = match look {
            None => draft.now.uptime,
            Some(look) if self.is_quiet(look, completed) => {
                let since = draft.note_lasting_since(self.world, TimedState::FormerModeOver);
                if look.at >= since + READS_APART {
                    return NEXT;
                }
                // A read from before this state was seen says nothing about its start.
                if look.at >= since { since + READS_APART } else { draft.now.uptime }
            }
            Some(look) => {
                draft.findings.push(self.former_mode(&ranges, look, completed));
                look.at + if self.has_ready_agent() { COUNTED_EVERY } else { READS_APART }
            }
        };
        if draft.waits_until(due) {
            return ControlFlow::Break(End::Waits(Wait::FormerMode));
        }
        act_now(Read::PodsOf(self.node.name.clone(), self.carrier.revision()))
    }

    /// Whether the first addresses of the carrier wait for the end of a former mode, or for the reads that show it.
    pub(super) fn is_in_former_mode(&self, completed: &[&Claim], draft: &Draft) -> bool {
        let mut alone = Draft::new(&self.node.name, Detail::Verdict, draft.policy, draft.now);
        self.await_end_of_former_mode(&mut alone, completed).is_break()
    }

    /// The ranges of a former mode, if the node must wait for its end. They are empty if the CiliumNode is much younger
    /// than its Node and nothing is known about its agent: a CiliumNode that was deleted and recreated shows nothing.
    fn unsettled_ranges(&self, completed: &[&Claim]) -> Option<Vec<Cidr>> {
        let has_claims = !self.facts.claims.is_empty();
        if !has_claims && self.world.pools_of(&self.node.name).next().is_none() {
            // It gets nothing anyway.
            return None;
        }
        let ranges = self.publisher.former_ranges(self.carrier, completed)?;
        let carrier = self.carrier.cilium_node()?;
        let is_ignored = self.node.former_mode_ignored.as_ref() == Some(&carrier.uid);
        let may_be_recreated = || {
            let later = Duration::try_from(carrier.created.duration_since(self.node.created));
            !has_claims
                && self.node.created != Timestamp::default()
                && later.is_ok_and(|later| later >= MAY_BE_RECREATED_AFTER)
        };
        (!is_ignored && (!ranges.is_empty() || may_be_recreated())).then_some(ranges)
    }

    /// Whether a read of the node's Pods shows that the former mode is over, as far as one read can.
    fn is_quiet(&self, look: &PodSnapshot, completed: &[&Claim]) -> bool {
        let Ok(pods) = &look.found else { return false };
        let has_ready_agent = self.has_ready_agent() || pods.agents.iter().any(is_serving);
        !has_ready_agent && pods_beyond(pods, completed).next().is_none()
    }

    fn has_ready_agent(&self) -> bool {
        self.world.agents_on(&self.node.name).any(is_serving)
    }

    fn former_mode(&self, ranges: &[Cidr], look: &PodSnapshot, completed: &[&Claim]) -> Finding {
        let ran_with = if ranges.is_empty() {
            "its CiliumNode is much younger than its Node, and its agent may have run before".to_owned()
        } else {
            let adopting = |range: &Cidr| self.world.pools_of_block(*range).next();
            let named = ranges.iter().map(|range| match adopting(range) {
                Some(pool) => format!("{range} (a block of pool {})", pool.name),
                None => format!("{range} (no block of a pool)"),
            });
            format!("its agent ran in another mode of Cilium with {}", ten_of(named))
        };
        let pods = match &look.found {
            Err(why) => format!("its Pods can't be read ({why})"),
            Ok(pods) => {
                let outside: BTreeSet<&String> = pods_beyond(pods, completed).collect();
                if outside.is_empty() {
                    "its agent is Ready and may start pods there".to_owned()
                } else {
                    format!("{} would lose their network: {}", counted(outside.len(), "pod"), ten_of(outside))
                }
            }
        };
        let message = format!(
            "{ran_with}; {pods}; it gets no addresses until no agent is Ready and no pod has such an address; to \
             keep the pods, set the former mode again and let the controller claim these blocks first \
             (docs/migration.md); to give the pods up, annotate the Node with {IGNORE_FORMER_MODE}={}",
            self.carrier.uid(),
        );
        Finding::of_node(FindingKind::FormerMode, &self.node.name, message)
    }

    fn pods_unchecked(&self) -> Finding {
        let message = "its CiliumNode is much younger than its Node, and its Pods can't be read: if its agent ran \
                       before, its pods lose their network; allow the controller to list Pods";
        Finding::of_node(FindingKind::PodsUnchecked, &self.node.name, message.to_owned())
    }
}

/// Whether an agent may give addresses to pods.
fn is_serving(agent: &AgentPod) -> bool {
    agent.ready && !agent.ended
}

/// The pods that have an address that none of these claims offers.
fn pods_beyond<'p>(pods: &'p PodsOnNode, completed: &[&Claim]) -> impl Iterator<Item = &'p String> {
    let is_offered = |address: IpAddr| completed.iter().any(|claim| claim.offers(address));
    pods.holders.iter().filter(move |(address, _)| !is_offered(**address)).map(|(_, pod)| pod)
}
