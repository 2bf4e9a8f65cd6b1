//! The known FRRConfigurations and FRRNodeStates, and the outcomes of the writes to them.
//!
//! They are followed beside the kinds of the world, and only where routes are exported. Knows no world. Keeps one
//! invariant: no older version of an object replaces a newer one, whether a watch or an answer shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::pause::{Cause, Pause};
use crate::model::frr::{
    FrrChange, FrrConfiguration, FrrConfigurationNews, FrrNodeState, FrrNodeStateNews, FrrPurpose, FrrWrite,
    name_of,
};
use crate::model::names::{FrrName, NodeName};
use crate::model::outcome::{Answer, Effect, Seen};
use crate::model::plan::RoutesPlan;
use crate::model::request::{Request, Write};
use crate::model::revision::Revision;
use crate::model::time::Now;

/// Whether the routes of nodes are announced, and with which template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exporting {
    /// They are announced with the sessions of these FRRConfigurations, each for its nodes.
    By(BTreeSet<FrrName>),
    /// None is announced, and the controller deletes its FRRConfigurations.
    Nothing,
}

/// The known FRRConfigurations and FRRNodeStates.
#[derive(Debug, Clone)]
pub struct Frr {
    exporting: Exporting,
    configurations: Result<BTreeMap<FrrName, FrrConfiguration>, String>,
    /// The latest version or deletion that the watch of FRRConfigurations has shown.
    position: Option<Revision>,
    states: Result<BTreeMap<NodeName, FrrNodeState>, String>,
    writing: BTreeMap<FrrName, Writing>,
    /// When the template was last copied into an FRRConfiguration.
    last_rollout: Option<Duration>,
}

/// The state of the writes to one FRRConfiguration.
#[derive(Debug, Clone, Default)]
pub struct Writing {
    /// When the last was sent.
    pub last: Option<Duration>,
    /// Those that change its prefixes, create it or delete it.
    pub routes: Refusals,
    /// All claims of its node were read as of this revision.
    pub claims_read: Option<Revision>,
    /// A revision after which a read did not find its Node.
    pub node_gone: Option<Revision>,
    /// Those that copy the template into it. One that is refused does not delay a withdrawal.
    pub sessions: Refusals,
}

/// Writes of one kind that are not applied.
#[derive(Debug, Clone, Default)]
pub struct Refusals {
    /// How long the next one waits.
    pub pause: Pause,
    /// The answer of the server to the last, if it refused that.
    pub why: Option<String>,
}

/// How long the writes to an FRRConfiguration that does not exist are remembered: longer than the longest pause.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// Why they are unknown at the start.
const NOT_LISTED: &str = "they are not listed yet";

impl Frr {
    pub(super) fn new(exporting: Exporting) -> Self {
        let not_listed = NOT_LISTED.to_owned();
        Self {
            exporting,
            configurations: Err(not_listed.clone()),
            position: None,
            states: Err(not_listed),
            writing: BTreeMap::new(),
            last_rollout: None,
        }
    }

    /// Whether the routes of nodes are announced, and with which template.
    #[must_use]
    pub fn exporting(&self) -> &Exporting {
        &self.exporting
    }

    /// All FRRConfigurations of the namespace by name, or why they are unknown.
    pub fn configurations(&self) -> Result<&BTreeMap<FrrName, FrrConfiguration>, &str> {
        self.configurations.as_ref().map_err(String::as_str)
    }

    /// Whether the first list of FRRConfigurations is still due.
    #[must_use]
    pub fn awaits_list(&self) -> bool {
        self.configurations.as_ref().is_err_and(|why| why == NOT_LISTED)
    }

    /// The controller's FRRConfiguration of a node.
    #[must_use]
    pub fn of_node(&self, node: &NodeName) -> Option<&FrrConfiguration> {
        let found = self.configurations.as_ref().ok()?.get(&name_of(node))?;
        Some(found).filter(|found| found.of_node.as_ref() == Some(node))
    }

    /// The latest version or deletion of an FRRConfiguration that the watch has shown.
    #[must_use]
    pub fn position(&self) -> Option<Revision> {
        self.position
    }

    /// The report of the daemon of a node; `None` without a daemon. The error says why it is unknown.
    pub fn state_of(&self, node: &NodeName) -> Result<Option<&FrrNodeState>, &str> {
        self.states.as_ref().map(|states| states.get(node)).map_err(String::as_str)
    }

    /// The state of the writes to an FRRConfiguration.
    #[must_use]
    pub fn writing(&self, name: &FrrName) -> Writing {
        self.writing.get(name).cloned().unwrap_or_default()
    }

    /// When the template was last copied into an FRRConfiguration.
    #[must_use]
    pub fn last_rollout(&self) -> Option<Duration> {
        self.last_rollout
    }

    pub(super) fn observe_configurations(&mut self, news: FrrConfigurationNews) -> Changed {
        self.position = self.position.max(news.latest(|one| one.revision));
        match news {
            FrrConfigurationNews::Unlisted(why) => {
                if self.configurations.is_err() {
                    self.configurations = Err(why);
                }
                Changed::All
            }
            FrrConfigurationNews::Listed(all) => {
                self.configurations = Ok(all.into_iter().map(|one| (one.name.clone(), one)).collect());
                Changed::All
            }
            FrrConfigurationNews::Applied(one) => self.enter(one),
            FrrConfigurationNews::Deleted(one) => match &mut self.configurations {
                Ok(known) if known.get(&one.name).is_some_and(|found| found.revision <= one.revision) => {
                    known.remove(&one.name).map_or(Changed::Nothing, |found| Changed::of(found.of_node))
                }
                Ok(_) | Err(_) => Changed::Nothing,
            },
        }
    }

    /// Enters an object in the place of its earlier version.
    fn enter(&mut self, one: FrrConfiguration) -> Changed {
        let Ok(known) = &mut self.configurations else { return Changed::Nothing };
        if known.get(&one.name).is_some_and(|before| before.revision > one.revision) {
            return Changed::Nothing;
        }
        let node = one.of_node.clone();
        known.insert(one.name.clone(), one);
        Changed::of(node)
    }

    /// Enters an object as an answer shows it, unless the watch has overtaken the answer.
    pub(super) fn enter_answer(&mut self, one: FrrConfiguration) -> Changed {
        if Some(one.revision) > self.position { self.enter(one) } else { Changed::Nothing }
    }

    pub(super) fn observe_states(&mut self, news: FrrNodeStateNews) -> Changed {
        match news {
            FrrNodeStateNews::Unlisted(why) => {
                if self.states.is_err() {
                    self.states = Err(why);
                }
                Changed::All
            }
            FrrNodeStateNews::Listed(all) => {
                self.states = Ok(all.into_iter().map(|one| (one.node.clone(), one)).collect());
                Changed::All
            }
            FrrNodeStateNews::Applied(state) => {
                let Ok(known) = &mut self.states else { return Changed::Nothing };
                let node = state.node.clone();
                known.insert(node.clone(), state);
                Changed::Node(node)
            }
            FrrNodeStateNews::Deleted(state) => {
                let Ok(known) = &mut self.states else { return Changed::Nothing };
                known.remove(&state.node);
                Changed::Node(state.node)
            }
        }
    }

    /// The routes of all nodes have been decided, and these requests are being sent.
    pub(super) fn begin(&mut self, plan: &RoutesPlan, now: Now) {
        if let Ok(known) = &self.configurations {
            let written: BTreeSet<&FrrName> = plan
                .requests
                .iter()
                .filter_map(|request| match request {
                    Request::Write(Write::Frr(write)) => Some(&write.name),
                    Request::Write(_) | Request::Read(_) => None,
                })
                .collect();
            // One that was refused or deleted does not exist, and its pause counts.
            self.writing.retain(|name, writing| {
                let is_recent = writing.last.is_some_and(|last| last + REMEMBERED_FOR > now.uptime);
                known.contains_key(name) || written.contains(name) || is_recent
            });
        }
        for request in &plan.requests {
            let Request::Write(Write::Frr(write)) = request else { continue };
            self.writing.entry(write.name.clone()).or_default().last = Some(now.uptime);
            if is_rollout(write) {
                self.last_rollout = Some(now.uptime);
            }
        }
    }

    /// All claims of a node were read as of this revision. Returns whether routes may depend on it.
    pub(super) fn claims_were_read(&mut self, node: &NodeName, as_of: Revision) -> bool {
        let Some(writing) = self.writing_of(node) else { return false };
        writing.claims_read = writing.claims_read.max(Some(as_of));
        true
    }

    /// A read after this revision did not find the Node. Returns whether routes may depend on it.
    pub(super) fn node_was_not_found(&mut self, node: &NodeName, as_of: Revision) -> bool {
        let Some(writing) = self.writing_of(node) else { return false };
        writing.node_gone = writing.node_gone.max(Some(as_of));
        true
    }

    /// The memory of writes to the object of a node, if the object exists. Without an object nothing is remembered.
    fn writing_of(&mut self, node: &NodeName) -> Option<&mut Writing> {
        let name = name_of(node);
        let is_known = self.configurations.as_ref().is_ok_and(|known| known.contains_key(&name));
        is_known.then(|| self.writing.entry(name).or_default())
    }

    /// A write has an outcome.
    pub(super) fn finish(
        &mut self,
        write: &FrrWrite,
        answer: &Answer,
        seen: &Seen,
        effect: Effect,
        now: Now,
    ) -> Changed {
        let writing = self.writing.entry(write.name.clone()).or_default();
        let refusals = if is_rollout(write) { &mut writing.sessions } else { &mut writing.routes };
        match (answer, effect) {
            // It is deleted where another writer had changed its selector, which may happen again.
            (Answer::Done, Effect::Shown) if matches!(write.change, FrrChange::Delete { .. }) => {}
            (Answer::Done, Effect::Shown) => *refusals = Refusals::default(),
            (Answer::Done, Effect::Missing) => {
                refusals.why = Some("the API server accepted it, and stored something else".to_owned());
                refusals.pause.lengthen(Cause::Nothing, now);
            }
            (Answer::Refused(why, _), _) => {
                refusals.why = Some(why.clone());
                refusals.pause.lengthen(Cause::of(answer, seen), now);
            }
            // The answer is lost, or a webhook does not answer. The watch shows which, unless that continues.
            (Answer::Unknown(why), _) => {
                if refusals.pause.has_failed() {
                    refusals.why = Some(why.clone());
                }
                refusals.pause.lengthen(Cause::Nothing, now);
            }
            // The object has changed. The watch shows it.
            (Answer::Conflict(_), _) => refusals.pause.lengthen(Cause::Nothing, now),
        }
        match seen {
            Seen::Frr(found) => self.enter_answer((**found).clone()),
            Seen::Deleted(uid) => match &mut self.configurations {
                Ok(known) if known.get(&write.name).is_some_and(|found| found.uid == *uid) => {
                    known.remove(&write.name);
                    Changed::Node(write.node.clone())
                }
                Ok(_) | Err(_) => Changed::Nothing,
            },
            Seen::Nothing
            | Seen::Claim(_)
            | Seen::CiliumNode(_)
            | Seen::PatchedNode(_)
            | Seen::Pool(_)
            | Seen::PodIpPool(_)
            | Seen::Absent(_)
            | Seen::Node { .. }
            | Seen::PodsOf { .. }
            | Seen::ClaimsOf { .. }
            | Seen::Unreadable(_) => Changed::Nothing,
        }
    }
}

/// The nodes whose routes have changed.
pub(super) enum Changed {
    Nothing,
    Node(NodeName),
    All,
}

impl Changed {
    fn of(node: Option<NodeName>) -> Self {
        node.map_or(Self::Nothing, Self::Node)
    }
}

/// Whether a write copies the template into an FRRConfiguration.
pub(super) fn is_rollout(write: &FrrWrite) -> bool {
    matches!(write.change, FrrChange::Replace { purpose: FrrPurpose::Sessions, .. })
}
