//! Writes that fail: by their cause, with all nodes and pools that wait for its end.
//!
//! Knows no objects: its owner reports the outcome of each write. Keeps four invariants. Of all that wait for one
//! cause, one tries per [`PROBE_INTERVAL`], in turn. When one of them succeeds, all may try. A node whose write fails
//! for a reason of its own keeps no other node from trying, because each node waits only for a cause that it has met.
//! One that waits for a turn gets it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::model::backoff::Backoff;
use crate::model::failure::{PROBE_INTERVAL, REPORTED_AFTER};
use crate::model::names::{NodeName, PoolName};
use crate::model::outcome::Answer;
use crate::model::request::{Target, Write};
use crate::model::time::{Now, Timestamp};

/// The waits between two attempts while a cause lasts.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: PROBE_INTERVAL };

/// The longest wait that a server may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(30);

/// How many causes of one action are distinguished. The words of a server may differ with each request; beyond this
/// number all causes count as one, so that the attempts stay few.
const MAX_CAUSES: usize = 8;

/// Who waits for a write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiter {
    Node(NodeName),
    /// The condition of a Node. Its node waits for nothing.
    Condition(NodeName),
    Pool(PoolName),
}

/// How long a waiter pauses after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Until it is its turn.
    Turn,
    /// For a time of its own: the failure is about its object alone.
    Own,
}

/// The cause for which an action fails.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Cause {
    action: String,
    /// The words of the server without names and numbers, which differ between objects.
    gist: String,
    /// The only waiter, if the cause is about its object alone.
    only: Option<Waiter>,
}

/// A cause that lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failing {
    /// The write that first met it.
    pub(super) write: Write,
    /// The words of the server then.
    pub(super) words: String,
    /// When the first write was sent that met it.
    since: Duration,
    pub(super) since_wall: Timestamp,
    /// All that have met it.
    pub(super) waiters: BTreeSet<Waiter>,
    /// Those of them that wait for their turn.
    turns: VecDeque<Waiter>,
    /// How many attempts in a row have failed.
    n_attempts: u32,
    /// When the next in turn may try.
    next: Duration,
    /// Whether it has lasted long enough to be reported.
    pub(super) is_reported: bool,
}

/// The writes that fail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Failures {
    causes: BTreeMap<Cause, Failing>,
    /// The cause that keeps each waiter from each of its actions, and the object of the write.
    met: BTreeMap<(Waiter, String), (Cause, Target)>,
}

impl Failures {
    /// A write of this waiter, which was sent at `sent`, has failed.
    pub(super) fn failed(
        &mut self,
        waiter: &Waiter,
        write: &Write,
        answer: &Answer,
        sent: Duration,
        now: Now,
    ) -> Next {
        let (words, asked, is_own) = match answer {
            Answer::Conflict(words) => (words, None, true),
            Answer::Refused(words, asked) => (words, *asked, false),
            Answer::Unknown(words) => (words, None, false),
            Answer::Done => return Next::Own,
        };
        let cause = self.cause(write, words, is_own.then_some(waiter));
        let met = (waiter.clone(), cause.action.clone());
        let before = self.met.insert(met, (cause.clone(), write.target())).map(|(before, _)| before);
        // The words may change from one attempt to the next, and the write still fails.
        let mut since = sent;
        if let Some(before) = before.filter(|before| *before != cause) {
            since = self.causes.get(&before).map_or(since, |failing| failing.since.min(since));
            self.leave(&before, waiter);
        }
        let since_wall = now.wall.checked_sub(now.uptime.saturating_sub(since)).unwrap_or(now.wall);
        let failing = self.causes.entry(cause).or_insert_with(|| Failing {
            write: write.clone(),
            words: words.clone(),
            since,
            since_wall,
            waiters: BTreeSet::new(),
            turns: VecDeque::new(),
            n_attempts: 0,
            next: now.uptime,
            is_reported: false,
        });
        if since < failing.since {
            (failing.since, failing.since_wall) = (since, since_wall);
        }
        // One that meets a known cause for the first time was no attempt to find out whether it lasts.
        let is_attempt = !failing.waiters.insert(waiter.clone()) || failing.waiters.len() == 1;
        failing.is_reported |= now.uptime.saturating_sub(failing.since) >= REPORTED_AFTER;
        if is_own {
            self.let_try(waiter);
            return Next::Own;
        }
        if !failing.turns.contains(waiter) {
            failing.turns.push_back(waiter.clone());
            if is_attempt {
                failing.n_attempts = failing.n_attempts.saturating_add(1);
                failing.next = failing.next.max(now.uptime + BACKOFF.wait(failing.n_attempts));
            }
        }
        let asked = asked.unwrap_or_default().min(LONGEST_ASKED);
        failing.next = failing.next.max(now.uptime + asked);
        Next::Turn
    }

    /// The cause of a failure; it is about the object of `only` alone, if there is one.
    fn cause(&self, write: &Write, words: &str, only: Option<&Waiter>) -> Cause {
        let action = write.action();
        let cause = Cause { gist: gist(words, &write.target().object().1), only: only.cloned(), action };
        let shared = self.causes.keys().filter(|known| known.action == cause.action && known.only.is_none());
        if cause.only.is_some() || self.causes.contains_key(&cause) || shared.count() < MAX_CAUSES {
            cause
        } else {
            Cause { gist: String::new(), ..cause }
        }
    }

    /// A write of this waiter has been accepted. Returns all that waited for the end of the same cause: each may try
    /// now. A success with another object proves nothing, except for claims: each attempt may be about another block.
    pub(super) fn succeeded(&mut self, waiter: &Waiter, write: &Write) -> BTreeSet<Waiter> {
        self.let_try(waiter);
        let met = (waiter.clone(), write.action());
        let is_same = |target: &Target| matches!(write, Write::CreateClaim(_)) || *target == write.target();
        let Some((cause, _)) = self.met.get(&met).filter(|(_, target)| is_same(target)).cloned() else {
            return BTreeSet::new();
        };
        self.end(&cause)
    }

    fn end(&mut self, cause: &Cause) -> BTreeSet<Waiter> {
        let waiters = self.causes.remove(cause).map(|failing| failing.waiters).unwrap_or_default();
        for waiter in &waiters {
            self.met.remove(&(waiter.clone(), cause.action.clone()));
            self.let_try(waiter);
        }
        waiters
    }

    /// This waiter has nothing to write any more, or does not exist.
    pub(super) fn forget(&mut self, waiter: &Waiter) {
        let from = (waiter.clone(), String::new());
        while let Some(((of, action), (cause, _))) = self.met.range(from.clone()..).next()
            && of == waiter
        {
            let (action, cause) = (action.clone(), cause.clone());
            self.met.remove(&(waiter.clone(), action));
            self.leave(&cause, waiter);
        }
    }

    fn leave(&mut self, cause: &Cause, waiter: &Waiter) {
        let Some(failing) = self.causes.get_mut(cause) else { return };
        failing.waiters.remove(waiter);
        failing.turns.retain(|of| of != waiter);
        if failing.waiters.is_empty() {
            self.causes.remove(cause);
        }
    }

    /// Forgets everything. Returns all that waited.
    pub(super) fn clear(&mut self) -> BTreeSet<Waiter> {
        let waiters = std::mem::take(&mut self.met).into_keys().map(|(waiter, _)| waiter).collect();
        self.causes.clear();
        waiters
    }

    /// When the next in turn may try.
    pub(super) fn next_turn(&self) -> Option<Duration> {
        self.causes.values().filter(|failing| !failing.turns.is_empty()).map(|failing| failing.next).min()
    }

    /// Those whose turn it is: one for each cause that is due.
    pub(super) fn take_turns(&mut self, now: Duration) -> Vec<Waiter> {
        let due = self.causes.values_mut().filter(|failing| failing.next <= now);
        let waiters: Vec<Waiter> = due
            .filter_map(|failing| {
                let waiter = failing.turns.pop_front()?;
                failing.next = now + BACKOFF.wait(failing.n_attempts);
                Some(waiter)
            })
            .collect();
        for waiter in &waiters {
            self.let_try(waiter);
        }
        waiters
    }

    /// Whether this waiter may try only when it is its turn.
    pub(super) fn awaits_turn(&self, waiter: &Waiter) -> bool {
        self.causes.values().any(|failing| failing.turns.contains(waiter))
    }

    /// This waiter may try all its writes, whatever the causes that keep it from each.
    fn let_try(&mut self, waiter: &Waiter) {
        for failing in self.causes.values_mut() {
            failing.turns.retain(|of| of != waiter);
        }
    }

    /// Whether a failure of this waiter is reported.
    pub(super) fn is_reported_for(&self, waiter: &Waiter) -> bool {
        let causes = self.causes.values();
        causes.filter(|failing| failing.is_reported).any(|failing| failing.waiters.contains(waiter))
    }

    /// All that wait, of every cause.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.met.keys().map(|(waiter, _)| waiter)
    }

    /// The causes that have lasted long enough to be reported, each with its action.
    pub(super) fn reported(&self) -> impl Iterator<Item = (&str, &Failing)> {
        self.causes
            .iter()
            .filter(|(_, failing)| failing.is_reported)
            .map(|(cause, failing)| (cause.action.as_str(), failing))
    }
}

/// The words of a server without the name of the object and without numbers: equal for equal causes.
fn gist(words: &str, name: &str) -> String {
    let mut gist = String::with_capacity(words.len());
    for character in words.replace(name, "").chars() {
        match character {
            '0'..='9' if gist.ends_with('#') => {}
            '0'..='9' => gist.push('#'),
            other => gist.push(other),
        }
    }
    gist
}

#[cfg(test)]
mod tests;
