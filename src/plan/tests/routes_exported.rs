//! Tests of the exporter for frr-k8s: the writes to FRRConfigurations, and when a block cools.

use super::*;
use crate::model::finding::FindingKind;
use crate::model::frr::{
    FrrChange, FrrConfiguration, FrrConfigurationNews, FrrNodeState, FrrNodeStateNews, FrrWrite, Selector,
    Sessions, name_of,
};
use crate::model::leadership::Leadership;
use crate::model::plan::RoutesPlan;
use crate::model::speaker::{Speaker, SpeakerKind, SpeakerNews};
use crate::routes::routes;
use crate::world::frr::Exporting;

const A: &str = "pool p 10.0.0.0/24 26\nnode a 1 label=kubernetes.io/hostname=host-a\nciliumnode a @90 10.0.0.0/26\n\
                 claim 10.0.0.0/26 a 1 Held @80";

const LOST: &str = "pool p 10.0.0.0/24 26\nclaim 10.0.0.0/26 a 1 Releasing/NodeGone @80";

fn sessions(text: &str) -> Sessions {
    text.to_owned().into()
}

/// An FRRConfiguration in a line: `NODE HOSTNAME|every @REVISION [PREFIX…] [sessions=TEXT]`, or `template… @REVISION [for=ZONE|odd] …`.
fn configuration(line: &str) -> FrrConfiguration {
    let words: Vec<&str> = line.split_whitespace().collect();
    let node: Option<NodeName> = (!words[0].starts_with("template")).then(|| words[0].into());
    FrrConfiguration {
        name: node.as_ref().map_or_else(|| words[0].into(), name_of),
        uid: format!("uid-{}", words[0]).into(),
        revision: lines::revision(&words),
        selector: match words[1] {
            "every" => Selector::Every,
            _ if node.is_none() => Selector::Other,
            hostname => Selector::Hostname(hostname.to_owned()),
        },
        of_node: node,
        prefixes: words.iter().filter_map(|word| word.parse().ok()).collect(),
        sessions: sessions(value(&words, "sessions=").unwrap_or("s")),
        is_deleting: words.contains(&"deleting"),
        n_routers: 1,
        for_nodes: match value(&words, "for=") {
            Some("odd") => Err("odd".to_owned()),
            zone => Ok(zone.map(|zone| ("zone".to_owned(), zone.to_owned())).into_iter().collect()),
        },
        vrfs: value(&words, "vrf=").map(ToOwned::to_owned).into_iter().collect(),
        is_exact: !words.contains(&"edited"),
    }
}

/// A cluster whose routes are exported, with these FRRConfigurations beside the template.
fn cluster(text: &str, configurations: &[&str]) -> Cluster {
    let mut cluster = Cluster::of(text);
    exporting(&mut cluster, configurations);
    cluster
}

fn exporting(cluster: &mut Cluster, configurations: &[&str]) {
    cluster.world.export_routes(Exporting::By(["template".into()].into()));
    let all = ["template @70"].iter().chain(configurations).map(|line| configuration(line)).collect();
    cluster.world.observe_frr_configurations(FrrConfigurationNews::Listed(all));
    cluster.world.observe_frr_node_states(FrrNodeStateNews::Listed(Vec::new()));
}

fn shown(cluster: &mut Cluster, line: &str) {
    let news = FrrConfigurationNews::Applied(configuration(line));
    cluster.world.observe_frr_configurations(news);
}

fn running(cluster: &mut Cluster, node: &str, networks: &str) {
    let networks = networks.split_whitespace().map(|text| text.parse().unwrap()).collect();
    let state = FrrNodeState { node: node.into(), revision: Revision::of(1), networks: Some(networks) };
    cluster.world.observe_frr_node_states(FrrNodeStateNews::Applied(state));
}

fn reported(plan: &RoutesPlan) -> String {
    let hidden = |text: String| {
        ["a", "b"].iter().fold(text, |text, node| {
            text.replace(name_of(&NodeName::from(*node)).as_str(), &format!("of-{node}"))
        })
    };
    let requests = plan.requests.iter().map(|request| hidden(request.to_string()));
    let findings = plan.findings.iter().map(|finding| hidden(finding.to_string()));
    requests.chain(findings).collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn planned(cluster: &Cluster, expected: &str) -> RoutesPlan {
    let plan = routes(&cluster.world, cluster.now);
    assert_eq!(reported(&plan), expected);
    plan
}

#[track_caller]
fn writes(cluster: &Cluster, expected: &str) {
    let _ = planned(cluster, expected);
}

/// The decision is sent, and the API server accepts it. The watch shows it later.
#[track_caller]
fn send(cluster: &mut Cluster, expected: &str) {
    let plan = planned(cluster, expected);
    end(cluster, plan, &Answer::Done, &Seen::Nothing);
}

/// The decision is sent, and each of its requests gets this answer.
fn end(cluster: &mut Cluster, plan: RoutesPlan, answer: &Answer, seen: &Seen) {
    cluster.world.begin_routes(&plan, cluster.now);
    for request in plan.requests {
        let (answer, seen) = (answer.clone(), seen.clone());
        cluster.world.finish(Outcome { request, answer, seen }, cluster.now);
    }
}

/// The Node of an object is read before that is deleted, and not found.
#[track_caller]
fn node_is_gone(cluster: &mut Cluster, node: &str) {
    let plan = routes(&cluster.world, cluster.now);
    let [Request::Read(Read::Node(read, as_of))] = &plan.requests[..] else { panic!("{}", reported(&plan)) };
    assert_eq!(read.as_str(), node);
    let seen = found(Presence::Gone, as_of.number());
    end(cluster, plan, &Answer::Done, &seen);
}

#[test]
fn an_object_is_created_without_prefixes_and_gets_them_once_it_was_read_back() {
    let mut cluster = cluster(A, &[]);
    send(&mut cluster, "create FRRConfiguration of-a of node a without prefixes");
    shown(&mut cluster, "a host-a @101");
    writes(&cluster, "read the claims of node a");
    cluster.world.observe(Observation::Applied(Box::new(object("claim 10.0.0.64/26 a 1 Held @102"))));
    writes(&cluster, "");
    cluster.pass(3);
    send(&mut cluster, "announce [10.0.0.0/26] for node a in FRRConfiguration of-a");
    shown(&mut cluster, "a host-a @103 10.0.0.0/26");
    writes(&cluster, "");
}

#[test]
fn a_restart_writes_nothing() {
    writes(&cluster(A, &["a host-a @95 10.0.0.0/26"]), "");
}

#[test]
fn an_object_of_other_nodes_is_deleted_at_once() {
    for wrong in ["a every @95 10.0.0.0/26", "a host-b @95 10.0.0.0/26"] {
        writes(&cluster(A, &[wrong]), "delete FRRConfiguration of-a of node a");
    }
    writes(
        &cluster(
            &format!("{A}\nnode b 2 label=kubernetes.io/hostname=host-c"),
            &["a host-a @95 10.0.0.0/26", "b host-b @95"],
        ),
        "delete FRRConfiguration of-b of node b",
    );
}

#[test]
fn an_edit_of_another_writer_is_undone() {
    let expected = "announce [10.0.0.0/26] for node a in FRRConfiguration of-a";
    writes(&cluster(A, &["a host-a @95 10.0.0.0/26 edited"]), expected);
    writes(&cluster(A, &["a host-a @95 10.0.0.0/26 10.9.0.0/24"]), expected);
}

#[test]
fn nodes_with_one_hostname_announce_nothing() {
    let text = format!("{A}\nnode b 2 label=kubernetes.io/hostname=host-a");
    let expected = "announce [] for node a in FRRConfiguration of-a; \
        RouteWithheld Node a: its routes are not announced: Node b has the same label kubernetes.io/hostname=host-a; \
        give each Node its own value; \
        RouteWithheld Node b: its routes are not announced: Node a has the same label kubernetes.io/hostname=host-a; \
        give each Node its own value";
    writes(&cluster(&text, &["a host-a @95 10.0.0.0/26"]), expected);
}

#[test]
fn a_node_without_the_label_announces_nothing() {
    let text = A.replace("label=kubernetes.io/hostname=host-a", "");
    let expected =
        "RouteWithheld Node a: its routes are not announced: it has no label kubernetes.io/hostname";
    writes(&cluster(&text, &[]), expected);
}

#[test]
fn without_a_usable_template_objects_keep_their_sessions_and_withdraw() {
    let mut cluster = cluster(A, &["a host-a @95 10.0.0.0/26 10.0.0.64/26 sessions=old"]);
    shown(&mut cluster, "template every @96");
    let expected = "announce [10.0.0.0/26] for node a in FRRConfiguration of-a; RouteWithheld FRRConfiguration \
                    template: the template selects every node; give it a nodeSelector that matches no node";
    let plan = planned(&cluster, expected);
    let Request::Write(Write::Frr(FrrWrite { change: FrrChange::Replace { sessions, .. }, .. })) =
        &plan.requests[0]
    else {
        panic!("{plan:?}");
    };
    assert_eq!(sessions.as_str(), "old");
}

#[test]
fn a_changed_template_reaches_one_node_after_the_other() {
    let text = format!("{A}\nnode b 2 label=kubernetes.io/hostname=host-b");
    let mut cluster = cluster(&text, &["a host-a @95 10.0.0.0/26", "b host-b @95"]);
    shown(&mut cluster, "template @96 sessions=new");
    // The order is that of their names.
    let first = routes(&cluster.world, cluster.now);
    let (one, other) = if reported(&first).contains("node a") { ("a", "b") } else { ("b", "a") };
    send(&mut cluster, &format!("copy the template into FRRConfiguration of-{one} of node {one}"));
    writes(&cluster, "");
    cluster.pass(1);
    writes(&cluster, &format!("copy the template into FRRConfiguration of-{other} of node {other}"));
}

#[test]
fn sessions_that_are_refused_do_not_delay_prefixes() {
    let mut cluster = cluster(A, &["a host-a @95 10.0.0.0/26 sessions=old"]);
    let plan = planned(&cluster, "copy the template into FRRConfiguration of-a of node a");
    let answer = Answer::Refused("the webhook says no".to_owned(), None);
    end(&mut cluster, plan, &answer, &Seen::Nothing);
    let refused = "RouteRefused Node a: FRRConfiguration of-a of this node: the webhook says no";
    writes(&cluster, refused);
    shown(&mut cluster, "a host-a @97 10.0.0.0/26 10.0.0.64/26 sessions=old");
    cluster.pass(3);
    writes(&cluster, &format!("announce [10.0.0.0/26] for node a in FRRConfiguration of-a; {refused}"));
}

#[test]
fn two_prefixes_stay_beside_the_one_that_takes_their_place() {
    let text =
        A.replace("@90 10.0.0.0/26", "@90 10.0.0.0/26 10.0.0.64/26") + "\nclaim 10.0.0.64/26 a 1 Held @81";
    let mut cluster = cluster(&text, &["a host-a @95 10.0.0.0/26 10.0.0.64/26"]);
    let beside = "announce [10.0.0.0/25 10.0.0.0/26 10.0.0.64/26] for node a in FRRConfiguration of-a";
    send(&mut cluster, beside);
    shown(&mut cluster, "a host-a @97 10.0.0.0/25 10.0.0.0/26 10.0.0.64/26");
    cluster.pass(19);
    writes(&cluster, "");
    cluster.pass(1);
    writes(&cluster, "announce [10.0.0.0/25] for node a in FRRConfiguration of-a");
}

/// A webhook that drops the selector would otherwise see one object after the other.
#[test]
fn an_object_that_is_stored_otherwise_is_created_again_after_a_growing_pause() {
    let mut cluster = cluster(A, &[]);
    let creates = "create FRRConfiguration of-a of node a without prefixes";
    let refused = "RouteRefused Node a: FRRConfiguration of-a of this node: the API server accepted it, and stored \
                   something else";
    for n_before in 0..6 {
        let plan = routes(&cluster.world, cluster.now);
        assert!(reported(&plan).starts_with(creates), "{n_before}: {}", reported(&plan));
        let stored = configuration(&format!("a every @{}", 200 + n_before));
        let uid = stored.uid.clone();
        end(&mut cluster, plan, &Answer::Done, &Seen::Frr(Box::new(stored)));
        let plan = planned(&cluster, &format!("delete FRRConfiguration of-a of node a; {refused}"));
        end(&mut cluster, plan, &Answer::Done, &Seen::Deleted(uid));
        writes(&cluster, refused);
        cluster.pass(if n_before < 5 { 8 } else { 3 });
    }
    // The pause is 4 s by now.
    writes(&cluster, refused);
}

#[test]
fn a_prefix_that_another_object_still_has_is_not_added() {
    let text = format!("{A}\nnode b 2 label=kubernetes.io/hostname=host-b");
    let mut cluster = cluster(&text, &["a host-a @95", "b host-b @95 10.0.0.0/25"]);
    let withdraws = "announce [] for node b in FRRConfiguration of-b";
    send(&mut cluster, withdraws);
    shown(&mut cluster, "b host-b @96");
    writes(&cluster, "announce [10.0.0.0/26] for node a in FRRConfiguration of-a");
}

#[test]
fn a_deleted_carrier_withdraws_nothing_that_its_agent_may_use() {
    let mut cluster = cluster(A, &["a host-a @95 10.0.0.0/26"]);
    cluster.delete(Kind::CiliumNode, "a", 101);
    writes(&cluster, "");
}

#[test]
fn nothing_is_written_on_standby_while_passive_or_frozen() {
    let wrong = &["a every @95 10.0.0.0/26"];
    let mut standby = cluster(A, wrong);
    standby.world.set_leadership(Leadership::StandsBy);
    writes(&standby, "");
    let mut passive = cluster(A, wrong);
    passive.world.set_mode(Mode::Passive("a test".to_owned()));
    writes(&passive, "");
    let mut frozen = cluster(A, wrong);
    frozen.world.set_freeze(Freeze::of([(Switch::Writes, "a test".to_owned())]));
    writes(&frozen, "");
}

#[test]
fn nothing_is_written_before_the_objects_are_known() {
    let mut cluster = Cluster::of(A);
    cluster.world.export_routes(Exporting::By(["template".into()].into()));
    writes(&cluster, "");
    cluster.world.observe_frr_configurations(FrrConfigurationNews::Unlisted("can't list them".to_owned()));
    writes(&cluster, "RouteWithheld FRRConfiguration template: can't list them");
    // Without them the controller can't withdraw its routes either, and knows no template.
    let mut cluster = Cluster::of(A);
    cluster.world.export_routes(Exporting::Nothing);
    cluster.world.observe_frr_configurations(FrrConfigurationNews::Unlisted("can't list them".to_owned()));
    writes(&cluster, "RouteWithheld FRRConfiguration template: can't list them");
}

#[test]
fn an_exporter_that_is_to_be_removed_withdraws_its_prefixes_and_deletes_its_objects() {
    let mut cluster = Cluster::of(A);
    cluster.world.export_routes(Exporting::Nothing);
    let all = ["template @70", "a host-a @95 10.0.0.0/26"].map(configuration);
    cluster.world.observe_frr_configurations(FrrConfigurationNews::Listed(all.into()));
    // A router may keep the routes of a closed session.
    send(&mut cluster, "announce [] for node a in FRRConfiguration of-a");
    shown(&mut cluster, "a host-a @101");
    cluster.pass(3);
    writes(&cluster, "");
    cluster.pass(12);
    writes(&cluster, "delete FRRConfiguration of-a of node a");
}

/// A block is off its lost node, and its route is not gone.
#[test]
fn a_block_cools_only_when_its_route_is_gone() {
    let mut cluster = cluster(LOST, &["a host-a @70 10.0.0.0/26"]);
    running(&mut cluster, "a", "10.0.0.0/25");
    cluster.expect("a", "waits: it has no Node");
    node_is_gone(&mut cluster, "a");
    send(&mut cluster, "delete FRRConfiguration of-a of node a");
    cluster.expect("a", "waits: it has no Node");
    let gone = configuration("a host-a @101");
    cluster.world.observe_frr_configurations(FrrConfigurationNews::Deleted(gone));
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(60);
    cluster.expect("a", "finding: RouteRemains; waits: it has no Node");
    running(&mut cluster, "a", "10.1.0.0/26");
    cluster.expect("a", "cool 10.0.0.0/26 of node a");
}

#[test]
fn a_daemon_that_does_not_answer_delays_a_block_for_ten_minutes() {
    let mut cluster = cluster(LOST, &[]);
    shown(&mut cluster, "template @90");
    running(&mut cluster, "a", "10.0.0.0/26");
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(9 * 60 + 59);
    cluster.expect("a", "finding: RouteRemains; waits: it has no Node");
    cluster.pass(1);
    cluster.expect("a", "cool 10.0.0.0/26 of node a");
}

/// A write of a paused replica may still reach the version without the block.
#[test]
fn a_released_block_needs_a_later_version_of_its_object() {
    let text = "pool p 10.0.0.0/24 26\nnode a 1 label=kubernetes.io/hostname=host-a\n\
                ciliumnode a @99 10.0.0.64/26\nclaim 10.0.0.64/26 a 1 Held @80\n\
                claim 10.0.0.0/26 a 1 Releasing/Reclaimed @98";
    let mut cluster = cluster(text, &["a host-a @97 10.0.0.64/26"]);
    cluster.expect("a", "nothing");
    send(&mut cluster, "touch FRRConfiguration of-a of node a to get a later version");
    shown(&mut cluster, "a host-a @101 10.0.0.64/26");
    cluster.expect("a", "cool 10.0.0.0/26 of node a");
}

/// A block that was released later does not cool because another one has waited.
#[test]
fn each_block_waits_its_own_ten_minutes_and_only_for_the_daemon() {
    let lost = "pool p 10.0.0.0/24 26\nclaim 10.0.0.0/26 a 1 Releasing/NodeGone @80\n\
                claim 10.0.0.64/26 a 1 Releasing/NodeGone @81";
    let mut cluster = cluster(lost, &["b host-b @82 10.0.0.64/26"]);
    running(&mut cluster, "a", "10.0.0.0/25");
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(300);
    shown(&mut cluster, "b host-b @102");
    cluster.expect("a", "finding: RouteRemains; finding: RouteRemains; waits: it has no Node");
    cluster.pass(300);
    cluster.expect("a", "cool 10.0.0.0/26 of node a; finding: RouteRemains");
    cluster.settle(&Target::Claim("10.0.0.0/26".parse().unwrap()), Seen::Nothing);
    cluster.pass(300);
    assert!(rendered(&cluster.plan("a")).contains("cool 10.0.0.64/26 of node a"));
}

#[test]
fn an_object_without_its_labels_is_still_one_that_may_announce() {
    let mut cluster = cluster(LOST, &[]);
    let stripped = FrrConfiguration { of_node: None, ..configuration("a host-a @95 10.0.0.0/26") };
    cluster.world.observe_frr_configurations(FrrConfigurationNews::Applied(stripped));
    cluster.expect("a", "waits: it has no Node");
}

/// The list of a new leader may be older than the claim.
#[test]
fn a_node_without_an_object_needs_a_later_version_of_any() {
    let text = format!("{A}\nclaim 10.0.0.64/26 b 2 Releasing/NodeGone @97");
    let mut cluster = cluster(&text, &["a host-a @95 10.0.0.0/26"]);
    cluster.expect("b", "waits: it has no Node");
    cluster.pass(600);
    cluster.expect("b", "finding: RouteRemains; waits: it has no Node");
    send(&mut cluster, "touch FRRConfiguration of-a of node a to get a later version");
    shown(&mut cluster, "a host-a @101 10.0.0.0/26");
    cluster.expect("b", "cool 10.0.0.64/26 of node b");
}

/// The FRRConfigurations of a new leader may be newer than its claims and Nodes.
#[test]
fn nothing_is_withdrawn_on_an_older_view_of_claims_and_nodes() {
    let reads = "read the claims of node a";
    writes(&cluster(A, &["a host-a @101 10.0.0.0/26 10.0.0.64/26"]), reads);
    let mut cluster = cluster(A, &["a host-a @95 10.0.0.0/26", "b host-b @101 10.0.0.64/26"]);
    node_is_gone(&mut cluster, "b");
    writes(&cluster, "delete FRRConfiguration of-b of node b");
}

#[test]
fn an_object_that_waits_for_a_finalizer_is_not_deleted_again() {
    writes(&cluster(A, &["a every @95 10.0.0.0/26 deleting"]), "");
}

/// An unreachable webhook is a finding while a write is due.
#[test]
fn a_write_without_an_answer_is_reported_the_second_time_and_while_it_is_due() {
    let mut cluster = cluster(A, &["a host-a @95 10.0.0.0/26 sessions=old"]);
    for _ in 0..2 {
        let plan = planned(&cluster, "copy the template into FRRConfiguration of-a of node a");
        let answer = Answer::Unknown("the webhook does not answer".to_owned());
        end(&mut cluster, plan, &answer, &Seen::Nothing);
        cluster.pass(3);
    }
    let plan = routes(&cluster.world, cluster.now);
    assert!(reported(&plan).contains("RouteRefused Node a"), "{}", reported(&plan));
    shown(&mut cluster, "template @98 sessions=old");
    writes(&cluster, "");
}

#[test]
fn a_second_speaker_is_a_finding_where_cilium_can_announce_blocks() {
    let found = |mut cluster: Cluster| {
        exporting(&mut cluster, &[]);
        let reported = |cluster: &Cluster| {
            reported(&routes(&cluster.world, cluster.now)).contains("RouteAnnouncedTwice")
        };
        let kind = SpeakerKind::Advertisement;
        let speaker = |name: &str, announces_blocks| Speaker { name: name.to_owned(), announces_blocks };
        cluster.world.observe_speakers(kind, SpeakerNews::Listed(vec![speaker("services", false)]));
        assert!(!reported(&cluster));
        cluster.world.observe_speakers(kind, SpeakerNews::Applied(speaker("pods", true)));
        let is_reported = reported(&cluster);
        cluster.world.observe_speakers(SpeakerKind::PeeringPolicy, SpeakerNews::Listed(Vec::new()));
        assert_eq!(reported(&cluster), is_reported, "another kind");
        cluster.world.observe_speakers(kind, SpeakerNews::Deleted(speaker("pods", true)));
        assert!(!reported(&cluster));
        is_reported
    };
    assert!(!found(Cluster::of(A)), "in mode crd Cilium announces nothing");
    let in_mode = |words| Cluster::serving(words, "pool p 10.0.0.0/24 26");
    assert!(found(in_mode("multi-pool v4 bgp")));
    assert!(!found(in_mode("multi-pool v4")), "agents do not run its BGP control plane");
}

#[test]
fn a_router_of_a_vrf_in_the_template_is_information() {
    let mut cluster = cluster(A, &[]);
    let reported = |cluster: &Cluster| reported(&routes(&cluster.world, cluster.now));
    assert!(!reported(&cluster).contains("RouteInVrf"));
    shown(&mut cluster, "template @98 sessions=s vrf=red");
    assert!(
        reported(&cluster)
            .contains("RouteInVrf FRRConfiguration template: its routers of the VRFs red announce")
    );
    assert!(!FindingKind::RouteInVrf.is_wrong());
}

#[test]
fn each_node_gets_the_sessions_of_the_template_for_its_labels() {
    let mut cluster = cluster(
        "pool p 10.0.0.0/24 26\nnode a 1 zone=x label=kubernetes.io/hostname=host-a\n\
         node b 2 zone=y label=kubernetes.io/hostname=host-b",
        &["a host-a @95 sessions=of-x", "b host-b @95 sessions=of-y"],
    );
    let templates = ["template-x", "template-y"].map(Into::into);
    cluster.world.export_routes(Exporting::By(templates.into()));
    let all = [
        "template-x @70 for=x sessions=of-x",
        "template-y @71 for=y sessions=of-y",
        "a host-a @95 sessions=of-x",
    ];
    let list =
        |lines: &[&str]| FrrConfigurationNews::Listed(lines.iter().map(|line| configuration(line)).collect());
    cluster.world.observe_frr_configurations(list(&all));
    cluster.world.observe_frr_node_states(FrrNodeStateNews::Listed(Vec::new()));
    writes(&cluster, "create FRRConfiguration of-b of node b without prefixes");
    // Its rack has changed.
    cluster.observe("node a 1 zone=y label=kubernetes.io/hostname=host-a @96");
    let plan = routes(&cluster.world, cluster.now);
    assert!(
        reported(&plan).contains("copy the template into FRRConfiguration of-a of node a"),
        "{}",
        reported(&plan)
    );
    // Two templates or none: it keeps its sessions, and no object is created for another node.
    shown(&mut cluster, "template-x @97 for=y sessions=of-x");
    let found = reported(&routes(&cluster.world, cluster.now));
    assert_eq!(found.matches("the templates template-x, template-y are for it").count(), 2, "{found}");
    assert!(!found.contains("copy") && !found.contains("create"), "{found}");
    shown(&mut cluster, "template-x @98 for=z sessions=of-x");
    shown(&mut cluster, "template-y @99 for=z sessions=of-y");
    let found = reported(&routes(&cluster.world, cluster.now));
    assert_eq!(found.matches("no template is for it").count(), 2, "{found}");
    // Its labels can't be read, so the nodes that it is for are unknown.
    shown(&mut cluster, "template-y @100 for=odd sessions=of-y");
    let found = reported(&routes(&cluster.world, cluster.now));
    assert!(found.contains("its annotation nodeipam.io/nodes is `odd`"), "{found}");
    assert!(!found.contains("no template is for it"), "{found}");
}
