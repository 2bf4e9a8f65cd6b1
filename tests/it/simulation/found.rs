//! Defects that scripts have found, each as the few steps that show it.

use std::time::Duration;

use cilium_node_ipam::ledger::Occupant;
use cilium_node_ipam::model::claim::{Claim, ClaimState, Reason, block_name};
use cilium_node_ipam::model::crd::CrdFields;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::multi_pool::PoolsFields;
use cilium_node_ipam::model::names::{NodeName, PoolName};
use cilium_node_ipam::model::node::{CiliumNode, Node};
use cilium_node_ipam::model::node_config::NodeConfigNews;
use cilium_node_ipam::model::observation::{Listing, Object, Observation, PoolObject};
use cilium_node_ipam::model::outcome::{Answer, Outcome, Seen};
use cilium_node_ipam::model::plan::PoolPlan;
use cilium_node_ipam::model::plan::{Verdict, Wait};
use cilium_node_ipam::model::request::{BumpVersion, ClaimChange, ClaimUpdate, Read, Request, Target, Write};
use cilium_node_ipam::model::revision::{AnyRevision, Custom, Revision};
use cilium_node_ipam::model::time::{Now, Timestamp};
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::plan::{self, Policy};
use cilium_node_ipam::publisher::Publisher;
use cilium_node_ipam::publisher::crd::Crd;
use cilium_node_ipam::world::World;
use serde_json::json;

use super::pools::Shape;
use super::replica::{POLICY, world_of_nothing};
use super::store::read;

const NOW: Now = Now { uptime: Duration::ZERO, wall: Timestamp::UNIX_EPOCH };

fn empty_world() -> World {
    let crd = Publisher::Crd(Crd { families: [Family::V4].into(), infrastructure: Vec::new() });
    world_of_nothing(crd.into(), NodeConfigNews::Listed(Vec::new()))
}

fn shows(world: &mut World, object: Object) {
    world.observe(Observation::Applied(Box::new(object)));
}

fn goes(world: &mut World, kind: Kind, name: &str, revision: u64) {
    let revision = AnyRevision::of(kind, revision);
    world.observe(Observation::Deleted { kind, name: name.to_owned(), revision });
}

fn block() -> Cidr {
    "10.0.0.0/28".parse().expect("it is a prefix")
}

fn node(revision: u64) -> Object {
    let (revision, created) = (Revision::of(revision), Timestamp::UNIX_EPOCH);
    Object::Node(Node::joining("n".into(), "node".into(), revision, created, [].into()))
}

fn cilium_node(name: &str, uid: &str) -> CiliumNode {
    CiliumNode {
        name: name.into(),
        uid: uid.into(),
        revision: Revision::of(1),
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        addresses: Vec::new(),
        crd: CrdFields::default(),
        pools: PoolsFields::default(),
        operator: None,
        malformed: Vec::new(),
    }
}

fn claim(uid: &str, revision: u64, state: ClaimState) -> Claim {
    Claim {
        cidr: block(),
        pool: "p".into(),
        node: "n".into(),
        node_uid: "node".into(),
        pod_ip_pool: None,
        excluded: [block().first_address()].into_iter().collect(),
        state,
        since: Timestamp::UNIX_EPOCH,
        created_for: Some("cilium-node".into()),
        uid: uid.into(),
        revision: Revision::of(revision),
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        finalizers: Vec::new(),
        status: cilium_node_ipam::model::status::ClaimStatus::default(),
    }
}

/// The watches of two kinds are not in step: a block may be seen on a CiliumNode before its claim is seen.
#[test]
fn what_a_claim_covers_has_no_second_occupant_while_the_ciliumnode_is_away() {
    let mut world = empty_world();
    shows(&mut world, node(1));
    let mut carrier = cilium_node("n", "cilium-node");
    carrier.revision = Revision::of(3);
    carrier.crd.pod_cidrs.push(block());
    shows(&mut world, Object::CiliumNode(carrier));
    goes(&mut world, Kind::CiliumNode, "n", 4);
    assert_eq!(world.ledger().occupants(block()), [Occupant::Carried("n".into())]);

    shows(&mut world, Object::Claim(claim("claim", 2, ClaimState::Held)));

    assert_eq!(world.ledger().occupants(block()), [Occupant::Claim]);
}

/// A pool of the whole universe, without a finalizer.
fn pool(name: &str) -> PoolObject {
    let mut json = Shape::whole().made(name, &[Family::V4].into());
    json["metadata"]["uid"] = json!("pool");
    json["metadata"]["resourceVersion"] = json!("1");
    json["metadata"]["creationTimestamp"] = json!("1970-01-01T00:00:00Z");
    let Object::Pool(pool) = read(Kind::Pool, &json) else { unreachable!("it is a pool") };
    pool
}

fn done(request: Request, seen: Seen) -> Outcome {
    Outcome { request, answer: Answer::Done, seen }
}

fn update(claim: &Claim, change: ClaimChange) -> Request {
    Write::UpdateClaim(ClaimUpdate::of(claim, change, Timestamp::UNIX_EPOCH)).into()
}

fn request_of(plan: &PoolPlan) -> Request {
    plan.clone().into_writes().pop().expect("it writes").into()
}

fn moves(world: &World) -> Vec<String> {
    plan::node(world, &"n".into(), POLICY, NOW).requests().iter().map(ToString::to_string).collect()
}

/// The store may be idle. A read that finds no CiliumNode as of the very revision of the claim's deletion is later than
/// every publication of it.
#[test]
fn a_claim_lost_last_of_all_is_settled_by_one_read() {
    let mut world = empty_world();
    shows(&mut world, Object::Claim(claim("claim", 2, ClaimState::Held)));
    goes(&mut world, Kind::Claim, &block_name(block()), 3);
    assert_eq!(moves(&world), ["read CiliumNode n"]);

    let request = Read::CiliumNode("n".into()).into();
    world.finish(done(request, Seen::Absent(Revision::of(3))), NOW);

    assert!(moves(&world).is_empty());
    assert!(!world.ledger().is_taken(block()));

    // Neither a node that is gone nor the result of the read is kept.
    assert_eq!(world.next_node().map(NodeName::as_str), Some("n"));
    assert_eq!(world.check(), []);
    world.begin(&plan::node(&world, &"n".into(), POLICY, NOW), NOW);
    assert_eq!(world.check(), []);
}

/// Blocks of other pools also decide which blocks are free: the range was theirs when they were claimed.
#[test]
fn a_pool_is_looked_at_again_when_a_block_of_another_pool_leaves_its_range() {
    let mut world = empty_world();
    shows(&mut world, Object::Pool(pool("over")));
    shows(&mut world, Object::Claim(claim("claim", 2, ClaimState::Cooling(Reason::Reclaimed))));
    world.begin_status(&"over".into(), &PoolPlan::Unchanged, NOW);
    world.begin_status(&"p".into(), &PoolPlan::Unchanged, NOW);
    assert_eq!(world.next_pool(), None);

    goes(&mut world, Kind::Claim, &block_name(block()), 3);

    assert_eq!(world.next_pool().map(PoolName::as_str), Some("over"));
}

/// Nothing is read after a patch of a pool that was not applied, so the same patch would be sent again at once.
#[test]
fn a_pool_whose_writes_fail_waits_longer_after_each() {
    let mut world = empty_world();
    shows(&mut world, Object::Pool(pool("p")));
    let mut now = NOW;
    let refused = |asked| Answer::Refused("a webhook denied the request".to_owned(), asked);
    let moved = || Answer::Conflict("the object has been modified".to_owned());
    let asked = Some(Duration::from_secs(7));
    for (answer, wait) in [(moved(), 250), (refused(None), 250), (refused(asked), 7000), (moved(), 1000)] {
        let due = plan::pool(&world, &"p".into(), Policy::DEFAULT, now);
        assert!(
            matches!(&due, PoolPlan::Write(writes) if matches!(writes[..], [Write::PoolFinalizers(_)])),
            "{due:?}"
        );
        world.begin_status(&"p".into(), &due, now);
        let is_conflict = matches!(answer, Answer::Conflict(_));
        world.finish(Outcome { request: request_of(&due), answer, seen: Seen::Nothing }, now);

        let later = now.uptime + Duration::from_millis(wait);
        let plan = plan::pool(&world, &"p".into(), Policy::DEFAULT, now);
        let waits = if is_conflict { PoolPlan::Later(later) } else { PoolPlan::Unchanged };
        assert_eq!(plan, waits);
        // One that was refused waits for its turn.
        now.uptime = later.saturating_sub(Duration::from_millis(1));
        world.advance(now);
        assert_eq!(plan::pool(&world, &"p".into(), Policy::DEFAULT, now), waits);
        now.uptime = later;
        world.advance(now);
    }
    let due = plan::pool(&world, &"p".into(), Policy::DEFAULT, now);
    world.begin_status(&"p".into(), &due, now);
    world.finish(done(request_of(&due), Seen::Nothing), now);
    assert!(
        matches!(plan::pool(&world, &"p".into(), Policy::DEFAULT, now), PoolPlan::Write(_)),
        "one success ends the wait"
    );

    // A recreated pool does not wait for these failures, and a late answer leaves nothing behind.
    goes(&mut world, Kind::Pool, "p", 9);
    world.finish(Outcome { request: request_of(&due), answer: refused(None), seen: Seen::Nothing }, now);
    assert_eq!(world.check(), []);
}

/// A list of `kind` without objects, taken between two revisions.
fn lists_nothing(world: &mut World, kind: Kind, at_least: u64, at_most: u64) {
    let (at_least, at_most) = (AnyRevision::of(kind, at_least), AnyRevision::of(kind, at_most));
    world.observe(Observation::Listed(Listing { kind, at_least, at_most, objects: Vec::new() }));
}

/// After a restore whose revisions do not go back, as etcd recommends it: the list is older than the known objects.
#[test]
fn a_list_that_is_older_than_what_was_known_before_it_tells_of_a_restored_store() {
    let lists = |world: &mut World, at_least: u64, shown: u64| {
        let objects = vec![Object::Claim(claim("claim", shown, ClaimState::Cooling(Reason::Reclaimed)))];
        let (kind, at_least) = (Kind::Claim, AnyRevision::of(Kind::Claim, at_least));
        world.observe(Observation::Listed(Listing { kind, at_least, at_most: at_least, objects }));
    };
    let mut world = empty_world();
    shows(&mut world, Object::Claim(claim("claim", 500, ClaimState::Held)));
    // The list may be older than the version that the watch has shown meanwhile.
    lists(&mut world, 499, 100);
    assert_eq!(world.contradiction(), None);
    // A list shows the known version or a later one.
    lists(&mut world, 1000, 500);
    assert_eq!(world.contradiction(), None);
    let mut restored = world.clone();
    lists(&mut restored, 1000, 100);
    let found = restored.contradiction().expect("an older version");
    assert_eq!(
        (found.shown, found.known),
        (AnyRevision::of(Kind::Claim, 100), AnyRevision::of(Kind::Claim, 500)),
        "{found}"
    );

    // A read of the claims of one node shows the same.
    let claims = vec![claim("claim", 100, ClaimState::Cooling(Reason::Reclaimed))];
    let seen = Seen::ClaimsOf { revision: Revision::of(1000), claims, unreadable: Vec::new() };
    world.finish(done(Read::ClaimsOf("n".into()).into(), seen), NOW);
    assert_eq!(world.contradiction(), restored.contradiction());
}

/// A list states only between which revisions it was taken. It may be newer than an answer that comes after it.
#[test]
fn a_late_answer_does_not_bring_a_ciliumnode_back_that_a_list_has_not() {
    let mut world = empty_world();
    lists_nothing(&mut world, Kind::CiliumNode, 2, 10);

    let mut patched = cilium_node("n", "cilium-node");
    patched.revision = Revision::of(5);
    let bump = BumpVersion {
        node: "n".into(),
        uid: "cilium-node".into(),
        revision: Revision::<Custom>::of(4).into(),
        later_than: Revision::of(4),
    };
    let seen = Seen::CiliumNode(Box::new(patched.clone()));
    world.finish(done(Write::BumpVersion(bump).into(), seen), NOW);
    assert_eq!(world.cilium_node(&"n".into()), None);

    // If the CiliumNode does exist, the watch continues from the list and shows it.
    shows(&mut world, Object::CiliumNode(patched.clone()));
    assert_eq!(world.cilium_node(&"n".into()), Some(&patched));
}

#[test]
fn a_late_answer_about_a_claim_that_a_list_has_not_is_settled_by_a_read() {
    let mut world = empty_world();
    lists_nothing(&mut world, Kind::Claim, 2, 10);

    let held = claim("claim", 5, ClaimState::Held);
    let request = update(&held, ClaimChange::Hold("node".into()));
    world.finish(done(request, Seen::Claim(Box::new(held))), NOW);

    assert_eq!(world.unconfirmed(), [Read::Claim(block(), "n".into())]);
}

/// Another node asks for the block. Returns its request, which is under way.
fn another_node_asks(world: &mut World) -> Request {
    let Object::Node(asking) = node(2) else { unreachable!("it is a Node") };
    shows(world, Object::Node(Node { name: "asking".into(), ..asking }));
    shows(world, Object::CiliumNode(cilium_node("asking", "cilium-node")));
    let asks = plan::node(world, &"asking".into(), POLICY, NOW);
    assert_eq!(asks.requests().iter().map(Request::target).collect::<Vec<_>>(), [Target::Claim(block())]);
    world.begin(&asks, NOW);
    asks.requests()[0].clone()
}

fn refuses(world: &mut World, request: Request) {
    let answer = Answer::Refused("too many requests".to_owned(), None);
    world.finish(Outcome { request, answer, seen: Seen::Nothing }, NOW);
}

/// A replica that has not seen a claim may ask for its block. Until that is answered, it leaves the claim alone: one
/// write per object is in flight.
#[test]
fn a_claim_is_left_alone_while_another_node_asks_for_its_block() {
    let mut world = empty_world();
    shows(&mut world, Object::Pool(pool("p")));
    let asked = another_node_asks(&mut world);

    shows(&mut world, Object::Claim(claim("claim", 3, ClaimState::Held)));
    let waits = plan::node(&world, &"n".into(), POLICY, NOW);
    assert_eq!(waits.verdict, Verdict::Wait(Wait::Answer));
    world.begin(&waits, NOW);

    refuses(&mut world, asked);
    assert_eq!(world.next_node().map(NodeName::as_str), Some("n"), "it is looked at again");
    assert_eq!(moves(&world), ["read Node n"]);
}

/// The same for a lost claim: it is recreated after the answer about another node's claim of the block.
#[test]
fn a_lost_claim_is_recreated_when_nobody_else_asks_for_its_block() {
    let mut world = empty_world();
    shows(&mut world, Object::Pool(pool("p")));
    shows(&mut world, node(1));
    let asked = another_node_asks(&mut world);

    shows(&mut world, Object::Claim(claim("claim", 3, ClaimState::Held)));
    goes(&mut world, Kind::Claim, &block_name(block()), 4);
    let waits = plan::node(&world, &"n".into(), POLICY, NOW);
    assert_eq!(waits.verdict, Verdict::Wait(Wait::Answer));
    world.begin(&waits, NOW);
    world.begin(&plan::node(&world, &"asking".into(), POLICY, NOW), NOW);

    refuses(&mut world, asked);
    // Its request has failed once.
    world.begin(&plan::node(&world, &"asking".into(), POLICY, NOW), NOW);
    assert_eq!(world.next_node().map(NodeName::as_str), Some("n"), "it is looked at again");
    assert_eq!(moves(&world), ["claim 10.0.0.0/28 of pool p for node n"]);
}

/// The answer to a deletion may be later than the watch that shows the next claim of the same block.
#[test]
fn the_answer_to_a_deletion_does_not_take_the_next_claim_away() {
    let mut world = empty_world();
    shows(&mut world, Object::Claim(claim("first", 2, ClaimState::Cooling(Reason::Reclaimed))));
    goes(&mut world, Kind::Claim, &block_name(block()), 3);
    shows(&mut world, Object::Claim(claim("second", 4, ClaimState::Held)));

    let request = update(&claim("first", 2, ClaimState::Cooling(Reason::Reclaimed)), ClaimChange::Delete);
    world.finish(done(request, Seen::Deleted("first".into())), NOW);

    assert_eq!(world.claim(block()).map(|known| known.claim.uid.as_str()), Some("second"));
    assert_eq!(world.ledger().occupants(block()), [Occupant::Claim]);
}
