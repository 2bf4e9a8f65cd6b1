//! Nodes that have lacked addresses for too long, by the times in objects alone.

use super::*;
use crate::forecast::plan_all;
use crate::view::audit::catalog::Severity;
use crate::view::late;

const POOL: &str = "pool p 10.0.0.0/24 28";

/// The problems after each of these seconds; empty without one.
#[track_caller]
fn check(mode: &str, lines: &str, expected: &[(u64, &str)]) {
    for (seconds, message) in expected {
        let mut cluster = Cluster::serving(mode, &format!("{POOL}\n{lines}"));
        cluster.pass(*seconds);
        let plans = plan_all(&mut cluster.world, Policy::DEFAULT, cluster.now);
        let problems = late::problems(&cluster.world, &plans, None, cluster.now.wall);
        let reported: Vec<String> =
            problems.iter().map(|problem| format!("{}: {}", problem.kind, problem.message)).collect();
        assert_eq!(reported.join("\n"), *message, "after {seconds} s of\n{lines}");
    }
}

const INEFFECTIVE: &str = "the next write is due and does not succeed; see the log and /readyz of the leader";

#[test]
fn a_node_without_addresses_is_a_problem_after_15_s_whatever_the_planner_intends() {
    let problem = format!(
        "NoAddresses: 1 node without addresses, more than 15 s after its carrier was created: {INEFFECTIVE}"
    );
    check("crd v4", "node a 1\nciliumnode a @5", &[(14, ""), (15, &problem), (9999, &problem)]);
    check("crd v4", "node a 1\nciliumnode a @5 created=20", &[(34, ""), (35, &problem)]);
    check("cluster-pool v4", "node a 1\nciliumnode a @5", &[(14, ""), (15, &problem)]);
    check("kubernetes v4", "node a 1", &[(14, ""), (15, &problem)]);
    check("multi-pool v4", "node a 1\nciliumnode a @5 need=3", &[(14, ""), (15, &problem)]);
    // Its claim exists, and nothing is published.
    check("crd v4", "node a 1\nciliumnode a @5\nclaim 10.0.0.0/28 a 1 Held @6", &[(14, ""), (15, &problem)]);
}

#[test]
fn a_wait_with_a_name_has_a_bound_of_its_own() {
    let after = |seconds: u64, why: &str| {
        format!(
            "NoAddresses: 1 node without addresses, more than {seconds} s after its carrier was created: {why}"
        )
    };
    let labels = "its Node has the startup taint node.cluster.x-k8s.io/uninitialized and may get more labels; see \
                  --wait-for-initialization";
    check(
        "crd v4",
        "node a 1 taint=node.cluster.x-k8s.io/uninitialized\nciliumnode a @5",
        &[(74, ""), (75, &after(75, labels))],
    );
    let requests = "its agent requests no addresses; see `ipam-multi-pool-pre-allocation` in cilium-config";
    check("multi-pool v4", "node a 1\nciliumnode a @5", &[(59, ""), (60, &after(60, requests))]);
    check("crd v4", "node a 1", &[(9999, "")]);
    check("crd v4", "node a 1 deleting\nciliumnode a @5", &[(9999, "")]);
    check("crd v4", "node a 1 label=kubernetes.io/os=windows\nciliumnode a @5", &[(9999, "")]);
}

#[test]
fn a_claim_that_its_carrier_lacks_is_a_problem_after_15_s() {
    let served = "node a 1\nciliumnode a @5 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @6";
    check("crd v4", served, &[(9999, "")]);
    let lines = format!("{served}\nclaim 10.0.0.16/28 a 1 Held @6 created=100");
    let problem = format!(
        "Unpublished: 1 claim missing on the carrier of the node, more than 15 s after it was made: {INEFFECTIVE}"
    );
    check("crd v4", &lines, &[(114, ""), (115, &problem)]);
}

#[test]
fn a_write_that_waits_for_the_event_budget_is_no_error() {
    let served = "node b 1\nciliumnode b @5 10.0.0.0/28\nclaim 10.0.0.0/28 b 1 Held @6";
    let lines = format!("{POOL}\n{served}\nclaim 10.0.0.16/28 b 1 Held @6\nnode a 1\nciliumnode a @5");
    let mut cluster = Cluster::serving("crd v4", &lines);
    cluster.pass(99);
    let plans = plan_all(&mut cluster.world, Policy::DEFAULT, cluster.now);
    let pace = "20 writes/s, 2 nodes wait 90 s";
    let problems = late::problems(&cluster.world, &plans, Some(pace), cluster.now.wall);
    assert_eq!(
        problems.iter().map(|problem| problem.kind).collect::<Vec<_>>(),
        ["NoAddresses", "Unpublished"]
    );
    for problem in problems {
        assert_eq!(problem.severity, Severity::Warning, "{}", problem.message);
        let intent = format!(
            "the next write is due and may wait for the event budget ({pace}); see --watch-event-budget"
        );
        assert!(problem.message.ends_with(&intent), "{}", problem.message);
    }
}

/// Of two writes of a node one fails for a cause that others share, and then one for its own.
#[test]
fn a_node_whose_later_write_conflicts_does_not_wait_for_a_turn_that_never_comes() {
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/24 28\nclaim 10.0.0.0/28 a 1 Held @40\nclaim 10.0.0.16/28 a 1 Held @41");
    let plan = cluster.plan("a");
    assert_eq!(plan.requests().len(), 2, "{}", rendered(&plan));
    cluster.begin(&plan);
    let refused = Answer::Refused("a webhook denied the request".to_owned(), None);
    let conflict = Answer::Conflict("the object has been modified".to_owned());
    for answer in [refused, conflict] {
        let request = cluster.in_flight.remove(0);
        cluster.world.finish(Outcome { request, answer, seen: Seen::Nothing }, cluster.now);
    }
    cluster.pass(30);
    let plan = cluster.plan("a");
    assert!(!plan.requests().is_empty(), "{}", rendered(&plan));
}
