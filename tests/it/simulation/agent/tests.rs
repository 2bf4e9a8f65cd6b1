//! The simulated agent behaves as real ones do in `tests/agent/suite`.

use cilium_node_ipam::model::crd::ReleaseMark;
use serde_json::{Map, Value, json};

use super::crd::{HEALTH, ROUTER};
use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// An agent and its CiliumNode.
struct Scene {
    store: Store,
    agent: Agent,
}

fn name() -> NodeName {
    "n".into()
}

fn address(last: u8) -> IpAddr {
    std::net::Ipv4Addr::new(10, 0, 0, last).into()
}

impl Scene {
    /// The pool has these addresses of 10.0.0.0/24. The agent has not looked.
    fn of(pool: std::ops::Range<u8>) -> Self {
        let mut store = Store::new(NOW, Mode::Crd.into(), None);
        let entries: Map<String, Value> = pool.map(|last| (address(last).to_string(), json!({}))).collect();
        let cilium_node = json!({ "metadata": { "name": "n" }, "spec": { "ipam": { "pool": entries } }, "status": { "ipam": {} } });
        store.create(Kind::CiliumNode, cilium_node).expect("the name is free");
        Self { store, agent: Agent::new(Mode::Crd, &BTreeSet::from([Family::V4]), 0, NOW) }
    }

    /// An agent that has its own addresses, 10.0.0.8 and 10.0.0.9, and `n_pods` pods, from 10.0.0.0 on.
    fn with_pods(n_pods: usize) -> Self {
        let mut scene = Self::of(0..10);
        scene.owns(8, ROUTER);
        scene.owns(9, HEALTH);
        scene.looks();
        scene.wants(n_pods);
        scene.reports();
        scene
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        assert!(self.store.edit(Kind::CiliumNode, "n", edit), "it changes something");
    }

    fn owns(&mut self, last: u8, owner: &str) {
        self.edit(|json| json["spec"]["ipam"]["pool"][address(last).to_string()]["owner"] = json!(owner));
    }

    fn marks(&mut self, last: u8, mark: &str) {
        self.edit(|json| json["status"]["ipam"]["release-ips"][address(last).to_string()] = json!(mark));
    }

    fn leaves(&mut self, last: u8) {
        self.edit(|json| {
            let pool = json["spec"]["ipam"]["pool"].as_object_mut().expect("it has a pool");
            pool.remove(&address(last).to_string());
        });
    }

    fn asks(&mut self) {
        self.edit(|json| json["status"]["ipam"]["release-ips"]["0.0.0.0"] = json!("marked-for-release"));
    }

    fn looks(&mut self) {
        self.agent.look(&self.store, &name());
    }

    fn reports(&mut self) {
        self.agent.report(&mut self.store, &name());
    }

    /// `n_pods` pods should run. Returns the addresses of new ones.
    fn wants(&mut self, n_pods: usize) -> Vec<IpAddr> {
        self.agent.wants(n_pods, 0)
    }

    fn restarts(&mut self, release: u8) {
        self.agent.restart(release, 1, NOW);
        self.looks();
    }

    /// Completes a restart. Returns the pods that lose their network.
    fn comes_up(&mut self) -> Vec<IpAddr> {
        let lost = self.agent.restore(usize::MAX);
        self.agent.begin();
        lost
    }

    /// The addresses that `used` lists; `None` without it.
    fn used(&self) -> Option<Vec<IpAddr>> {
        let used = self.store.cilium_node(&name())?.crd.used.clone()?;
        Some(used.iter().collect())
    }

    fn mark(&self, last: u8) -> Option<ReleaseMark> {
        self.store.cilium_node(&name())?.crd.marks.get(&address(last)).copied()
    }

    fn revision(&self) -> u64 {
        self.store.revision().number()
    }
}

fn addresses(lasts: &[u8]) -> Vec<IpAddr> {
    lasts.iter().map(|last| address(*last)).collect()
}

#[test]
fn marks_are_answered_as_the_table_says() {
    use ReleaseMark::{DoNotRelease, Ready, Released};
    let (marked, released) = ("marked-for-release", "released");
    let (ready, refused) = ("ready-for-release", "do-not-release");
    for (last, mark, expected) in [
        (0, marked, Some(DoNotRelease)),
        (8, marked, Some(DoNotRelease)),
        (5, marked, Some(Ready)),
        (77, marked, Some(DoNotRelease)),
        (77, released, None),
        (5, released, Some(Released)),
        (0, ready, Some(Ready)),
        (5, refused, Some(DoNotRelease)),
    ] {
        let mut scene = Scene::with_pods(2);
        scene.marks(last, mark);
        scene.looks();
        scene.reports();
        assert_eq!(scene.mark(last), expected, "{last} {mark}");
    }
}

#[test]
fn an_empty_pool_ends_all_answers() {
    let mut scene = Scene::of(0..0);
    scene.marks(1, "marked-for-release");
    scene.asks();
    let before = scene.revision();
    scene.looks();
    scene.reports();
    assert_eq!(scene.revision(), before);
}

#[test]
fn what_is_in_a_handshake_or_fenced_goes_to_no_pod() {
    let mut scene = Scene::with_pods(1);
    for (last, mark) in
        [(1, "marked-for-release"), (2, "ready-for-release"), (3, "released"), (4, "do-not-release")]
    {
        scene.marks(last, mark);
    }
    scene.owns(5, "nodeipam.io/fenced");
    scene.owns(0, "nodeipam.io/fenced");
    scene.looks();
    assert_eq!(scene.wants(9), addresses(&[4, 6, 7]));
    assert!(scene.agent.held().contains(&address(0)), "a pod that has it keeps it");
}

/// The writes of others in between stay.
#[test]
fn a_stale_report_is_refused_and_comes_later() {
    let mut scene = Scene::with_pods(1);
    scene.wants(2);
    scene.marks(5, "marked-for-release");
    let before = scene.revision();
    scene.reports();
    assert_eq!(scene.revision(), before);
    scene.reports();
    assert_eq!(scene.used(), Some(addresses(&[0, 1, 8, 9])));
    assert_eq!(scene.mark(5), Some(ReleaseMark::Ready));
}

#[test]
fn a_change_of_metadata_loses_an_answer_and_a_question_makes_up_for_it() {
    let mut scene = Scene::with_pods(1);
    scene.marks(5, "marked-for-release");
    scene.looks();
    scene.edit(|json| json["metadata"]["annotations"] = json!({ "touched": "yes" }));
    scene.looks();
    scene.reports();
    assert_eq!(scene.mark(5), Some(ReleaseMark::Marked));
    scene.asks();
    scene.looks();
    scene.reports();
    assert_eq!(scene.mark(5), Some(ReleaseMark::Ready));
}

#[test]
fn a_block_leaves_and_its_addresses_go_to_nobody() {
    let mut scene = Scene::with_pods(2);
    for step in ["marked-for-release", "released"] {
        scene.marks(6, step);
        scene.marks(7, step);
        scene.looks();
        scene.reports();
    }
    scene.leaves(6);
    scene.leaves(7);
    scene.looks();
    assert_eq!(scene.wants(99), addresses(&[2, 3, 4, 5]));
    scene.reports();
    assert_eq!((scene.mark(6), scene.mark(7)), (None, None));
}

#[test]
fn a_restart_restores_what_is_in_the_pool_and_in_no_handshake() {
    let mut scene = Scene::with_pods(7);
    scene.leaves(0);
    for (last, mark) in
        [(1, "marked-for-release"), (2, "ready-for-release"), (3, "released"), (4, "do-not-release")]
    {
        scene.marks(last, mark);
    }
    scene.owns(5, "nodeipam.io/fenced");
    scene.restarts(0);
    assert!(!scene.agent.is_ready() && scene.wants(9).is_empty());
    assert_eq!(scene.comes_up(), addresses(&[0, 1, 2, 3]));
    scene.reports();
    assert_eq!(scene.used(), Some(addresses(&[4, 5, 6, 8, 9])));
}

/// The first lie: `used` disappears. A start that has nothing to answer writes nothing before its pods are restored.
#[test]
fn a_starting_agent_that_refuses_a_mark_writes_an_empty_use() {
    let mut scene = Scene::with_pods(3);
    let used = scene.used();
    scene.restarts(0);
    scene.reports();
    assert_eq!(scene.used(), used);
    scene.asks();
    scene.looks();
    scene.reports();
    assert_eq!(scene.used(), None);
    assert!(scene.comes_up().is_empty());
    scene.looks();
    scene.reports();
    assert_eq!(scene.used(), used);
}

/// The second: a recreated CiliumNode shows no use until something changes, or a usage query is sent.
#[test]
fn a_recreated_ciliumnode_says_nothing_until_it_is_asked() {
    let mut scene = Scene::with_pods(3);
    let used = scene.used();
    let stored = scene.store.stored(Kind::CiliumNode, "n").expect("it is there").json.clone();
    scene.store.remove(Kind::CiliumNode, "n");
    let cilium_node = json!({ "metadata": { "name": "n" }, "spec": stored["spec"] });
    scene.store.create(Kind::CiliumNode, cilium_node).expect("the name is free");
    scene.looks();
    scene.reports();
    assert_eq!(scene.used(), None);
    scene.asks();
    scene.looks();
    scene.reports();
    assert_eq!(scene.used(), used);
}

/// The third: the address of a pod that is not restored yet is free, and the pod loses it.
#[test]
fn a_mark_that_meets_a_restoration_is_answered_as_if_the_address_were_free() {
    let mut scene = Scene::with_pods(3);
    scene.restarts(0);
    assert!(scene.agent.restore(1).is_empty());
    scene.marks(0, "marked-for-release");
    scene.marks(1, "marked-for-release");
    scene.looks();
    scene.reports();
    assert_eq!(scene.used(), Some(addresses(&[0])));
    assert_eq!((scene.mark(0), scene.mark(1)), (Some(ReleaseMark::DoNotRelease), Some(ReleaseMark::Ready)));
    assert_eq!(scene.comes_up(), addresses(&[1]));
}

#[test]
fn own_addresses_are_kept_at_a_restart_and_replaced_when_they_have_left() {
    let mut scene = Scene::with_pods(1);
    scene.leaves(8);
    scene.owns(7, ROUTER);
    scene.restarts(0);
    assert!(scene.comes_up().is_empty());
    assert_eq!(scene.agent.held().iter().copied().collect::<Vec<_>>(), addresses(&[0, 7, 9]));
    // Up to 1.15 the health address is drawn anew: that of the owner, if owners count.
    scene.restarts(2);
    assert!(scene.comes_up().is_empty());
    assert!(scene.agent.is_ready() && scene.agent.held().contains(&address(7)));
}

/// Each start shows on the Pod, and another agent version has another Pod.
#[test]
fn each_start_shows_on_the_pod() {
    let mut scene = Scene::with_pods(1);
    let pod = |scene: &Scene| scene.agent.pod(&name());
    let before = pod(&scene);
    assert!(before.ready);
    scene.restarts(0);
    let again = pod(&scene);
    assert_eq!((again.ready, &again.uid), (false, &before.uid));
    assert_ne!(again.started, before.started);
    assert!(scene.comes_up().is_empty());
    assert!(pod(&scene).ready);
    scene.restarts(1);
    assert_ne!(pod(&scene).uid, before.uid);
}
