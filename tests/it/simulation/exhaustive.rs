//! A small world in every order: two nodes, two replicas with different views, and two overlapping names. The replicas
//! claim these because each has seen another pool. The product's own planner decides.
//!
//! Random scripts find probable events. Here every possible event happens, up to a number of moves. After every move,
//! `rules::safety` and `rules::transition` judge everything: no address is on two nodes, and no block is published
//! without its claim. `SIM_DEPTH` sets another number of moves; `--profile simulation` makes each of them faster.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher};

use cilium_node_ipam::model::claim::Claim;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::net::cidr::Family;

use super::cluster::{Cluster, Pace, Step, Suite};
use super::mode::blocks;
use super::pools::Shape;
use super::searches::{number, setting};

/// How many moves `make check` makes: 3,060 states in 21 s of CPU. Each further one takes six times as long.
const DEPTH: u64 = 4;
/// How often in a path a CiliumNode is deleted, which its agent creates anew, and how often a replica restarts.
const N_FAULTS: u8 = 1;

/// A cluster, the faults that it may still have, and the moves that led to it.
#[derive(Clone)]
struct State {
    cluster: Cluster,
    recreations: u8,
    restarts: u8,
    path: Vec<Move>,
}

/// One move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    /// A replica receives all news of some kinds, and makes all decisions.
    Works(u8, &'static [Kind]),
    /// The first or second request of a replica reaches the server, and its answer reaches the replica.
    Ends(u8, u8),
    /// The CiliumNode of the first node is deleted.
    IsDeleted,
    /// Its agent creates it again.
    IsCreated,
    /// A replica restarts, and has listed everything.
    Restarts(u8),
}

/// The kinds that a replica may receive news of in one move.
const HEARD: [&[Kind]; 4] = [&[], &[Kind::CiliumNode], &[Kind::Claim], &[Kind::CiliumNode, Kind::Claim]];

/// Passes written text to a hasher.
struct Digest(DefaultHasher);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl State {
    /// One replica has seen a pool with small blocks and nothing later, and asks for a block for each node. The other
    /// has seen the pool that replaced it and the second node, and asks for a block that overlaps both.
    fn first() -> Self {
        let pools = [
            Step::PoolIsMade { pool: 0, shape: Shape::of_small_blocks() },
            Step::ReplicaWorks { replica: 0 },
            Step::ReplicaWorks { replica: 1 },
            Step::GoesDeaf { replica: 0, kind: Kind::Pool },
            Step::PoolIsReplaced { pool: 0, shape: Shape::whole() },
            Step::ReplicaWorks { replica: 1 },
        ];
        let joins = [0, 1].map(|node| Step::NodeJoins { node, zone: 0, own_address: None });
        let hears = |replica, kind| Step::News { replica, kind, events: 8 };
        let nodes = [0, 1].map(|replica| hears(replica, Kind::Node));
        let asks = [1, 0].map(|number| {
            let decides = Step::Decision { replica: number, decisions: 8 };
            [Step::AgentStarts { node: number }, hears(number, Kind::CiliumNode), decides]
        });
        let mut cluster = Cluster::new(setting(Suite::Promises, 2, Pace::Wild, &[Family::V4]));
        for step in [&pools[..], &joins, &nodes, &asks.concat()].concat() {
            cluster.step(&step).expect("nothing is wrong yet");
        }
        cluster.end_pool_writes().expect("nothing is wrong yet");
        Self { cluster, recreations: N_FAULTS, restarts: N_FAULTS, path: Vec::new() }
    }

    fn digest(&self) -> u64 {
        let mut digest = Digest(DefaultHasher::new());
        write!(digest, "{:?} {} {}", self.cluster, self.recreations, self.restarts)
            .expect("it takes everything");
        digest.0.finish()
    }

    fn moves(&self) -> Vec<Move> {
        let of_replica = |replica| {
            let works = HEARD.into_iter().map(move |heard| Move::Works(replica, heard));
            works.chain([Move::Ends(replica, 0), Move::Ends(replica, 1), Move::Restarts(replica)])
        };
        let mut moves: Vec<Move> = [0, 1].into_iter().flat_map(of_replica).collect();
        moves.extend([Move::IsDeleted, Move::IsCreated]);
        moves.retain(|next| match next {
            Move::IsDeleted => self.recreations > 0,
            Move::IsCreated => self.cluster.store.cilium_node(&"n0".into()).is_none(),
            Move::Restarts(_) => self.restarts > 0,
            Move::Ends(replica, request) => self.cluster.n_in_flight(*replica) > usize::from(*request),
            Move::Works(..) => true,
        });
        moves
    }

    fn after(&self, next: Move) -> Result<Self, String> {
        let mut state = self.clone();
        state.path.push(next);
        state.make(next).map_err(|why| format!("{why}, after {:?}", state.path))?;
        Ok(state)
    }

    fn make(&mut self, next: Move) -> Result<(), String> {
        let cluster = &mut self.cluster;
        match next {
            Move::Works(replica, heard) => {
                for kind in heard {
                    cluster.step(&Step::News { replica, kind: *kind, events: u8::MAX })?;
                }
                cluster.step(&Step::Decision { replica, decisions: u8::MAX })?;
            }
            Move::Ends(replica, request) => {
                let n_before = cluster.n_in_flight(replica);
                while cluster.n_in_flight(replica) == n_before {
                    cluster.step(&Step::WriteProceeds { replica, write: request })?;
                }
            }
            Move::IsDeleted => {
                self.recreations -= 1;
                cluster.step(&Step::CiliumNodeIsDeleted { node: 0 })?;
            }
            Move::IsCreated => cluster.step(&Step::AgentStarts { node: 0 })?,
            Move::Restarts(replica) => {
                self.restarts -= 1;
                cluster.step(&Step::Restart { replica })?;
                cluster.hear_all(usize::from(replica));
            }
        }
        // Statuses of pools are no part of this.
        cluster.end_pool_writes()
    }

    fn has_overlap(&self) -> bool {
        let claims: Vec<&Claim> = self.cluster.store.claims().collect();
        let overlap = |one: &Claim, other: &Claim| one.cidr != other.cidr && one.cidr.overlaps(other.cidr);
        claims.iter().any(|one| claims.iter().any(|other| overlap(one, other)))
    }

    fn n_published(&self) -> usize {
        self.cluster.store.cilium_nodes().filter(|seen| !blocks(seen).is_empty()).count()
    }
}

#[test]
fn in_whatever_order_no_address_is_on_two_nodes_and_no_block_is_published_before_its_claim() {
    let depth = number("SIM_DEPTH").unwrap_or(DEPTH);
    let first = State::first();
    let mut visited = HashSet::from([first.digest()]);
    let mut frontier = vec![first];
    let (mut n_overlaps, mut n_published, mut n_recreated) = (0, 0, 0);
    for n_moves in 1..=depth {
        let mut next = Vec::new();
        for state in &frontier {
            for step in state.moves() {
                let after = state.after(step).unwrap_or_else(|why| panic!("{why}"));
                if visited.insert(after.digest()) {
                    n_overlaps += usize::from(after.has_overlap());
                    n_published += usize::from(after.n_published() > 0);
                    n_recreated += usize::from(after.path.contains(&Move::IsCreated));
                    next.push(after);
                }
            }
        }
        frontier = next;
        println!("{} states within {n_moves} moves", visited.len());
    }
    println!(
        "{} states within {depth} moves: {n_overlaps} with claims that overlap, {n_published} with a block on a node, \
         {n_recreated} with a CiliumNode created anew",
        visited.len()
    );
    // The states that this test is about were reached.
    assert!(n_overlaps > 0 && n_published > 0 && n_recreated > 0);
}
