//! Tests of the exporter for GoBGP: the requests to the daemon, and when a block cools.

use std::collections::BTreeSet;

use super::*;
use crate::model::gobgp::{BestPath, Rib, RibChange, RibFailure, RibNews, RibOutcome, RibPath, RibRequest};
use crate::model::leadership::Leadership;
use crate::model::plan::RoutesPlan;
use crate::model::speaker::{Speaker, SpeakerKind, SpeakerNews};
use crate::routes::announced;
use crate::routes::compare::{Difference, Led};
use crate::routes::routes;
use crate::world::exporter::Exporter;
use crate::world::gobgp::{Announcing, Gobgp, GobgpPolicy};

const A: &str = "pool p 10.0.0.0/24 26\nnode a 1 own=192.0.2.1/32\nciliumnode a @90 10.0.0.0/26\n\
                 claim 10.0.0.0/26 a 1 Held @80";
const B: &str = "node b 2 own=192.0.2.2/32\nciliumnode b @91 10.0.0.64/26\nclaim 10.0.0.64/26 b 2 Held @81";
const LOST: &str = "pool p 10.0.0.0/24 26\nclaim 10.0.0.0/26 a 1 Releasing/NodeGone @80";

fn policy(announcing: Announcing, max_prefixes: usize) -> GobgpPolicy {
    GobgpPolicy { announcing, daemon: "gobgpd:50051".to_owned(), max_prefixes }
}

/// A cluster whose routes are exported.
fn exporting(text: &str) -> Cluster {
    let mut cluster = Cluster::of(text);
    cluster.world.export_to_gobgp(policy(Announcing::Blocks, 100));
    cluster
}

/// A cluster whose routes are exported, with these paths in the table: `PREFIX via ADDRESS` each.
fn cluster(text: &str, paths: &[&str]) -> Cluster {
    let mut cluster = exporting(text);
    list(&mut cluster, paths);
    cluster
}

fn rib(paths: &[&str]) -> Rib {
    let own = paths.iter().map(|path| {
        let (prefix, hop) = path.split_once(" via ").unwrap();
        let path = RibPath { next_hop: hop.parse().unwrap(), communities: BTreeSet::new() };
        (prefix.parse().unwrap(), Ok(path))
    });
    Rib { own: own.collect(), others: BTreeSet::new() }
}

fn gobgp(cluster: &Cluster) -> &Gobgp {
    let Some(Exporter::Gobgp(gobgp)) = cluster.world.exporter() else { panic!("no table") };
    gobgp
}

fn reported(plan: &RoutesPlan) -> String {
    let requests = plan.requests.iter().map(ToString::to_string);
    let rib = plan.rib.iter().flat_map(|request| match request {
        RibRequest::List => vec!["list".to_owned()],
        RibRequest::Change(changes) => changes.iter().map(ToString::to_string).collect(),
    });
    let findings = plan.findings.iter().map(ToString::to_string);
    requests.chain(rib).chain(findings).collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn plans(cluster: &Cluster, expected: &str) {
    assert_eq!(reported(&routes(&cluster.world, cluster.now)), expected);
}

/// The decision is sent. Nothing is answered yet.
#[track_caller]
fn begin(cluster: &mut Cluster, expected: &str) -> RoutesPlan {
    let plan = routes(&cluster.world, cluster.now);
    assert_eq!(reported(&plan), expected);
    cluster.world.begin_routes(&plan, cluster.now);
    plan
}

fn finish(cluster: &mut Cluster, outcome: RibOutcome) {
    cluster.world.finish_rib(outcome, cluster.now);
}

/// The daemon shows this as the best path of a prefix.
fn hear(cluster: &mut Cluster, prefix: &str, best: BestPath) {
    cluster.world.observe_rib(RibNews::Changed(vec![(prefix.parse().unwrap(), best)]));
}

/// The daemon lists its table with these paths.
#[track_caller]
fn list(cluster: &mut Cluster, paths: &[&str]) {
    drop(begin(cluster, "list"));
    finish(cluster, RibOutcome::Listed(rib(paths)));
}

/// The claims of these nodes are read, as they are known, and the changes that follow are sent and applied.
#[track_caller]
fn send(cluster: &mut Cluster, reads: &[&str], expected: &str) {
    read(cluster, reads);
    apply(cluster, expected);
}

#[track_caller]
fn read(cluster: &mut Cluster, nodes: &[&str]) {
    let lines: Vec<String> = nodes.iter().map(|node| format!("read the claims of node {node}")).collect();
    let plan = begin(cluster, &lines.join("; "));
    answer_reads(cluster, plan);
}

/// The claims are read that the plan asks for, as they are known.
#[track_caller]
fn answer_reads(cluster: &mut Cluster, plan: RoutesPlan) {
    for request in plan.requests {
        let Request::Read(Read::ClaimsOf(node)) = &request else { panic!("{request:?}") };
        let seen = claims_of(&cluster.world, node, LISTED);
        cluster.finish(request, seen);
    }
}

#[track_caller]
fn apply(cluster: &mut Cluster, expected: &str) {
    let plan = begin(cluster, expected);
    let Some(RibRequest::Change(applied)) = plan.rib else { panic!("{plan:?}") };
    finish(cluster, RibOutcome::Changed { applied, refused: Vec::new(), failure: None });
}

#[test]
fn each_prefix_has_a_path_by_the_address_of_its_node() {
    let text = format!("{A}\n{B}");
    let mut cluster = exporting(&text);
    list(&mut cluster, &[]);
    send(&mut cluster, &["a", "b"], "add 10.0.0.0/26 via 192.0.2.1; add 10.0.0.64/26 via 192.0.2.2");
    plans(&cluster, "");
    let known = gobgp(&cluster).rib().unwrap();
    assert_eq!(*known, rib(&["10.0.0.0/26 via 192.0.2.1", "10.0.0.64/26 via 192.0.2.2"]));
}

#[test]
fn a_restart_changes_nothing_but_what_is_wrong() {
    plans(&cluster(A, &["10.0.0.0/26 via 192.0.2.1"]), "");
    let text = format!("{A}\n{B}");
    let mut cluster = cluster(
        &text,
        &["10.0.0.0/26 via 192.0.2.2", "10.0.0.64/26 via 192.0.2.2", "10.9.0.0/26 via 192.0.2.9"],
    );
    // No Node has the next hop of the last, so no claims can say anything else about it.
    let plan = routes(&cluster.world, cluster.now);
    assert_eq!(reported(&plan), "read the claims of node a; read the claims of node b; withdraw 10.9.0.0/26");
    let Some(RibRequest::Change(applied)) = plan.rib.clone() else { panic!("{plan:?}") };
    cluster.world.begin_routes(&plan, cluster.now);
    finish(&mut cluster, RibOutcome::Changed { applied, refused: Vec::new(), failure: None });
    answer_reads(&mut cluster, plan);
    apply(&mut cluster, "add 10.0.0.0/26 via 192.0.2.1");
    plans(&cluster, "");
}

#[test]
fn a_restarted_daemon_gets_all_paths_again() {
    let mut cluster = cluster(A, &[]);
    send(&mut cluster, &["a"], "add 10.0.0.0/26 via 192.0.2.1");
    cluster.pass(29);
    plans(&cluster, "");
    cluster.pass(1);
    list(&mut cluster, &[]);
    plans(&cluster, "add 10.0.0.0/26 via 192.0.2.1");
}

#[test]
fn the_table_is_listed_as_soon_as_the_daemon_shows_another_path() {
    let mut cluster = cluster(A, &["10.0.0.0/26 via 192.0.2.1"]);
    cluster.pass(5);
    hear(&mut cluster, "10.0.0.0/26", BestPath::None);
    list(&mut cluster, &[]);
    send(&mut cluster, &["a"], "add 10.0.0.0/26 via 192.0.2.1");
    cluster.pass(1);
    plans(&cluster, "");
    hear(&mut cluster, "10.0.0.0/26", BestPath::Other);
    plans(&cluster, "list");
}

/// A daemon that has restarted has an empty table.
#[test]
fn the_table_is_listed_as_soon_as_the_daemon_can_be_followed_again() {
    let mut cluster = cluster(A, &["10.0.0.0/26 via 192.0.2.1"]);
    cluster.world.observe_rib(RibNews::Joined);
    plans(&cluster, "");
    cluster.pass(1);
    plans(&cluster, "list");
    drop(begin(&mut cluster, "list"));
    finish(&mut cluster, RibOutcome::Unlisted(RibFailure::Unanswered("no answer".to_owned())));
    plans(&cluster, "");
    cluster.world.observe_rib(RibNews::Joined);
    plans(&cluster, "list");
}

#[test]
fn the_effect_of_a_change_is_no_reason_for_a_list() {
    let mut cluster = cluster(A, &[]);
    read(&mut cluster, &["a"]);
    let plan = begin(&mut cluster, "add 10.0.0.0/26 via 192.0.2.1");
    let Some(RibRequest::Change(applied)) = plan.rib else { panic!("{plan:?}") };
    let RibChange::Add(_, path) = applied[0].clone() else { panic!("{applied:?}") };
    // Before the answer, and after it.
    hear(&mut cluster, "10.0.0.0/26", BestPath::Own(Ok(path.clone())));
    finish(&mut cluster, RibOutcome::Changed { applied, refused: Vec::new(), failure: None });
    hear(&mut cluster, "10.0.0.0/26", BestPath::Own(Ok(path)));
    // Nor are the paths of others.
    hear(&mut cluster, "10.9.0.0/26", BestPath::Other);
    hear(&mut cluster, "10.8.0.0/26", BestPath::None);
    cluster.pass(1);
    plans(&cluster, "");
}

/// Another writer that changes a path all the time would keep the exporter from every change.
#[test]
fn lists_and_changes_take_turns() {
    let mut cluster = cluster(A, &[]);
    read(&mut cluster, &["a"]);
    for _ in 0..3 {
        cluster.pass(1);
        hear(&mut cluster, "10.0.0.0/26", BestPath::Own(Err("strange".to_owned())));
        apply(&mut cluster, "add 10.0.0.0/26 via 192.0.2.1");
        hear(&mut cluster, "10.0.0.0/26", BestPath::None);
        cluster.pass(1);
        list(&mut cluster, &[]);
    }
}

#[test]
fn a_new_term_begins_with_a_list() {
    let mut cluster = cluster(A, &[]);
    send(&mut cluster, &["a"], "add 10.0.0.0/26 via 192.0.2.1");
    cluster.world.set_leadership(Leadership::StandsBy);
    plans(&cluster, "");
    cluster.world.set_leadership(Leadership::Leads);
    // Another replica may have changed claims and paths.
    list(&mut cluster, &[]);
    plans(&cluster, "read the claims of node a");
}

/// The request of an earlier term ends late.
#[test]
fn an_answer_to_an_earlier_term_says_nothing() {
    let mut cluster = exporting(A);
    drop(begin(&mut cluster, "list"));
    cluster.world.set_leadership(Leadership::StandsBy);
    cluster.world.set_leadership(Leadership::Leads);
    plans(&cluster, "");
    finish(&mut cluster, RibOutcome::Listed(rib(&[])));
    plans(&cluster, "list");
}

#[test]
fn nothing_is_sent_on_standby_while_passive_or_frozen_nor_twice() {
    let mut standby = cluster(A, &[]);
    standby.world.set_leadership(Leadership::StandsBy);
    plans(&standby, "");
    let mut passive = exporting(A);
    passive.world.set_mode(Mode::Passive("a test".to_owned()));
    plans(&passive, "");
    let mut frozen = exporting(A);
    frozen.world.set_freeze(Freeze::of([(Switch::Writes, "a test".to_owned())]));
    plans(&frozen, "");
    let mut busy = exporting(A);
    drop(begin(&mut busy, "list"));
    plans(&busy, "");
}

#[test]
fn a_node_without_an_address_of_the_family_announces_nothing() {
    let text = A.replace("own=192.0.2.1/32", "own=2001:db8::1/128");
    let expected = "RouteWithheld Node a: 10.0.0.0/26 is not announced: it has no InternalIP of ipv4";
    let mut cluster = exporting(&text);
    drop(begin(&mut cluster, &format!("list; {expected}")));
    finish(&mut cluster, RibOutcome::Listed(rib(&[])));
    plans(&cluster, expected);
}

/// A router would lose the route in between.
#[test]
fn a_path_is_withdrawn_only_after_those_that_take_its_place_were_added() {
    let text =
        A.replace("@90 10.0.0.0/26", "@90 10.0.0.0/26 10.0.0.64/26") + "\nclaim 10.0.0.64/26 a 1 Held @81";
    let mut cluster = cluster(&text, &["10.0.0.0/26 via 192.0.2.1", "10.0.0.64/26 via 192.0.2.1"]);
    send(&mut cluster, &["a"], "add 10.0.0.0/25 via 192.0.2.1");
    apply(&mut cluster, "withdraw 10.0.0.0/26; withdraw 10.0.0.64/26");
    plans(&cluster, "");
}

#[test]
fn a_path_with_addresses_of_another_owner_is_withdrawn_after_the_others_were_added() {
    let mut cluster = cluster(A, &["10.0.0.0/25 via 192.0.2.1"]);
    send(&mut cluster, &["a"], "add 10.0.0.0/26 via 192.0.2.1; withdraw 10.0.0.0/25");
}

#[test]
fn no_address_has_two_next_hops() {
    let text = format!("{A}\n{B}");
    let mut cluster = cluster(&text, &["10.0.0.0/25 via 192.0.2.2"]);
    send(&mut cluster, &["b"], "withdraw 10.0.0.0/25; add 10.0.0.64/26 via 192.0.2.2");
    send(&mut cluster, &["a"], "add 10.0.0.0/26 via 192.0.2.1");
}

#[test]
fn above_the_cap_nothing_is_added_and_the_rest_is_withdrawn() {
    let text = format!("{A}\n{B}");
    let mut cluster = Cluster::of(&text);
    cluster.world.export_to_gobgp(policy(Announcing::Blocks, 1));
    list(&mut cluster, &["10.9.0.0/26 via 192.0.2.9"]);
    let found = |left: &str| {
        format!(
            "RouteWithheld GoBGP gobgpd:50051: it has 1 paths of the controller, and --gobgp-max-prefixes allows 1: \
             {left} is not announced; raise the limit"
        )
    };
    apply(&mut cluster, &format!("withdraw 10.9.0.0/26; {}", found("10.0.0.0/26, 10.0.0.64/26")));
    let plan = begin(&mut cluster, &format!("read the claims of node a; {}", found("10.0.0.64/26")));
    drop(plan);
}

#[test]
fn an_exporter_that_is_to_be_removed_withdraws_its_paths() {
    let mut cluster = Cluster::of(A);
    cluster.world.export_to_gobgp(policy(Announcing::Nothing, 100));
    list(&mut cluster, &["10.0.0.0/26 via 192.0.2.1"]);
    apply(&mut cluster, "withdraw 10.0.0.0/26");
    plans(&cluster, "");
}

#[test]
fn a_refused_path_is_a_finding_and_delays_no_other() {
    let text = format!("{A}\n{B}");
    let mut cluster = cluster(&text, &[]);
    read(&mut cluster, &["a", "b"]);
    let plan = begin(&mut cluster, "add 10.0.0.0/26 via 192.0.2.1; add 10.0.0.64/26 via 192.0.2.2");
    let Some(RibRequest::Change(changes)) = plan.rib else { panic!() };
    let refused = vec![(changes[0].clone(), "no".to_owned())];
    finish(&mut cluster, RibOutcome::Changed { applied: vec![changes[1].clone()], refused, failure: None });
    let refused = "RouteRefused GoBGP gobgpd:50051: the daemon refuses to add 10.0.0.0/26 via 192.0.2.1: no";
    plans(&cluster, refused);
    cluster.pass(1);
    plans(&cluster, &format!("add 10.0.0.0/26 via 192.0.2.1; {refused}"));
}

#[test]
fn a_path_of_another_writer_is_left_alone_and_a_finding_where_it_competes() {
    let mut cluster = exporting(A);
    drop(begin(&mut cluster, "list"));
    let others = ["10.0.0.0/26", "10.8.0.0/26"].map(|text| text.parse().unwrap()).into();
    finish(&mut cluster, RibOutcome::Listed(Rib { others, ..rib(&["10.0.0.0/26 via 192.0.2.1"]) }));
    let expected = "RouteAnnouncedTwice GoBGP gobgpd:50051: another writer has added paths of 10.0.0.0/26 to its \
                    table, and routers may get those instead; remove them";
    plans(&cluster, expected);
}

#[test]
fn a_daemon_that_does_not_answer_is_a_finding_the_second_time() {
    let mut cluster = exporting(A);
    for _ in 0..2 {
        drop(begin(&mut cluster, "list"));
        finish(&mut cluster, RibOutcome::Unlisted(RibFailure::Unanswered("no answer".to_owned())));
        if !reported(&routes(&cluster.world, cluster.now)).contains("RouteWithheld") {
            plans(&cluster, "");
            cluster.pass(1);
        }
    }
    let expected = "RouteWithheld GoBGP gobgpd:50051: it can't be read, so no route is announced or withdrawn, and no \
                    block cools: no answer";
    plans(&cluster, expected);
}

#[test]
fn a_second_speaker_is_a_finding_where_cilium_can_announce_blocks() {
    let mut cluster = Cluster::serving("multi-pool v4 bgp", "pool p 10.0.0.0/24 26");
    cluster.world.export_to_gobgp(policy(Announcing::Blocks, 100));
    let speaker = Speaker { name: "pods".to_owned(), announces_blocks: true };
    cluster.world.observe_speakers(SpeakerKind::Advertisement, SpeakerNews::Applied(speaker));
    assert_has(&reported(&routes(&cluster.world, cluster.now)), "RouteAnnouncedTwice GoBGP gobgpd:50051");
}

#[test]
fn a_block_cools_only_after_a_later_list_without_its_path() {
    let mut cluster = cluster(LOST, &["10.0.0.0/26 via 192.0.2.1"]);
    cluster.expect("a", "waits: it has no Node");
    apply(&mut cluster, "withdraw 10.0.0.0/26");
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(6);
    list(&mut cluster, &[]);
    cluster.expect("a", "cool 10.0.0.0/26 of node a");
}

/// The paths of an earlier replica may still be on their way to the daemon.
#[test]
fn the_first_list_proves_nothing() {
    let mut cluster = exporting(LOST);
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(1);
    list(&mut cluster, &[]);
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(5);
    plans(&cluster, "");
    cluster.pass(1);
    list(&mut cluster, &[]);
    cluster.expect("a", "cool 10.0.0.0/26 of node a");
}

#[test]
fn a_change_without_an_answer_may_still_be_carried_out() {
    let mut cluster = cluster(&format!("{LOST}\n{B}"), &[]);
    read(&mut cluster, &["b"]);
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(6);
    let plan = begin(&mut cluster, "add 10.0.0.64/26 via 192.0.2.2");
    let Some(RibRequest::Change(_)) = plan.rib else { panic!() };
    let failure = Some(RibFailure::Unanswered("no answer".to_owned()));
    finish(&mut cluster, RibOutcome::Changed { applied: Vec::new(), refused: Vec::new(), failure });
    cluster.pass(1);
    list(&mut cluster, &["10.0.0.64/26 via 192.0.2.2"]);
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(6);
    list(&mut cluster, &["10.0.0.64/26 via 192.0.2.2"]);
    cluster.expect("a", "cool 10.0.0.0/26 of node a");
}

/// It may run and announce the block for as long as the network is cut.
#[test]
fn a_daemon_that_does_not_answer_keeps_a_block_without_end() {
    let mut cluster = exporting(LOST);
    cluster.expect("a", "waits: it has no Node");
    for _ in 0..30 {
        let plan = routes(&cluster.world, cluster.now);
        assert_eq!(plan.rib, Some(RibRequest::List));
        cluster.world.begin_routes(&plan, cluster.now);
        finish(&mut cluster, RibOutcome::Unlisted(RibFailure::NotSent("connection refused".to_owned())));
        cluster.pass(31);
    }
    cluster.expect("a", "finding: RouteRemains; waits: it has no Node");
}

#[test]
fn a_change_is_told_by_its_prefix() {
    let path = RibPath { next_hop: "fd00::1".parse().unwrap(), communities: BTreeSet::new() };
    let change = RibChange::Add("fd00:1::/120".parse().unwrap(), path);
    assert_eq!(change.to_string(), "add fd00:1::/120 via fd00::1");
}

#[test]
fn blocks_of_other_communities_are_prefixes_of_their_own() {
    let text = "pool p 10.0.0.0/25 26 communities=64512:1\npool q 10.0.0.128/25 26 communities=64512:1,64512:2\n\
                node a 1 own=192.0.2.1/32\nciliumnode a @90 10.0.0.0/26 10.0.0.64/26 10.0.0.128/26 10.0.0.192/26\n\
                claim 10.0.0.0/26 a 1 Held @80\nclaim 10.0.0.64/26 a 1 Held @81\n\
                claim 10.0.0.128/26 a 1 Held @82 of=q\nclaim 10.0.0.192/26 a 1 Held @83 of=q";
    let mut cluster = cluster(text, &[]);
    let adds = "add 10.0.0.0/25 via 192.0.2.1 64512:1; add 10.0.0.128/25 via 192.0.2.1 64512:1 64512:2";
    send(&mut cluster, &["a"], adds);
    // A pool that can't be read changes no route.
    cluster.observe("pool p 10.0.0.0/25 26 invalid @120");
    plans(&cluster, "");
    cluster.observe("pool p 10.0.0.0/25 26 @121");
    apply(&mut cluster, "add 10.0.0.0/25 via 192.0.2.1");
}

#[test]
fn a_table_is_compared_by_the_nodes_to_which_its_paths_lead() {
    let cluster = exporting(&format!("{A}\n{B}"));
    let routes = announced(&cluster.world);
    let table =
        rib(&["10.0.0.0/26 via 192.0.2.1", "10.0.0.128/26 via 192.0.2.1", "10.9.0.0/24 via 192.0.2.1"]);
    let led = Led::of(&cluster.world, &routes, &table);
    let difference = |name: &str| {
        let networks = led.to_nodes.get(&name.into()).cloned().unwrap_or_default();
        let found = Difference::of(&cluster.world, &routes[&name.into()], &networks);
        let texts = |prefixes: &BTreeSet<Cidr>| prefixes.iter().map(ToString::to_string).collect::<Vec<_>>();
        (texts(&found.missing), texts(&found.unexpected))
    };
    assert_eq!(difference("a"), (vec![], vec!["10.0.0.128/26".to_owned()]));
    assert_eq!(difference("b"), (vec!["10.0.0.64/26".to_owned()], vec![]));
    let astray: Vec<_> = led.astray.iter().map(|(prefix, hop)| format!("{prefix} via {hop}")).collect();
    assert_eq!(astray, ["10.9.0.0/24 via 192.0.2.1"], "in no range");
    let lost = Led::of(&cluster.world, &routes, &rib(&["10.0.0.64/26 via 192.0.2.9"]));
    assert_eq!(lost.astray.len(), 1, "no node has the address");
}
