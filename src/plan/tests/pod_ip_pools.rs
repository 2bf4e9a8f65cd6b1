//! Tests of what follows from CiliumPodIPPools: what is given under their names, and what is told of them.

use super::*;
use crate::model::address_class::AddressClass;
use crate::model::pod_ip_pool::{PodIpPool, PodIpPoolNews, PodIpRanges};
use crate::model::request::PodIpPoolWrite;
use crate::plan::{PodIpPoolOrigin, pool as plan_pool, why_no_block};
use crate::view::pod_ip_pools;

/// The mode, without BGP and with it.
const BGP_OFF: &str = "multi-pool v4";
const BGP_ON: &str = "multi-pool v4 bgp";

/// A cluster in this mode, with these CiliumPodIPPools beside the objects of its lines.
fn cluster(mode: &str, objects: &[&str], text: &str) -> Cluster {
    let mut cluster = Cluster::serving(mode, text);
    cluster
        .world
        .observe_pod_ip_pools(PodIpPoolNews::Listed(objects.iter().map(|line| pod_ip_pool(line)).collect()));
    cluster
}

/// A CiliumPodIPPool in a line: `NAME [v4=MASKSIZE] [v6=MASKSIZE] [cidrs=IPV4CIDRS] [ours] [@REVISION]`.
pub(super) fn pod_ip_pool(line: &str) -> PodIpPool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let cidrs = value(&words, "cidrs=").unwrap_or("10.0.0.0/16");
    let family = |family, key, cidrs: &str| {
        let mask_size = value(&words, key)?.parse().unwrap();
        let cidrs = cidrs.split(',').map(|cidr| cidr.to_owned().into()).collect();
        Some((family, PodIpRanges { mask_size, cidrs }))
    };
    let families = [family(Family::V4, "v4=", cidrs), family(Family::V6, "v6=", "fd00::/64")];
    PodIpPool {
        name: words[0].into(),
        uid: format!("uid-{}", words[0]).into(),
        revision: value(&words, "@").map_or(Revision::of(1), |text| Revision::of(text.parse().unwrap())),
        families: families.into_iter().flatten().collect(),
        is_ours: words.contains(&"ours"),
    }
}

/// The object after this write.
pub(super) fn after(world: &World, write: &PodIpPoolWrite, revision: u64) -> PodIpPool {
    let before = world.pod_ip_pool(&write.name).unwrap();
    assert_eq!(before.map(|before| (before.uid.clone(), before.revision)), write.on);
    let mut families = before.map(|before| before.families.clone()).unwrap_or_default();
    families.extend(write.families.clone());
    PodIpPool {
        name: write.name.clone(),
        uid: before.map_or_else(|| "created".into(), |before| before.uid.clone()),
        revision: Revision::of(revision),
        families,
        is_ours: true,
    }
}

fn shown(cluster: &mut Cluster, line: &str) {
    cluster.world.observe_pod_ip_pools(PodIpPoolNews::Applied(pod_ip_pool(line)));
    assert_eq!(cluster.world.check(), []);
}

/// What the condition of a pool says: its reason and its message; both are empty without it.
fn reported(cluster: &Cluster, pool: &str) -> (String, String) {
    let reported = cluster.status(pool).conditions.remove(&ConditionType::UnfitPodIPPool);
    let findings: Vec<String> = pod_ip_pools::findings(&cluster.world)
        .filter(|finding| finding.name == pool)
        .map(|finding| finding.message)
        .collect();
    let Some(reported) = reported else {
        assert_eq!(findings, [""; 0]);
        return (String::new(), String::new());
    };
    assert_eq!(reported.holds, findings == std::slice::from_ref(&reported.message), "{findings:?}");
    (reported.reason.to_string(), reported.message)
}

#[track_caller]
fn has_condition(cluster: &Cluster, pool: &str, reason: &str, parts: &[&str]) {
    let (found, message) = reported(cluster, pool);
    assert_eq!(found, reason, "{message}");
    for part in parts {
        assert_has(&message, part);
    }
}

const NEEDS: &str = "pool p 10.0.0.0/24 28\njoined a @90 need=8";
const CLAIMS: &str = "claim 10.0.0.0/28 of pool p for node a under default";
const NOTHING: &str = "unmet: no pool of the node has a free ipv4 block of the Cilium pool default";

/// An agent with BGP ends as soon as a CIDR is to be announced whose object lacks the family.
#[test]
fn with_bgp_nothing_is_given_under_a_name_whose_object_lacks_the_family() {
    for empty in ["default", "default v6=122"] {
        let mut cluster = cluster(BGP_ON, &[empty], NEEDS);
        cluster.expect("a", NOTHING);
        has_condition(
            &cluster,
            "p",
            "PodIPPoolLacksFamily",
            &[
                "CiliumPodIPPool default has no spec.ipv4",
                "nodes get no more of them until then",
                "add spec.ipv4: {cidrs: [10.0.0.0/24], maskSize: 28}",
            ],
        );
        let class = AddressClass { family: Family::V4, pod_ip_pool: Some("default".into()) };
        let why = why_no_block(&cluster.world, &"a".into(), &class);
        assert_starts(&why, "CiliumPodIPPool default has no spec.ipv4; the node gets no ");
        cluster.drain();
        shown(&mut cluster, "default v4=28 @120");
        assert_eq!(cluster.plan("a").requests()[0].to_string(), CLAIMS);
        assert!(cluster.drain().contains(&"a".to_owned()), "it looks again");
        has_condition(&cluster, "p", "", &[]);
    }
}

#[test]
fn without_bgp_an_object_without_the_family_is_only_reported() {
    let mut cluster = cluster(BGP_OFF, &["default"], NEEDS);
    cluster.expect("a", CLAIMS);
    has_condition(
        &cluster,
        "p",
        "PodIPPoolLacksFamily",
        &["BGP is off (enable-bgp-control-plane in cilium-config)"],
    );
}

#[test]
fn another_mask_size_is_only_reported() {
    for mode in [BGP_ON, BGP_OFF] {
        let mut cluster = cluster(mode, &["default v4=24"], NEEDS);
        cluster.expect("a", CLAIMS);
        has_condition(
            &cluster,
            "p",
            "PodIPPoolOtherMaskSize",
            &[
                "CiliumPodIPPool default has spec.ipv4.maskSize 24, and the blocks are /28",
                "recreate the object with spec.ipv4.maskSize: 28",
            ],
        );
    }
}

/// Agents from 1.19 on can do nothing without the object, and older ones need it for BGP alone.
#[test]
fn a_missing_object_counts_for_agents_that_need_it() {
    for (release, mode, given, reason) in [
        ("1.20.2", BGP_OFF, NOTHING, "PodIPPoolMissing"),
        ("1.19.0", BGP_OFF, NOTHING, "PodIPPoolMissing"),
        ("1.18.8", BGP_OFF, CLAIMS, ""),
        ("1.18.8", BGP_ON, CLAIMS, "PodIPPoolMissing"),
        ("none", BGP_OFF, CLAIMS, "PodIPPoolMissing"),
    ] {
        let mut cluster = cluster(mode, &["other v4=28"], &format!("{NEEDS}\nagent a {release}"));
        cluster.expect("a", given);
        assert_eq!(reported(&cluster, "p").0, reason, "{release}");
    }
    // A node whose agent is not known yet is like the others.
    let text = format!("{NEEDS}\nagent a 1.18.8\nnode b 2");
    assert_eq!(reported(&cluster(BGP_OFF, &[], &text), "p").0, "");
    let cluster = cluster(BGP_OFF, &[], "pool p 10.0.0.0/24 28");
    has_condition(
        &cluster,
        "p",
        "PodIPPoolMissing",
        &["CiliumPodIPPool default does not exist; ", "spec.ipv4: {cidrs: [10.0.0.0/24], maskSize: 28}"],
    );
}

/// Nobody may read them, and nodes are served all the same.
#[test]
fn what_is_not_known_keeps_nothing_back() {
    let mut cluster = cluster(BGP_ON, &[], NEEDS);
    cluster.world = Cluster::serving(BGP_ON, NEEDS).world;
    cluster.world.observe_pod_ip_pools(PodIpPoolNews::Unlisted("forbidden".to_owned()));
    cluster.expect("a", CLAIMS);
    has_condition(&cluster, "p", "PodIPPoolUnknown", &["CiliumPodIPPool default is unknown: forbidden"]);
}

#[test]
fn a_claim_that_is_not_published_waits_and_one_that_is_stays() {
    let held = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80 under=default\n\
                claim 10.0.0.16/28 a 1 Held @81 under=default";
    let text = format!("{held}\nciliumnode a @90 need=20 has=10.0.0.0/28");
    let mut cluster = cluster(BGP_ON, &["default"], &text);
    cluster.expect("a", &format!("{NOTHING}; finding: UnfitPodIPPool"));
    shown(&mut cluster, "default v4=28 @120");
    cluster.expect("a", "publish [10.0.0.16/28] and 14 addresses on ciliumnode a");
}

/// Names do not wait for each other.
#[test]
fn a_name_whose_object_does_not_fit_keeps_no_other_name_waiting() {
    let text = "pool p 10.0.0.0/24 28\npool q 10.1.0.0/24 28 under=mars\njoined a @90 need=8 mars=8";
    let mut cluster = cluster(BGP_ON, &["default v4=28", "mars"], text);
    cluster.expect(
        "a",
        "claim 10.0.0.0/28 of pool p for node a under default; unmet: no pool of the node has a free ipv4 block of the \
         Cilium pool mars",
    );
    assert_eq!(
        (reported(&cluster, "p").0.as_str(), reported(&cluster, "q").0.as_str()),
        ("", "PodIPPoolLacksFamily")
    );
}

/// Whoever starts there would restore only a part of its pods.
#[test]
fn a_recreated_ciliumnode_gets_all_blocks_or_none() {
    let text = "pool p 10.0.0.0/24 28\npool q 10.1.0.0/24 28 under=mars\n\
                joined a @90 recreated need=8 mars=8\nclaim 10.0.0.0/28 a 1 Held @80 under=default\n\
                claim 10.1.0.0/28 a 1 Held @81 under=mars";
    let mut cluster = cluster(BGP_ON, &["default v4=28", "mars"], text);
    let plan = cluster.plan("a");
    let held_back = plan.findings.iter().find(|finding| finding.name == "a").expect("it says so");
    let why = "10.1.0.0-28 is unfit: CiliumPodIPPool mars has no spec.ipv4";
    assert!(held_back.message.contains(why), "{}", held_back.message);
    assert_eq!(plan.requests(), []);
    shown(&mut cluster, "mars v4=28 @120");
    cluster.expect("a", "publish [10.0.0.0/28 10.1.0.0/28] and 28 addresses on ciliumnode a");
}

#[test]
fn only_those_who_depend_on_a_name_look_again_when_its_object_changes() {
    let text = "pool p 10.0.0.0/24 28 zone=x\npool q 10.1.0.0/24 28 zone=y under=mars\n\
                node a 1 zone=x\nnode b 2 zone=y\nnode c 3\n\
                claim 10.1.0.0/28 c 3 Held @81 under=mars\n\
                ciliumnode a @90 need=8\nciliumnode b @91 mars=8\nciliumnode c @92 need=8";
    let mut cluster = cluster(BGP_ON, &["default v4=28", "mars"], text);
    cluster.drain();
    shown(&mut cluster, "venus v4=28 @120");
    assert_eq!(cluster.drain(), [""; 0]);
    shown(&mut cluster, "mars v4=28 @121");
    assert_eq!(cluster.drain(), ["c", "b"], "the one that has a claim of the name goes first");
}

/// The controller creates CiliumPodIPPools.
pub(super) const CREATING: Policy = Policy { pod_ip_pools: PodIpPoolOrigin::Controller, ..Policy::DEFAULT };

/// Every pool has our finalizer, which is written before anything else.
pub(super) fn keep_pools(cluster: &mut Cluster) {
    let pools: Vec<PoolObject> = cluster.world.pool_objects().cloned().collect();
    for mut pool in pools {
        pool.finalizers = vec![PoolObject::FINALIZER.to_owned()];
        cluster.world.observe(Observation::Applied(Box::new(Object::Pool(pool))));
    }
}

/// What a pool writes to Cilium's object of its name.
pub(super) fn written(cluster: &Cluster, pool: &str) -> Vec<String> {
    let later = Now { uptime: cluster.now.uptime + Duration::from_secs(30), ..cluster.now };
    let plan = plan_pool(&cluster.world, &pool.into(), CREATING, later);
    let writes = plan.into_writes().into_iter();
    writes.filter(|write| matches!(write, Write::PodIpPool(_))).map(|write| write.to_string()).collect()
}

/// Pools of these words.
fn pools(lines: &[&str]) -> String {
    lines.iter().fold(String::new(), |text, line| text + "pool " + line + "\n")
}

#[test]
fn one_pool_creates_the_object_for_all_of_its_name() {
    let text =
        pools(&["p 10.0.0.0/24 28", "q 10.1.0.0/24 26", "r 10.2.0.0/24 28 under=mars", "s fd00::/64 122"]);
    let mut cluster = cluster(BGP_ON, &[], &text);
    keep_pools(&mut cluster);
    let created =
        "create CiliumPodIPPool default with ipv4 [10.0.0.0/24 10.1.0.0/24] /28 and ipv6 [fd00::/64] /122";
    assert_eq!(written(&cluster, "p"), [created]);
    assert_eq!((written(&cluster, "q"), written(&cluster, "s")), (Vec::new(), Vec::new()));
    assert_eq!(written(&cluster, "r"), ["create CiliumPodIPPool mars with ipv4 [10.2.0.0/24] /28"]);
    let administrator = plan_pool(&cluster.world, &"p".into(), Policy::DEFAULT, cluster.now).into_writes();
    assert!(!administrator.iter().any(|write| matches!(write, Write::PodIpPool(_))), "nobody asked for it");
    cluster.world.set_freeze(Freeze::of([(Switch::Writes, "of a test".to_owned())]));
    assert_eq!(written(&cluster, "p"), [""; 0]);
}

/// A `maskSize` or a family that changes under CIDRs that are announced ends agents, or their routes.
#[test]
fn an_object_of_ours_gets_what_it_lacks_and_loses_nothing() {
    let text = pools(&["p 10.0.0.0/24 26", "q fd00::/64 122"]);
    for (found, expected) in [
        (
            "default v4=28 cidrs=10.9.0.0/24 ours",
            "complete CiliumPodIPPool default with ipv4 [10.9.0.0/24 10.0.0.0/24] /28 and ipv6 [fd00::/64] /122",
        ),
        (
            "default v4=26 cidrs=10.0.0.0/24 ours",
            "complete CiliumPodIPPool default with ipv6 [fd00::/64] /122",
        ),
        (
            "default ours",
            "complete CiliumPodIPPool default with ipv4 [10.0.0.0/24] /26 and ipv6 [fd00::/64] /122",
        ),
        ("default v4=26 v6=122 cidrs=10.0.0.0/24,10.9.0.0/24 ours", ""),
        ("default", ""),
        ("default v4=28", ""),
    ] {
        let mut cluster = cluster(BGP_ON, &[found], &text);
        keep_pools(&mut cluster);
        assert_eq!(written(&cluster, "p").join(""), expected, "{found}");
    }
}

/// Where the allocator of Cilium's operator runs, it gives out the ranges of such an object.
#[test]
fn no_object_is_created_where_an_operator_allocates() {
    let text =
        format!("{}node a 1\nciliumnode a @90 need=8 operator=pool-not-found", pools(&["p 10.0.0.0/24 28"]));
    let mut cluster = cluster(BGP_OFF, &[], &text);
    keep_pools(&mut cluster);
    assert_eq!(written(&cluster, "p"), [""; 0]);
    while let Some(pool) = cluster.world.next_pool().cloned() {
        cluster.world.begin_status(&pool, &PoolPlan::UpToDate, cluster.now);
    }
    cluster.observe("ciliumnode a @101 need=8");
    assert_eq!(cluster.world.next_pool(), Some(&"p".into()), "it looks again");
    assert_eq!(written(&cluster, "p"), ["create CiliumPodIPPool default with ipv4 [10.0.0.0/24] /28"]);
}

#[test]
fn a_write_is_answered_before_the_next_and_the_answer_counts() {
    let text = pools(&["p 10.0.0.0/24 28", "q 10.1.0.0/24 28"]);
    let mut cluster = cluster(BGP_ON, &[], &text);
    keep_pools(&mut cluster);
    let later = Now { uptime: cluster.now.uptime + Duration::from_secs(10), ..cluster.now };
    let plan = plan_pool(&cluster.world, &"p".into(), CREATING, later);
    cluster.world.begin_status(&"p".into(), &plan, later);
    assert_eq!(written(&cluster, "p"), [""; 0]);
    // The other pool goes first from now on.
    cluster.world.observe(Observation::Applied(Box::new(object("pool q 10.1.0.0/24 28 deleting @150"))));
    for write in plan.into_writes() {
        let seen = match &write {
            Write::PodIpPool(write) => Seen::PodIpPool(Box::new(after(&cluster.world, write, 160))),
            _ => Seen::Nothing,
        };
        cluster.world.finish(Outcome { request: write.into(), answer: Answer::Done, seen }, later);
    }
    assert_eq!(cluster.world.check(), []);
    assert_eq!(written(&cluster, "p"), [""; 0], "it is there");
    assert_eq!(reported(&cluster, "p").0, "");
    // The watch tells that it is gone, and an answer from before that does not bring it back.
    cluster.world.observe_pod_ip_pools(PodIpPoolNews::Deleted(pod_ip_pool("default @170")));
    let again = written(&cluster, "p");
    assert_eq!(again, ["create CiliumPodIPPool default with ipv4 [10.0.0.0/24] /28"]);
}

/// The finding tells people which object to look at.
#[test]
fn an_object_that_does_not_keep_what_is_written_is_reported_by_its_own_kind() {
    let mut cluster = cluster(BGP_ON, &[], &pools(&["p 10.0.0.0/24 28"]));
    keep_pools(&mut cluster);
    for _ in 0..3 {
        cluster.pass(30);
        let plan = plan_pool(&cluster.world, &"p".into(), CREATING, cluster.now);
        cluster.world.begin_status(&"p".into(), &plan, cluster.now);
        for write in plan.into_writes() {
            cluster.finish(write.into(), Seen::Nothing);
        }
    }
    let ineffective = cluster.world.ineffective_writes(cluster.now);
    let reported: Vec<String> = ineffective
        .map(|(target, _)| {
            let (kind, name) = target.object();
            format!("{} {name}", kind.as_str())
        })
        .collect();
    assert_eq!(reported, ["NodeIPPool p", "CiliumPodIPPool default"]);
}
