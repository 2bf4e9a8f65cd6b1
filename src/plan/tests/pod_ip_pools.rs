//! Tests of what follows from CiliumPodIPPools: what is given under their names, and what is told of them.

use super::*;
use crate::model::pod_ip_pool::{PodIpPool, PodIpPoolNews, PodIpRanges};
use crate::model::share::Share;
use crate::plan::why_no_block;
use crate::publisher::multi_pool::{Bgp, MultiPool};
use crate::view::pod_ip_pools;

/// A cluster in multi-pool mode, with these CiliumPodIPPools beside the objects of its lines.
fn cluster(bgp: Bgp, objects: &[&str], text: &str) -> Cluster {
    let mut cluster = Cluster::served_by(publisher(bgp, &[Family::V4]), text);
    cluster
        .world
        .observe_pod_ip_pools(PodIpPoolNews::Listed(objects.iter().map(|line| pod_ip_pool(line)).collect()));
    cluster
}

pub(super) fn publisher(bgp: Bgp, families: &[Family]) -> Publisher {
    let families = families.iter().copied().collect();
    Publisher::MultiPool(MultiPool { families, default_pool: "default".into(), bgp })
}

/// A CiliumPodIPPool in a line: `NAME [v4=MASKSIZE] [v6=MASKSIZE] [cidrs=IPV4CIDRS] [ours] [@REVISION]`.
pub(super) fn pod_ip_pool(line: &str) -> PodIpPool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let cidrs = value(&words, "cidrs=").unwrap_or("10.0.0.0/16");
    let family = |family, key, cidrs: &str| {
        let mask_size = value(&words, key)?.parse().unwrap();
        Some((family, PodIpRanges { mask_size, cidrs: cidrs.split(',').map(str::to_owned).collect() }))
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

fn shown(cluster: &mut Cluster, line: &str) {
    cluster.world.observe_pod_ip_pools(PodIpPoolNews::Applied(pod_ip_pool(line)));
    assert_eq!(cluster.world.check(), []);
}

/// What the condition of a pool says: its reason and its message.
fn told(cluster: &Cluster, pool: &str) -> (String, String) {
    let object = cluster.world.pool_object(&pool.into()).unwrap();
    let told = &conditions::status(&cluster.world, object).conditions[&ConditionType::UnfitPodIPPool];
    let findings: Vec<String> = pod_ip_pools::findings(&cluster.world)
        .filter(|finding| finding.name == pool)
        .map(|finding| finding.message)
        .collect();
    assert_eq!(told.holds, findings == std::slice::from_ref(&told.message), "{findings:?}");
    (told.reason.to_string(), told.message.clone())
}

#[track_caller]
fn tells(cluster: &Cluster, pool: &str, reason: &str, parts: &[&str]) {
    let (found, message) = told(cluster, pool);
    assert_eq!(found, reason, "{message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

const NEEDS: &str = "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @90 need=8";
const CLAIMS: &str = "claim 10.0.0.0/28 of pool p for node a under default";
const NOTHING: &str = "unmet: no pool of the node has a free ipv4 block of the Cilium pool default";

/// An agent with BGP ends as soon as a CIDR is to be announced whose object lacks the family.
#[test]
fn with_bgp_nothing_is_given_under_a_name_whose_object_lacks_the_family() {
    for empty in ["default", "default v6=122"] {
        let mut cluster = cluster(Bgp::On, &[empty], NEEDS);
        cluster.expect("a", NOTHING);
        tells(
            &cluster,
            "p",
            "PodIPPoolLacksFamily",
            &[
                "CiliumPodIPPool default has no spec.ipv4",
                "so nodes get no more of them until it has",
                "add spec.ipv4: {cidrs: [10.0.0.0/24], maskSize: 28}",
            ],
        );
        let share = Share { family: Family::V4, pod_ip_pool: Some("default".into()) };
        let why = why_no_block(&cluster.world, &"a".into(), &share);
        assert!(why.starts_with("CiliumPodIPPool default has no spec.ipv4, which would harm"), "{why}");
        cluster.drain();
        shown(&mut cluster, "default v4=28 @120");
        assert_eq!(cluster.plan("a").requests()[0].to_string(), CLAIMS);
        assert!(cluster.drain().contains(&"a".to_owned()), "it looks again");
        tells(&cluster, "p", "PodIPPoolFits", &[]);
    }
}

#[test]
fn without_bgp_an_object_without_the_family_is_only_told_of() {
    let mut cluster = cluster(Bgp::Off, &["default"], NEEDS);
    cluster.expect("a", CLAIMS);
    tells(&cluster, "p", "PodIPPoolLacksFamily", &["BGP is off in cilium-config"]);
}

#[test]
fn another_mask_size_is_only_told_of() {
    for bgp in [Bgp::On, Bgp::Off] {
        let mut cluster = cluster(bgp, &["default v4=24"], NEEDS);
        cluster.expect("a", CLAIMS);
        tells(
            &cluster,
            "p",
            "PodIPPoolOtherMaskSize",
            &[
                "CiliumPodIPPool default has 24 as spec.ipv4.maskSize, and the blocks are /28",
                "create it again with spec.ipv4.maskSize: 28",
            ],
        );
    }
}

/// Agents from 1.19 on can do nothing without the object, and older ones need it for BGP alone.
#[test]
fn a_missing_object_counts_for_agents_that_need_it() {
    for (release, bgp, given, reason) in [
        ("1.20.2", Bgp::Off, NOTHING, "PodIPPoolMissing"),
        ("1.19.0", Bgp::Off, NOTHING, "PodIPPoolMissing"),
        ("1.18.8", Bgp::Off, CLAIMS, "PodIPPoolFits"),
        ("1.18.8", Bgp::On, CLAIMS, "PodIPPoolMissing"),
        ("none", Bgp::Off, CLAIMS, "PodIPPoolMissing"),
    ] {
        let mut cluster = cluster(bgp, &["other v4=28"], &format!("{NEEDS}\nagent a {release}"));
        cluster.expect("a", given);
        assert_eq!(told(&cluster, "p").0, reason, "{release}");
    }
    let cluster = cluster(Bgp::Off, &[], "pool p 10.0.0.0/24 28");
    tells(
        &cluster,
        "p",
        "PodIPPoolMissing",
        &["there is no CiliumPodIPPool default: ", "spec.ipv4: {cidrs: [10.0.0.0/24], maskSize: 28}"],
    );
}

/// Nobody may read them, and nodes are served all the same.
#[test]
fn what_is_not_known_keeps_nothing_back() {
    let mut cluster = cluster(Bgp::On, &[], NEEDS);
    cluster.world = Cluster::served_by(publisher(Bgp::On, &[Family::V4]), NEEDS).world;
    cluster.world.observe_pod_ip_pools(PodIpPoolNews::Unlisted("forbidden".to_owned()));
    cluster.expect("a", CLAIMS);
    tells(&cluster, "p", "PodIPPoolUnknown", &["nothing is known of CiliumPodIPPool default: forbidden"]);
}

#[test]
fn a_claim_that_is_not_published_waits_and_one_that_is_stays() {
    let held = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80 under=default\n\
                claim 10.0.0.16/28 a 1 Held @81 under=default";
    let text = format!("{held}\nciliumnode a @90 need=20 has=10.0.0.0/28");
    let mut cluster = cluster(Bgp::On, &["default"], &text);
    cluster.expect("a", &format!("{NOTHING}; finding: UnfitPodIPPool"));
    shown(&mut cluster, "default v4=28 @120");
    cluster.expect("a", "publish [10.0.0.16/28] and 14 addresses on ciliumnode a");
}

/// Names do not wait for each other.
#[test]
fn a_name_whose_object_does_not_fit_keeps_no_other_name_waiting() {
    let text =
        "pool p 10.0.0.0/24 28\npool q 10.1.0.0/24 28 under=mars\nnode a 1\nciliumnode a @90 need=8 mars=8";
    let mut cluster = cluster(Bgp::On, &["default v4=28", "mars"], text);
    cluster.expect(
        "a",
        "claim 10.0.0.0/28 of pool p for node a under default; unmet: no pool of the node has a free ipv4 block of the \
         Cilium pool mars",
    );
    assert_eq!(
        (told(&cluster, "p").0.as_str(), told(&cluster, "q").0.as_str()),
        ("PodIPPoolFits", "PodIPPoolLacksFamily")
    );
}

/// Whoever starts there would restore only a part of its pods.
#[test]
fn a_recreated_ciliumnode_gets_all_blocks_or_none() {
    let text = "pool p 10.0.0.0/24 28\npool q 10.1.0.0/24 28 under=mars\nnode a 1\n\
                claim 10.0.0.0/28 a 1 Held @80 under=default\nclaim 10.1.0.0/28 a 1 Held @81 under=mars\n\
                ciliumnode a @90 recreated need=8 mars=8";
    let mut cluster = cluster(Bgp::On, &["default v4=28", "mars"], text);
    let plan = cluster.plan("a");
    let held_back = plan.findings.iter().find(|finding| finding.name == "a").expect("it says so");
    let why = "10.1.0.0-28 is withheld from its agent: CiliumPodIPPool mars has no spec.ipv4";
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
    let mut cluster = cluster(Bgp::On, &["default v4=28", "mars"], text);
    cluster.drain();
    shown(&mut cluster, "venus v4=28 @120");
    assert_eq!(cluster.drain(), [""; 0]);
    shown(&mut cluster, "mars v4=28 @121");
    assert_eq!(cluster.drain(), ["c", "b"], "the one that has a claim of the name goes first");
}
