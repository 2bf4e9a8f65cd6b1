//! Addresses that belong to other systems, as `check`, `who` and `routes` show them.

use super::*;
use crate::model::surroundings::{OtherRange, PodAddresses, RangeOwner, Surroundings};
use crate::routes::next_hops;
use crate::view::audit::audit;
use crate::view::duplicates::duplicates;
use crate::view::overview::{overview, sort};
use crate::view::who::{unclaimed, who};
use std::collections::BTreeSet;

fn range(owner: RangeOwner, kind: &'static str, name: &str, cidr: &str) -> OtherRange {
    OtherRange { owner, kind, name: name.to_owned(), cidrs: vec![cidr.parse().unwrap()] }
}

/// A Service with an external address in pool `p`, and ranges beside it.
fn others() -> Vec<OtherRange> {
    vec![
        range(RangeOwner::Services, "ServiceCIDR", "kubernetes", "10.96.0.0/12"),
        range(RangeOwner::Services, "Service", "a/web", "10.96.0.9/32"),
        range(RangeOwner::LoadBalancers, "Service", "a/web", "10.0.0.40/32"),
        range(RangeOwner::LoadBalancers, "IPAddressPool", "metallb-system/lb", "10.1.0.0/24"),
        range(RangeOwner::Devices, "CiliumResourceIPPool", "nic", "10.0.0.128/25"),
    ]
}

/// The lines of an audit, as `ID OBJECTS: CAUSE (DETAILS)`.
fn checked(cluster: &Cluster, ranges: Vec<OtherRange>) -> Vec<String> {
    checked_with(cluster, &Surroundings { ranges, ..Surroundings::default() })
}

fn checked_with(cluster: &Cluster, around: &Surroundings) -> Vec<String> {
    let line = |line: crate::view::audit::Line| {
        let objects: Vec<String> =
            line.objects.iter().map(|(name, detail)| format!("{name} ({detail})")).collect();
        format!("{} {}: {}", line.check.id(), objects.join(", "), line.cause)
    };
    audit(&cluster.world, &[], around).into_iter().map(line).collect()
}

fn said(cluster: &Cluster, asked: &str) -> Vec<String> {
    said_with(cluster, &[], asked)
}

/// The same, with these addresses of pods.
fn said_with(cluster: &Cluster, pods: &[(&str, &str)], asked: &str) -> Vec<String> {
    let pods = pods.iter().map(|(address, pod)| (address.parse().unwrap(), (*pod).to_owned())).collect();
    let answers = who(&cluster.world, &others(), &pods, asked.parse().unwrap());
    answers
        .iter()
        .map(|answer| format!("{} {}: {}", answer.range, answer.word.as_str(), answer.detail))
        .collect()
}

#[test]
fn an_address_has_the_name_of_its_pod() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @20 10.0.0.0/28 used=10.0.0.4/32,10.0.0.5/32\n\
         claim 10.0.0.0/28 a 1 Held @10",
    );
    let pods = [("10.0.0.4", "apps/web"), ("10.0.0.6", "apps/odd"), ("10.0.0.20", "apps/other-cni")];
    let check = |asked: &str, expected: &str| assert_eq!(said_with(&cluster, &pods, asked), [expected]);
    check("10.0.0.4/32", "10.0.0.4/32 used: pod apps/web, in 10.0.0.0/28");
    check("10.0.0.5/32", "10.0.0.5/32 used: the agent reports it as used, in 10.0.0.0/28");
    check("10.0.0.6/32", "10.0.0.6/32 free: for the next pod, in 10.0.0.0/28; pod apps/odd");
    check("10.0.0.20/32", "10.0.0.20/32 available: in blocks of /28 of 10.0.0.0/24; pod apps/other-cni");
    check("10.0.0.0/28", "10.0.0.0/28 held: the agent uses 2 of 16 addresses");
}

/// The claim says all about its range.
#[test]
fn a_range_in_a_block_has_one_answer() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/24 28 draining\nnode a 1\nciliumnode a @20 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @10",
    );
    assert_eq!(said(&cluster, "10.0.0.0/28"), ["10.0.0.0/28 held: the agent uses 0 of 16 addresses"]);
    let beyond = said(&cluster, "10.0.0.0/27");
    assert_eq!(beyond[1..], ["10.0.0.0/27 closed: 10.0.0.0/24 is Draining: nodes get no more blocks of it"]);
}

#[test]
fn a_check_finds_addresses_of_services_load_balancers_and_devices_in_a_pool() {
    let cluster = Cluster::of("pool p 10.0.0.0/24 28");
    let expected = [
        "NIP0503 p (10.0.0.40/32): Service a/web has addresses of the pool",
        "NIP0504 p (10.0.0.128/25): CiliumResourceIPPool nic has addresses of the pool",
    ];
    assert_eq!(checked(&cluster, others()), expected);
    let excluded = Cluster::of("pool p 10.0.0.0/25 28 exclude=10.0.0.40/32");
    assert_eq!(checked(&excluded, others()), [""; 0]);
}

#[test]
fn the_address_of_a_service_has_a_name() {
    let cluster = Cluster::of("pool p 10.0.0.0/24 28");
    let expected = [
        "10.0.0.40/32 available: in blocks of /28 of 10.0.0.0/24",
        "10.0.0.40/32 service: Service a/web has 10.0.0.40",
    ];
    assert_eq!(said(&cluster, "10.0.0.40/32"), expected);
    assert_eq!(
        said(&cluster, "10.1.0.7/32"),
        ["10.1.0.7/32 service: IPAddressPool metallb-system/lb has 10.1.0.0/24"]
    );
    let expected = [
        "10.96.0.9/32 service: Service a/web has 10.96.0.9",
        "10.96.0.0/16 service: ServiceCIDR kubernetes has 10.96.0.0/12",
    ];
    assert_eq!(said(&cluster, "10.96.0.0/16"), expected);
}

/// The router and health address of an agent are in a block of its node, and no person can move them out.
#[test]
fn the_own_addresses_of_agents_are_no_addresses_of_nodes_in_a_pool() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\nnode a 1 own=192.168.0.1/32\nciliumnode a @20 10.0.0.0/28 own=10.0.0.3/32\n\
         claim 10.0.0.0/28 a 1 Held @10",
    );
    assert_eq!(checked(&cluster, Vec::new()), [""; 0]);
    let cluster = Cluster::of("pool p 10.0.0.0/24 28\nnode a 1 own=10.0.0.3/32");
    assert_eq!(checked(&cluster, Vec::new()).len(), 1);
}

/// kube-vip gives one address to several machines, one after the other.
#[test]
fn a_route_leads_to_an_address_that_only_one_node_has() {
    let cluster =
        Cluster::of("node a 1 own=192.168.0.0/31\nnode b 2 own=192.168.0.0/32\nnode c 3 own=192.168.0.9/32");
    let hop = |name: &str| {
        let node = cluster.world.node(&name.into()).unwrap();
        next_hops(&cluster.world, node).into_values().map(|hop| hop.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        (hop("a").as_str(), hop("b").as_str(), hop("c").as_str()),
        ("192.168.0.1", "192.168.0.0", "192.168.0.9")
    );
}

/// The remedy must not be to exclude the range: the pod would be lost all the same.
#[test]
fn a_check_names_each_pod_that_the_next_start_of_its_agent_loses() {
    let pod = |address: &str| PodAddresses {
        name: "apps/db".to_owned(),
        node: Some("a".into()),
        addresses: vec![address.parse().unwrap()],
    };
    let lost =
        "NIP0305 apps/db (10.1.0.20): the agent of node a gave it this address in another mode of Cilium";
    let nodes = "pool p 10.1.0.0/16 24\npool q 10.0.0.0/24 26\nnode a 1\nclaim 10.0.0.0/26 a 1 Held of=q @40";
    for (shown, is_lost) in [
        ("10.1.0.0/24 bare", true),
        ("10.1.0.0/24 10.0.0.0/26 off=10.1.0.0/24", true),
        ("10.1.0.0/24 10.0.0.0/26", false),
        ("10.0.0.0/26 has=10.1.0.0/24", true),
        ("10.0.0.0/26 10.1.0.0/24 has=10.1.0.0/24", false),
        ("10.1.0.0/24 used=1 need=8 has=10.0.0.0/26", true),
        ("10.1.0.0/24 used=1 need=8 has=10.0.0.0/26,10.1.0.0/24", false),
        // Agents of multi-pool do not restore a pod with the first address of a block.
        ("10.1.0.0/24 used=1 need=8 has=10.1.0.20/30", true),
        ("10.1.0.0/24 used=1 need=8 has=10.1.0.20/32", false),
    ] {
        let in_mode = if shown.contains("need=") { "multi-pool v4" } else { "crd v4" };
        let cluster = Cluster::serving(in_mode, &format!("{nodes}\nciliumnode a @50 {shown}"));
        let around = Surroundings { pods: vec![pod("10.1.0.20")], ..Surroundings::default() };
        let lines = checked_with(&cluster, &around);
        assert_eq!(lines.iter().any(|line| line == lost), is_lost, "{lines:?}");
    }
}

/// A restored backup, or a script, copies the fields of one CiliumNode to another.
const COPIED: &str = "pool p 10.0.0.0/24 28\nnode a 1\nnode b 1\nciliumnode a @50 10.0.0.0/28\n\
                      ciliumnode b @51 10.0.0.16/28 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @40\n\
                      claim 10.0.0.16/28 b 1 Held @41";

#[test]
fn addresses_of_a_claim_on_the_carrier_of_another_node_are_duplicates() {
    let cluster = Cluster::of(COPIED);
    let found: Vec<String> = duplicates(&cluster.world)
        .iter()
        .map(|found| {
            format!("{} {} {}: {}", found.node, found.other, found.cidr, found.holders(&cluster.world))
        })
        .collect();
    assert_eq!(found, ["b a 10.0.0.0/28: the claim is of node a"]);
    assert!(
        checked(&cluster, Vec::new())[0].starts_with("NIP0206 b (10.0.0.0/28): a has the same addresses")
    );
    // The carrier of the holder does not have the block.
    let only_one = Cluster::of(&COPIED.replace("@50 10.0.0.0/28", "@50 bare"));
    assert_eq!(duplicates(&only_one.world), BTreeSet::new());
}

#[test]
fn duplicate_addresses_are_the_first_problem() {
    let waiting = "pool q 10.9.0.0/24 28 zone=z\nnode z 1 bad\npool full 10.8.0.0/28 28 zone=y";
    let mut cluster = Cluster::of(&format!("{COPIED}\n{waiting}"));
    let plans = crate::forecast::plan_all(&mut cluster.world, Policy::DEFAULT, cluster.now);
    let mut overview = overview(&cluster.world, &plans, cluster.now.wall);
    sort(&mut overview.problems);
    let kinds: Vec<&str> = overview.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds.first(), Some(&"DuplicateAddresses"), "{kinds:?}");
    assert_eq!(overview.problems[0].subjects, ["a", "b"]);
}

#[test]
fn everything_on_a_carrier_without_a_claim_is_listed() {
    let cluster = Cluster::of(
        &COPIED.replace("10.0.0.16/28 10.0.0.0/28", "10.0.0.16/28 10.0.0.0/28 10.0.0.32/28 10.7.0.0/28"),
    );
    let listed: Vec<String> = unclaimed(&cluster.world, &"b".into())
        .iter()
        .map(|answer| format!("{} {}: {}", answer.range, answer.word.as_str(), answer.detail))
        .collect();
    let expected = [
        "10.0.0.0/28 foreign: 10.0.0.0/28 without a claim",
        "10.0.0.32/28 foreign: 10.0.0.32/28 without a claim",
        "10.7.0.0/28 foreign: 10.7.0.0/28 without a claim",
    ];
    assert_eq!(listed, expected);
    assert_eq!(unclaimed(&cluster.world, &"a".into()), []);
}
