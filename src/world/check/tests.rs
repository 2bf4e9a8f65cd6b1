//! Each index is broken in turn, and the self-check names it.

use std::time::Duration;

use super::*;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::freeze::Freeze;
use crate::model::multi_pool::PoolsFields;
use crate::model::node::{AddressKind, CiliumNode, Node, NodeAddress};
use crate::model::observation::{Listing, Object, Observation, PoolObject, Unreadable};
use crate::model::plan::PoolPlan;
use crate::model::request::{NewClaim, Request, Write};
use crate::model::revision::{AnyRevision, Revision};
use crate::model::status::PoolStatus;
use crate::model::time::{Now, Timestamp};
use crate::net::address_map::AddressMap;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Family;
use crate::publisher::Publisher;
use crate::publisher::mode::Mode;
use crate::world::LostClaim;
use crate::world::agenda::{Place, Turn};
use crate::world::gather::Gathering;

fn now() -> Now {
    Now { uptime: Duration::ZERO, wall: Timestamp::default() }
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn pool() -> PoolObject {
    PoolObject {
        name: "p".into(),
        uid: "p".into(),
        revision: Revision::of(1),
        deleting: false,
        finalizers: Vec::new(),
        pool: Ok(crate::ledger::grid::tests::pool("p", 28, &["10.0.0.0/24"])),
        generation: 1,
        status: PoolStatus::default(),
        transitions: BTreeMap::new(),
        waits_since: BTreeMap::new(),
        history: BTreeMap::new(),
    }
}

fn claim(text: &str, state: ClaimState) -> Claim {
    Claim {
        cidr: cidr(text),
        pool: "p".into(),
        node: "n".into(),
        node_uid: "nu".into(),
        pod_ip_pool: None,
        excluded: AddressSet::new(),
        state,
        since: Timestamp::default(),
        created_for: Some("cu".into()),
        uid: text.into(),
        revision: Revision::of(2),
        created: Timestamp::default(),
        deleting: false,
        finalizers: vec![Claim::FINALIZER.to_owned()],
        status: crate::model::status::ClaimStatus::default(),
    }
}

fn place(node: &str) -> Place {
    Place {
        turn: Turn::Newcomer,
        waits_since: Duration::ZERO,
        created: Timestamp::default(),
        node: node.into(),
    }
}

fn seen_cooling(uid: &str) -> SeenCooling {
    SeenCooling { uid: uid.into(), since: Timestamp::default(), seen_at: None, node_went: false }
}

/// A world with a claim, a cooling block, a lost claim and a claim that is being created. Its CiliumNode has addresses
/// without a claim, and one object can't be read.
fn sound() -> World {
    let node = Node {
        name: "n".into(),
        uid: "nu".into(),
        revision: Revision::of(1),
        created: Timestamp::default(),
        labels: BTreeMap::new(),
        deleting: false,
        taints: Vec::new(),
        addresses: vec![NodeAddress { kind: AddressKind::Internal, address: "192.168.0.1".parse().unwrap() }],
        pod_cidrs: Vec::new(),
        later_than: None,
        malformed: Vec::new(),
        annotated: Vec::new(),
        malformed_annotations: Vec::new(),
        former_mode_ignored: None,
        growth_hold: None,
        availability: None,
        max_pods: None,
    };
    let mut crd = crate::model::crd::CrdFields::default();
    crd.pod_cidrs.push(cidr("10.9.0.0/28"));
    let cilium_node = CiliumNode {
        name: "n".into(),
        uid: "cu".into(),
        revision: Revision::of(3),
        created: Timestamp::default(),
        deleting: false,
        addresses: vec!["192.168.0.1".parse().unwrap()],
        crd,
        pools: PoolsFields::default(),
        operator: None,
        malformed: Vec::new(),
    };
    let unreadable = Unreadable {
        node: None,
        pool: None,
        name: "odd".into(),
        revision: Some(AnyRevision::of(Kind::Claim, 2)),
        reason: "odd".into(),
        addresses: AddressSet::from_iter([cidr("10.8.0.0/28")]),
    };
    let objects = [
        Object::Pool(pool()),
        Object::Node(node),
        Object::Claim(claim("10.0.0.0/28", ClaimState::Held)),
        Object::Claim(claim("10.0.0.16/28", ClaimState::Cooling(Reason::NodeGone))),
        Object::Unreadable(Kind::Claim, unreadable),
        Object::CiliumNode(cilium_node),
    ];
    let mut gathering = Gathering::default();
    gathering.set_mode(Mode::from(Publisher::Crd(crate::publisher::crd::Crd::default())));
    gathering.set_freeze(Freeze::default());
    for kind in Kind::AS_LISTED {
        let of_kind = objects.iter().filter(|object| object.kind() == kind).cloned().collect();
        let at = AnyRevision::of(kind, 5);
        gathering.observe(Observation::Listed(Listing { kind, at_least: at, at_most: at, objects: of_kind }));
    }
    let mut world = gathering.complete().expect("every kind is listed");
    let new = NewClaim {
        cidr: cidr("10.0.0.32/28"),
        pool: "p".into(),
        node: "n".into(),
        node_uid: "nu".into(),
        pod_ip_pool: None,
        excluded: AddressSet::new(),
        created_for: None,
        since: Timestamp::default(),
    };
    world.mark_sent(&Request::Write(Write::CreateClaim(new)), now());
    let cidr_lost = cidr("10.7.0.0/28");
    world.take(cidr_lost, Occupant::LostClaim(None));
    let lost = LostClaim { cidr: cidr_lost, at: Revision::of(4), claim: None, was_seen: false };
    world.lost_claims.insert(None, [(cidr_lost, lost)].into());
    world.cooling.insert(cidr("10.0.0.16/28"), seen_cooling("10.0.0.16/28"));
    world.begin_status(&"p".into(), &PoolPlan::UpToDate, now());
    world
}

#[track_caller]
fn check(damage: impl FnOnce(&mut World), expected: &str) {
    let mut world = sound();
    damage(&mut world);
    let found: Vec<String> = world.check().iter().map(ToString::to_string).collect();
    assert_eq!(found.join("; "), expected);
}

#[test]
fn a_sound_world_is_found_sound() {
    check(|_| {}, "");
}

#[test]
fn every_occupant_is_compared_with_its_source() {
    let block = || cidr("10.0.0.64/28");
    for (occupant, name) in [
        (Occupant::Claim, "a claim"),
        (Occupant::Pending, "a claim that is being created"),
        (Occupant::LostClaim(Some("x".into())), "the lost claim of node x"),
        (Occupant::unreadable(Kind::Node, "x"), "the unreadable Node x"),
    ] {
        let expected = format!("10.0.0.64/28 is taken by {name}, which does not exist");
        check(|world| world.take(block(), occupant), &expected);
    }
    for (cidr, occupant, name) in [
        (cidr("10.0.0.0/28"), Occupant::Claim, "a claim"),
        (cidr("10.0.0.32/28"), Occupant::Pending, "a claim that is being created"),
        (cidr("10.7.0.0/28"), Occupant::LostClaim(None), "a lost claim"),
        (cidr("10.8.0.0/28"), Occupant::unreadable(Kind::Claim, "odd"), "the unreadable NodeIPBlock odd"),
    ] {
        check(|world| world.release(cidr, &occupant), &format!("{cidr} is not taken by {name}"));
    }
    check(
        |world| world.ledger.set_carried(&"n".into(), AddressSet::new()),
        "10.9.0.0/28 is not taken by the carrier of node n",
    );
    check(
        |world| world.ledger.set_carried(&"gone".into(), AddressSet::from_iter([cidr("10.6.0.0/28")])),
        "10.6.0.0/28 is taken by the carrier of node gone, which does not exist",
    );
}

#[test]
fn every_index_by_node_is_compared_with_the_objects() {
    check(
        |world| world.entries.of(&"n".into()).claims = SmallSet::default(),
        "the index of claims of node n does not match the claims",
    );
    check(World::break_an_index, "the index of nodes with address 127.0.0.1 does not match the objects");
    check(
        |world| drop(world.node_addresses.pop_first()),
        "the index of nodes with address 192.168.0.1 does not match the objects",
    );
    check(
        |world| assert!(world.routed.insert(cidr("10.9.0.0/24"), "n".into())),
        "the index of podCIDRs does not match the Nodes",
    );
    check(|world| world.joined.clear(), "the index of creation times does not match the Nodes");
    check(
        |world| world.entries.of(&"n".into()).selection.clear(),
        "the index of pools of node n does not match the selectors",
    );
    check(
        |world| world.entries.of(&"gone".into()).selection.push("p".into()),
        "the index of pools of node gone does not match the selectors; its serving state is still stored for node \
         gone, which has no objects",
    );
    check(|world| world.claims_in.clear(), "the index of claims of pool p does not match the claims");
    check(|world| world.selected.clear(), "the index of nodes of pool p does not match its selector");
    check(|world| world.unreadable.break_an_index(), "the indexes of unreadable objects differ");
}

#[test]
fn every_memory_goes_with_what_it_is_about() {
    let gone = || NodeName::from("gone");
    let remembered = |what: &str| format!("{what} is still stored for node gone, which has no objects");
    check(|world| world.entries.of(&gone()).claims = SmallSet::default(), &remembered("its serving state"));
    check(
        |world| world.waiting.set(place("gone"), [("p".into(), Family::V4)].into(), false),
        &remembered("its shortage"),
    );
    check(|world| world.waiting.set(place("gone"), [].into(), true), &remembered("its shortage"));
    check(|world| world.waiting.break_an_index(place("n")), "the indexes of waiting nodes differ");
    check(|world| world.agenda.wake_node(&gone(), Duration::ZERO), &remembered("a timer"));
    // Its CiliumNode still exists, its Node does not.
    check(
        |world| {
            let former =
                crate::model::crd::FormerCrd { pod_cidrs: Vec::new(), owners: AddressMap::default() };
            world.remember_of(&"n".into()).former_carrier =
                Some(crate::model::carrier::FormerCarrier::Crd(former));
            let entry = world.entries.of(&"n".into());
            entry.selection.clear();
            let gone = entry.node.take().unwrap();
            world.selected.clear();
            world.set_own_addresses(Kind::Node, &"n".into(), &addresses_of(&gone), &[]);
            world.set_joined(&"n".into(), Some(&gone));
        },
        "its former carrier is still stored for node n, which has no objects",
    );
    let of_pool = |what: &str| format!("{what} is still stored for pool gone, which is deleted");
    check(
        |world| {
            world.pool_writes.insert("gone".into(), Default::default());
        },
        &of_pool("a pause"),
    );
    check(|world| world.agenda.wake_pool(&"gone".into(), Duration::ZERO), &of_pool("a timer"));
    check(
        |world| world.begin_status(&"gone".into(), &PoolPlan::UpToDate, now()),
        &of_pool("a read of its status"),
    );
    check(|world| world.agenda.deletion_seen(&"gone".into(), Some(Duration::ZERO)), &of_pool("its deletion"));
    check(
        |world| {
            world.cooling.insert(cidr("10.0.0.0/28"), seen_cooling("10.0.0.0/28"));
        },
        "10.0.0.0/28 counts as cooling, but its claim is not",
    );
    check(
        |world| {
            world.cooling.insert(cidr("10.0.0.16/28"), seen_cooling("an earlier claim"));
        },
        "10.0.0.16/28 counts as cooling, but its claim is not",
    );
    check(|world| world.agenda.break_wakes(), "the indexes of timers differ");
}
