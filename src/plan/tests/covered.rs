//! Tests of two claims of one node of which one covers the other, and an earlier CiliumNode may have carried either.

use super::*;
use crate::publisher::multi_pool::{Bgp, MultiPool};

const WAITS: &str = "waits: one of its blocks may be in use and can't be published";

const TAKES_OVER: &str = "record that an earlier CiliumNode of node a may have had 10.0.0.0/27, because 10.0.0.0/27 covers another block";

/// The node and its CiliumNode, which was recreated, and shows this.
fn recreated(shows: &str) -> String {
    format!("pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 recreated {shows}")
}

fn plan_of(cluster: &str, claims: &str) -> String {
    rendered(&Cluster::of(&format!("{cluster}\n{claims}")).plan("a"))
}

#[test]
fn the_wider_of_two_claims_takes_over_and_the_other_goes() {
    let mut cluster = Cluster::of(&format!(
        "{}\nclaim 10.0.0.0/27 a 1 Held @40\nclaim 10.0.0.16/28 a 1 Held @45",
        recreated("")
    ));
    // Whoever sees an earlier CiliumNode may take the wider one for unused. Its version ends that.
    cluster.expect("a", &format!("{TAKES_OVER}; finding: Overlap; finding: Overlap; finding: Blocked"));
    cluster.settle(&Target::Claim("10.0.0.0/27".parse().unwrap()), Seen::Nothing);
    cluster.observe("claim 10.0.0.0/27 a 1 Held for=nobody @105");
    cluster.expect("a", "release 10.0.0.16/28 of node a (Unused)");
    cluster.settle(&Target::Claim("10.0.0.16/28".parse().unwrap()), Seen::Nothing);
    cluster.observe("claim 10.0.0.16/28 a 1 Releasing/Unused @106");
    // Nobody may publish it any more; a later version of the CiliumNode shows that nobody has.
    cluster.expect("a", "touch ciliumnode a to get a later version");
    cluster.settle(&Target::CiliumNode("a".into()), Seen::Nothing);
    cluster.observe("ciliumnode a @110 recreated");
    cluster.expect("a", "free 10.0.0.16/28 of node a");
    cluster.settle(&Target::Claim("10.0.0.16/28".parse().unwrap()), Seen::Nothing);
    cluster.delete(Kind::Claim, "10.0.0.16-28", 111);
    cluster.pass(10);
    // Its agent gets all addresses of both.
    cluster.expect("a", "publish [10.0.0.0/27] and 32 addresses on ciliumnode a");
}

/// The claim that takes over may have gone before the other one was given back, and this process is late.
#[test]
fn the_other_goes_only_where_the_wider_one_was_there_after_it_was_given_back() {
    let claims = "claim 10.0.0.0/27 a 1 Held for=nobody @40\nclaim 10.0.0.16/28 a 1 Held @45";
    let mut cluster = Cluster::of(&format!("{}\n{claims}", recreated("")));
    cluster.expect("a", "release 10.0.0.16/28 of node a (Unused)");
    // The answer shows the move, and the watch has not come that far.
    let released = object("claim 10.0.0.16/28 a 1 Releasing/Unused @130");
    let Object::Claim(released) = released else { panic!("it is a claim") };
    cluster.settle(&Target::Claim("10.0.0.16/28".parse().unwrap()), Seen::Claim(Box::new(released)));
    cluster.observe("ciliumnode a @140 recreated");
    cluster.expect("a", "read the claims of node a");
}

/// The watch of Nodes may not have shown yet that the node is gone. Then the block has to cool, like any other of it.
#[test]
fn the_other_is_not_given_back_before_its_node_is_known_to_exist() {
    let after = |presence: Presence| {
        let claims = "claim 10.0.0.0/27 a 1 Held for=nobody @40";
        let mut cluster = Cluster::of(&format!("{}\n{claims}", recreated("")));
        cluster.observe("claim 10.0.0.16/28 a 1 Held for=earlier @120");
        cluster.expect("a", "read Node a");
        cluster.settle(&Target::Node("a".into()), found(presence, 120));
        rendered(&cluster.plan("a"))
    };
    assert_eq!(after(Presence::Is("1".into())), "release 10.0.0.16/28 of node a (Unused)");
    for other in [Presence::Gone, Presence::Is("2".into()), Presence::Unreadable] {
        let plan = after(other.clone());
        assert!(!plan.contains("release") && plan.ends_with(WAITS), "{other:?}: {plan}");
    }
}

#[test]
fn a_claim_that_is_not_covered_whole_stays() {
    // The wider one offers less of the block: pods may have what it lacks.
    let held_back = |claims: &str| {
        let plan = plan_of(&recreated(""), claims);
        assert!(plan.contains("finding: Blocked") && plan.ends_with(WAITS), "{claims}: {plan}");
    };
    held_back("claim 10.0.0.0/27 a 1 Held withheld=10.0.0.17/32 @40\nclaim 10.0.0.16/28 a 1 Held @45");
    // The wider one can't be published itself.
    held_back(
        "claim 10.0.0.0/27 a 1 Held @40\nclaim 10.0.0.16/28 a 1 Held @45\nnode b 2\nclaim 10.0.0.0/29 b 2 Held @46",
    );
    held_back(
        "claim 10.0.0.0/27 a 1 Held @40\nclaim 10.0.0.16/28 a 1 Held @45\nciliumnode b @51 10.0.0.3/32",
    );
    // Nor could it without what it covers: it does not cover all that is in its way.
    held_back(
        "claim 10.0.0.0/27 a 1 Held withheld=10.0.0.1/32 @40\nclaim 10.0.0.16/28 a 1 Held @45\n\
         claim 10.0.0.0/28 a 1 Held @46",
    );
    // What it is like now can't be read.
    held_back(
        "claim 10.0.0.0/27 a 1 Held for=nobody @40\nclaim 10.0.0.16/28 a 1 Held @45\n\
         unreadable NodeIPBlock 10.0.0.0-27 10.0.0.0/27 of=a @46",
    );
    // It is of another node.
    held_back(
        "node b 2\nciliumnode b @51 recreated\nclaim 10.0.0.0/27 b 2 Held @40\nclaim 10.0.0.16/28 a 1 Held @45",
    );
    // Both lack the same, and then it is covered.
    let covered = plan_of(
        &recreated(""),
        "claim 10.0.0.0/27 a 1 Held withheld=10.0.0.17/32 @40\n\
         claim 10.0.0.16/28 a 1 Held withheld=10.0.0.17/32 @45",
    );
    assert!(covered.starts_with("record that an earlier CiliumNode"), "{covered}");
}

/// One process may remember what keeps the wider one from being published, and another one not. Each would undo what the
/// other does.
#[test]
fn what_has_been_given_back_is_not_held_again_for_what_overlaps_the_wider_one() {
    let claims = "claim 10.0.0.0/27 a 1 Held for=nobody @40\nclaim 10.0.0.16/28 a 1 Releasing/Unused @45";
    let mut cluster =
        Cluster::of(&format!("{}\n{claims}\nnode b 2\nciliumnode b @51 10.0.0.3/32", recreated("")));
    cluster.delete(Kind::CiliumNode, "b", 110);
    let plan = rendered(&cluster.plan("a"));
    assert!(plan.starts_with("free 10.0.0.16/28 of node a"), "{plan}");
    // Where it is carried after all, it is held again.
    let plan = plan_of(&recreated("10.0.0.16/28"), claims);
    assert!(plan.starts_with("hold 10.0.0.16/28 for node a again"), "{plan}");
}

#[test]
fn a_claim_that_its_ciliumnode_carries_stays() {
    let plan = plan_of(
        &recreated("10.0.0.16/28"),
        "claim 10.0.0.0/27 a 1 Held for=nobody @40\nclaim 10.0.0.16/28 a 1 Held @45",
    );
    assert!(!plan.contains("release") && !plan.contains("free"), "{plan}");
}

/// Its agent runs, and what can't be published is only one block less.
#[test]
fn on_a_node_that_is_served_neither_goes() {
    for for_wider in ["earlier", "nobody"] {
        let claims = format!(
            "claim 10.0.0.32/28 a 1 Held @39\nclaim 10.0.0.0/27 a 1 Held for={for_wider} @40\n\
             claim 10.0.0.16/28 a 1 Held @45"
        );
        let plan = plan_of(&recreated("10.0.0.32/28"), &claims);
        assert!(!plan.contains("release") && !plan.contains("note"), "{plan}");
    }
}

/// An agent in multi-pool mode may have the block under another name.
#[test]
fn in_a_mode_with_whole_blocks_neither_goes() {
    let claims = "claim 10.0.0.0/27 a 1 Held for=earlier @40\nclaim 10.0.0.16/28 a 1 Held for=earlier @45";
    let families = [Family::V4].into();
    let publisher = MultiPool { families, default_pool: "default".into(), bgp: Bgp::Off };
    let cluster = format!("pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 need=8\n{claims}");
    let cluster = Cluster::served_by(Publisher::MultiPool(publisher), &cluster);
    let plan = rendered(&cluster.plan("a"));
    assert!(!plan.contains("release") && !plan.contains("note"), "{plan}");
}

#[test]
fn three_that_lie_in_one_another_end_with_the_widest() {
    let claims = "claim 10.0.0.0/27 a 1 Held @40\nclaim 10.0.0.16/28 a 1 Held @45\n\
                  claim 10.0.0.16/29 a 1 Held @46";
    let plan = plan_of(&recreated(""), claims);
    assert_eq!(
        plan,
        format!("{TAKES_OVER}; finding: Overlap; finding: Overlap; finding: Overlap; finding: Blocked")
    );
    let claims = claims.replace("/27 a 1 Held", "/27 a 1 Held for=nobody");
    let plan = plan_of(&recreated(""), &claims);
    assert_eq!(plan, "release 10.0.0.16/28 of node a (Unused); release 10.0.0.16/29 of node a (Unused)");
}
