//! kubernetes, with agents that read annotations of their Nodes: these are written instead of podCIDRs, or count beside
//! them.

use super::*;

const BOTH: &str = "kubernetes v4 v6 annotate annotations";

fn cluster(text: &str) -> Cluster {
    Cluster::serving("kubernetes v4 annotate annotations", text)
}

/// The patch that is decided: the uid, the version and the annotated CIDRs in it.
#[track_caller]
fn published(plan: &NodePlan) -> String {
    let publication = publication(plan);
    let CarrierChange::Annotations(cidrs) = &publication.change else { panic!("{publication:?}") };
    let cidrs: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
    format!("{} @{}: {}", publication.uid, publication.revision, cidrs.join(" "))
}

#[test]
fn a_node_gets_one_block_of_each_family_in_annotations_and_never_a_second() {
    let objects = "pool p 10.0.0.0/24 28\npool q fd00::/120 124\nnode a 1 @7";
    let claims = "claim 10.0.0.0/28 a 1 Held @90\nclaim fd00::/124 a 1 Held @91 of=q";
    let mut cluster = Cluster::serving(BOTH, &format!("{objects}\n{claims}"));
    assert_eq!(published(&cluster.plan("a")), "1 @7: 10.0.0.0/28 fd00::/124");
    cluster.expect("a", "publish [10.0.0.0/28 fd00::/124] and 28 addresses on node a");
    cluster.answered_with("node a 1 annotated=10.0.0.0/28,fd00::/124 @8");
    cluster.expect_for(3600, "a", "nothing");
    // The other order, as its agent writes them, is the same.
    cluster.observe("node a 1 annotated=fd00::/124,10.0.0.0/28 @9");
    cluster.expect("a", "nothing");
}

/// Whoever has annotated a Node: its CIDRs are taken, and become claims where they are whole blocks of a pool.
#[test]
fn annotations_that_are_blocks_of_a_pool_become_claims() {
    for mode in ["kubernetes v4 annotate", "kubernetes v4 annotate annotations"] {
        for at in ["annotated", "alias"] {
            let text = format!("pool p 10.0.0.0/24 28\nnode a 1 {at}=10.0.0.32/28\nnode b 2");
            let mut cluster = Cluster::serving(mode, &text);
            cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a");
            let taken: Cidr = "10.0.0.32/28".parse().unwrap();
            assert!(cluster.world.ledger().is_taken(taken));
            cluster.in_flight.clear();
            let held = format!("{text}\nclaim 10.0.0.32/28 a 1 Held @90");
            Cluster::serving(mode, &held).expect("a", "nothing");
        }
    }
}

/// The agent would take one or the other, by its release.
#[test]
fn annotations_of_different_releases_that_differ_are_reported_and_left_alone() {
    let cluster = cluster("pool p 10.0.0.0/24 28\nnode a 1 annotated=10.0.0.0/28 alias=10.0.0.16/28");
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "finding: ForeignPodCIDRs; waits: another allocator serves it");
    assert_eq!(
        message(&plan),
        "Node a: the annotation network.cilium.io/pod-cidr is 10.0.0.0/28, the annotation \
         io.cilium.network.pod-cidr is 10.0.0.16/28, and the controller can't adopt it: it has 2 ipv4 CIDRs, \
         and a node may have one block per family; the node gets no blocks; turn the allocator of \
         kube-controller-manager off with `--allocate-node-cidrs=false`; then create a pool for the node with \
         these CIDRs as blocks, or drain the node and recreate its Node"
    );
}

/// Agents take what the fields of the Node say, so only that is the node's.
#[test]
fn pod_cidrs_of_a_node_go_before_its_annotations() {
    let text = "pool p 10.0.0.0/24 28\nnode a 1 has=10.0.0.0/28 annotated=10.0.0.16/28\nclaim 10.0.0.0/28 a 1 Held @90";
    let cluster = cluster(text);
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "finding: ForeignPodCIDRs");
    assert_eq!(
        message(&plan),
        "Node a: the annotation network.cilium.io/pod-cidr is 10.0.0.16/28, and spec.podCIDRs is 10.0.0.0/28: \
         agents ignore the annotation; remove it"
    );
    let annotated: Cidr = "10.0.0.16/28".parse().unwrap();
    assert!(!cluster.world.ledger().is_taken(annotated));
    // Of the other family they count.
    let text =
        "pool p 10.0.0.0/24 28\npool q fd00::/120 124\nnode a 1 has=10.0.0.0/28 annotated=fd00::10/124";
    Cluster::serving(BOTH, text)
        .expect("a", "claim 10.0.0.0/28 of pool p for node a; claim fd00::10/124 of pool q for node a");
}

/// The same annotations do nothing where agents do not read them.
#[test]
fn annotations_that_agents_do_not_read_count_nowhere() {
    let text = "pool p 10.0.0.0/24 28\nnode a 1 annotated=10.9.0.0/28";
    let mut cluster = Cluster::serving("kubernetes v4", text);
    cluster.expect_after_claims("a", "claim 10.0.0.0/28 of pool p for node a");
}

/// Unlike podCIDRs they can be changed, so they do not prove that another block was never published.
#[test]
fn an_annotation_proves_nothing_of_another_block() {
    let claims = "claim 10.0.0.16/28 a 1 Held @80 for=1\nclaim 10.0.0.0/28 a 1 Held @90 for=1";
    cluster(&format!("node a 1 annotated=10.0.0.16/28 @7\n{claims}")).expect("a", "nothing");
    let released = claims.replace("a 1 Held @90", "a 1 Releasing/Unused @90");
    cluster(&format!("node a 1 annotated=10.0.0.16/28 later-than=90 @8\n{released}"))
        .expect("a", "hold 10.0.0.0/28 for node a again");
}

/// An agent that has not restarted since annotations counted may go on with one.
#[test]
fn podcidrs_prove_nothing_of_a_block_that_an_annotation_or_the_ciliumnode_shows() {
    for shows in [
        "node a 1 has=10.9.0.0/28 annotated=10.0.0.0/28 @7",
        "node a 1 has=10.9.0.0/28 @7\nciliumnode a @99 bare 10.0.0.0/28",
    ] {
        let text = format!("pool p 10.0.0.0/27 28\n{shows}\nclaim 10.0.0.0/28 a 1 Held @90 for=1");
        let mut cluster = Cluster::serving("kubernetes v4", &text);
        cluster.expect("a", "finding: ForeignPodCIDRs; waits: another allocator serves it");
    }
}

/// A hand takes the annotations off, or the kubelet registers its Node anew: the agent goes on with what it took.
#[test]
fn annotations_that_are_gone_are_written_again() {
    let objects =
        "pool p 10.0.0.0/24 28\nnode a 1 annotated=10.0.0.16/28 @7\nclaim 10.0.0.16/28 a 1 Held @90";
    let mut cluster = cluster(objects);
    cluster.expect("a", "nothing");
    cluster.observe("node a 1 @8");
    assert_eq!(published(&cluster.plan("a")), "1 @8: 10.0.0.16/28");
    // One that names something else is a hand's, and the claim stays, because its agent may be using the block.
    cluster.observe("node a 1 annotated=10.9.0.0/28 @9");
    cluster.expect_for(3600, "a", "finding: ForeignPodCIDRs; waits: another allocator serves it");
}

/// Another writer changed an annotation while no controller ran, or set podCIDRs, which agents prefer. The agent keeps
/// using the block until it starts again, with or without a copy on its CiliumNode.
#[test]
fn what_the_agent_took_stays_its_own_whatever_the_node_says_now() {
    for shows in ["annotated=10.9.0.0/28", "has=10.9.0.0/28", "annotated=10.9.0.0/28 later-than=95"] {
        let text =
            format!("pool p 10.0.0.0/27 28\nnode a 1 {shows} @7\nclaim 10.0.0.0/28 a 1 Held @90 for=1");
        let mut cluster = cluster(&text);
        cluster.expect_for(3600, "a", "finding: ForeignPodCIDRs; waits: another allocator serves it");
        let released = text.replace("Held", "Releasing/Unused");
        self::cluster(&released).expect("a", "hold 10.0.0.0/28 for node a again");
    }
    // What agents do not read has replaced nothing, and podCIDRs never change.
    let text = "pool p 10.0.0.0/27 28\nnode a 1 has=10.9.0.0/28 @7\nclaim 10.0.0.0/28 a 1 Held @90 for=1";
    Cluster::serving("kubernetes v4", text).expect("a", "release 10.0.0.0/28 of node a (Unused)");
}

/// The copy on a CiliumNode keeps a block taken that has no claim any more.
#[test]
fn what_the_agent_has_copied_stays_taken() {
    let text = "pool p 10.0.0.0/27 28\nnode a 1 annotated=10.9.0.0/28 @7\nciliumnode a @99 bare 10.0.0.0/28\nnode b 2";
    cluster(text).expect_after_claims("b", "claim 10.0.0.16/28 of pool p for node b");
}

#[test]
fn an_annotation_that_is_no_cidr_stops_writes_where_agents_read_it() {
    let Object::Node(mut node) = object("node a 1 @7") else { unreachable!() };
    let odd = Malformed { field: "metadata.annotations[x]".to_owned(), value: "odd".to_owned() };
    node.malformed_annotations.push(odd);
    for (mode, expected) in [
        ("kubernetes v4 annotate", "finding: MalformedNode; waits: its Node has an unreadable address"),
        ("kubernetes v4", "read the claims of node a"),
    ] {
        let mut cluster = Cluster::serving(mode, "pool p 10.0.0.0/24 28\nnode a 1");
        cluster.world.observe(Observation::Applied(Box::new(Object::Node(node.clone()))));
        cluster.expect("a", expected);
    }
}
