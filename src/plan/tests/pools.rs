//! Tests of the status of pools, and of pools that are deleted.

use super::*;
use crate::model::finding::FindingKind;
use crate::model::names::PoolName;
use crate::model::plan::PoolPlan;
use crate::model::request::PoolStatusWrite;
use crate::model::status::{Need, capped_count};
use crate::plan::pool::{self, pool as plan_pool};
use crate::view::overview::overview;
use crate::view::{free, tally};

mod cidrs;
mod full;

impl Cluster {
    /// What to write to a pool now.
    fn pool_plan(&self, name: &str) -> PoolPlan {
        plan_pool(&self.world, &PoolName::from(name), Policy::DEFAULT, self.now)
    }

    /// Decides for every node that is due; a policy engine refuses whatever is written.
    fn refuse_all(&mut self) {
        self.drain();
        for request in std::mem::take(&mut self.in_flight) {
            let answer = Answer::Refused("denied".to_owned(), None);
            self.world.finish(Outcome { request, answer, seen: Seen::Nothing }, self.now);
        }
        self.drain();
    }

    /// A watch shows the pool in this line, with our finalizer.
    fn observe_kept(&mut self, line: &str) {
        let mut object = object(line);
        let Object::Pool(pool) = &mut object else { panic!("no pool: {line}") };
        pool.finalizers = vec![PoolObject::FINALIZER.to_owned()];
        self.world.observe(Observation::Applied(Box::new(object)));
        assert_eq!(self.world.check(), []);
    }

    /// The other replica writes the status that is right now.
    fn other_replica_writes(&mut self, name: &str, revision: u64) {
        let mut object = self.world.pool_object(&PoolName::from(name)).expect("it is a pool").clone();
        object.status = conditions::status(&self.world, &object);
        object.history = pool::history(&object, &object.status, self.now);
        object.revision = Revision::of(revision);
        self.world.observe(Observation::Applied(Box::new(Object::Pool(object))));
    }

    /// Decides for the pool; a status that is written is shown at once, with this revision.
    fn settle_pool(&mut self, name: &str, revision: u64) -> String {
        let plan = self.pool_plan(name);
        self.world.begin_status(&name.into(), &plan, self.now);
        let PoolPlan::Write(writes) = plan else { return format!("{plan:?}") };
        let write = writes.into_iter().next().expect("it writes");
        let reported = write.to_string();
        if let Write::PoolStatus(PoolStatusWrite { pool, status, waits_since, history, .. }) = &write {
            let mut object = self.world.pool_object(pool).expect("it is a pool").clone();
            object.waits_since = (**waits_since).clone();
            object.history = (**history).clone();
            (object.status, object.revision) = (status.clone(), Revision::of(revision));
            let outcome = Outcome { request: write.into(), answer: Answer::Done, seen: Seen::Nothing };
            self.world.finish(outcome, self.now);
            self.world.observe(Observation::Applied(Box::new(Object::Pool(object))));
        }
        reported
    }
}

#[test]
fn a_deleted_pool_says_which_nodes_keep_it_and_how_it_ends() {
    let deleted = "pool p 10.0.0.0/24 28 deleting\n";
    assert_eq!(
        Cluster::of(deleted).condition("p", ConditionType::Ready),
        "Deleting false: the pool is being deleted and gives no blocks; no blocks are left",
    );
    let held: Vec<String> =
        (0..11).map(|n| format!("claim 10.0.0.{}/28 n{n:02} 1 Held @40\n", 16 * n)).collect();
    let cooling = "claim 10.0.0.176/28 n11 1 Cooling/NodeGone @40\npool young 10.0.0.0/16 28 younger\n";
    let cluster = Cluster::of(&[deleted, &held.concat(), cooling].concat());
    assert_eq!(
        cluster.condition("p", ConditionType::Ready),
        "Deleting false: the pool is being deleted and gives no blocks; it exists until its last block is free \
         (ipv4: 11 held, 1 cooling), on nodes n00, n01, n02, n03, n04, n05, n06, n07, n08, n09 and 2 more; \
         until then it keeps its ranges from younger pools: young; its blocks drain as soon as their nodes \
         have other addresses: see the condition Draining; to speed this up, drain and delete the nodes; to \
         free all other ranges now, empty its `cidrs`",
    );
    assert_eq!(
        cluster.condition("young", ConditionType::Overlapping),
        "OverlapsOlderPool true: 10.0.0.0/16 overlaps 10.0.0.0/24 of the older pool p, which keeps these \
         addresses until it is deleted (see its condition Ready); 1 overlap in total",
    );
}

/// What it declares can't be read, and it keeps its ranges all the same.
#[test]
fn a_deleted_pool_that_can_not_be_read_says_what_keeps_it_too() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/24 28 invalid deleting\npool young 10.0.0.0/16 28 younger\n\
         joined a @50 10.0.0.0/28 used=3\nclaim 10.0.0.16/28 b 1 Cooling/NodeGone @41",
    );
    let ready = cluster.condition("p", ConditionType::Ready);
    let kept = "Invalid false: the pool is being deleted and gives no blocks; it exists until its last block is \
                free (ipv4: 1 held, 1 cooling), on nodes a, b; until then it keeps its ranges from younger pools: young; ";
    assert!(ready.starts_with(kept), "{ready}");
    assert!(ready.ends_with("; the pool is unreadable: of no known form"), "{ready}");
    let draining = cluster.condition("p", ConditionType::Draining);
    assert_starts(&draining, "BlocksToLeave true: 1 block open to new pods");
}

/// Whoever empties it says so. Its blocks stay where they are, and nobody else gets them.
#[test]
fn a_deleted_pool_whose_cidrs_are_emptied_leaves_its_ranges_but_not_its_blocks() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28 deleting\npool young 10.0.0.0/26 28 younger\n\
         joined a @50 10.0.0.0/28 used=3\njoined b @51",
    );
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    cluster.observe("pool p none 28 deleting @110");
    cluster.expect("a", "finding: DrainWaits");
    cluster.expect("b", "claim 10.0.0.32/28 of pool young for node b");
}

/// `kubectl delete` of several pools deletes one after the other. If the older one were gone at once, nodes would take
/// blocks of the younger one in between, and these would keep it.
#[test]
fn a_younger_pool_gets_the_ranges_of_a_deleted_one_only_when_that_is_gone_and_not_in_the_same_breath() {
    let mut cluster = Cluster::of(
        "pool old 10.0.0.0/26 28\npool young 10.0.0.0/26 28 younger\njoined a @50\n\
         pool alone 10.9.0.0/26 28 zone=nowhere",
    );
    cluster.observe_kept("pool old 10.0.0.0/26 28 deleting @110");
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
    assert_eq!(cluster.settle_pool("old", 111), "write the status of pool old");
    assert_eq!(cluster.settle_pool("old", 112), "Later(1001s)");
    cluster.observe_kept("pool young 10.0.0.0/26 28 younger deleting @113");
    cluster.pass(1);
    assert_eq!(cluster.settle_pool("old", 114), "set the finalizers of pool old to []");
    cluster.delete(Kind::Pool, "old", 115);
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");

    // Nobody waits for the ranges of this one.
    cluster.observe_kept("pool alone 10.9.0.0/26 28 zone=nowhere deleting @116");
    assert_eq!(cluster.settle_pool("alone", 117), "set the finalizers of pool alone to []");
}

/// Whatever of it is still on its way, can't be read, or is known to nobody but this process keeps a deleted pool.
#[test]
fn a_deleted_pool_stays_while_a_block_of_it_may_exist() {
    const FREED: &str = "set the finalizers of pool p to []";
    let pool = "pool p 10.0.0.0/26 28\n";
    let deleted = "pool p none 28 deleting @120";
    let stays = |cluster: &mut Cluster, why: &str| {
        cluster.observe_kept(deleted);
        assert_ne!(cluster.settle_pool("p", 121), FREED, "{why}");
        while let Some(other) = cluster.world.next_pool().cloned() {
            let _ = cluster.settle_pool(other.as_str(), 122);
        }
    };
    let goes = |cluster: &mut Cluster, why: &str| {
        assert_eq!(cluster.world.next_pool(), Some(&"p".into()), "{why}");
        assert_eq!(cluster.settle_pool("p", 130), FREED, "{why}");
    };

    let mut created = Cluster::of(&format!("{pool}node a 1\nciliumnode a @50"));
    created.drain();
    stays(&mut created, "a claim in flight");
    created.settle(&Target::Claim("10.0.0.0/28".parse().unwrap()), Seen::Nothing);
    goes(&mut created, "a claim that was not created");

    let odd = "unreadable NodeIPBlock 10.0.0.0-28 in=p 10.0.0.0/28 @110";
    let mut restarted = Cluster::of(&format!("{pool}{odd}"));
    stays(&mut restarted, "a claim that can't be read");
    restarted.delete(Kind::Claim, "10.0.0.0-28", 123);
    goes(&mut restarted, "a claim that could not be read");

    let mut lost = Cluster::of(&format!("{pool}node a 1\nclaim 10.0.0.0/28 a 1 Held @40"));
    lost.delete(Kind::Claim, "10.0.0.0-28", 110);
    stays(&mut lost, "a lost claim that is not recreated yet");

    let mut unsettled = Cluster::of(&format!("{pool}claim 10.0.0.0/28 a 1 Releasing/NodeGone @40"));
    unsettled.delete(Kind::Claim, "10.0.0.0-28", 110);
    stays(&mut unsettled, "a lost claim of a lost node");
    unsettled.observe("ciliumnode b @124");
    goes(&mut unsettled, "a lost claim of a node of which nothing is left");
}

/// The controller writes each of its values, so none of them is a repetition.
#[test]
fn a_status_that_swings_is_not_written_in_vain() {
    let mut cluster = Cluster::of("");
    cluster.observe_kept("pool p 10.0.0.0/26 28 @101");
    for round in 1..=4 {
        let revision = 100 + 10 * round;
        cluster.observe(&format!("claim 10.0.0.0/28 a 1 Cooling/NodeGone @{revision}"));
        cluster.pass(2);
        assert_eq!(cluster.settle_pool("p", revision + 1), "write the status of pool p");
        cluster.delete(Kind::Claim, "10.0.0.0-28", revision + 2);
        cluster.pass(2);
        assert_eq!(cluster.settle_pool("p", revision + 3), "write the status of pool p");
    }
    assert_eq!(cluster.world.ineffective_writes(cluster.now).count(), 0);
    assert_eq!(cluster.world.pool_pause(&"p".into()).later_than(cluster.now), None);
}

/// Failures count in a row, and a row ends when nothing is left to do, whoever did it.
#[test]
fn a_replica_that_loses_each_race_for_a_status_waits_no_longer_for_the_next() {
    let mut cluster = Cluster::of("");
    cluster.observe_kept("pool p 10.0.0.0/26 28 @101");
    for round in 1..=8 {
        let revision = 100 + 10 * round;
        cluster.observe(&format!("claim 10.0.0.0/28 a 1 Releasing/NodeGone @{revision}"));
        cluster.pass(2);
        let plan = cluster.pool_plan("p");
        cluster.world.begin_status(&"p".into(), &plan, cluster.now);
        let write = plan.into_writes().pop().expect("it writes");
        let answer = Answer::Conflict("the other replica was first".to_owned());
        let outcome = Outcome { request: write.into(), answer, seen: Seen::Nothing };
        cluster.world.finish(outcome, cluster.now);
        let soon = cluster.now.uptime + Duration::from_millis(250);
        assert!(matches!(cluster.pool_plan("p"), PoolPlan::Later(at) if at <= soon), "round {round}");
        cluster.other_replica_writes("p", revision + 1);
        cluster.pass(3500);
        // Until the next sample of its history, where the number of blocks has changed since the last one.
        assert!(cluster.settle_pool("p", 0).starts_with("UpToDate"), "round {round}");
        cluster.delete(Kind::Claim, "10.0.0.0-28", revision + 2);
        cluster.other_replica_writes("p", revision + 3);
        cluster.pass(3500);
        cluster.other_replica_writes("p", revision + 4);
        assert!(cluster.settle_pool("p", 0).starts_with("UpToDate"), "round {round}");
    }
}

#[test]
fn a_pool_that_gives_out_nothing_is_not_exhausted() {
    let held = "joined a @50 10.0.0.0/28 used=3\n";
    let closed = "Closed false: the pool gives no blocks; see the condition Ready";
    for (pool, ready) in [
        ("pool p 10.0.0.0/28 28 deleting", "Deleting false"),
        ("pool p 10.0.0.0/28 28 cordoned", "Cordoned false"),
        ("pool p none 28", "Empty false"),
    ] {
        let cluster = Cluster::of(&format!("{held}{pool}"));
        assert_eq!(cluster.condition("p", ConditionType::Exhausted), closed, "{pool}");
        assert!(cluster.condition("p", ConditionType::Ready).starts_with(ready), "{pool}");
    }
    let cluster = Cluster::of(&format!("{held}pool p 10.0.0.0/28 28"));
    let full = "NoFreeBlocks true: ipv4: 0 of 1 block free (1 held); waiting: 0 nodes without addresses, 0 for growth; add a CIDR";
    assert_eq!(cluster.condition("p", ConditionType::Exhausted), full);
}

#[test]
fn a_pool_that_an_older_one_overlaps_is_a_problem() {
    let problems = |young: &str| {
        let cluster =
            Cluster::of(&format!("pool p 10.0.0.0/24 28 zone=a\npool young {young} 28 zone=b younger"));
        let ready = cluster.condition("young", ConditionType::Ready);
        let problems = overview(&cluster.world, &[], cluster.now.wall).problems;
        let problems: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
        (ready, problems.join("\n"))
    };
    let (ready, problem) = problems("10.0.0.0/26");
    let overlap = "10.0.0.0/26 overlaps 10.0.0.0/24 of the older pool p, which keeps these addresses; 1 overlap in \
                   total; remove the range from one of the two pools";
    assert_eq!(ready, format!("Overlapped false: no block is left: {overlap}"));
    assert_eq!(problem, format!("pool young: {overlap}: kubectl edit nip young"));
    let (ready, problem) = problems("10.0.0.0/16");
    assert_eq!(ready, "Serving true: selected nodes get blocks");
    assert!(
        problem.starts_with("pool young: 10.0.0.0/16 overlaps 10.0.0.0/24 of the older pool p"),
        "{problem}"
    );
    assert_eq!(problems("10.1.0.0/24").1, "");
}

#[test]
fn nodes_of_a_pool_that_is_overlapped_are_not_helped_by_a_cidr() {
    let cluster =
        Cluster::of("pool p 10.0.0.0/24 28 zone=a\npool young 10.0.0.0/26 28 younger\njoined a @50");
    let message = &overview(&cluster.world, &[cluster.plan("a")], cluster.now.wall).problems[0].message;
    let expected =
        "1 node can't start pods: no free block in young; remove the range from one of the two pools";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn a_pool_says_which_family_its_nodes_lack() {
    let ready = |text: &str| Cluster::serving("crd v4 v6", text).condition("p", ConditionType::Ready);
    let p = "pool p 10.0.0.0/24 28\n";
    let serving = "Serving true: selected nodes get blocks";
    // No node matches yet, and the first one that does gets nothing.
    assert_eq!(
        ready(p),
        "FamilyMissing false: the agents also run ipv6, and no pool gives ipv6 blocks: a node that joins gets \
         no block of any family; add an active CIDR to `spec.ipv6`, or create a pool with ipv6 ranges for the \
         same nodes",
    );
    let missing = "FamilyMissing false: the agents also run ipv6, and no pool of these nodes gives ipv6 blocks: a node \
                   that joins gets no block of any family; add an active CIDR to `spec.ipv6`, or create a pool with \
                   ipv6 ranges that selects them: a, b";
    assert_eq!(ready(&format!("{p}node a 1\nnode b 1\npool six fd00::/64 122 zone=z")), missing);
    let both = format!("{p}node a 1\nnode b 1 zone=z\npool six fd00::/64 122");
    assert_eq!(ready(&both), format!("{serving}, and ipv6 blocks from other pools"));
    assert_eq!(
        ready(&both.replace("122", "122 zone=z")),
        format!("{serving}, except those whose agents also run ipv6 and that no pool gives ipv6 blocks: a"),
    );
    // A pool that gives out nothing is no source.
    for closed in ["122 deleting", "122 cordoned", "122 exclude=fd00::/64"] {
        assert_eq!(ready(&both.replace("122", closed)), missing, "{closed}");
    }
    assert_eq!(
        ready(&format!("{p}pool six fd00::/64 122")),
        format!(
            "{serving} if another pool gives them ipv6, which the agents also run; no node is selected now"
        ),
    );
}

/// The younger of the two others declares the range as well, and has nothing of it to give either.
#[test]
fn of_several_older_pools_the_oldest_is_named() {
    let mut cluster = Cluster::of("pool oldest 10.0.0.0/24 28\npool p 10.0.0.0/26 28 younger");
    let Object::Pool(mut between) = object("pool between 10.0.0.0/25 28 @110") else { unreachable!() };
    let pool = between.pool.as_mut().expect("it is readable");
    pool.created = Timestamp::from_second(1).unwrap();
    cluster.world.observe(Observation::Applied(Box::new(Object::Pool(between))));
    assert_has(&cluster.condition("p", ConditionType::Overlapping), "of the older pool oldest, which keeps");
}

/// The progress of the blocks that must leave, and the reasons that keep the others.
#[test]
fn a_pool_reports_the_progress_of_its_leaving_blocks() {
    let text = "node a 1\nnode b 1\nnode c 1\n\
         claim 10.0.0.0/28 a 1 Held @31\nclaim 10.0.0.16/28 a 1 Draining @32\nclaim 10.0.0.32/28 b 1 Draining @33\n\
         claim 10.0.0.48/28 c 1 Releasing/Reclaimed @34\nclaim 10.0.0.64/28 a 1 Held @35\n\
         ciliumnode a @50 10.0.0.0/28 10.0.0.16/28 10.0.0.64/28 used=10.0.0.16/31 fenced=10.0.0.16/28\n\
         ciliumnode b @51 10.0.1.0/28 10.0.0.32/28 used=0 fenced=10.0.0.32/28\nciliumnode c @52 10.0.1.16/28";
    let draining = |text: &str| {
        let condition = Cluster::of(text).status("p").conditions.remove(&ConditionType::Draining).unwrap();
        (condition.holds, condition.message)
    };
    assert_eq!(
        draining(&format!("pool p 10.0.0.0/24 28 draining\n{text}")),
        (
            true,
            "2 blocks open to new pods, 1 block closed to new pods and in use, 1 block unused and waiting for \
             the agent's release, 1 block being removed; waiting: 10.0.0.0/28 of a (the first block of \
             a node stays until the node rejoins, with a reboot: cilium-node-ipam migrate rejoin NODE), 10.0.0.16/28 \
             of a (2 addresses in use), 10.0.0.64/28 of a (the node has no Pod of Cilium's agent)"
                .to_owned()
        )
    );
    assert_eq!(
        draining(
            "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @31\nciliumnode a @50 10.0.0.0/28"
        ),
        (false, String::new())
    );
}

/// In the mode kubernetes that is the Node, and nothing counts of its CiliumNode.
#[test]
fn the_reason_for_a_block_that_stays_is_told_where_the_carrier_is_readable() {
    let leaving = "pool p 10.0.0.0/24 28 draining\nclaim 10.0.0.0/28 a 1 Held @31\nnode a 1 has=10.0.0.0/28";
    let draining = |unreadable: &str| {
        let mut cluster = Cluster::serving("kubernetes v4", leaving);
        cluster.observe(unreadable);
        cluster.condition("p", ConditionType::Draining)
    };
    assert_has(&draining("unreadable CiliumNode a @60"), "; waiting: 10.0.0.0/28 of a (");
    assert_eq!(draining("unreadable Node a @60"), "BlocksToLeave true: 1 block open to new pods");
}

impl Cluster {
    /// The IPv4 blocks of a pool: all, held, free, and unavailable ones.
    fn blocks(&self, name: &str) -> [u64; 4] {
        let counts = self.status(name).families[&Family::V4];
        [counts.blocks, counts.held, counts.free, counts.unavailable]
    }

    fn findings(&self) -> Vec<String> {
        free::findings(&self.world).iter().map(ToString::to_string).collect()
    }
}

#[test]
fn a_pool_counts_nodes_with_nothing_and_nodes_that_want_more_by_themselves() {
    // Eight of eleven nodes have published blocks, and each of them is full.
    let served = |number: u32| format!("joined s{number} @50 10.0.0.{}/28 used=14\n", 16 * number);
    let bare = |number: u32| format!("node b{number} 1\nciliumnode b{number} @51\n");
    let nodes: String = (0..8).map(served).chain((0..3).map(bare)).collect();
    let mut cluster = Cluster::of(&format!("pool p 10.0.0.0/25 28\n{nodes}"));
    cluster.drain();
    let counts = cluster.status("p").nodes;
    assert_eq!((counts.selected, counts.served, counts.waiting, counts.want_growth), (11, 8, 3, 8));
    let exhausted = "NoFreeBlocks true: ipv4: 0 of 8 blocks free (8 held); waiting: 3 nodes without addresses, 8 for growth; add a CIDR";
    assert_eq!(cluster.condition("p", ConditionType::Exhausted), exhausted);
}

/// It keeps blocks taken, so the status counts and names it.
#[test]
fn what_only_this_process_remembers_is_shown() {
    let obstructed = |cluster: &Cluster| cluster.condition("p", ConditionType::Obstructed);
    let pool = "pool p 10.0.0.0/26 28\nnode a 1\n";

    let mut away = Cluster::of(&format!("{pool}ciliumnode a @50 10.0.0.0/27"));
    let before = (away.blocks("p"), obstructed(&away));
    assert_eq!(before.0, [4, 0, 2, 2]);
    away.delete(Kind::CiliumNode, "a", 110);
    assert_eq!((away.blocks("p"), obstructed(&away)), before, "its CiliumNode is away");

    let mut lost = Cluster::of(&format!("{pool}claim 10.0.0.0/28 a 1 Held @40"));
    lost.delete(Kind::Claim, "10.0.0.0-28", 110);
    assert_eq!(lost.blocks("p"), [4, 0, 3, 1]);
    assert_eq!(
        obstructed(&lost),
        "BlocksUnavailable true: unavailable blocks (ipv4: 1): addresses without a claim: the lost claim of \
         node a (10.0.0.0/28)"
    );
}

/// The server may refuse it, and each try would change the status twice.
#[test]
fn a_claim_that_is_being_created_does_not_change_the_status_of_its_pool() {
    let mut pending = Cluster::of("pool p 10.0.0.0/26 28\njoined a @50");
    let before = pending.status("p");
    pending.drain();
    assert!(!pending.in_flight.is_empty());
    assert_eq!(pending.status("p"), before);
}

/// It may say something else now, so its earlier content is not counted.
#[test]
fn what_an_object_was_before_it_turned_unreadable_is_not_shown() {
    let clusters = [
        ("crd v4", "pool p 10.0.0.0/26 28\n"),
        ("crd v4", "pool p 10.0.0.0/28 28\n"),
        ("crd v4 v6", "pool p 10.0.0.0/26 28\n"),
        ("crd v4 v6", "pool p 10.0.0.0/26 28\npool six fd00::/64 122 zone=z\nnode b 1 zone=z\n"),
    ];
    let node = ["node a 1", "claim 10.0.0.0/28 a 1 Held @40", "ciliumnode a @50 10.0.0.0/28 used=16"];
    for (mode, pools) in clusters {
        for (place, odd) in [(0, "Node a"), (1, "NodeIPBlock 10.0.0.0-28 of=a"), (2, "CiliumNode a")] {
            let odd = format!("unreadable {odd} 10.0.0.0/28 @110");
            let mut turned = Cluster::serving(mode, &format!("{pools}{}", node.join("\n")));
            turned.refuse_all();
            turned.observe(&odd);
            turned.refuse_all();
            let mut others = node.to_vec();
            others.remove(place);
            let mut restarted = Cluster::serving(mode, &format!("{pools}{}\n{odd}", others.join("\n")));
            restarted.refuse_all();
            assert_eq!(turned.status("p"), restarted.status("p"), "{odd}, {mode} and {pools}");
        }
    }
}

/// A plan that has to move a claim first, and can't, says what the node needs all the same.
#[test]
fn a_node_waits_for_a_block_whether_or_not_its_other_claims_can_be_moved() {
    let full = "pool p 10.0.0.0/30 30\njoined a @50 10.0.0.0/30 used=4\n";
    let odd = "claim 10.9.0.0/30 a 1 Releasing/Unused @120";
    let mut running = Cluster::of(full);
    running.refuse_all();
    assert_eq!(running.status("p").nodes.want_growth, 1);
    running.observe(odd);
    let mut restarted = Cluster::of(&format!("{full}{odd}"));
    for _ in 0..3 {
        for cluster in [&mut running, &mut restarted] {
            cluster.refuse_all();
            cluster.pass(60);
        }
        assert_eq!(running.status("p").nodes.want_growth, 1);
        assert_eq!(running.status("p"), restarted.status("p"));
    }
}

/// Both counts are shown as the largest that a status can hold.
#[test]
fn a_pool_with_more_blocks_than_can_be_counted_has_a_status() {
    let cluster = Cluster::serving("crd v6", "pool p fd00::/32 124\nclaim fd00::/124 a 1 Held @40");
    let counts = cluster.status("p").families[&Family::V6];
    assert_eq!((counts.blocks, counts.free), (capped_count(u128::MAX), capped_count(u128::MAX)));
    assert_eq!((counts.held, counts.unavailable), (1, 0));
}

#[test]
fn the_first_block_waits_until_a_cloud_controller_has_set_the_labels() {
    let pools = "pool rest 10.0.0.0/24 28\npool east 10.1.0.0/24 28 zone=east";
    let waits = format!("waits: {}", Wait::Initialization("node.cluster.x-k8s.io/uninitialized"));
    let tainted = || {
        Cluster::of(&format!("{pools}\nnode a 1 taint=node.cluster.x-k8s.io/uninitialized\nciliumnode a @50"))
    };
    let mut cluster = tainted();
    cluster.expect("a", &waits);
    assert_eq!(tally::node_state(&cluster.world, &"a".into()), tally::NodeState::Pending);
    cluster.pass(59);
    cluster.expect("a", &waits);
    cluster.observe("node a 1 taint=node.cluster.x-k8s.io/uninitialized zone=east @101");
    cluster.expect("a", &waits);
    cluster.observe("node a 1 zone=east @102");
    cluster.expect("a", "claim 10.1.0.0/28 of pool east for node a");

    // It waits no longer than that, and not at all without the policy.
    let mut late = tainted();
    late.expect("a", &waits);
    late.pass(60);
    assert_eq!(late.world.next_node().map(NodeName::as_str), Some("a"), "time alone wakes it");
    late.expect("a", "claim 10.0.0.0/28 of pool rest for node a");
    let never = Policy { initialization: Duration::ZERO, ..Policy::DEFAULT };
    let (off, claim) = (tainted(), "claim 10.0.0.0/28 of pool rest for node a");
    assert_eq!(rendered(&node(&off.world, &"a".into(), never, off.now)), claim);
    // A node that comes back has its blocks already.
    let held = "claim 10.0.0.0/28 a 1 Held @40 of=rest";
    Cluster::of(&format!(
        "{pools}\nnode a 1 taint=node.cluster.x-k8s.io/uninitialized\nciliumnode a @30\n{held}"
    ))
    .expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a");
}

#[test]
fn a_first_block_of_a_pool_that_does_not_select_its_node_is_a_finding() {
    let text = "pool rest 10.0.0.0/24 28\npool east 10.1.0.0/24 28 zone=east reuseAfterNodeLoss=900\nnode a 1\n\
                ciliumnode a @50 10.1.0.0/28 used=1\nclaim 10.1.0.0/28 a 1 Held @40 of=east";
    let mut cluster = Cluster::of(text);
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "finding: StrayBlock");
    let message = &plan.findings[0].message;
    assert!(message.contains("10.1.0.0/28 (pool east)") && message.contains("after 900 s"), "{message}");
    cluster.observe("node a 1 zone=east @101");
    cluster.expect("a", "nothing");
}

/// A wrong selector let the node grow from a pool that selects it no more.
#[test]
fn further_blocks_of_pools_that_do_not_select_their_node_are_listed_as_information() {
    let pools = "pool rest 10.0.0.0/24 28 zone=west\n\
                 pool east 10.1.0.0/24 28 zone=east reuseAfterNodeLoss=900\n";
    let of_mode = |node: &str, claims: &str| Cluster::of(&format!("{pools}{node}\n{claims}"));
    let claims = "claim 10.0.0.0/28 a 1 Held @40 of=rest\nclaim 10.1.0.0/28 a 1 Held @41 of=east";
    let node = "node a 1 zone=west\nciliumnode a @50 10.0.0.0/28 10.1.0.0/28 used=18";
    let mut cluster = of_mode(node, claims);
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "finding: StrayFurtherBlock");
    let message = &plan.findings[0].message;
    assert!(message.contains("10.1.0.0/28 (pool east)") && !message.contains("10.0.0.0/28"), "{message}");
    assert!(message.contains("`reclaim.mode: Enabled`") && message.contains("after 900 s"), "{message}");
    assert!(!plan.findings[0].kind.is_wrong());
    // The pool selects it again.
    cluster.observe("node a 1 zone=east @101");
    cluster.expect("a", "finding: StrayBlock");
    // A drain of the block has a report of its own.
    cluster.observe("node a 1 zone=west @102");
    cluster.observe("pool east 10.1.0.0/24 28 draining zone=east @103");
    let findings: Vec<_> = cluster.plan("a").findings.iter().map(|finding| finding.kind).collect();
    assert!(!findings.contains(&FindingKind::StrayFurtherBlock), "{findings:?}");
}

#[test]
fn a_passive_controller_shows_that_it_is_passive_and_writes_nothing_else() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28");
    let PoolPlan::Write(writes) = cluster.pool_plan("p") else { panic!("no write") };
    assert!(matches!(&writes[..], [Write::PoolFinalizers(_)]), "{writes:?}");
    cluster.world.set_mode(crate::publisher::mode::Mode::Passive("`ipam: eni`".to_owned()));
    assert_eq!(
        cluster.condition("p", ConditionType::Ready),
        "Passive false: the controller is passive and gives no blocks: `ipam: eni`"
    );
    let PoolPlan::Write(writes) = cluster.pool_plan("p") else { panic!("no write") };
    assert!(matches!(&writes[..], [Write::PoolStatus(_)]), "{writes:?}");
}
