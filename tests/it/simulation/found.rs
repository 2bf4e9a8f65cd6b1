//! Defects that scripts have found, each as the few steps that show it.

use std::time::Duration;

use cilium_node_ipam::ipam::block::Cidr;
use cilium_node_ipam::ipam::claim::{Claim, ClaimState, Reason};
use cilium_node_ipam::ipam::ledger::Taker;
use cilium_node_ipam::ipam::names::Revision;
use cilium_node_ipam::world::gather::Gathering;
use cilium_node_ipam::world::objects::{Mode, Node, Settings};
use cilium_node_ipam::world::observe::{Kind, Listing, Object, Observation};
use cilium_node_ipam::world::write::{Answer, Effect, ObjectKey, Outcome, Seen};
use cilium_node_ipam::world::{Now, World};

use super::agent::cilium_node;

fn empty_world() -> World {
    let mut gathering = Gathering::default();
    let settings = Settings { families: [].into(), infrastructure: Vec::new() };
    gathering.set_mode(Mode::Active(settings));
    for kind in Kind::ALL {
        let (at_least, at_most) = (Revision(0), Revision(0));
        gathering.observe(Observation::Listed(Listing { kind, at_least, at_most, objects: Vec::new() }));
    }
    gathering.complete().expect("every kind was listed")
}

fn shows(world: &mut World, object: Object) {
    world.observe(Observation::Applied(Box::new(object)));
}

fn block() -> Cidr {
    "10.0.0.0/28".parse().expect("it is a prefix")
}

fn node(revision: u64) -> Object {
    Object::Node(Node {
        name: "n".into(),
        uid: "node".into(),
        revision: Revision(revision),
        deleting: false,
        labels: [].into(),
        addresses: Vec::new(),
    })
}

fn claim(uid: &str, revision: u64, state: ClaimState) -> Claim {
    Claim {
        cidr: block(),
        pool: "p".into(),
        node: "n".into(),
        node_uid: "node".into(),
        withheld: [block().first_address()].into_iter().collect(),
        state,
        since: 0,
        reason: (state == ClaimState::Cooling).then_some(Reason::Reclaimed),
        cilium_node_uid: None,
        uid: uid.into(),
        revision: Revision(revision),
        created: 0,
        deleting: false,
        finalizers: Vec::new(),
    }
}

/// The watches of two kinds are not in step: a block may be seen to stand before its claim is seen.
#[test]
fn what_a_claim_covers_does_not_stand_beside_it_while_the_ciliumnode_is_away() {
    let mut world = empty_world();
    shows(&mut world, node(1));
    let mut standing = cilium_node("n", "cilium-node", Vec::new());
    standing.revision = Revision(3);
    standing.pod_cidrs.push(block());
    shows(&mut world, Object::CiliumNode(standing));
    let gone = Observation::Deleted { kind: Kind::CiliumNode, name: "n".to_owned(), revision: Revision(4) };
    world.observe(gone);
    assert_eq!(world.ledger().takers(block()), [Taker::Standing("n".into())]);

    shows(&mut world, Object::Claim(claim("claim", 2, ClaimState::Held)));

    assert_eq!(world.ledger().takers(block()), [Taker::Claim]);
}

/// The answer to a deletion may be later than the watch that shows the next claim of the same block.
#[test]
fn the_answer_to_a_deletion_does_not_take_the_next_claim_away() {
    let mut world = empty_world();
    shows(&mut world, Object::Claim(claim("first", 2, ClaimState::Cooling)));
    let key = ObjectKey::Claim(block());
    let name = block().object_name();
    world.observe(Observation::Deleted { kind: Kind::Claim, name, revision: Revision(3) });
    shows(&mut world, Object::Claim(claim("second", 4, ClaimState::Held)));

    let (effect, answer, seen) = (Effect::Write, Answer::Done, Seen::Absent(None));
    let now = Now { uptime: Duration::ZERO, wall: 0 };
    world.finish(Outcome { key, effect, node: Some("n".into()), answer, seen }, now);

    assert_eq!(world.claim(block()).map(|known| known.claim.uid.as_str()), Some("second"));
    assert_eq!(world.ledger().takers(block()), [Taker::Claim]);
}
