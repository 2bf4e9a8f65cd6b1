//! The watches of one controller process: four kinds, and the Pods of agents, each with its own lag.

use cilium_node_ipam::model::agent::AgentNews;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::observation::{Listing, Object, Observation};
use cilium_node_ipam::model::revision::{AnyRevision, Revision};

use super::super::store::{AgentPods, Store};
use super::{Process, Replica};

/// The watch of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Feed {
    /// Not requested yet.
    Off,
    /// A list was requested when the store had reached this revision.
    Asked(Revision),
    /// The list was taken, at its own revision, and is in flight.
    Taken { at_least: Revision, at: Revision, objects: Vec<Object> },
    /// Events up to this revision were received.
    Following(Revision),
}

impl Replica {
    /// The watch of a kind is silent until [`Self::hears_again`].
    pub(in super::super) fn goes_deaf_to(&mut self, kind: Kind) {
        // A process that starts lists everything first.
        if self.world().is_some() {
            self.deaf_to.insert(kind);
        }
    }

    pub(in super::super) fn hears_again(&mut self) {
        self.deaf_to.clear();
        self.is_deaf_to_agents = false;
    }

    /// It sees no more news of the agents' Pods until [`Self::hears_again`]. It may never have seen any: it serves all
    /// the same.
    pub(in super::super) fn goes_deaf_to_agents(&mut self) {
        self.is_deaf_to_agents = true;
    }

    /// Receives the next piece of news of the agents' Pods, first all of them. Returns a line for a person.
    pub(in super::super) fn hear_of_agents(&mut self, pods: &AgentPods) -> Option<String> {
        if self.is_deaf_to_agents {
            return None;
        }
        let (news, reported) = match self.agent_news {
            None => {
                self.agent_news = Some(pods.n_news());
                (pods.listed(), "lists the Pods of agents".to_owned())
            }
            Some(n_reported) => {
                let news = pods.news(n_reported)?.clone();
                self.agent_news = Some(n_reported + 1);
                let reported = match &news {
                    AgentNews::Applied(pod) => format!("sees Pod {}, ready: {}", pod.name, pod.ready),
                    AgentNews::Deleted(pod) => format!("sees Pod {} go", pod.name),
                    AgentNews::Vouched(_) | AgentNews::Unlisted(_) | AgentNews::Listed(_) => String::new(),
                };
                (news, reported)
            }
        };
        match &mut self.process {
            Process::Gathering(gathering) => gathering.observe_agents(news),
            Process::Serving(world) => world.observe_agents(news),
        }
        Some(reported)
    }

    /// The watch of `kind` broke and lists anew; events in between are not received one by one.
    pub(in super::super) fn relist(&mut self, kind: Kind, store: &Store) {
        if matches!(self.feeds.get(&kind), Some(Feed::Following(_))) {
            self.feeds.insert(kind, Feed::Asked(store.revision()));
        }
    }

    /// Receives all news of a kind, deaf or not.
    pub(in super::super) fn hears_all_of(&mut self, kind: Kind, store: &Store) {
        let was_deaf = self.deaf_to.remove(&kind);
        while self.hear(kind, store).is_some() {}
        if was_deaf {
            self.deaf_to.insert(kind);
        }
    }

    /// Receives the next piece of news of `kind`, if there is any. Returns a line for a person.
    pub(in super::super) fn hear(&mut self, kind: Kind, store: &Store) -> Option<String> {
        if self.deaf_to.contains(&kind) {
            return None;
        }
        if matches!(self.feeds.get(&kind), Some(Feed::Asked(_))) {
            self.is_answered(store);
        }
        let feed = self.feeds.get_mut(&kind)?;
        match feed.clone() {
            Feed::Off => None,
            Feed::Asked(at_least) => {
                *feed = Feed::Taken { at_least, at: store.revision(), objects: store.list(kind) };
                Some(format!("lists {} at {}", kind.as_str(), store.revision()))
            }
            Feed::Taken { at_least, at, objects } => {
                *feed = Feed::Following(at);
                if kind == Kind::Claim {
                    for feed in self.feeds.values_mut().filter(|feed| **feed == Feed::Off) {
                        *feed = Feed::Asked(store.revision());
                    }
                }
                let at_most = store.revision();
                let reported = format!("is told of {} {} as of {at}", objects.len(), kind.as_str());
                let (at_least, at_most) =
                    (AnyRevision::of(kind, at_least.number()), AnyRevision::of(kind, at_most.number()));
                self.observe(Observation::Listed(Listing { kind, at_least, at_most, objects }));
                Some(reported)
            }
            Feed::Following(cursor) => {
                let event = store.event_after(kind, cursor)?;
                let (at, name) = (event.at, &event.name);
                *feed = Feed::Following(at);
                let observation = event.observation(kind);
                let reported = match &observation {
                    Observation::Applied(_) => format!("sees {} {name} at {at}", kind.as_str()),
                    Observation::Deleted { .. } => format!("sees {} {name} go at {at}", kind.as_str()),
                    Observation::Listed(_) => String::new(),
                };
                self.observe(observation);
                Some(reported)
            }
        }
    }
}
