//! A cluster without further disturbance: it comes to rest, stays at rest, and every world matches its objects.

use std::ops::Range;
use std::time::Duration;

use cilium_node_ipam::ledger::Occupant;
use cilium_node_ipam::model::claim::{Claim, ClaimState, Reason};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::observation::{Listing, Observation};
use cilium_node_ipam::model::plan::{NodePlan, TimedState};
use cilium_node_ipam::model::request::{Read, Request, Write};
use cilium_node_ipam::model::revision::AnyRevision;
use cilium_node_ipam::model::time::{Now, Timestamp};
use cilium_node_ipam::plan;
use cilium_node_ipam::publisher::mode::Publishers;
use cilium_node_ipam::view::conditions;
use cilium_node_ipam::world::World;
use cilium_node_ipam::world::gather::Gathering;

use super::super::mode::Mode;
use super::super::replica::{Flight, POLICY, Replica, world_of_nothing};
use super::super::rules;
use super::{Cluster, Pace};

/// The maximum number of rounds (decisions, writes and news) in which one undisturbed replica writes more than
/// statuses. After a CiliumNode was recreated, it publishes, sends a usage query, clears it, claims, and publishes.
/// Each block that drains from an existing node takes eight rounds, one block after the other.
const MOST_ROUNDS_ALONE: usize = 100;
/// The same for several replicas, which get in each other's way, and after faults, which leave reads behind.
const MOST_ROUNDS: usize = 150;
/// The maximum number of rounds of any kind: blocks may drain and cool one after the other.
const MOST_ROUNDS_IN_ALL: usize = 800;
/// The maximum number of times in a turn that a replica decides and carries out its decisions.
const MOST_IN_A_TURN: usize = 10;
/// How many rounds of full length in a row have nothing to do at rest. Everything that a plan waits for is due by the
/// third.
const QUIET_ROUNDS: usize = 3;
/// After how many rounds without a write of another kind a cluster is at rest although agents do not answer.
const LONG_PEACE: usize = 40;
/// How many pauses of reclaim are waited for at most, and for how long: more than the longest pause after a refusal.
const MOST_PAUSES: usize = 3;
const PAUSE_OF_RECLAIM: Duration = Duration::from_secs(20 * 60);
/// The time between two such rounds: more than any wait of a plan, except for cooling.
const ROUND: Duration = Duration::from_secs(40);

impl Cluster {
    /// Completes everything that is under way, round by round. Then it judges the rules at rest, and each replica's
    /// world.
    pub(in super::super) fn rest(&mut self) -> Result<(), String> {
        let alone = self.setting.pace == Pace::Calm && self.setting.n_replicas == 1;
        let most = if alone { MOST_ROUNDS_ALONE } else { MOST_ROUNDS };
        for stray in std::mem::take(&mut self.strays) {
            self.arrives(&stray)?;
        }
        self.hands_off();
        self.restart_agents_that_count_wrongly();
        for replica in &mut self.replicas {
            replica.hears_again();
        }
        let (mut n_rounds, mut n_busy, mut n_quiet, mut n_pauses) = (0, 0, 0, 0);
        let mut last_busy = 0;
        while n_quiet < QUIET_ROUNDS {
            let is_short = self.has_looked;
            match self.round(n_rounds)? {
                Round::Busy => {
                    n_busy += 1;
                    n_quiet = 0;
                    last_busy = n_rounds;
                }
                Round::Reads => n_quiet = 0,
                // The cluster has waited for the next change: a block that has cooled starts another chain.
                Round::Statuses => (n_busy, n_quiet) = (0, 0),
                Round::Quiet => (n_busy, n_quiet) = (0, n_quiet + usize::from(!is_short)),
            }
            if n_quiet == QUIET_ROUNDS && n_pauses < MOST_PAUSES && self.is_any_withdrawn() {
                self.pass(PAUSE_OF_RECLAIM);
                (n_pauses, n_quiet) = (n_pauses + 1, 0);
            }
            n_rounds += 1;
            // Each replica asks such an agent for its use for ever.
            if n_rounds - last_busy > LONG_PEACE && self.is_any_of_another_mode() {
                break;
            }
            if n_busy == most / 2 || n_rounds == MOST_ROUNDS_IN_ALL / 2 {
                // A block was removed while in use, and its agent releases the block that it gets instead.
                self.restart_agents_that_count_wrongly();
            }
            if n_busy > most || n_rounds > MOST_ROUNDS_IN_ALL {
                let differ = self.statuses_that_differ();
                // Without an election they write these statuses in turn, or ask an agent in turn, for as long as each runs
                // (decision 0045).
                let disagree = !differ.is_empty() || self.is_any_mute();
                if n_rounds - last_busy > most && self.memories_may_differ() && disagree {
                    break;
                }
                return Err(format!("no rest after {n_busy} rounds, {n_rounds} in all{differ}"));
            }
        }
        self.say(|| format!("    rest after {n_rounds} rounds"));
        rules::settled(&self.store, &self.setting, &self.agents, &self.given, &self.taint)?;
        for number in 0..self.replicas.len() {
            self.look_at(number)?;
            if self.memories_may_differ() || self.is_any_of_another_mode() {
                continue;
            }
            self.stays_at_rest(number)?;
            self.equals_rebuilt(number)?;
        }
        Ok(())
    }

    /// The statuses of a pool that two replicas would write differently: they rewrite them for ever.
    fn statuses_that_differ(&self) -> String {
        let worlds: Vec<&World> = self.replicas.iter().filter_map(Replica::world).collect();
        let mut differ = String::new();
        for pair in worlds.windows(2) {
            for object in pair[0].pool_objects() {
                let [one, other] = [pair[0], pair[1]].map(|world| conditions::status(world, object));
                if one != other {
                    differ = format!("{differ}\n{one:?} is shown of {}, and {other:?}", object.name);
                }
            }
        }
        differ
    }

    /// One round: time passes, agents and other surroundings act, and then the replicas do everything that they can do.
    ///
    /// One replica may want a change that another does not, because the other remembers something that no object shows.
    /// Then the writes of the one come too late each time, for ever. So the replicas take turns.
    fn round(&mut self, number: usize) -> Result<Round, String> {
        // The result of a read of Pods counts for a moment.
        let has_looked = std::mem::take(&mut self.has_looked);
        self.pass(if has_looked { Duration::from_secs(2) } else { ROUND });
        self.surroundings()?;
        self.finalizers_go();
        self.follow_taint();
        if self.memories_may_differ() {
            return self.turns(number);
        }
        self.turn(0..self.replicas.len())
    }

    /// One replica after the other does everything that it can do now. Each time another replica is the first.
    fn turns(&mut self, begin: usize) -> Result<Round, String> {
        let mut round = Round::Quiet;
        for turn in 0..self.replicas.len() {
            let number = (begin + turn) % self.replicas.len();
            round = round.max(self.turn(number..number + 1)?);
        }
        Ok(round)
    }

    /// These replicas receive all news, decide everything and complete all writes, until they want nothing more.
    ///
    /// An agent looks after its CIDRs once a minute, and a replica decides at once. If the agent acted between two
    /// decisions each time, it could undo the one for ever.
    fn turn(&mut self, numbers: Range<usize>) -> Result<Round, String> {
        let mut round = Round::Quiet;
        // Reads come before a write, and a write shows the next one. Of several writes to one object, all but one wait.
        for _ in 0..MOST_IN_A_TURN {
            for number in numbers.clone() {
                if self.hear_all(number) {
                    round = round.max(Round::Statuses);
                }
            }
            for number in numbers.clone() {
                self.decide_all(number)?;
                round = round.max(self.under_way(number));
            }
            let is_done = |replicas: &[Replica]| replicas.iter().all(|replica| replica.in_flight.is_empty());
            if is_done(&self.replicas[numbers.clone()]) {
                break;
            }
            // By turns, so that replicas meet at every object.
            while !is_done(&self.replicas[numbers.clone()]) {
                for number in numbers.clone() {
                    self.proceed(number, 0)?;
                }
                self.look(None)?;
            }
            self.agents_look();
        }
        Ok(round)
    }

    /// The agents see each version: one that saw only the last would miss a second usage query.
    fn agents_look(&mut self) {
        for name in self.agents.keys().cloned().collect::<Vec<_>>() {
            self.looks(&name);
        }
    }

    /// Whether a block waits for its removal. That takes long after its agent has refused.
    fn is_any_withdrawn(&self) -> bool {
        self.setting.modes.of_all == Mode::MultiPool && self.store.claims().any(Claim::is_reclaimed)
    }

    /// The kind of round that the requests of a replica make.
    fn under_way(&mut self, number: usize) -> Round {
        let is_look = |flight: &Flight| matches!(flight.request, Request::Read(Read::PodsOf(..)));
        self.has_looked |= self.replicas[number].in_flight.iter().any(is_look);
        let rounds = self.replicas[number].in_flight.iter().map(|flight| self.round_of(&flight.request));
        rounds.max().unwrap_or(Round::Quiet)
    }

    /// The kind of round that a request makes here. An agent of a tainted node may never answer, nor does one of another
    /// mode than its node has now, and each replica asks it for ever.
    fn round_of(&self, request: &Request) -> Round {
        let is_of_other_mode = |node: &NodeName| {
            self.agents.get(node).is_some_and(|agent| agent.mode() != self.store.mode_of(node))
        };
        match request {
            Request::Write(Write::UsageQuery(query))
                if self.taint.is(&query.node) || is_of_other_mode(&query.node) =>
            {
                Round::Quiet
            }
            _ => Round::of(request),
        }
    }

    /// Changes that come sooner or later: the CiliumNode of a deleted Node is deleted, and an agent is ready, and has
    /// seen and written everything.
    fn surroundings(&mut self) -> Result<(), String> {
        let seen: Vec<NodeName> = self.store.cilium_nodes().map(|seen| seen.name.clone()).collect();
        for name in seen {
            if self.store.stored(Kind::Node, name.as_str()).is_none() {
                self.store.remove(Kind::CiliumNode, name.as_str());
            } else {
                self.agent_catches_up(&name)?;
            }
        }
        if self.setting.modes.use_nodes() {
            // Its agent creates the CiliumNode later.
            let nodes: Vec<NodeName> = self.store.nodes().map(|node| node.name.clone()).collect();
            nodes.iter().try_for_each(|name| self.agent_catches_up(name))?;
        }
        Ok(())
    }

    /// Whether the Pod of an agent has started in another mode than its node has now.
    fn is_any_of_another_mode(&self) -> bool {
        self.agents.iter().any(|(name, agent)| agent.mode() != self.store.mode_of(name))
    }

    /// Whether an agent never answers, because another writer took addresses from its pods.
    fn is_any_mute(&self) -> bool {
        self.agents.iter().any(|(node, agent)| self.taint.is(node) && !agent.is_ready())
    }

    /// Whether a replica may keep addresses taken that others never saw: another writer removed them, or the CiliumNode
    /// of a Node is absent. Then the replicas do not decide alike.
    fn memories_may_differ(&self) -> bool {
        self.taint.is_any() || self.store.nodes().any(|node| self.store.cilium_node(&node.name).is_none())
    }

    /// A replica that decides about everything again finds nothing to do.
    fn stays_at_rest(&mut self, number: usize) -> Result<(), String> {
        // Statuses are computed at most once per second.
        self.pass(Duration::from_secs(2));
        // A sample of a pool's history may be due now.
        self.decide_all(number)?;
        self.wants_only(number, Round::Statuses)?;
        self.end_all(number)?;
        self.hear_all(number);
        if let Some(world) = self.replicas[number].world_mut() {
            world.mark_all();
        }
        self.decide_all(number)?;
        self.wants_only(number, Round::Quiet)
    }

    /// A replica at rest has no requests that make another kind of round than this, or a quieter one.
    fn wants_only(&self, number: usize, at_most: Round) -> Result<(), String> {
        let mut in_flight = self.replicas[number].in_flight.iter();
        match in_flight.find(|flight| self.round_of(&flight.request) > at_most) {
            None => Ok(()),
            Some(flight) => Err(format!("r{number} was at rest, and wants to `{}`", flight.request)),
        }
    }

    /// A world built from lists of the present objects equals the one that was built step by step.
    fn equals_rebuilt(&self, number: usize) -> Result<(), String> {
        let Some(running) = self.replicas[number].world() else {
            return Err(format!("r{number} has not begun to serve"));
        };
        let at = self.store.revision();
        let mut gathering = Gathering::default();
        gathering.set_mode(running.mode().clone());
        gathering.set_freeze(running.freeze().clone());
        gathering.observe_agents(self.store.agent_pods.listed());
        gathering.observe_node_configs(self.setting.modes.node_configs());
        for kind in Kind::AS_LISTED {
            let objects = self.store.list(kind);
            let at = AnyRevision::of(kind, at.number());
            gathering.observe(Observation::Listed(Listing { kind, at_least: at, at_most: at, objects }));
        }
        let rebuilt = gathering.complete().map_err(|_| "every kind was listed".to_owned())?;
        same_worlds(running, &rebuilt).map_err(|what| format!("r{number} and a rebuilt world differ: {what}"))
    }

    /// Worlds that see the same events decide alike, if each kind is in its order but the kinds are mixed differently.
    pub(in super::super) fn any_order_decides_alike(&self, turns: &[u8]) -> Result<(), String> {
        let settings = self.setting.modes.publishers(&self.setting.families);
        let straight = self.world_reported(settings.clone(), &[0]);
        let mixed = self.world_reported(settings, turns);
        if [&straight, &mixed].into_iter().any(remembers_what_no_object_says) {
            return Ok(());
        }
        same_worlds(&straight, &mixed).map_err(|what| format!("the order of news matters: {what}"))
    }

    /// A world that starts with nothing and sees the history, one event of the kind at its turn.
    fn world_reported(&self, settings: Publishers, turns: &[u8]) -> World {
        let mut world = world_of_nothing(settings, self.setting.modes.node_configs());
        let mut open: Vec<_> =
            Kind::AS_LISTED.into_iter().map(|kind| (kind, self.store.history(kind).iter())).collect();
        let mut turns = turns.iter().cycle();
        while !open.is_empty() {
            let turn = usize::from(turns.next().copied().unwrap_or_default()) % open.len();
            let (kind, events) = &mut open[turn];
            match events.next() {
                Some(event) => world.observe(event.observation(*kind)),
                None => drop(open.remove(turn)),
            }
        }
        world
    }
}

/// The kind of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Round {
    /// Nothing happened.
    Quiet,
    /// News, and writes of statuses.
    Statuses,
    /// Reads that must come before a write.
    Reads,
    /// Writes about claims and CiliumNodes.
    Busy,
}

impl Round {
    /// The kind of round that a request makes.
    fn of(request: &Request) -> Self {
        match request {
            Request::Write(write) if write.pool().is_some() => Self::Statuses,
            // The pods that a block waits for are read now and then, for as long as it waits.
            Request::Read(Read::PodsOf(..)) => Self::Quiet,
            Request::Read(_) => Self::Reads,
            Request::Write(_) => Self::Busy,
        }
    }
}

/// Whether a world keeps addresses taken that no object shows any more: those of a lost claim, or those without a claim
/// on an absent CiliumNode of an existing Node. The order of news decides which world has seen them.
fn remembers_what_no_object_says(world: &World) -> bool {
    let is_lost = |occupant: &Occupant| matches!(occupant, Occupant::LostClaim(_));
    world.ledger().entries().any(|(_, occupant)| is_lost(occupant))
        || world.nodes().any(|node| {
            world.cilium_node(&node.name).is_none() && world.ledger().carried(&node.name).is_some()
        })
}

/// Whether blocks of a node drain, are released, or must leave. That depends on the reads of its Pods, and on the agent
/// that was seen to write its use.
fn leaves(world: &World, node: &NodeName) -> bool {
    world.claims_of(node).any(|known| {
        matches!(
            known.claim.state,
            ClaimState::Draining(_) | ClaimState::Releasing(Reason::Reclaimed | Reason::Unused)
        ) || world.must_leave(&known.claim)
    })
}

/// Whether a plan depends on a read of Pods, or on how long something was seen that no object shows. A block whose pool is gone cools by
/// default for longer than a cluster is watched at rest.
fn counts_time(plan: &NodePlan) -> bool {
    let lasting = [
        TimedState::Surplus,
        TimedState::AgentAwaited,
        TimedState::UseUnknown,
        TimedState::GrowthAwaitsUse,
        TimedState::FormerModeOver,
    ];
    lasting.iter().any(|lasting| plan.lasting.contains(lasting))
        || !plan.cooling.is_empty()
        || depends_on_pods(plan)
}

/// Whether a plan depends on reads of Pods by this process.
fn depends_on_pods(plan: &NodePlan) -> bool {
    let reads_pods = |request: &Request| matches!(request, Request::Read(Read::PodsOf(..)));
    plan.lasting.contains(&TimedState::FormerModeOver) || plan.requests().iter().any(reads_pods)
}

/// The difference between two worlds that saw the same: objects, taken addresses, free ones, chosen pools, decisions,
/// or statuses.
fn same_worlds(one: &World, other: &World) -> Result<(), String> {
    let same = |what: &str, same: bool| if same { Ok(()) } else { Err(what.to_owned()) };
    same("nodes", one.nodes().eq(other.nodes()))?;
    same("pools", one.pool_objects().eq(other.pool_objects()))?;
    let claims = |world: &World| world.claims().map(|known| known.claim.clone()).collect::<Vec<_>>();
    same("claims", claims(one) == claims(other))?;
    let taken = |world: &World| {
        world.ledger().entries().map(|(cidr, occupant)| (cidr, occupant.clone())).collect::<Vec<_>>()
    };
    if taken(one) != taken(other) {
        return Err(format!("taken is {:?} and {:?}", taken(one), taken(other)));
    }
    same("the ledger", one.ledger() == other.ledger())?;
    // Late, so that all waits of both are over. The wall clock is before every `since`.
    let now = Now { uptime: Duration::from_secs(36_000_000), wall: Timestamp::UNIX_EPOCH };
    let (mut one, mut other) = (one.clone(), other.clone());
    let mut have_read_alike = true;
    let names: Vec<NodeName> = one.nodes().map(|node| node.name.clone()).collect();
    for name in names {
        same("a CiliumNode", one.cilium_node(&name) == other.cilium_node(&name))?;
        let chosen = |world: &World| world.pools_of(&name).map(|pool| pool.name.clone()).collect::<Vec<_>>();
        same("the pools of a node", chosen(&one) == chosen(&other))?;
        let plans = [&one, &other].map(|world| plan::node(world, &name, POLICY, now));
        // Only a process that has seen it knows the former carrier (known gaps).
        let decides = |world: &World| world.former_carrier(&name).is_some() && !world.is_served(&name);
        let is_alike = [&one, &other].iter().all(|world| !decides(world));
        if is_alike && plans[0] != plans[1] && !leaves(&one, &name) && !plans.iter().any(counts_time) {
            return Err(format!("{:?} is planned, and {:?}", plans[0], plans[1]));
        }
        have_read_alike &= !plans.iter().any(depends_on_pods);
        one.begin(&plans[0], now);
        other.begin(&plans[1], now);
    }
    if !have_read_alike {
        return Ok(());
    }
    for object in one.pool_objects() {
        let statuses = [&one, &other].map(|world| conditions::status(world, object));
        if statuses[0] != statuses[1] {
            return Err(format!("{:?} is shown of {}, and {:?}", statuses[0], object.name, statuses[1]));
        }
    }
    Ok(())
}
