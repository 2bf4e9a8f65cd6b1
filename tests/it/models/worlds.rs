//! All states that a model may be in, according to the observations.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use cilium_node_ipam::net::cidr::Family;

use crate::simulation::agent::bench::Bench;
use crate::support::control_plane::Options;

/// More states than any command causes.
const MAX_WORLDS: usize = 2000;

/// From this number on it is time to check which states match the agent.
const MANY: usize = 40;

/// The number of states that a failure shows.
const MAX_SHOWN: usize = 5;

/// The states that the model may be in.
#[derive(Clone)]
pub(super) struct Worlds(Vec<Bench>);

impl Worlds {
    pub(super) fn new(options: &Options, families: impl IntoIterator<Item = Family>) -> Self {
        Self(vec![Bench::new(options.ipam, options.annotations, &families.into_iter().collect())])
    }

    /// Adds all states that an agent may reach by itself: it receives news and reports, any number of times.
    fn unfold(&mut self) -> Result<()> {
        let mut states: BTreeSet<String> = self.0.iter().map(Bench::state).collect();
        let mut at = 0;
        while let Some(bench) = self.0.get(at).cloned() {
            for step in [Bench::looks, Bench::reports] {
                let mut next = bench.clone();
                step(&mut next);
                if states.insert(next.state()) {
                    self.0.push(next);
                }
            }
            ensure!(self.0.len() < MAX_WORLDS, "the model never comes to rest");
            at += 1;
        }
        Ok(())
    }

    /// Whether it is time to observe the agent before the next event.
    pub(super) fn are_many(&self) -> bool {
        self.0.len() > MANY
    }

    /// An event happens, at any moment. `happens` returns whether it may happen in a world as it was seen.
    pub(super) fn apply(&mut self, what: &str, mut happens: impl FnMut(&mut Bench) -> bool) -> Result<()> {
        self.unfold()?;
        let all = self.0.clone();
        self.0.retain_mut(&mut happens);
        ensure!(!self.0.is_empty(), "the model knows no way for this: {what}; it is at {}", shown(&all));
        Ok(())
    }

    /// Keeps only the observed states among those that the agent may have reached by itself, if there are any.
    pub(super) fn saw(&mut self, was_seen: impl Fn(&Bench) -> bool) -> Result<bool> {
        let mut left = self.clone();
        left.unfold()?;
        left.0.retain(was_seen);
        let has_any = !left.0.is_empty();
        if has_any {
            *self = left;
        }
        Ok(has_any)
    }

    /// Whether this holds wherever the model comes to rest.
    pub(super) fn come_to(&self, holds: impl Fn(&Bench) -> bool) -> Result<bool> {
        let mut all = self.clone();
        all.unfold()?;
        Ok(all.0.iter().filter(|bench| bench.is_at_rest()).all(holds))
    }

    /// The states in which they come to rest, for the message of a failure.
    pub(super) fn expected(&self) -> Result<String> {
        let mut all = self.clone();
        all.unfold()?;
        all.0.retain(Bench::is_at_rest);
        Ok(shown(&all.0))
    }
}

fn shown(worlds: &[Bench]) -> String {
    let each: BTreeSet<String> = worlds.iter().map(Bench::reported).collect();
    each.into_iter().take(MAX_SHOWN).collect::<Vec<_>>().join("\n  or ")
}
