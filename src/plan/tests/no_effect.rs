//! Tests of writes that the server accepts without effect, as where a mutating webhook undoes them: each kind of write
//! is repeated ever more seldom.

use super::*;
use crate::model::outcome::Effect;

mod pools;
mod reclaim;

/// How often a write may be sent in a minute: at once, and after each of the growing waits.
const PER_MINUTE: usize = 10;

/// A server that undoes what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    /// The object stays at its version.
    KeepsTheVersion,
    /// The object gets a later version, for something else that is written with it.
    MovesTheVersion,
}

impl Server {
    fn revision(self, before: u64, n_writes: usize) -> u64 {
        match self {
            Self::KeepsTheVersion => before,
            Self::MovesTheVersion => 200 + n_writes as u64,
        }
    }
}

/// The writes for node a within a minute, each answered with what the line of `answer` shows; `None` is an object that
/// does not exist.
fn written(
    cluster: &mut Cluster,
    origin: CiliumNodeOrigin,
    answer: impl Fn(&Write, usize) -> Option<String>,
) -> Vec<String> {
    let end = cluster.now.uptime + Duration::from_secs(60);
    // Nothing else delays a write.
    let policy = Policy {
        min_write_interval: Duration::ZERO,
        query_interval: Duration::ZERO,
        cilium_nodes: origin,
        ..Policy::DEFAULT
    };
    let mut written = Vec::new();
    while cluster.now.uptime < end && written.len() < 1000 {
        let plan = node(&cluster.world, &NodeName::from("a"), policy, cluster.now);
        cluster.check_moves(&plan);
        cluster.world.begin(&plan, cluster.now);
        let requests = plan.into_requests();
        if requests.is_empty() {
            let wake = cluster.world.next_wake().unwrap_or(end).max(cluster.now.uptime);
            cluster.now.uptime = wake;
            cluster.world.advance(cluster.now);
        }
        for request in requests {
            let write = match &request {
                Request::Write(write) => write.clone(),
                // What is known of claims has to be as late as the CiliumNode is.
                Request::Read(Read::ClaimsOf(_)) => {
                    let claims = claims_of(&cluster.world, &"a".into(), 1000 + written.len() as u64);
                    cluster.finish(request, claims);
                    continue;
                }
                // A lost node is gone still when its block has cooled.
                Request::Read(Read::Node(_, as_of)) => {
                    let gone = found(Presence::Gone, as_of.number());
                    cluster.finish(request, gone);
                    continue;
                }
                // Nothing but its agent runs there.
                Request::Read(Read::PodsOf(name, after)) => {
                    let agents = cluster.world.agents_on(name).cloned().collect();
                    let pods = PodsOnNode { agents, holders: BTreeMap::new(), n_starting: 0 };
                    let seen = Seen::PodsOf { after: *after, pods };
                    cluster.finish(request, seen);
                    continue;
                }
                Request::Read(read) => panic!("{read}"),
            };
            written.push(write.to_string());
            let seen = match answer(&write, written.len()).map(|line| object(&line)) {
                Some(Object::Claim(claim)) => Seen::Claim(Box::new(claim)),
                Some(Object::CiliumNode(cilium_node)) => Seen::CiliumNode(Box::new(cilium_node)),
                Some(other) => panic!("{other:?}"),
                None => Seen::Absent(Revision::of(200 + written.len() as u64)),
            };
            cluster.finish(request, seen);
            assert_eq!(cluster.world.check(), []);
        }
    }
    written
}

#[track_caller]
fn check_paced(written: &[String], expected: &str) {
    assert!(written.len() > 1, "it is not repeated: {written:?}");
    assert!(written.iter().all(|write| write == expected), "{written:?}");
    assert!(written.len() <= PER_MINUTE, "{expected}: {} times in a minute", written.len());
}

/// A write for node a of this cluster is answered with `answer`, where `{}` stands for the version.
#[track_caller]
fn check(cluster: &str, before: u64, answer: &str, expected: &str) {
    check_after(&Cluster::of(cluster), before, answer, expected);
}

/// The same of a cluster to which something has happened.
#[track_caller]
fn check_after(cluster: &Cluster, before: u64, answer: &str, expected: &str) {
    for server in [Server::KeepsTheVersion, Server::MovesTheVersion] {
        let answer = |_: &Write, n_writes: usize| {
            Some(answer.replace("{}", &server.revision(before, n_writes).to_string()))
        };
        check_paced(&written(&mut cluster.clone(), CiliumNodeOrigin::Agent, answer), expected);
    }
}

#[test]
fn a_publication_that_is_undone() {
    check(
        "pool p 10.0.0.0/26 28\njoined a @50\nclaim 10.0.0.0/28 a 1 Held @40",
        50,
        "ciliumnode a @{}",
        "publish [10.0.0.0/28] and 16 addresses on ciliumnode a",
    );
}

#[test]
fn a_move_of_a_claim_that_is_undone() {
    let claims = [
        ("node a 2", "claim 10.0.0.0/28 a 1 Held", "hold 10.0.0.0/28 for node a again"),
        ("", "claim 10.0.0.0/28 a 1 Held", "release 10.0.0.0/28 of node a (NodeGone)"),
        ("", "claim 10.0.0.0/28 a 1 Releasing/NodeGone", "cool 10.0.0.0/28 of node a"),
    ];
    for (node, claim, expected) in claims {
        // Reads of what is later than the lists would be in the way.
        let cluster = format!("pool p 10.0.0.0/26 28\n{node}\n{claim} @40");
        let answer = |_: &Write, _| Some(format!("{claim} @40"));
        check_paced(&written(&mut Cluster::of(&cluster), CiliumNodeOrigin::Agent, answer), expected);
    }
}

/// Our finalizer comes back with every patch, so the claim stays.
#[test]
fn a_deletion_of_a_claim_that_is_undone() {
    let cooling = "claim 10.0.0.0/28 a 1 Cooling/NodeGone";
    for deleting in ["", " deleting"] {
        let mut cluster = Cluster::of(&format!("pool p 10.0.0.0/26 28\n{cooling} @40"));
        cluster.expect("a", "waits: it has no Node");
        cluster.pass(3600);
        let answer = |_: &Write, _| Some(format!("{cooling} @40{deleting}"));
        check_paced(&written(&mut cluster, CiliumNodeOrigin::Agent, answer), "free 10.0.0.0/28 of node a");
    }
}

/// Somebody else's finalizer delays a deletion, which is not repeated.
#[test]
fn a_deletion_that_others_delay_is_no_failure() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40");
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(3600);
    let answer = |_: &Write, _| {
        Some("claim 10.0.0.0/28 a 1 Cooling/NodeGone @110 deleting finalizer=example.com/x".to_owned())
    };
    assert_eq!(written(&mut cluster, CiliumNodeOrigin::Agent, answer), ["free 10.0.0.0/28 of node a"]);
}

#[test]
fn a_finalizer_of_a_claim_that_is_removed_again() {
    check(
        "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @40 finalizer=theirs",
        40,
        "claim 10.0.0.0/28 a 1 Held @{} finalizer=theirs",
        "restore the finalizer of the claim of 10.0.0.0/28 of node a",
    );
}

/// A webhook may strip what keeps the claim, or what says which addresses it offers.
#[test]
fn a_claim_that_is_not_made_as_it_was_to_be_is_not_applied() {
    let plan = Cluster::of("pool p 10.0.0.0/26 28\njoined a @50").plan("a");
    let effect = |change: &dyn Fn(&mut Claim)| {
        let Object::Claim(mut made) = object("claim 10.0.0.0/28 a 1 Held @110") else { unreachable!() };
        change(&mut made);
        let request = plan.requests()[0].clone();
        Outcome { request, answer: Answer::Done, seen: Seen::Claim(Box::new(made)) }.effect()
    };
    assert_eq!(effect(&|_| {}), Effect::Shown);
    assert_eq!(effect(&|claim| claim.finalizers.push("theirs".to_owned())), Effect::Shown);
    assert_eq!(effect(&|claim| claim.finalizers.clear()), Effect::Missing);
    assert_eq!(effect(&|claim| claim.created_for = None), Effect::Missing);
    assert_eq!(effect(&|claim| claim.excluded.insert_cidr("10.0.0.1/32".parse().unwrap())), Effect::Missing);
    assert_eq!(effect(&|claim| claim.pool = "q".into()), Effect::Missing);
}

#[test]
fn a_claim_that_is_made_for_another_node() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/16 28\njoined a @50");
    let answer = |write: &Write, n_writes| {
        let Write::CreateClaim(new) = write else { panic!("{write}") };
        Some(format!("claim {} b 1 Held @{}", new.cidr, 200 + n_writes))
    };
    let written = written(&mut cluster, CiliumNodeOrigin::Agent, answer);
    assert!((2..=PER_MINUTE).contains(&written.len()), "{} times in a minute", written.len());
}

#[test]
fn a_later_version_that_is_not_written() {
    let shown = "ciliumnode a @50 10.0.0.0/28 10.0.0.16/28 fenced=10.0.0.16/28";
    let cluster = format!(
        "pool p 10.0.0.0/26 28 reclaim=enabled\nnode a 1\n{shown}\nclaim 10.0.0.0/28 a 1 Held @30\n\
         claim 10.0.0.16/28 a 1 Releasing/Reclaimed @60"
    );
    let answer = |_: &Write, _| Some(shown.to_owned());
    check_paced(
        &written(&mut Cluster::of(&cluster), CiliumNodeOrigin::Agent, answer),
        "touch ciliumnode a to get a later version",
    );
}

#[test]
fn a_question_that_is_not_cleared() {
    check(
        "pool p 10.0.0.0/26 28\njoined a @50 10.0.0.0/28 ping=answered",
        50,
        "ciliumnode a @{} 10.0.0.0/28 ping=answered",
        "clear the usage query on CiliumNode a",
    );
}

#[test]
fn a_ciliumnode_that_is_gone_as_soon_as_it_is_created() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1");
    check_paced(&written(&mut cluster, CiliumNodeOrigin::Controller, |_, _| None), "create CiliumNode a");
}

/// A webhook, or another controller, takes the blocks off whenever they have been written.
#[test]
fn a_publication_that_is_undone_by_a_later_write() {
    let text = "pool p 10.0.0.0/26 28\njoined a @50\nclaim 10.0.0.0/28 a 1 Held @40";
    let mut cluster = Cluster::of(text);
    let policy = Policy::DEFAULT;
    let mut n_written = 0;
    for second in 0..60 {
        let plan = node(&cluster.world, &NodeName::from("a"), policy, cluster.now);
        cluster.world.begin(&plan, cluster.now);
        for request in plan.into_requests() {
            // What is known of claims has to be as late as the CiliumNode is.
            if let Request::Read(Read::ClaimsOf(_)) = &request {
                let claims = claims_of(&cluster.world, &"a".into(), 1000 + 10 * second);
                cluster.finish(request, claims);
                continue;
            }
            n_written += 1;
            let shown = format!("ciliumnode a @{} 10.0.0.0/28", 205 + 10 * second);
            let Object::CiliumNode(seen) = object(&shown) else { unreachable!() };
            cluster.finish(request, Seen::CiliumNode(Box::new(seen)));
            cluster.observe(&format!("ciliumnode a @{}", 206 + 10 * second));
        }
        cluster.pass(1);
    }
    assert!((3..=PER_MINUTE).contains(&n_written), "{n_written} times in a minute");
}

#[test]
fn a_write_without_effect_is_reported_until_it_is_a_minute_ago() {
    let text = "pool p 10.0.0.0/26 28\njoined a @50\nclaim 10.0.0.0/28 a 1 Held @40";
    let mut cluster = Cluster::of(text);
    let reported = |cluster: &Cluster| -> Vec<String> {
        let ineffective = cluster.world.ineffective_writes(cluster.now);
        ineffective
            .map(|(target, write)| format!("{} {}: {write}", target.object().0.as_str(), target.object().1))
            .collect()
    };
    assert_eq!(reported(&cluster), [""; 0]);
    let answer = |_: &Write, _| Some("ciliumnode a @50".to_owned());
    let n_written = written(&mut cluster, CiliumNodeOrigin::Agent, answer).len();
    assert!(n_written > 1);
    let expected = ["CiliumNode a: publish [10.0.0.0/28] and 16 addresses on ciliumnode a"];
    assert_eq!(reported(&cluster), expected);
    // Nothing undoes it any more.
    cluster.observe("ciliumnode a @2000 10.0.0.0/28");
    cluster.pass(60);
    cluster.expect("a", "nothing");
    assert_eq!(reported(&cluster), [""; 0]);
}

/// Failures count in a row, and a row ends when nothing is left to do, whoever did it.
#[test]
fn a_replica_that_loses_each_race_for_a_claim_does_not_wait_for_the_next() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\njoined a @50 10.0.0.0/28 used=3");
    for uid in 2..10 {
        cluster.observe(&format!("node a {uid} @{}", 100 + uid));
        let mut plan = cluster.plan("a");
        if let [Request::Read(Read::Node(_, as_of))] = plan.requests() {
            let presence = found(Presence::Is(uid.to_string().as_str().into()), as_of.number());
            cluster.begin(&plan);
            cluster.settle(&Target::Node("a".into()), presence);
            plan = cluster.plan("a");
        }
        assert_eq!(rendered(&plan), "hold 10.0.0.0/28 for node a again", "{uid}");
        cluster.begin(&plan);
        let request = cluster.in_flight.pop().expect("it is in flight");
        let held = format!("claim 10.0.0.0/28 a {uid} Held @{}", 200 + uid);
        let Object::Claim(seen) = object(&held) else { unreachable!() };
        let answer = Answer::Conflict("the other replica was first".to_owned());
        cluster.world.finish(Outcome { request, answer, seen: Seen::Claim(Box::new(seen)) }, cluster.now);
        cluster.observe(&held);
        let pause = cluster.world.serving(&"a".into()).expect("it is served").pause;
        assert_eq!(pause.later_than(cluster.now), None, "{uid}");
        cluster.expect("a", "nothing");
        cluster.pass(3600);
    }
}

/// One repetition is chance, and the first write that says something else ends the pause.
#[test]
fn what_is_written_once_more_and_then_lasts_is_not_reported() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Held @40");
    cluster.expect("a", "release 10.0.0.0/28 of node a (NodeGone)");
    let key = Target::Claim("10.0.0.0/28".parse().unwrap());
    let Object::Claim(kept) = object("claim 10.0.0.0/28 a 1 Held @40") else { unreachable!() };
    cluster.settle(&key, Seen::Claim(Box::new(kept)));
    cluster.expect("a", "waits: its last requests failed; the next one comes after a pause");
    assert_eq!(cluster.world.ineffective_writes(cluster.now).count(), 0);
    cluster.now.uptime += Duration::from_millis(250);
    cluster.expect("a", "release 10.0.0.0/28 of node a (NodeGone)");
}
