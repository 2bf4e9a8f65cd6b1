//! Tests of what the status of a claim says of its drain.

use super::*;
use crate::model::names::PoolName;
use crate::model::plan::PoolPlan;
use crate::model::request::ClaimStatusWrite;
use crate::model::status::{ClaimStatus, DrainStatus};
use crate::plan::pool::pool as plan_pool;
use crate::plan::tests::wakeups::settled::applied;
use crate::view::departures::departures;
use crate::view::who::{Pods, who};

impl Cluster {
    /// Every write of pool p is applied until none is due. The statuses of claims among them, each as a line.
    fn report(&mut self, revision: u64) -> Vec<String> {
        let name = PoolName::from("p");
        let mut reported = Vec::new();
        for revision in revision.. {
            self.now.uptime += Duration::from_secs(1);
            let plan = plan_pool(&self.world, &name, Policy::DEFAULT, self.now);
            self.world.begin_status(&name, &plan, self.now);
            let writes = plan.into_writes();
            if writes.is_empty() {
                break;
            }
            for write in writes {
                if let Write::ClaimStatus(status) = &write {
                    reported.push(line(status));
                }
                let seen = applied(&self.world, &write, revision);
                let outcome = Outcome { request: write.into(), answer: Answer::Done, seen };
                self.world.finish(outcome, self.now);
                assert_eq!(self.world.check(), []);
            }
        }
        reported
    }
}

fn line(status: &ClaimStatusWrite) -> String {
    let ClaimStatus { shown_as, until, drain } = &status.status;
    let shown_as = shown_as.map(|word| format!(" {}", word.as_str())).unwrap_or_default();
    let cidr = format!("{}{shown_as}", status.cidr);
    if let Some(until) = until {
        return format!("{cidr}: until {until}");
    }
    let Some(drain) = drain else { return format!("{cidr}: nothing") };
    let n_pods = drain.pod_count.map_or("?".to_owned(), |count| count.to_string());
    let pods: Vec<String> = drain.pods.iter().map(|(address, pod)| format!(", {address} {pod}")).collect();
    format!("{cidr}: {} ({n_pods}{})", drain.waiting_for, pods.concat())
}

#[test]
fn a_block_tells_which_pods_it_waits_for_until_they_have_ended() {
    let mut cluster = Cluster::fenced();
    assert_eq!(cluster.report(112), [""; 0], "nothing is in use");
    cluster.observe(&format!("ciliumnode a @122 {FENCED} used=10.0.0.0/32,10.0.0.18/31"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @122");
    let waits = "10.0.0.16/28: its agent uses addresses of it (status.ipam.used of the CiliumNode)";
    assert_eq!(cluster.report(123), [format!("{waits} (2)")]);
    cluster.looked(&[("10.0.0.18", "apps/web-0"), ("10.0.0.3", "apps/elsewhere")]);
    assert_eq!(cluster.report(130), [format!("{waits} (2, 10.0.0.18 apps/web-0)")]);
    cluster.observe(&format!("ciliumnode a @140 {FENCED} used=10.0.0.0/32,10.0.0.18/32"));
    assert_eq!(cluster.report(141), [format!("{waits} (1, 10.0.0.18 apps/web-0)")]);
    assert_eq!(cluster.report(151), [""; 0]);
    cluster.observe(&format!("ciliumnode a @160 {FENCED} used=10.0.0.0/32"));
    assert_eq!(cluster.report(161), ["10.0.0.16/28: nothing"]);
}

/// Nobody knows of such a pod but this process; whoever does not leaves it alone.
#[test]
fn a_pod_that_its_agent_does_not_list_is_reported_until_the_block_is_held_again() {
    let mut cluster = Cluster::queried();
    cluster.looked(&[("10.0.0.20", "apps/web-0")]);
    let unlisted =
        "10.0.0.16/28: pods have addresses of it that the agent does not list (1, 10.0.0.20 apps/web-0)";
    assert_eq!(cluster.report(120), [unlisted]);
    let claim = cluster.world.claim("10.0.0.16/28".parse().unwrap()).unwrap().claim.clone();
    let mut other = Cluster::fenced();
    other.world.observe(Observation::Applied(Box::new(Object::Claim(claim.clone()))));
    assert_eq!(other.report(130), [""; 0]);
    let held = Claim { state: ClaimState::Held, revision: Revision::of(140), ..claim };
    other.world.observe(Observation::Applied(Box::new(Object::Claim(held))));
    assert_eq!(other.report(141), ["10.0.0.16/28: nothing"]);
}

/// A process that has not read the Pods of the node leaves alone what another one found.
#[test]
fn what_another_process_found_is_not_corrected() {
    let mut cluster = Cluster::fenced();
    cluster.observe(&format!("ciliumnode a @122 {FENCED} used=10.0.0.0/32,10.0.0.18/32"));
    assert_eq!(cluster.report(123).len(), 1);
    let mut claim = cluster.world.claim("10.0.0.16/28".parse().unwrap()).unwrap().claim.clone();
    claim.revision = Revision::of(124);
    let drain = claim.status.drain.as_mut().unwrap();
    drain.pods = vec![("10.0.0.18".parse().unwrap(), "apps/web-0".to_owned())];
    cluster.world.observe(Observation::Applied(Box::new(Object::Claim(claim))));
    assert_eq!(cluster.report(125), [""; 0]);
}

#[test]
fn commands_name_the_pods_that_the_leader_has_found() {
    let mut cluster = Cluster::fenced();
    let cidr = "10.0.0.16/28".parse().unwrap();
    let mut claim = cluster.world.claim(cidr).unwrap().claim.clone();
    let pods = [(18, "apps/web-10"), (19, "apps/web-2"), (20, "apps/web-10")];
    claim.status.drain = Some(DrainStatus {
        waiting_for: "something".to_owned(),
        pod_count: Some(3),
        pods: pods.map(|(last, pod)| ([10, 0, 0, last].into(), pod.to_owned())).to_vec(),
    });
    cluster.world.observe(Observation::Applied(Box::new(Object::Claim(claim))));
    let who = who(&cluster.world, &[], &Pods::new(), cidr);
    let said = "10.0.0.16/28 is leaving the node: something; pods apps/web-2, apps/web-10";
    assert_eq!(who.iter().map(|answer| answer.detail.as_str()).collect::<Vec<_>>(), [said]);
    cluster.observe("pool p 10.0.0.0/24 28 draining reclaim=enabled @130");
    let leaving = departures(&cluster.world, |claim| claim.cidr == cidr);
    assert_eq!(leaving.len(), 1);
    assert_eq!(leaving[0].pods, ["apps/web-10", "apps/web-2"]);
}

/// A later version of the claim would have every proof be given again.
#[test]
fn nothing_is_reported_from_the_question_until_the_block_is_off() {
    for mut cluster in [Cluster::marked(), Cluster::ready(), Cluster::releasing()] {
        let cidr = "10.0.0.16/28".parse().unwrap();
        let mut claim = cluster.world.claim(cidr).unwrap().claim.clone();
        let waits = DrainStatus { waiting_for: "something".to_owned(), pod_count: Some(1), pods: Vec::new() };
        claim.status.drain = Some(waits);
        cluster.world.observe(Observation::Applied(Box::new(Object::Claim(claim.clone()))));
        assert_eq!(cluster.report(200), [""; 0], "{}", claim.state);
    }
}

#[test]
fn a_block_that_may_not_leave_tells_why_and_one_that_stays_tells_nothing() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 deleting");
    assert_eq!(
        cluster.report(110),
        [
            "10.0.0.0/28 WillDrain: the first block of a node stays until the node rejoins, with a reboot: \
             cilium-node-ipam migrate rejoin NODE (?)",
            "10.0.0.16/28 WillDrain: its node needs it, its agent is not Ready, or it is not its turn yet (?)",
        ]
    );
    cluster.observe("pool p 10.0.0.0/24 28 @130");
    assert_eq!(cluster.report(131), ["10.0.0.0/28: nothing", "10.0.0.16/28: nothing"]);
}

#[test]
fn a_block_whose_agent_is_not_ready_tells_so() {
    let cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/24 28 deleting\n{}\nciliumnode a @50 {BOTH} used=10.0.0.0/31",
        NODE.replace("agent a 1.20.2", "agent a 1.20.2 unready")
    ));
    let not_ready = "the Pod cilium-a of Cilium's agent is not Ready";
    let condition = cluster.condition("p", ConditionType::Draining);
    assert!(condition.ends_with(&format!("10.0.0.16/28 of a ({not_ready})")), "{condition}");
    let messages: Vec<String> = cluster.plan("a").findings.into_iter().map(|found| found.message).collect();
    assert_eq!(messages[1], format!("can't be drained from node a yet: {not_ready}"));
}

#[test]
fn no_claim_is_reported_while_writes_are_frozen() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 deleting");
    cluster.world.set_freeze(Freeze::of([(Switch::Writes, "of a test".to_owned())]));
    assert_eq!(cluster.report(110), [""; 0]);
}

/// A right that is missing after an upgrade holds up nothing of the node.
#[test]
fn a_refused_status_of_a_claim_keeps_its_node_from_nothing() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 deleting");
    let name = PoolName::from("p");
    let plan = plan_pool(&cluster.world, &name, Policy::DEFAULT, cluster.now);
    cluster.world.begin_status(&name, &plan, cluster.now);
    let writes = plan.into_writes();
    assert_eq!(writes.len(), 3, "the status of the pool and of both claims: {writes:?}");
    assert!(cluster.world.is_busy(&"a".into()), "a move of the claim would meet the status");
    for write in writes {
        let answer = Answer::Refused("forbidden".to_owned(), None);
        cluster.world.finish(Outcome { request: write.into(), answer, seen: Seen::Nothing }, cluster.now);
    }
    assert_eq!(rendered(&cluster.plan("a")), format!("{DRAIN}; finding: DrainWaits"));
    assert_eq!(plan_pool(&cluster.world, &name, Policy::DEFAULT, cluster.now), PoolPlan::Unchanged);
    let turn = cluster.world.next_wake().expect("the pool tries again");
    cluster.now.uptime = turn;
    cluster.world.advance(cluster.now);
    assert_eq!(cluster.world.next_pool(), Some(&name));
}

#[test]
fn a_cooling_block_tells_its_end_and_a_returned_one_does_not() {
    let pool = "pool p 10.0.0.0/24 28 reuseAfterNodeLoss";
    let mut cluster = Cluster::of(&format!("{pool}=900\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40"));
    assert_eq!(cluster.report(110), ["10.0.0.0/28: until 1970-01-01T00:15:00Z"]);
    assert_eq!(cluster.report(115), [""; 0]);
    cluster.observe(&format!("{pool}=1800 @120"));
    assert_eq!(cluster.report(121), ["10.0.0.0/28: until 1970-01-01T00:30:00Z"]);
    let mut held = cluster.world.claim("10.0.0.0/28".parse().unwrap()).unwrap().claim.clone();
    (held.state, held.revision) = (ClaimState::Held, Revision::of(130));
    cluster.world.observe(Observation::Applied(Box::new(Object::Claim(held))));
    assert_eq!(cluster.report(131), ["10.0.0.0/28: nothing"]);
}

#[test]
fn a_claim_that_is_being_deleted_tells_so_unless_it_is_gone_with_the_last_finalizer() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @50 10.0.0.0/28 used=1\n\
         claim 10.0.0.0/28 a 1 Held @40 deleting\nclaim 10.0.0.16/28 b 1 Held @41",
    );
    assert_eq!(cluster.report(110), ["10.0.0.0/28 Deleting: nothing"]);
    assert_eq!(cluster.report(120), [""; 0]);
    let mut going = cluster.world.claim("10.0.0.0/28".parse().unwrap()).unwrap().claim.clone();
    (going.finalizers, going.status, going.revision) =
        (vec!["theirs".to_owned()], ClaimStatus::default(), Revision::of(130));
    cluster.world.observe(Observation::Applied(Box::new(Object::Claim(going))));
    assert_eq!(cluster.report(131), [""; 0]);
}
