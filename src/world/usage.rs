//! Whether it is known which addresses the agent of a node uses (safety rule 7).
//!
//! The carrier alone does not show it (`docs/cilium.md`, Use). An agent may write an empty list before it has restored
//! its pods, and none onto a carrier recreated while it runs. Keeps one invariant: use is known only from a list that
//! was seen to be written while exactly one agent existed and was Ready. It still runs, on the same carrier.

use super::memory::Answered;
use super::{RunningAgent, World};
use crate::model::agent::{UseUnknown, UseWriter};
use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState};
use crate::model::names::NodeName;
use crate::model::node::CiliumNode;
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::publisher;
use crate::publisher::answer::Drain;

/// The use of an agent is known: it is the use that the carrier shows.
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
    /// The known state of its Pod may be older than the carrier. A caller that takes an unused address away must read
    /// the Pod again, after the version of the carrier that shows it unused.
    pub fn use_of(&self, node: &NodeName) -> Result<KnownUse<'_>, UseUnknown> {
        let carrier = self.carrier(node).ok_or(UseUnknown::NoCarrier)?;
        if !self.reader_of(node).use_is_known(carrier) {
            return Err(UseUnknown::Silent);
        }
        let agent = self.agent_on(node)?;
        let seen = self.remembered(node).and_then(|remembered| remembered.use_writer.as_ref());
        if seen == Some(&writer(carrier, agent)) {
            Ok(KnownUse { carrier, agent })
        } else {
            Err(UseUnknown::NotSeen)
        }
    }

    /// Whether the answer on the carrier is from the agent that was Ready when this process sent the usage query, or a
    /// fence, which no query is older than.
    ///
    /// News of the carrier may come later than that of the Pod. So an agent that is Ready now may have answered before
    /// it had restored its pods. If it was known to be Ready when the query was sent, this can't be.
    #[must_use]
    pub fn answer_counts(&self, node: &NodeName) -> bool {
        self.use_of(node).is_ok() && self.has_asked(node)
    }

    /// Whether the agent has reported its use since the block of this draining claim was fenced, so that no usage query is
    /// needed. The same holds for the agent as for an answer.
    ///
    /// An agent writes its use onto a copy of the version that its write replaces, and collects the use after it has made
    /// this copy (`docs/cilium.md`, Owners). So it had seen the fence that this version shows.
    #[must_use]
    pub fn reported_since_fence(&self, claim: &Claim) -> bool {
        let fenced = self.remembered(&claim.node).map(|remembered| &remembered.fenced_before_use);
        self.answer_counts(&claim.node)
            && fenced.is_some_and(|fenced| fenced.contains(&(claim.cidr, claim.revision)))
    }

    /// Whether this process has sent a usage query or a fence to the present agent when that was known to be Ready.
    fn has_asked(&self, node: &NodeName) -> bool {
        let asked = self.remembered(node).and_then(|remembered| remembered.asked.as_ref());
        asked.is_some() && asked == self.askable(node).as_ref()
    }

    /// The agent of a node, if it is known to be Ready, so that the answer to a usage query would count.
    fn askable(&self, node: &NodeName) -> Option<UseWriter> {
        Some(writer(self.carrier(node)?, self.agent_on(node).ok()?))
    }

    /// A usage query or a fence is about to be sent to the agent of a node.
    pub(super) fn note_asked(&mut self, node: &NodeName) {
        let asked = self.askable(node);
        self.remember_of(node).asked = asked;
    }

    /// The revision of the latest usage query that the agent of a claim's carrier has answered without the block.
    /// `None` if the block was on the carrier when the query was sent. The agent may release a block later that its
    /// answer shows, and may take a released block again until it sees its own update. Both need another answer.
    #[must_use]
    pub fn answered(&self, claim: &Claim) -> Option<Revision> {
        let answered = self.last_answer(&claim.node)?;
        let is_off = |carried: &AddressSet| !carried.intersects(claim.cidr);
        (is_off(&answered.carried) && is_off(&answered.carried_before)).then_some(answered.as_of)
    }

    /// Whether the agent of a claim's carrier has answered, since the claim came to its present state, that it keeps
    /// using the block.
    #[must_use]
    pub fn is_refused(&self, claim: &Claim) -> bool {
        let answered = self.last_answer(&claim.node).filter(|answered| answered.as_of >= claim.revision);
        answered.is_some_and(|answered| answered.carried.intersects(claim.cidr))
    }

    /// The last answer, if it is on the present carrier.
    fn last_answer(&self, node: &NodeName) -> Option<&Answered> {
        let answered = self.remembered(node)?.answered.as_ref()?;
        self.carrier(node).filter(|carrier| *carrier.uid() == answered.carrier).map(|_| answered)
    }

    /// The version after `before` of a CiliumNode was shown, and none in between was missed. Notes which usage query
    /// its agent has answered, if any.
    pub(super) fn note_answered(&mut self, before: &CiliumNode) {
        let Some(now) = self.cilium_node(&before.name) else { return };
        let (from, to) = (Carrier::CiliumNode(before), Carrier::CiliumNode(now));
        if let Some(as_of) = self.reader_of(&before.name).answered(from, to) {
            let carried = publisher::carried_by_cilium_node(now);
            let earlier = self.last_answer(&before.name).map(|answered| answered.as_of);
            let as_of = earlier.map_or(as_of, |earlier| earlier.max(as_of));
            let carried_before = publisher::carried_by_cilium_node(before);
            let answered = Answered { carrier: before.uid.clone(), as_of, carried, carried_before };
            self.remember_of(&before.name).answered = Some(answered);
        }
    }

    /// A CiliumNode has another version than `before`. Notes which agent has written its use, if any.
    pub(super) fn note_use_written(&mut self, before: &CiliumNode) {
        let Some(now) = self.cilium_node(&before.name).map(Carrier::CiliumNode) else { return };
        if self.reader_of(&before.name).wrote_use(Carrier::CiliumNode(before), now) {
            let use_writer = self.agent_on(&before.name).ok().map(|agent| writer(now, agent));
            let fenced_before_use = self.fenced_on(before);
            let remembered = self.remember_of(&before.name);
            (remembered.use_writer, remembered.fenced_before_use) = (use_writer, fenced_before_use);
        }
    }

    /// The draining blocks that this version of a CiliumNode shows as fenced, each with the version of its claim. Its
    /// claim drained before it, so no replica has removed the fence since.
    fn fenced_on(&self, cilium_node: &CiliumNode) -> Box<[(Cidr, Revision)]> {
        let reader = self.reader_of(&cilium_node.name);
        let is_fenced = |claim: &&Claim| {
            matches!(claim.state, ClaimState::Draining(_))
                && claim.revision <= cilium_node.revision
                && matches!(reader.drain(Carrier::CiliumNode(cilium_node), claim), Drain::Closed(_))
        };
        let claims = self.claims_of(&cilium_node.name).map(|known| &known.claim);
        claims.filter(is_fenced).map(|claim| (claim.cidr, claim.revision)).collect()
    }
}

fn writer(carrier: Carrier<'_>, agent: RunningAgent<'_>) -> UseWriter {
    UseWriter { carrier: carrier.uid().clone(), pod: agent.pod.uid.clone(), started: agent.started }
}
