//! Decisions as text: a small cluster in, what is to be done for one node out.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{CiliumNodeOrigin, NodePlan, Policy, node};
use crate::ipam::account::{self, listed};
use crate::ipam::addresses::AddressSet;
use crate::ipam::block::{Cidr, Family};
use crate::ipam::claim::{Claim, ClaimState, Reason};
use crate::ipam::names::{NodeName, Revision};
use crate::ipam::pool::{
    Expand, FirstLast, PerNode, Pool, RangeState, Ranges, Reclaim, ReclaimMode, Reservation,
};
use crate::world::gather::Gathering;
use crate::world::objects::{CiliumNode, Mode, Node, ReleaseMark, Settings};
use crate::world::observe::{InvalidPool, Kind, Listing, Object, Observation, PoolObject};
use crate::world::status::PoolStatus;
use crate::world::write::{Answer, Effect, ObjectKey, Outcome, Ping, Presence, Seen, Write};
use crate::world::{Now, World};

/// The revision up to which every list of a fixture shows the store.
const LISTED: u64 = 100;

/// A cluster in lines:
/// `pool NAME CIDR BLOCKSIZE [younger] [invalid] [deleting] [@REVISION]`, `node NAME UID [@REVISION]`,
/// `ciliumnode NAME @REVISION [CIDR…] [used=N|unknown] [ping=STATE] [recreated]` (CIDRs stand with all their addresses in
/// the pool; claims are made for one that is not recreated),
/// `claim CIDR NODE UID STATE[/REASON] @REVISION [deleting] [finalizer=ANOTHERS]`.
struct Cluster {
    world: World,
    now: Now,
}

impl Cluster {
    fn of(text: &str) -> Self {
        let mut listings: BTreeMap<Kind, Vec<Object>> = BTreeMap::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let object = object(line);
            listings.entry(object.kind()).or_default().push(object);
        }
        let mut gathering = Gathering::default();
        gathering.set_mode(Mode::Active(Settings {
            families: [Family::V4].into(),
            infrastructure: vec!["router"],
        }));
        for kind in Kind::ALL {
            let objects = listings.remove(&kind).unwrap_or_default();
            gathering.observe(Observation::Listed(Listing {
                kind,
                at_least: Revision(LISTED),
                at_most: Revision(LISTED),
                objects,
            }));
        }
        let world = gathering.complete().expect("every kind is listed");
        Self { world, now: Now { uptime: Duration::from_secs(1000), wall: 0 } }
    }

    /// Something changes.
    fn observe(&mut self, line: &str) {
        self.world.observe(Observation::Applied(Box::new(object(line))));
        assert_eq!(self.world.check(), Vec::<String>::new());
    }

    fn delete(&mut self, kind: Kind, name: &str, revision: u64) {
        self.world.observe(Observation::Deleted {
            kind,
            name: name.to_owned(),
            revision: Revision(revision),
        });
        assert_eq!(self.world.check(), Vec::<String>::new());
    }

    fn pass(&mut self, seconds: u64) {
        self.now.uptime += Duration::from_secs(seconds);
        self.now.wall += i64::try_from(seconds).unwrap() * 1000;
        self.world.advance(self.now);
    }

    fn plan(&self, name: &str) -> NodePlan {
        let policy =
            Policy { min_write_interval: Duration::from_secs(2), cilium_nodes: CiliumNodeOrigin::Agent };
        node(&self.world, &NodeName::from(name), policy, self.now)
    }

    /// What would be done for a node, and is then under way.
    #[track_caller]
    fn expect(&mut self, name: &str, expected: &str) {
        let plan = self.plan(name);
        assert_eq!(rendered(&plan), expected);
        assert_eq!(plan, self.plan(name), "equal worlds, equal plans");
        self.world.begin(&plan, self.now);
    }

    /// The answers to everything under way for a node are lost; reading finds nothing new.
    fn settle(&mut self, key: ObjectKey, node: &str, effect: Effect, seen: Seen) {
        let outcome = Outcome { key, effect, node: Some(node.into()), answer: Answer::Done, seen };
        self.world.finish(outcome, self.now);
    }
}

fn rendered(plan: &NodePlan) -> String {
    let mut parts: Vec<String> = plan.writes.iter().map(ToString::to_string).collect();
    parts.extend(plan.unmet.iter().map(|unmet| format!("unmet: {unmet}")));
    parts.extend(plan.findings.iter().map(|finding| format!("finding: {}", finding.kind.as_str())));
    parts.extend(plan.waits_for.map(|what| format!("waits for {what:?}")));
    if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
}

fn object(line: &str) -> Object {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[0] {
        "pool" => pool(&words),
        "node" => Object::Node(Node {
            name: words[1].into(),
            uid: words[2].into(),
            revision: words
                .iter()
                .find_map(|word| word.strip_prefix('@'))
                .map_or(Revision(1), |revision| Revision(revision.parse().unwrap())),
            deleting: words.contains(&"deleting"),
            labels: BTreeMap::new(),
            addresses: Vec::new(),
        }),
        "ciliumnode" => cilium_node(&words),
        "claim" => claim(&words),
        other => panic!("no object: {other}"),
    }
}

fn revision(words: &[&str]) -> Revision {
    let found = words.iter().find_map(|word| word.strip_prefix('@'));
    Revision(found.expect("an object has a revision").parse().unwrap())
}

fn pool(words: &[&str]) -> Object {
    let ranges = Ranges {
        block_prefix: words[3].parse().unwrap(),
        cidrs: [(words[2].parse().unwrap(), RangeState::Active)].into(),
        exclude: Vec::new(),
    };
    let pool = Pool {
        name: words[1].into(),
        uid: words[1].into(),
        created: words.contains(&"younger").into(),
        deleting: words.contains(&"deleting"),
        priority: 0,
        selector: kube_core::Selector::default(),
        families: [(Family::V4, ranges)].into(),
        first_last: FirstLast::Offered,
        per_node: PerNode { initial_blocks: 1, max_blocks: 4, max_addresses: 1024 },
        expand: Expand { used_above: 80, free_below: 2 },
        reclaim: Reclaim { mode: ReclaimMode::Disabled, used_below: 40, after: Duration::from_secs(600) },
        reuse_after: Duration::from_secs(300),
        reuse_after_node_loss: Duration::from_secs(3600),
    };
    Object::Pool(PoolObject {
        name: pool.name.clone(),
        uid: pool.uid.clone(),
        revision: if words.iter().any(|word| word.starts_with('@')) { revision(words) } else { Revision(1) },
        deleting: pool.deleting,
        finalizers: Vec::new(),
        pool: if words.contains(&"invalid") {
            Err(InvalidPool {
                findings: vec!["of no known form".to_owned()],
                reserved: Reservation {
                    name: pool.name,
                    uid: pool.uid,
                    created: pool.created,
                    cidrs: [words[2].parse().unwrap()].into(),
                },
            })
        } else {
            Ok(pool)
        },
        generation: 1,
        status: PoolStatus::default(),
        transitions: BTreeMap::new(),
    })
}

fn cilium_node(words: &[&str]) -> Object {
    let pod_cidrs: Vec<Cidr> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let pool: AddressSet = pod_cidrs.iter().copied().collect();
    let used = match words.iter().find_map(|word| word.strip_prefix("used=")) {
        Some("unknown") => None,
        count => Some(pool.iter().take(count.map_or(0, |count| count.parse().unwrap())).collect()),
    };
    let marks = match words.iter().find_map(|word| word.strip_prefix("ping=")) {
        Some("marked") => [(Ping::ADDRESS, ReleaseMark::Marked)].into(),
        Some(_) => [(Ping::ADDRESS, ReleaseMark::DoNotRelease)].into(),
        None => BTreeMap::new(),
    };
    Object::CiliumNode(CiliumNode {
        name: words[1].into(),
        uid: format!("cn-{}{}", words[1], if words.contains(&"recreated") { "-again" } else { "" }).into(),
        revision: revision(words),
        deleting: false,
        addresses: Vec::new(),
        pod_cidrs,
        pool,
        owners: BTreeMap::new(),
        min_allocate: 0,
        used,
        marks,
        malformed: Vec::new(),
    })
}

fn claim(words: &[&str]) -> Object {
    let (state, reason) = match words[4] {
        "Held" => (ClaimState::Held, None),
        "Releasing/NodeGone" => (ClaimState::Releasing, Some(Reason::NodeGone)),
        "Releasing/Unused" => (ClaimState::Releasing, Some(Reason::Unused)),
        "Cooling/NodeGone" => (ClaimState::Cooling, Some(Reason::NodeGone)),
        other => panic!("no state: {other}"),
    };
    Object::Claim(Claim {
        cidr: words[1].parse().unwrap(),
        pool: "p".into(),
        node: words[2].into(),
        node_uid: words[3].into(),
        withheld: AddressSet::new(),
        state,
        since: 0,
        reason,
        cilium_node_uid: None,
        created_for: Some(format!("cn-{}", words[2]).into()),
        uid: format!("uid-{}", words[1]).into(),
        revision: revision(words),
        created: 0,
        deleting: words.contains(&"deleting"),
        finalizers: match words.iter().find_map(|word| word.strip_prefix("finalizer=")) {
            Some(finalizer) => vec![finalizer.to_owned()],
            None => vec![Claim::FINALIZER.to_owned()],
        },
    })
}

#[test]
fn a_fresh_node_gets_a_claim_first_and_its_publication_when_the_claim_is_shown() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    cluster.expect("a", "waits for Answer");
    // The answer alone says nothing of claims that overlap (safety rule 2).
    let Object::Claim(created) = object("claim 10.0.0.0/28 a 1 Held @110") else { unreachable!() };
    let key = ObjectKey::Claim(created.cidr);
    cluster.settle(key, "a", Effect::Write, Seen::Claim(Box::new(created)));
    cluster.expect("a", "waits for Answer");
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    cluster.expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a");
}

#[test]
fn a_patch_waits_until_the_claim_is_known_as_late_as_the_version_it_carries() {
    // Safety rule 4: the CiliumNode was read at 150, and claims are known up to 100 only.
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @60");
    cluster.observe("ciliumnode a @150");
    cluster.expect("a", "read the claims of node a");
    let Object::Claim(held) = object("claim 10.0.0.0/28 a 1 Held @60") else { unreachable!() };
    let seen = Seen::ClaimsOf { revision: Revision(160), claims: vec![held] };
    cluster.settle(ObjectKey::ClaimsOf("a".into()), "a", Effect::Read, seen);
    cluster.expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a");
}

#[test]
fn a_claim_that_the_read_does_not_find_is_not_published() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @60");
    cluster.observe("ciliumnode a @150");
    cluster.expect("a", "read the claims of node a");
    let seen = Seen::ClaimsOf { revision: Revision(160), claims: Vec::new() };
    cluster.settle(ObjectKey::ClaimsOf("a".into()), "a", Effect::Read, seen);
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

#[test]
fn a_node_that_is_only_being_deleted_keeps_everything() {
    // Trap 2.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1 deleting\nciliumnode a @50 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.expect("a", "nothing");
    cluster.delete(Kind::Node, "a", 120);
    cluster.expect("a", "waits for Objects");
}

#[test]
fn a_lost_node_leaves_by_proof_and_rest() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Held @40");
    cluster.expect("a", "release 10.0.0.0/28 of node a (NodeGone)");
    let Object::Claim(moved) = object("claim 10.0.0.0/28 a 1 Releasing/NodeGone @110") else {
        unreachable!()
    };
    cluster.settle(ObjectKey::Claim(moved.cidr), "a", Effect::Write, Seen::Claim(Box::new(moved)));
    // The list of CiliumNodes is from before the move.
    cluster.expect("a", "read whether ciliumnode a exists");
    cluster.settle(ObjectKey::CiliumNode("a".into()), "a", Effect::Read, Seen::Absent(Some(Revision(111))));
    cluster.expect("a", "let 10.0.0.0/28 of node a rest");
    cluster.settle(ObjectKey::Claim("10.0.0.0/28".parse().unwrap()), "a", Effect::Write, Seen::Nothing);
    cluster.observe("claim 10.0.0.0/28 a 1 Cooling/NodeGone @120");
    cluster.expect("a", "waits for Objects");
    cluster.pass(3599);
    cluster.expect("a", "waits for Objects");
    cluster.pass(1);
    cluster.expect("a", "free 10.0.0.0/28, which was node a's");
}

#[test]
fn rest_is_seen_by_this_process_too() {
    // Another's clock, far behind, has written `since`.
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40");
    cluster.now.wall = 1_000_000_000;
    cluster.expect("a", "waits for Objects");
    cluster.pass(29);
    cluster.expect("a", "waits for Objects");
    cluster.pass(1);
    cluster.expect("a", "free 10.0.0.0/28, which was node a's");
}

#[test]
fn a_rest_that_began_in_the_future_is_no_longer_than_what_this_process_sees() {
    const YEAR: u64 = 365 * 24 * 3600;
    let Object::Claim(mut resting) = object("claim 10.0.0.0/28 a 1 Cooling/NodeGone @110") else {
        unreachable!()
    };
    resting.since = i64::try_from(YEAR).unwrap() * 1000;
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28");
    cluster.world.observe(Observation::Applied(Box::new(Object::Claim(resting))));
    let gone = found(Presence::Gone, 110);
    cluster.settle(ObjectKey::Node("a".into()), "a", Effect::Read, gone);
    cluster.expect("a", "waits for Objects");
    assert_eq!(cluster.world.next_wake(), Some(cluster.now.uptime + Duration::from_secs(3600)));
    cluster.pass(3599);
    cluster.expect("a", "waits for Objects");
    cluster.pass(1);
    cluster.expect("a", "free 10.0.0.0/28, which was node a's");
}

#[test]
fn a_node_that_returns_holds_all_its_blocks_again_before_any_is_published() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 2\nciliumnode a @50\n\
         claim 10.0.0.0/28 a 1 Releasing/NodeGone @40\nclaim 10.0.0.16/28 a 1 Cooling/NodeGone @41",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again; hold 10.0.0.16/28 for node a again");
    for (cidr, revision) in [("10.0.0.0/28", 110), ("10.0.0.16/28", 111)] {
        cluster.settle(ObjectKey::Claim(cidr.parse().unwrap()), "a", Effect::Write, Seen::Nothing);
        cluster.observe(&format!("claim {cidr} a 2 Held @{revision}"));
    }
    cluster.expect("a", "publish [10.0.0.0/28 10.0.0.16/28] and 32 addresses on ciliumnode a");
}

#[test]
fn an_unused_claim_that_only_anothers_finalizer_keeps_is_deleted_once() {
    let claim = "claim 10.0.0.0/28 a 1 Releasing/Unused @40";
    let cluster =
        |claim: &str| Cluster::of(&format!("pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50\n{claim}"));
    cluster(claim).expect("a", "free 10.0.0.0/28, which was node a's");
    // Somebody deletes it by hand, and ours keeps it.
    cluster(&format!("{claim} deleting"))
        .expect("a", "free 10.0.0.0/28, which was node a's; finding: ClaimBeingDeleted");
    let mut kept = cluster(&format!("{claim} deleting finalizer=theirs"));
    kept.expect("a", "claim 10.0.0.32/28 of pool p for node a; finding: ClaimBeingDeleted");
    // It counts for nothing any more, also not as in use on a CiliumNode that is gone.
    let mut kept = cluster(&format!("{claim} deleting finalizer=theirs"));
    kept.observe("ciliumnode a @110 recreated");
    kept.expect("a", "claim 10.0.0.32/28 of pool p for node a; finding: ClaimBeingDeleted");
}

/// The server lets no finalizer be added to an object that is being deleted.
#[test]
fn a_node_that_returns_is_served_though_its_resting_claim_is_being_deleted() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 2\nciliumnode a @50\n\
         claim 10.0.0.0/28 a 1 Cooling/NodeGone @40 deleting finalizer=theirs",
    );
    cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a; finding: ClaimBeingDeleted");
    // Where ours is there still, it keeps the claim.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 2\nciliumnode a @50\n\
         claim 10.0.0.0/28 a 1 Cooling/NodeGone @40 deleting",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again; finding: ClaimBeingDeleted");
    // What is not proven to be off the node is the node's, whatever becomes of the claim.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 2\nciliumnode a @50\n\
         claim 10.0.0.0/28 a 1 Releasing/NodeGone @40 deleting finalizer=theirs",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again; finding: ClaimBeingDeleted");
}

/// What a read of the Node finds, now that its claims are known as of this revision.
fn found(presence: Presence, as_of: u64) -> Seen {
    Seen::Node { as_of: Revision(as_of), read_at: Revision(u64::MAX), presence }
}

#[test]
fn an_answer_about_a_node_that_the_watch_has_overtaken_does_not_stand() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.observe("claim 10.0.0.0/28 a 2 Held @110");
    cluster.observe("node a 2 @120");
    cluster.expect("a", "nothing");
    cluster.observe("node a 3 @130");
    cluster.expect("a", "read whether node a exists");
    // It was read just before, and the watch was faster.
    let before = Presence::Is("2".into());
    let seen = Seen::Node { as_of: Revision(110), read_at: Revision(125), presence: before };
    cluster.settle(ObjectKey::Node("a".into()), "a", Effect::Read, seen);
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn a_replica_that_has_not_heard_of_the_end_of_a_node_leaves_its_claims_alone() {
    let cluster = || {
        let mut cluster = Cluster::of(
            "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @40",
        );
        cluster.delete(Kind::CiliumNode, "a", 109);
        cluster.observe("claim 10.0.0.0/28 a 1 Releasing/NodeGone @110");
        cluster.expect("a", "read whether node a exists");
        cluster
    };
    let mut gone = cluster();
    gone.settle(ObjectKey::Node("a".into()), "a", Effect::Read, found(Presence::Gone, 110));
    gone.expect("a", "read whether ciliumnode a exists");
    let mut there = cluster();
    there.settle(ObjectKey::Node("a".into()), "a", Effect::Read, found(Presence::Is("1".into()), 110));
    there.expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn a_replica_that_has_not_heard_of_a_node_does_not_release_its_claims() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28");
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    cluster.expect("a", "read whether node a exists");
    cluster.settle(ObjectKey::Node("a".into()), "a", Effect::Read, found(Presence::Is("1".into()), 110));
    cluster.expect("a", "waits for Objects");
    // It comes and goes at last.
    cluster.observe("node a 1");
    cluster.delete(Kind::Node, "a", 111);
    cluster.expect("a", "read whether node a exists");
    cluster.settle(ObjectKey::Node("a".into()), "a", Effect::Read, found(Presence::Gone, 110));
    cluster.expect("a", "release 10.0.0.0/28 of node a (NodeGone)");
}

#[test]
fn a_replica_that_knows_an_earlier_node_of_the_name_does_not_take_its_claims_back() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50");
    cluster.observe("claim 10.0.0.0/28 a 2 Held @110");
    cluster.expect("a", "read whether node a exists");
    cluster.settle(ObjectKey::Node("a".into()), "a", Effect::Read, found(Presence::Is("2".into()), 110));
    assert!(!rendered(&cluster.plan("a")).contains("hold"), "{}", rendered(&cluster.plan("a")));
}

#[test]
fn of_two_claims_of_one_node_that_overlap_the_one_that_stands_stays() {
    for (standing, other) in [("10.0.0.0/26", "10.0.0.16/28"), ("10.0.0.16/28", "10.0.0.0/26")] {
        let cluster = |state| {
            Cluster::of(&format!(
                "pool p 10.0.0.0/24 28
                 node n nu
                 ciliumnode n @60 {standing}
                 claim {standing} n nu Held @40
                 claim {other} n nu {state} @50"
            ))
        };
        cluster("Held").expect("n", &format!("release {other} of node n (Unused)"));
        // Nothing of its own stands there as of a version later than the move.
        cluster("Releasing/Unused").expect("n", &format!("free {other}, which was node n's"));
    }
}

#[test]
fn of_two_claims_that_overlap_the_one_that_stands_stays() {
    // Safety rule 2, with a pool made again with another block size.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 27\nnode a 1\nnode b 1\n\
         ciliumnode a @50 10.0.0.16/28\nclaim 10.0.0.16/28 a 1 Held @40\n\
         ciliumnode b @51\nclaim 10.0.0.0/27 b 1 Held @45",
    );
    cluster.expect("a", "finding: Overlap");
    cluster.expect("b", "release 10.0.0.0/27 of node b (Unused)");
    cluster.settle(ObjectKey::Claim("10.0.0.0/27".parse().unwrap()), "b", Effect::Write, Seen::Nothing);
    cluster.observe("claim 10.0.0.0/27 b 1 Releasing/Unused @110");
    // The proof that it never stood is a version later than the move.
    cluster.expect("b", "make a later version of ciliumnode b");
    cluster.settle(ObjectKey::CiliumNode("b".into()), "b", Effect::Write, Seen::Nothing);
    cluster.observe("ciliumnode b @112");
    cluster.expect("b", "free 10.0.0.0/27, which was node b's");
}

#[test]
fn an_unused_claim_that_is_found_standing_is_held_again() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Releasing/Unused @40",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn a_claim_that_vanished_is_made_again_for_the_same_node_and_for_nobody_else() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\nnode a 1\nnode b 1\nciliumnode b @51\n\
         ciliumnode a @50 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

#[test]
fn a_claim_that_vanished_while_its_ciliumnode_was_away_is_still_the_nodes() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\nnode a 1\nnode b 1\nciliumnode b @51\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    cluster.observe("ciliumnode a @120 recreated");
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    let plan = cluster.plan("a");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    // The agent may be using it, and this CiliumNode does not show it.
    let [Write::CreateClaim(again)] = &plan.writes[..] else { panic!("{plan:?}") };
    assert_eq!(again.created_for, None);
}

#[test]
fn a_first_claim_names_the_ciliumnode_that_it_is_made_for() {
    let cluster = Cluster::of("pool p 10.0.0.0/28 28\nnode a 1\nciliumnode a @50");
    let plan = cluster.plan("a");
    let [Write::CreateClaim(first)] = &plan.writes[..] else { panic!("{plan:?}") };
    assert_eq!(first.created_for, Some("cn-a".into()));
}

#[test]
fn a_claim_that_vanished_with_its_node_is_free_when_a_later_version_shows_nothing() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\nnode b 1\nciliumnode b @51\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40",
    );
    // A list does not have it: nobody saw in what state it went.
    cluster.world.observe(Observation::Listed(Listing {
        kind: Kind::Claim,
        at_least: Revision(120),
        at_most: Revision(121),
        objects: Vec::new(),
    }));
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    cluster.expect("a", "read whether ciliumnode a exists");
    let absent = Seen::Absent(Some(Revision(122)));
    cluster.settle(ObjectKey::CiliumNode("a".into()), "a", Effect::Read, absent);
    cluster.expect("b", "claim 10.0.0.0/28 of pool p for node b");
}

#[test]
fn a_claim_that_may_have_stood_on_an_earlier_ciliumnode_is_never_called_unused() {
    // Its first set can't be completed, for the pool has no more and a block of two starts no agent.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/31 31\nnode a 1\nciliumnode a @50 recreated\nclaim 10.0.0.0/31 a 1 Held @40",
    );
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
    cluster.pass(30);
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
}

#[test]
fn a_claim_that_may_have_stood_on_an_earlier_ciliumnode_gives_way_to_none() {
    let overlap = |of_a: &str, of_b: &str| {
        Cluster::of(&format!(
            "pool p 10.0.0.0/26 27\nnode a 1\nnode b 1\n{of_a}\nclaim 10.0.0.16/28 a 1 Held @40\n\
             {of_b}\nclaim 10.0.0.0/27 b 1 Held @45"
        ))
    };
    // By its name it would have to. Until it is published, its node has nothing.
    let mut cluster = overlap("ciliumnode a @50 recreated", "ciliumnode b @51");
    cluster.expect("a", "claim 10.0.0.32/27 of pool p for node a; finding: Overlap");
    cluster.expect("b", "release 10.0.0.0/27 of node b (Unused)");
    // A CiliumNode that is away tells no more than a young one.
    let mut cluster = overlap("", "ciliumnode b @51");
    cluster.expect("a", "waits for Objects");
    cluster.expect("b", "release 10.0.0.0/27 of node b (Unused)");
    // Where either may be in use none moves.
    let mut cluster = overlap("ciliumnode a @50 recreated", "ciliumnode b @51 recreated");
    cluster.expect("a", "claim 10.0.0.32/27 of pool p for node a; finding: Overlap");
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block; finding: Overlap");
    // A replica that had not seen it standing has begun to give it back.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 recreated\nclaim 10.0.0.0/28 a 1 Releasing/Unused @40",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn an_answer_about_a_deleted_claim_does_not_touch_the_one_after_it() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40\nnode b 1\nciliumnode b @51",
    );
    cluster.pass(4000);
    cluster.expect("a", "waits for Objects");
    cluster.pass(30);
    cluster.expect("a", "free 10.0.0.0/28, which was node a's");
    // The watch is faster than the answer.
    cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    let key = ObjectKey::Claim("10.0.0.0/28".parse().unwrap());
    cluster.settle(key.clone(), "a", Effect::Write, Seen::Deleted("uid-10.0.0.0/28".into()));
    cluster.expect("b", "claim 10.0.0.0/28 of pool p for node b");
    let Object::Claim(mut created) = object("claim 10.0.0.0/28 b 1 Held @111") else { unreachable!() };
    created.uid = "another".into();
    cluster.settle(key.clone(), "b", Effect::Write, Seen::Claim(Box::new(created)));
    cluster.settle(key, "a", Effect::Write, Seen::Deleted("uid-10.0.0.0/28".into()));
    assert!(cluster.world.claim("10.0.0.0/28".parse().unwrap()).is_some());
}

/// Its last address is an IPv4 one, and its first is not.
#[test]
fn a_foreign_range_that_ends_with_ipv4_is_told_apart_from_what_is_published() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @40");
    let Object::CiliumNode(mut seen) = object("ciliumnode a @50 10.0.0.0/28 used=1") else { unreachable!() };
    seen.pod_cidrs.push("::/80".parse().unwrap());
    seen.pool.remove("10.0.0.5".parse().unwrap());
    cluster.world.observe(Observation::Applied(Box::new(Object::CiliumNode(seen))));
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "publish [] and 1 addresses on ciliumnode a");
    let told = account::of(&cluster.world, &plan.writes[0]).expect("it is a step");
    assert_eq!(listed(&told.blocks), "10.0.0.0/28");
}

#[test]
fn a_silent_agent_is_asked_what_it_uses_and_the_question_is_cleared() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 10.0.0.0/28 used=unknown\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.expect("a", "nothing");
    cluster.pass(30);
    cluster.expect("a", "ask the agent of node a what it uses");
    cluster.settle(ObjectKey::CiliumNode("a".into()), "a", Effect::Write, Seen::Nothing);
    cluster.observe("ciliumnode a @110 10.0.0.0/28 used=unknown ping=marked");
    cluster.expect("a", "nothing");
    cluster.observe("ciliumnode a @111 10.0.0.0/28 used=1 ping=answered");
    cluster.expect("a", "waits for Time");
    cluster.pass(2);
    cluster.expect("a", "clear the answered question on ciliumnode a");
}

/// Patches of a served CiliumNode make its agent fail that writes it too.
#[test]
fn a_question_and_a_publication_keep_the_interval_between_writes() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 10.0.0.0/28 used=unknown\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.expect("a", "nothing");
    cluster.pass(29);
    // Somebody has taken an address off, and it is put back.
    let Object::CiliumNode(mut seen) = object("ciliumnode a @60 10.0.0.0/28 used=unknown") else {
        unreachable!()
    };
    seen.pool.remove("10.0.0.5".parse().unwrap());
    cluster.world.observe(Observation::Applied(Box::new(Object::CiliumNode(seen))));
    cluster.expect("a", "publish [] and 1 addresses on ciliumnode a");
    cluster.settle(ObjectKey::CiliumNode("a".into()), "a", Effect::Write, Seen::Nothing);
    cluster.observe("ciliumnode a @110 10.0.0.0/28 used=unknown");
    cluster.pass(1);
    cluster.expect("a", "waits for Time");
    cluster.pass(1);
    cluster.expect("a", "ask the agent of node a what it uses");
    cluster.settle(ObjectKey::CiliumNode("a".into()), "a", Effect::Write, Seen::Nothing);
    // The answer asks for more: that is claimed at once, and the mark goes before it is published.
    cluster.observe("ciliumnode a @111 10.0.0.0/28 used=15 ping=answered");
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a; waits for Time");
    cluster.settle(ObjectKey::Claim("10.0.0.16/28".parse().unwrap()), "a", Effect::Write, Seen::Nothing);
    cluster.observe("claim 10.0.0.16/28 a 1 Held @112");
    cluster.expect("a", "waits for Time");
    cluster.pass(2);
    cluster.expect("a", "clear the answered question on ciliumnode a");
    cluster.settle(ObjectKey::CiliumNode("a".into()), "a", Effect::Write, Seen::Nothing);
    cluster.observe("ciliumnode a @113 10.0.0.0/28 used=15");
    cluster.expect("a", "waits for Time");
    cluster.pass(2);
    cluster.expect("a", "read the claims of node a");
}

#[test]
fn a_first_set_that_cannot_be_completed_is_given_back() {
    // A block of two addresses starts no agent, and the pool has no other.
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/31 31\nnode a 1\nciliumnode a @50\nclaim 10.0.0.0/31 a 1 Held @40");
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
    cluster.pass(30);
    cluster.expect(
        "a",
        "release 10.0.0.0/31 of node a (Unused); unmet: no pool of the node has a free ipv4 block",
    );
}

#[test]
fn one_change_of_use_alone_leads_to_growth() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 10.0.0.0/28 used=3\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.expect("a", "nothing");
    assert_eq!(cluster.world.next_wake(), None, "no timer looks for work");
    cluster.observe("ciliumnode a @110 10.0.0.0/28 used=14");
    assert_eq!(cluster.world.next_node(), Some(&"a".into()));
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
}

#[test]
fn a_block_on_which_another_node_has_anything_standing_is_nobodys() {
    // Safety rule 6: a foreign address in the pool's first block, without any claim.
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/27 28\nnode a 1\nciliumnode a @50\nciliumnode x @51 10.0.0.3/32");
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
}

/// Trap 18: nothing is taken off, nothing is given out, and what is the pool's stays the pool's.
#[test]
fn a_pool_that_turns_invalid_loses_nothing_to_a_younger_one() {
    let text = |pool: &str| {
        format!(
            "{pool}\npool q 10.0.0.0/27 28 younger\nnode a 1\nnode b 1\nnode c 1\n\
             ciliumnode a @50 10.0.0.0/28 used=3\nciliumnode b @51\nciliumnode c @52\nclaim 10.0.0.0/28 a 1 Held @40"
        )
    };
    let mut turned = Cluster::of(&text("pool p 10.0.0.0/27 28"));
    turned.observe("pool p 10.0.0.0/27 28 invalid @110");
    let restarted = Cluster::of(&text("pool p 10.0.0.0/27 28 invalid @110"));
    for mut cluster in [turned, restarted] {
        cluster.expect("a", "nothing");
        cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
        cluster.observe("pool p 10.0.0.0/27 28 @120");
        cluster.expect("a", "nothing");
        cluster.expect("c", "claim 10.0.0.16/28 of pool p for node c");
    }
}

#[test]
fn a_pool_that_turns_invalid_takes_nothing_from_an_older_one() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/27 28\npool q 10.0.0.0/26 28 younger invalid\nnode a 1\nciliumnode a @50",
    );
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

#[test]
fn a_lost_claim_in_the_range_of_an_invalid_pool_is_made_again_when_that_can_be_read() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/27 28 invalid\npool q 10.0.0.0/27 28 younger\nnode a 1\nciliumnode a @50 10.0.0.0/28",
    );
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
    cluster.observe("pool p 10.0.0.0/27 28 @110");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

#[test]
fn a_block_rests_until_its_pool_can_be_read_or_goes() {
    for mended in ["pool p 10.0.0.0/27 28 @110", "pool p 10.0.0.0/27 28 invalid deleting @110"] {
        let mut cluster =
            Cluster::of("pool p 10.0.0.0/27 28 invalid\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40");
        cluster.pass(1_000_000);
        cluster.expect("a", "waits for Objects");
        cluster.pass(30);
        cluster.expect("a", "waits for Objects");
        cluster.observe(mended);
        cluster.expect("a", "free 10.0.0.0/28, which was node a's");
    }
}

#[test]
fn a_node_does_not_call_itself_at_its_limit_while_a_block_that_fits_may_become_free() {
    // Of the blocks that are free none fits, and those that would fit are all taken.
    let mut cluster = Cluster::of(
        "pool large 10.1.0.0/16 22\npool small 10.0.0.0/28 29\nnode a 1\nnode b 1\n\
         ciliumnode a @50 10.0.0.0/29 used=8\nclaim 10.0.0.0/29 a 1 Held @40\n\
         claim 10.0.0.8/29 b 1 Cooling/NodeGone @41",
    );
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
    cluster.delete(Kind::Claim, "10.0.0.8-29", 110);
    assert_eq!(cluster.world.next_node(), Some(&NodeName::from("a")));
    cluster.expect("a", "claim 10.0.0.8/29 of pool small for node a");
}

#[test]
fn nothing_is_published_while_a_claim_that_vanished_is_not_made_again() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @50 10.0.0.0/28 10.0.0.16/28\n\
         claim 10.0.0.0/28 a 1 Held @40\nclaim 10.0.0.16/28 a 1 Held @41",
    );
    cluster.delete(Kind::CiliumNode, "a", 109);
    cluster.delete(Kind::Claim, "10.0.0.16-28", 110);
    // The agent that made it anew restores the pods of both blocks as soon as it finds any address.
    cluster.observe("ciliumnode a @120 recreated");
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
    cluster.expect("a", "waits for Answer");
    cluster.observe("claim 10.0.0.16/28 a 1 Held @121");
    cluster.settle(ObjectKey::Claim("10.0.0.16/28".parse().unwrap()), "a", Effect::Write, Seen::Nothing);
    cluster.expect("a", "publish [10.0.0.0/28 10.0.0.16/28] and 32 addresses on ciliumnode a");
}

#[test]
fn a_full_node_that_no_pool_selects_says_so() {
    let holding = |used: u32| {
        Cluster::of(&format!(
            "node a 1\nciliumnode a @50 10.0.0.0/28 used={used}\nclaim 10.0.0.0/28 a 1 Held @40"
        ))
    };
    holding(4).expect("a", "nothing");
    holding(15).expect("a", "finding: NoPool");
}
