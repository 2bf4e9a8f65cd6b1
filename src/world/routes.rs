//! How the announcements of routes (FRRConfigurations, or the table of a GoBGP daemon) enter the world, and which nodes
//! decide again because of them. Decides nothing itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::World;
use super::exporter::Exporter;
use super::frr::{Changed, Exporting, Frr};
use super::gobgp::{Gobgp, GobgpPolicy};
use super::memory::SeenRemaining;
use super::speakers::Speakers;
use crate::model::claim::Claim;
use crate::model::frr::{FrrConfigurationNews, FrrNodeStateNews, FrrWrite};
use crate::model::gobgp::{RibNews, RibOutcome};
use crate::model::names::NodeName;
use crate::model::outcome::{Answer, Effect, Presence, Seen};
use crate::model::plan::{RouteAt, RoutesPlan};
use crate::model::speaker::{SpeakerKind, SpeakerNews};
use crate::model::time::Now;
use crate::net::cidr::Cidr;

impl World {
    /// FRRConfigurations announce routes from now on, or those of the controller are deleted.
    pub fn export_routes(&mut self, exporting: Exporting) {
        self.exporter = Some(Exporter::FrrK8s(Box::new(Frr::new(exporting))));
    }

    /// A GoBGP daemon announces routes from now on, or the paths of the exporter are withdrawn.
    pub fn export_to_gobgp(&mut self, policy: GobgpPolicy) {
        self.exporter = Some(Exporter::Gobgp(Box::new(Gobgp::new(policy))));
    }

    /// The way in which routes are announced, if they are.
    #[must_use]
    pub fn exporter(&self) -> Option<&Exporter> {
        self.exporter.as_ref()
    }

    fn frr_mut(&mut self) -> Option<&mut Frr> {
        match &mut self.exporter {
            Some(Exporter::FrrK8s(frr)) => Some(frr),
            Some(Exporter::Gobgp(_)) | None => None,
        }
    }

    /// A request to the GoBGP daemon has an outcome. Nodes with released blocks wait for a later table.
    pub fn finish_rib(&mut self, outcome: RibOutcome, now: Now) {
        let Some(Exporter::Gobgp(gobgp)) = &mut self.exporter else { return };
        if gobgp.is_busy() {
            self.looks.look_soon(now.uptime);
        }
        gobgp.finish(outcome, now);
        let released = self.remaining.keys().filter_map(|cidr| self.claims.get(cidr));
        let waiting: BTreeSet<NodeName> = released.map(|known| known.claim.node.clone()).collect();
        self.mark_nodes(waiting);
    }

    /// Takes in news of the table of the GoBGP daemon.
    pub fn observe_rib(&mut self, news: RibNews) {
        if let Some(Exporter::Gobgp(gobgp)) = &mut self.exporter {
            gobgp.hear(news);
        }
    }

    /// Takes in news of FRRConfigurations.
    pub fn observe_frr_configurations(&mut self, news: FrrConfigurationNews) {
        if let Some(changed) = self.frr_mut().map(|frr| frr.observe_configurations(news)) {
            self.frr_changed(changed);
        }
    }

    /// Takes in news of FRRNodeStates.
    pub fn observe_frr_node_states(&mut self, news: FrrNodeStateNews) {
        if let Some(changed) = self.frr_mut().map(|frr| frr.observe_states(news)) {
            self.frr_changed(changed);
        }
    }

    /// Takes in news of objects that make Cilium announce blocks.
    pub fn observe_speakers(&mut self, kind: SpeakerKind, news: SpeakerNews) {
        if self.exporter.is_some() {
            self.speakers.observe(kind, news);
            self.looks.look_next();
        }
    }

    /// The known objects that make Cilium announce blocks too.
    #[must_use]
    pub fn speakers(&self) -> &Speakers {
        &self.speakers
    }

    /// A node with a released block waits until the route of the block is gone.
    fn frr_changed(&mut self, changed: Changed) {
        match changed {
            Changed::Nothing => {}
            Changed::All => self.mark_all(),
            Changed::Node(node) => {
                if !self.is_gone(&node) {
                    self.mark(&node);
                }
            }
        }
    }

    /// Since when this process has looked for the route of a released block, in the present release of the claim.
    #[must_use]
    pub fn route_looked_for_since(&self, claim: &Claim) -> Option<Duration> {
        Some(self.remaining_of(claim)?.seen_at)
    }

    /// Since when only the daemon of the node may have the route of a released block.
    #[must_use]
    pub fn route_running_since(&self, claim: &Claim) -> Option<Duration> {
        self.remaining_of(claim)?.running_since
    }

    fn remaining_of(&self, claim: &Claim) -> Option<&SeenRemaining> {
        self.remaining.get(&claim.cidr).filter(|seen| seen.is_of(claim))
    }

    /// Takes in where a plan found the routes of released blocks.
    pub(super) fn note_routes(&mut self, routes: &BTreeMap<Cidr, RouteAt>, now: Duration) {
        for (cidr, at) in routes {
            let Some(claim) = self.claims.get(cidr).map(|known| &known.claim) else { continue };
            if *at == RouteAt::Nowhere {
                self.remaining.remove(cidr);
                continue;
            }
            let (uid, since) = (claim.uid.clone(), claim.since);
            let new = SeenRemaining { uid, since, seen_at: now, running_since: None };
            // A list of the table that is decided from now on is a proof.
            if matches!(self.exporter, Some(Exporter::Gobgp(_))) && !self.remaining.contains_key(cidr) {
                self.looks.look_soon(now);
            }
            let seen = self.remaining.entry(*cidr).or_insert(new);
            seen.running_since = (*at == RouteAt::Running).then(|| seen.running_since.unwrap_or(now));
        }
    }

    /// Something has changed that routes may depend on.
    pub fn look_at_routes_soon(&mut self, now: Now) {
        if self.exporter.is_some() {
            self.looks.look_soon(now.uptime);
        }
    }

    /// When the routes of all nodes will be decided next.
    #[must_use]
    pub fn next_look_at_routes(&self) -> Option<Duration> {
        self.looks.next()
    }

    /// Whether the routes of all nodes are due.
    #[must_use]
    pub fn is_to_look_at_routes(&self, now: Now) -> bool {
        self.next_look_at_routes().is_some_and(|at| at <= now.uptime)
    }

    /// The routes of all nodes have been decided, and this plan is being carried out.
    pub fn begin_routes(&mut self, plan: &RoutesPlan, now: Now) {
        self.looks.begin(plan.wake, now.uptime);
        match &mut self.exporter {
            Some(Exporter::FrrK8s(frr)) => frr.begin(plan, now),
            Some(Exporter::Gobgp(gobgp)) => gobgp.begin(plan, now),
            None => {}
        }
        for request in &plan.requests {
            self.mark_sent(request, now);
        }
    }

    /// Takes in the effect of a read of a node's claims or Node on its routes.
    pub(super) fn read_for_routes(&mut self, node: Option<&NodeName>, seen: &Seen, now: Now) {
        let (Some(exporter), Some(node)) = (&mut self.exporter, node) else { return };
        let is_news = match (exporter, seen) {
            (Exporter::FrrK8s(frr), Seen::ClaimsOf { revision, .. }) => frr.claims_were_read(node, *revision),
            (Exporter::FrrK8s(frr), Seen::Node { as_of, presence: Presence::Gone, .. }) => {
                frr.node_was_not_found(node, *as_of)
            }
            (Exporter::Gobgp(gobgp), Seen::ClaimsOf { .. }) => gobgp.claims_were_read(node),
            (Exporter::FrrK8s(_) | Exporter::Gobgp(_), _) => false,
        };
        if is_news {
            self.looks.look_soon(now.uptime);
        }
    }

    /// A write to an FRRConfiguration has an outcome.
    pub(super) fn finish_frr(
        &mut self,
        write: &FrrWrite,
        answer: &Answer,
        seen: &Seen,
        effect: Effect,
        now: Now,
    ) {
        let Some(frr) = self.frr_mut() else { return };
        let changed = frr.finish(write, answer, seen, effect, now);
        self.looks.look_soon(now.uptime);
        self.frr_changed(changed);
    }
}
