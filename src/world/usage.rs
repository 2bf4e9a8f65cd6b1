//! Whether it is known which addresses the agent of a node uses (safety rule 7).
//!
//! What a carrier shows is not enough: an agent may write an empty list before it has restored its pods, and none onto a
//! carrier that was recreated under it (`docs/cilium.md`, Use). Keeps one invariant: use is known only from a list that
//! was seen to be written while exactly one agent was there and Ready, and that agent still runs, on the same carrier.

use super::memory::Answered;
use super::{RunningAgent, World};
use crate::model::agent::{UseUnknown, UseWriter};
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::names::NodeName;
use crate::model::node::CiliumNode;
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;
use crate::publisher;

/// What an agent uses is known: it is what the carrier shows.
#[derive(Debug, Clone, Copy)]
pub struct KnownUse<'a> {
    /// The carrier that shows it.
    pub carrier: Carrier<'a>,
    /// The agent that wrote it.
    pub agent: RunningAgent<'a>,
}

impl World {
    /// Whether it is known which addresses the agent of a node uses.
    ///
    /// What is known of its Pod may be older than the carrier. Whoever takes an address away because it is unused has to
    /// read the Pod again, after the version of the carrier that shows so.
    pub fn use_of(&self, node: &NodeName) -> Result<KnownUse<'_>, UseUnknown> {
        let carrier = self.carrier(node).ok_or(UseUnknown::NoCarrier)?;
        if !self.reader().use_is_known(carrier) {
            return Err(UseUnknown::Silent);
        }
        let agent = self.agent_on(node)?;
        let seen = self.remembered.get(node).and_then(|remembered| remembered.use_writer.as_ref());
        if seen == Some(&writer(carrier, agent)) {
            Ok(KnownUse { carrier, agent })
        } else {
            Err(UseUnknown::NotSeen)
        }
    }

    /// Whether the answer that the carrier shows to a question is of the agent that was Ready when this process asked it.
    ///
    /// What the carrier shows may be heard of later than the Pod. So an answer that is seen while an agent is Ready may
    /// have been given by the same agent before it had restored its pods, unless it was asked when it was known to be
    /// Ready.
    #[must_use]
    pub fn answer_counts(&self, node: &NodeName) -> bool {
        self.use_of(node).is_ok() && self.has_asked(node)
    }

    /// Whether this process has asked the agent that is there which addresses it uses, when it was known to be Ready.
    fn has_asked(&self, node: &NodeName) -> bool {
        let asked = self.remembered.get(node).and_then(|remembered| remembered.asked.as_ref());
        asked.is_some() && asked == self.askable(node).as_ref()
    }

    /// The agent of a node, where a question to it would be asked of one that is known to be Ready.
    fn askable(&self, node: &NodeName) -> Option<UseWriter> {
        Some(writer(self.carrier(node)?, self.agent_on(node).ok()?))
    }

    /// The agent of a node is about to be asked which addresses it uses.
    pub(super) fn note_asked(&mut self, node: &NodeName) {
        let asked = self.askable(node);
        self.remember_of(node).asked = asked;
    }

    /// As of which revision the latest question was asked that the agent of a claim's carrier has answered without the
    /// block, where that was off already when it was asked. What an answer shows may be given back later, and what it gives
    /// back the agent may take again as long as it misses its own update: either needs another answer.
    #[must_use]
    pub fn answered(&self, claim: &Claim) -> Option<Revision> {
        let answered = self.last_answer(&claim.node)?;
        let is_off = |carried: &AddressSet| !carried.intersects(claim.cidr);
        (is_off(&answered.carried) && is_off(&answered.carried_before)).then_some(answered.as_of)
    }

    /// Whether the agent of a claim's carrier has answered, since the claim got to where it is, that it goes on with the
    /// block.
    #[must_use]
    pub fn is_refused(&self, claim: &Claim) -> bool {
        let answered = self.last_answer(&claim.node).filter(|answered| answered.as_of >= claim.revision);
        answered.is_some_and(|answered| answered.carried.intersects(claim.cidr))
    }

    /// The last answer, where it is of the carrier that is there.
    fn last_answer(&self, node: &NodeName) -> Option<&Answered> {
        let answered = self.remembered.get(node)?.answered.as_ref()?;
        self.carrier(node).filter(|carrier| *carrier.uid() == answered.carrier).map(|_| answered)
    }

    /// A CiliumNode is there in another version than `before`. Notes which question its agent has answered, if one.
    pub(super) fn note_answered(&mut self, before: &CiliumNode) {
        let Some(now) = self.cilium_nodes.get(&before.name) else { return };
        let (from, to) = (Carrier::CiliumNode(before), Carrier::CiliumNode(now));
        if let Some(as_of) = self.reader().answered(from, to) {
            let carried = publisher::carried_by_cilium_node(now);
            let earlier = self.last_answer(&before.name).map(|answered| answered.as_of);
            let as_of = earlier.map_or(as_of, |earlier| earlier.max(as_of));
            let carried_before = publisher::carried_by_cilium_node(before);
            let answered = Answered { carrier: before.uid.clone(), as_of, carried, carried_before };
            self.remember_of(&before.name).answered = Some(answered);
        }
    }

    /// A CiliumNode is there in another version than `before`. Notes which agent has written its use, if one has.
    pub(super) fn note_use_written(&mut self, before: &CiliumNode) {
        let Some(now) = self.cilium_node(&before.name).map(Carrier::CiliumNode) else { return };
        if self.reader().wrote_use(Carrier::CiliumNode(before), now) {
            let use_writer = self.agent_on(&before.name).ok().map(|agent| writer(now, agent));
            self.remember_of(&before.name).use_writer = use_writer;
        }
    }
}

fn writer(carrier: Carrier<'_>, agent: RunningAgent<'_>) -> UseWriter {
    UseWriter { carrier: carrier.uid().clone(), pod: agent.pod.uid.clone(), started: agent.started }
}
