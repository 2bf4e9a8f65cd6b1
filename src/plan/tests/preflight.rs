//! Whether a cluster is ready: each point in a cluster that is ready but for one fact.

use super::*;
use crate::model::installation::{ApiService, DaemonSet, Definition, Guard, Installation, Process, Right};
use crate::model::surroundings::{OldDefinition, OtherRange, RangeOwner};
use crate::publisher::settings::{Settings, from_config};
use crate::view::preflight::{State as Light, preflight};

/// Three nodes with agents, and a pool for two of them.
const OBJECTS: &str = "
    pool p 10.1.0.0/24 28 zone=a
    pool q 10.2.0.0/24 28 zone=b
    node n1 u1 zone=a own=192.168.0.1/32
    node n2 u2 zone=a own=192.168.0.2/32
    node n3 u3 zone=b own=192.168.0.3/32
    agent n1 1.17.8
    agent n2 1.17.8
    agent n3 1.17.8";

/// The settings of a cluster that is ready.
const READY: [(&str, &str); 7] = [
    ("ipam", "crd"),
    ("enable-ipv6", "false"),
    ("routing-mode", "native"),
    ("ipv4-native-routing-cidr", "10.0.0.0/8"),
    ("enable-endpoint-routes", "true"),
    ("auto-direct-node-routes", "true"),
    ("enable-bpf-masquerade", "true"),
];

fn process(name: &str, argument: &str) -> Process {
    Process { name: name.to_owned(), arguments: vec![argument.to_owned()] }
}

fn range(owner: RangeOwner, kind: &'static str, cidr: &str) -> OtherRange {
    OtherRange { owner, kind, name: "r".to_owned(), cidrs: vec![cidr.parse().unwrap()] }
}

/// The facts of a cluster that is ready.
fn ready() -> Installation {
    Installation {
        server: Ok("v1.35.4".to_owned()),
        cilium_namespace: "kube-system".to_owned(),
        namespace: "kube-system".to_owned(),
        settings: Ok(Some(settings(&[]))),
        unlisted: BTreeMap::new(),
        definitions: Ok(Vec::new()),
        unavailable: Ok(Vec::new()),
        guards: Ok(Vec::new()),
        daemon_sets: Ok(vec![DaemonSet { name: "kube-system/cilium".to_owned(), images: Vec::new() }]),
        operators: Ok(vec![process("Deployment o", "--ipam=kubernetes")]),
        controller_managers: Ok(vec![process("Pod m", "--allocate-node-cidrs=false")]),
        exporter: Ok(None),
        ranges: vec![range(RangeOwner::Services, "ServiceCIDR", "10.96.0.0/12")],
        unlisted_ranges: Vec::new(),
        user: Ok(Vec::new()),
        controller: Ok(None),
    }
}

/// The settings of a cluster that is ready, with these in addition or instead. An empty value removes the key.
fn settings(changes: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut settings: BTreeMap<String, String> =
        READY.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    for (key, value) in changes {
        settings.remove(*key);
        if !value.is_empty() {
            settings.insert((*key).to_owned(), (*value).to_owned());
        }
    }
    settings
}

/// The lines that are not `ok`, as `STATE POINT: TEXT`.
fn wrong(objects: &str, installation: &Installation) -> Vec<String> {
    let mode = match &installation.settings {
        Ok(Some(settings)) => from_config(settings, &Settings::of_every_mode()),
        Ok(None) | Err(_) => Mode::Passive("cilium-config is unknown".to_owned()),
    };
    let cluster = Cluster::in_mode(mode, objects);
    let lines = preflight(&cluster.world, installation);
    assert!(lines.iter().all(|line| (line.state == Light::Ok) == line.remedy.is_none()), "{lines:#?}");
    let wrong = lines.iter().filter(|line| line.state != Light::Ok);
    wrong.map(|line| format!("{} {}: {}", line.state.as_str(), line.point.as_str(), line.text)).collect()
}

/// Fails unless these settings bring exactly one line, which starts so.
#[track_caller]
fn check_settings(changes: &[(&str, &str)], expected: &str) {
    let found = wrong(OBJECTS, &Installation { settings: Ok(Some(settings(changes))), ..ready() });
    check(&found, expected);
}

/// Fails unless these facts bring exactly one line, which starts so.
#[track_caller]
fn check_facts(change: impl FnOnce(&mut Installation), expected: &str) {
    let mut facts = ready();
    change(&mut facts);
    check(&wrong(OBJECTS, &facts), expected);
}

/// Fails unless these objects bring exactly one line, which starts so.
#[track_caller]
fn check_objects(objects: &str, expected: &str) {
    check(&wrong(objects, &ready()), expected);
}

#[track_caller]
fn check(found: &[String], expected: &str) {
    let all = found.join("\n");
    assert!(
        found.len() == usize::from(!expected.is_empty()) && all.starts_with(expected),
        "{expected}\n{all}"
    );
}

#[test]
fn a_cluster_that_is_ready_has_no_other_line() {
    check(&wrong(OBJECTS, &ready()), "");
}

#[test]
fn each_setting_of_cilium_is_looked_at() {
    check_settings(&[("ipam", "eni")], "FAIL ipam: cilium-config says `ipam: eni`");
    check_settings(&[("routing-mode", "tunnel")], "FAIL routing-mode: Cilium runs with a tunnel");
    check_settings(&[("routing-mode", "")], "FAIL routing-mode: Cilium runs with a tunnel");
    check_settings(&[("routing-mode", ""), ("tunnel", "disabled")], "");
    check_settings(
        &[("ipv4-native-routing-cidr", "")],
        "FAIL native-routing-cidr: `ipv4-native-routing-cidr` is not set",
    );
    check_settings(
        &[("ipv4-native-routing-cidr", "10.1.0.0/16")],
        "FAIL native-routing-cidr: `ipv4-native-routing-cidr` is 10.1.0.0/16, and pools have ranges outside of it: \
         10.2.0.0/24",
    );
    check_settings(
        &[("ipv4-native-routing-cidr", "any")],
        "FAIL native-routing-cidr: `ipv4-native-routing-cidr` is `any`",
    );
    check_settings(&[("enable-bpf-masquerade", "")], "WARN masquerade: ");
    check_settings(&[("enable-bpf-masquerade", ""), ("egress-masquerade-interfaces", "eth0")], "");
    let off = [
        ("enable-bpf-masquerade", ""),
        ("enable-ipv4-masquerade", "false"),
        ("enable-ipv6-masquerade", "false"),
    ];
    check_settings(&off, "");
    check_settings(&[("annotate-k8s-node", "true")], "FAIL annotate-k8s-node: ");
    check_settings(&[("ipam-static-ip-tags", "a=b")], "FAIL ipam-static-ip-tags: ");
    check_settings(&[("kvstore", "etcd")], "FAIL kvstore: ");
    check_settings(&[("auto-create-cilium-node-resource", "false")], "FAIL ciliumnodes: ");
    check_facts(
        |facts| facts.settings = Ok(None),
        "FAIL ipam: ConfigMap kube-system/cilium-config does not exist",
    );
    check_facts(|facts| facts.settings = Err("forbidden".to_owned()), "? ipam: forbidden");
}

#[test]
fn a_tunnel_is_judged_by_the_mode() {
    let found = |ipam: &str| {
        let facts = settings(&[("ipam", ipam), ("routing-mode", "tunnel")]);
        let found = wrong(OBJECTS, &Installation { settings: Ok(Some(facts)), ..ready() });
        found.into_iter().find(|line| line.contains(" routing-mode: ")).unwrap_or_default()
    };
    let excluded =
        "FAIL routing-mode: Cilium runs with a tunnel, which its documentation excludes in mode crd";
    assert_eq!(found("crd"), excluded);
    let tested = "WARN routing-mode: Cilium runs with a tunnel: only VXLAN with agents of 1.20.2 was tested";
    assert_eq!(found("multi-pool"), tested);
    let other = "WARN routing-mode: Cilium runs with a tunnel, which was not tested with the controller";
    assert_eq!(found("cluster-pool"), other);
    assert_eq!(found("kubernetes"), other);
}

/// Read: `pkg/datapath/iptables/iptables.go` of 1.18.11 and 1.19.0, and run with 1.20.2 by `tests/it/datapath`.
#[test]
fn agents_that_exit_with_masquerading_by_iptables_are_a_failure() {
    let facts = Installation { settings: Ok(Some(settings(&[("enable-bpf-masquerade", "")]))), ..ready() };
    let with = |release: &str| wrong(&OBJECTS.replace("n3 1.17.8", &format!("n3 {release}")), &facts);
    check(&with("1.18.11"), "WARN masquerade: iptables masquerades only the first range");
    let fails = "FAIL masquerade: iptables masquerades, and `egress-masquerade-interfaces` is not set: agents of Cilium \
                 1.19 and later exit at their start (n3)";
    check(&with("1.19.0"), fails);
    check(&with("1.20.2"), fails);
}

#[test]
fn the_own_range_of_an_agent_is_one_that_it_may_have() {
    let found = |changes: &[(&str, &str)], objects: &str| {
        wrong(objects, &Installation { settings: Ok(Some(settings(changes))), ..ready() }).join("\n")
    };
    let without_routes = found(&[("enable-endpoint-routes", "")], OBJECTS);
    assert!(without_routes.starts_with("FAIL endpoint-routes: "), "{without_routes}");
    let expected = "WARN own-range: the agents of 3 nodes without spec.podCIDRs invent a local range over addresses of \
                    pools, nodes or pods: n1 10.1.0.0/16, n2 10.2.0.0/16, n3 10.3.0.0/16";
    assert!(without_routes.contains(expected), "{without_routes}");
    let ranges = [("enable-endpoint-routes", ""), ("ipv4-range", "10.7.0.0/24")];
    assert!(!found(&ranges, OBJECTS).contains("own-range"));
    check_settings(
        &[("enable-ipsec", "true")],
        "FAIL own-range: IPsec covers the own range of an agent, and the agents of 3 nodes invent one: n1 10.1.0.0/16",
    );
    check_settings(
        &[("k8s-require-ipv4-pod-cidr", "true")],
        "FAIL require-pod-cidrs: `k8s-require-ipv4-pod-cidr` is true, and agents wait forever on 3 Nodes without \
         podCIDRs: n1, n2, n3",
    );
    let has = OBJECTS
        .replace(" zone=a own=", " zone=a has=10.9.1.0/24 own=")
        .replace(" zone=b own=", " zone=b has=10.9.2.0/24 own=");
    assert_eq!(found(&[("k8s-require-ipv4-pod-cidr", "true"), ("enable-ipsec", "true")], &has), "");
}

#[test]
fn a_pool_that_an_older_one_overlaps_is_reported() {
    let with = |cidr: &str| format!("{OBJECTS}\npool y {cidr} 28 zone=a younger");
    check_objects(
        &with("10.1.0.0/25"),
        "FAIL pools: pool y gives no block: 10.1.0.0/25 overlaps 10.1.0.0/24 of the older pool p, which keeps",
    );
    check_objects(
        &with("10.0.0.0/15"),
        "WARN pools: pool y: 10.0.0.0/15 overlaps 10.1.0.0/24 of the older pool p, which keeps these addresses",
    );
}

#[test]
fn blocks_are_announced_by_one_of_several() {
    let none = ("auto-direct-node-routes", "");
    check_settings(
        &[none],
        "? announcements: neither Cilium nor the controller announces the blocks of nodes",
    );
    check_settings(
        &[none, ("enable-bgp-control-plane", "true")],
        "WARN announcements: Cilium's BGP announces no addresses of pods in crd mode",
    );
    let with = |routes: &str| {
        let settings = Ok(Some(settings(&[none])));
        wrong(OBJECTS, &Installation { settings, exporter: Ok(Some(routes.to_owned())), ..ready() })
    };
    check(&with("frr-k8s"), "");
    check(&with("remove"), "? announcements: ");
}

/// An agent of another mode has given pods addresses that a new map would not have.
#[test]
fn a_node_whose_agent_ran_in_another_mode_is_named() {
    let with = |line: &str| format!("{OBJECTS}\n{line}");
    let lost = "FAIL pod-cidrs: 1 CiliumNode with addresses of a former mode and without `spec.ipam.pool`: in crd mode \
                their pods can lose the network: ";
    check_objects(
        &with("ciliumnode n1 @5 bare 10.9.1.0/24"),
        &format!("{lost}n1 10.9.1.0/24 (no pool has this block)"),
    );
    check_objects(
        &with("ciliumnode n1 @5 bare 10.1.0.16/28"),
        &format!("{lost}n1 10.1.0.16/28 (pool p has this block)"),
    );
    check_objects(&with("ciliumnode n1 @5 bare 10.1.0.16/28\nclaim 10.1.0.16/28 n1 u1 Held @4"), "");
    check_objects(&with("ciliumnode n1 @5 bare"), "");
}

#[test]
fn an_allocator_counts_in_the_modes_in_which_it_allocates() {
    let in_mode = |ipam: &str, operator: &str, manager: &str| {
        let facts = Installation {
            settings: Ok(Some(settings(&[("ipam", ipam)]))),
            operators: Ok(vec![process("Deployment o", operator)]),
            controller_managers: Ok(vec![process("Pod m", manager)]),
            ..ready()
        };
        let found = wrong("node n1 u1 zone=a\npool p 10.1.0.0/24 28 zone=a\nagent n1 1.20.2", &facts);
        let found = found.iter().filter(|line| !line.contains(" ipam: ") && !line.contains(" pools: "));
        found
            .map(|line| line.split(": ").next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (other, off) = ("--ipam=multi-pool", "--ipam=kubernetes");
    let (allocates, rests) = ("--allocate-node-cidrs", "--allocate-node-cidrs=false");
    assert_eq!(in_mode("crd", other, allocates), "WARN kube-controller-manager");
    assert_eq!(in_mode("multi-pool", other, rests), "FAIL cilium-operator");
    assert_eq!(in_mode("multi-pool", off, rests), "");
    assert_eq!(
        in_mode("cluster-pool", "--v=2", allocates),
        "FAIL cilium-operator, WARN kube-controller-manager"
    );
    assert_eq!(in_mode("kubernetes", other, allocates), "FAIL kube-controller-manager");
    check_facts(
        |facts| facts.controller_managers = Ok(Vec::new()),
        "? kube-controller-manager: its Pods can't be seen; no Node has spec.podCIDRs",
    );
    let calico =
        |name: &str, image: &str| vec![DaemonSet { name: name.to_owned(), images: vec![image.to_owned()] }];
    check_facts(
        |facts| facts.daemon_sets = Ok(calico("x/net", "docker.io/calico/node:v3")),
        "WARN other-cni: DaemonSet x/net is that of Calico",
    );
}

#[test]
fn pools_are_compared_with_everything_else_that_has_addresses() {
    let with = |line: &str| format!("{OBJECTS}\n{line}");
    check_objects(
        &with("node n4 u4 zone=b has=10.1.0.16/28\nagent n4 1.17.8"),
        "WARN pod-cidrs: 1 Node with spec.podCIDRs in the pools: n4 10.1.0.16/28",
    );
    check_objects(
        &with("ciliumnode n1 @5 10.2.0.16/28"),
        "WARN pod-cidrs: 1 CiliumNode with addresses of the pools and without a claim: n1 10.2.0.",
    );
    let claimed = "ciliumnode n1 @5 10.1.0.16/28\nclaim 10.1.0.16/28 n1 u1 Held @4";
    check_objects(&with(claimed), "");
    check_objects(
        &OBJECTS.replace("192.168.0.3", "10.1.0.9"),
        "WARN node-addresses: pool p has addresses of 1 node: n3 10.1.0.9",
    );
    let shared = OBJECTS.replace("192.168.0.3", "100.64.0.9").replace("10.1.0.0/24", "100.100.0.0/24");
    let facts = Installation {
        settings: Ok(Some(settings(&[("ipv4-native-routing-cidr", "0.0.0.0/0")]))),
        ..ready()
    };
    check(
        &wrong(&shared, &facts),
        "WARN node-addresses: pool p is in 100.64.0.0/10, and node n3 has 100.64.0.9 in it",
    );
    for (owner, kind) in [
        (RangeOwner::Services, "ServiceCIDR"),
        (RangeOwner::LoadBalancers, "CiliumLoadBalancerIPPool"),
        (RangeOwner::LoadBalancers, "Service"),
        (RangeOwner::Devices, "CiliumResourceIPPool"),
    ] {
        let expected =
            format!("FAIL service-ranges: pool p and {kind} r have the same addresses: 10.1.0.0/26");
        check_facts(|facts| facts.ranges.push(range(owner, kind, "10.1.0.0/26")), &expected);
    }
    let external = |name: &str, cidr: &str| OtherRange {
        name: name.to_owned(),
        ..range(RangeOwner::LoadBalancers, "Service", cidr)
    };
    check_facts(
        |facts| facts.ranges.extend([external("a/web", "10.1.0.9/32"), external("b/web", "10.1.0.8/32")]),
        "FAIL service-ranges: pool p and 2 Services (a/web, b/web) have the same addresses: 10.1.0.8/32, 10.1.0.9/32",
    );
    // The range of the Services has said it.
    check_facts(|facts| facts.ranges.push(range(RangeOwner::Services, "Service", "10.1.0.9/32")), "");
    check_facts(|facts| facts.ranges.clear(), "? service-ranges: the API server shows no ServiceCIDR");
    check_facts(
        |facts| facts.unlisted_ranges.push("Services, because of a rule".to_owned()),
        "? service-ranges: not seen: Services, because of a rule",
    );
}

#[test]
fn a_webhook_that_covers_our_kinds_is_a_warning() {
    let guard = |resource: &str| Guard {
        kind: "ValidatingWebhookConfiguration".to_owned(),
        name: "w (h)".to_owned(),
        resources: vec![resource.to_owned()],
    };
    check_facts(
        |facts| facts.guards = Ok(vec![guard("nodeipblocks")]),
        "WARN admission: ValidatingWebhookConfiguration w (h) covers nodeipblocks and fails closed: ",
    );
    // Nodes are written in the mode kubernetes only.
    check_facts(|facts| facts.guards = Ok(vec![guard("nodes")]), "");
    check_facts(|facts| facts.guards = Err("forbidden".to_owned()), "? admission: forbidden");
}

#[test]
fn pools_select_some_nodes_and_have_all_families() {
    check_objects(
        &OBJECTS.replace("pool q 10.2.0.0/24 28 zone=b", ""),
        "WARN pools: no pool selects 1 node: n3",
    );
    check_objects(&OBJECTS.replace(" 28 zone=b", " 28"), "WARN pools: pool q selects every node (3)");
    let everywhere = OBJECTS.replace("zone=b", "zone=a");
    let found = wrong(&everywhere, &ready());
    assert!(
        found.len() == 2 && found.iter().all(|line| line.contains("selects every node (3)")),
        "{found:#?}"
    );
    let found = wrong("node n1 u1 zone=a\nagent n1 1.17.8", &ready());
    let expected = [
        "? native-routing-cidr: `ipv4-native-routing-cidr` is 10.0.0.0/8, and there is no pool of ipv4 to compare",
        "WARN pools: there is no NodeIPPool: no node gets addresses",
    ];
    assert_eq!(found, expected);
    let found = wrong(&OBJECTS.replace(" 28 zone=b", " 28 zone=b invalid"), &ready());
    let expected = [
        "FAIL pools: NodeIPPool q can't be read: of no known form",
        "WARN pools: no pool selects 1 node: n3",
    ];
    assert_eq!(found, expected);
    check_settings(
        &[("enable-ipv6", "true"), ("enable-ipv6-masquerade", "false")],
        "FAIL families: agents run ipv6, and no pool of 3 nodes has it: n1, n2, n3",
    );
}

#[test]
fn the_cluster_itself_is_looked_at() {
    check_facts(
        |facts| facts.server = Ok("v1.32.9".to_owned()),
        "FAIL kubernetes: the API server has version v1.32.9",
    );
    check_facts(|facts| facts.server = Err("refused".to_owned()), "? kubernetes: refused");
    check_objects(&OBJECTS.replace("n3 1.17.8", "n3 1.14.1"), "FAIL agents: 1 node with Cilium 1.14.1 (n3)");
    check_objects(
        &OBJECTS.replace("n3 1.17.8", "n3 none"),
        "WARN agents: 1 node with an unknown version of Cilium (n3)",
    );
    check_objects(&OBJECTS.replace("agent n3 1.17.8", ""), "WARN agents: 1 node without an agent: n3");
    let none =
        OBJECTS.replace("agent n1 1.17.8", "").replace("agent n2 1.17.8", "").replace("agent n3 1.17.8", "");
    check_objects(&none, "FAIL agents: namespace kube-system has no Pod with the label k8s-app=cilium");
    let service = ApiService { name: "v1.x".to_owned(), reason: "MissingEndpoints".to_owned() };
    check_facts(
        |facts| facts.unavailable = Ok(vec![service]),
        "WARN apiservices: APIService v1.x is not available (MissingEndpoints)",
    );
    let definition = |deleting: bool, missing: &[&str]| {
        let name = "nodeippools.nodeipam.io".to_owned();
        let missing: Vec<String> = missing.iter().map(|missing| (*missing).to_owned()).collect();
        let old = (!missing.is_empty()).then(|| OldDefinition { name: name.clone(), missing });
        Ok(vec![Definition { name, deleting, old }])
    };
    check_facts(|facts| facts.definitions = definition(false, &[]), "");
    check_facts(
        |facts| facts.definitions = definition(true, &[]),
        "FAIL definitions: CustomResourceDefinition nodeippools.nodeipam.io is being deleted",
    );
    check_facts(
        |facts| facts.definitions = definition(false, &["spec.x"]),
        "WARN definitions: CustomResourceDefinition nodeippools.nodeipam.io is of another version, without spec.x",
    );
    let right = |granted: bool| vec![Right { name: "patch ciliumnodes".to_owned(), granted }];
    check_facts(
        |facts| facts.user = Ok(right(false)),
        "WARN your-rights: your user lacks rights for the installation: patch ciliumnodes",
    );
    check_facts(
        |facts| facts.controller = Ok(Some(right(false))),
        "FAIL controller-rights: the controller lacks rights: patch ciliumnodes",
    );
    check_facts(|facts| facts.controller = Ok(Some(right(true))), "");
    check_facts(|facts| facts.controller = Err("forbidden".to_owned()), "? controller-rights: forbidden");
}

#[test]
fn a_kind_that_can_not_be_listed_is_not_taken_for_empty() {
    let facts = Installation { unlisted: [(Kind::Node, "forbidden".to_owned())].into(), ..ready() };
    let found = wrong("pool p 10.1.0.0/24 28 zone=a", &facts);
    let points: Vec<&str> = found.iter().map(|line| line.split(": ").next().unwrap_or_default()).collect();
    let expected =
        ["? agents", "? own-range", "? require-pod-cidrs", "? pod-cidrs", "? node-addresses", "? pools"];
    assert_eq!(points, expected, "{found:#?}");
}
