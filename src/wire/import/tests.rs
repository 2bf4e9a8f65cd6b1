use super::*;
use crate::wire::FieldError;
use crate::wire::check::check_document;
use serde_json::json;

const CALICO: &str = "crd.projectcalico.org/v1";

fn object(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The conversion of the last of these documents.
fn last_of(documents: &[Value]) -> Imported {
    let imported = convert(documents.last().unwrap(), &Settings::of(documents)).expect("its kind is known");
    for pool in &imported.pools {
        assert_eq!(check_document(pool), [], "{pool}");
    }
    imported
}

fn calico(spec: &Value) -> Imported {
    last_of(&[object(CALICO, "IPPool", "a", spec)])
}

fn cluster_cidr(spec: &Value) -> Imported {
    last_of(&[object("networking.k8s.io/v1alpha1", "ClusterCIDR", "a", spec)])
}

fn pod_ip_pool(spec: &Value) -> Imported {
    last_of(&[object("cilium.io/v2", "CiliumPodIPPool", "mars", spec)])
}

/// The fields that are refused, without a pool.
fn refused(imported: Imported) -> Vec<String> {
    assert_eq!(imported.pools, [] as [Value; 0]);
    imported.errors.into_iter().map(|error: FieldError| error.field).collect()
}

/// The only pool's spec.
fn spec_of(imported: &Imported) -> &Value {
    assert_eq!((imported.pools.len(), &imported.errors[..]), (1, &[][..]));
    &imported.pools[0]["spec"]
}

#[test]
fn a_pool_of_calico_becomes_a_pool_that_the_server_accepts() {
    let imported = calico(&json!({
        "cidr": "10.48.0.0/20", "blockSize": 27, "disabled": true, "natOutgoing": true, "ipipMode": "Never",
        "nodeSelector": "zone == 'a' && rack not in {\"r1\", \"r2\"} && has(pods) && !has(gpu)",
    }));
    assert_eq!(
        *spec_of(&imported),
        json!({
            "nodeSelector": {"matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["a"]},
                {"key": "rack", "operator": "NotIn", "values": ["r1", "r2"]},
                {"key": "pods", "operator": "Exists"},
                {"key": "gpu", "operator": "DoesNotExist"},
            ]},
            "ipv4": {"blockSize": 27, "cidrs": [{"cidr": "10.48.0.0/20", "state": "Cordoned"}]},
        })
    );
    assert_eq!(imported.notes, ["spec.natOutgoing is left out: masquerading is a setting of Cilium"]);
    let v6 = calico(&json!({"cidr": "fd00:1::/64"}));
    assert_eq!(*spec_of(&v6), json!({"ipv6": {"blockSize": 122, "cidrs": [{"cidr": "fd00:1::/64"}]}}));
    let none = calico(&json!({"cidr": "10.48.0.0/20", "nodeSelector": "!all()"}));
    let operators = spec_of(&none)["nodeSelector"]["matchExpressions"].as_array().unwrap().iter();
    assert_eq!(operators.map(|term| &term["operator"]).collect::<Vec<_>>(), ["Exists", "DoesNotExist"]);
    assert_eq!(none.notes, ["spec.nodeSelector selects no node, and neither does the pool"]);
}

#[test]
fn a_setting_that_a_pool_can_not_express_is_refused_at_its_field() {
    let with = |field: &str, value: Value| {
        let mut spec = json!({"cidr": "10.48.0.0/20"});
        spec[field] = value;
        refused(calico(&spec))
    };
    assert_eq!(with("nodeSelector", json!("zone == 'a' || rack == 'b'")), ["spec.nodeSelector"]);
    assert_eq!(with("namespaceSelector", json!("team == 'a'")), ["spec.namespaceSelector"]);
    assert_eq!(with("assignmentMode", json!("Manual")), ["spec.assignmentMode"]);
    assert_eq!(with("allowedUses", json!(["Tunnel"])), ["spec.allowedUses"]);
    assert_eq!(with("cidr", json!("10.0.0.9-10.0.0.1")), ["spec.cidr"]);
    let term = |expression: Value| json!({"matchExpressions": [expression]});
    let of = |terms: Value| {
        cluster_cidr(
            &json!({"ipv4": "10.0.0.0/16", "perNodeHostBits": 6, "nodeSelector": {"nodeSelectorTerms": terms}}),
        )
    };
    let has = |key: &str, value: &str| term(json!({"key": key, "operator": "In", "values": [value]}));
    assert_eq!(
        refused(of(json!([has("zone", "a"), has("rack", "b")]))),
        ["spec.nodeSelector.nodeSelectorTerms"]
    );
    assert_eq!(
        refused(of(json!([term(json!({"key": "cores", "operator": "Gt", "values": ["4"]}))]))),
        ["spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator"]
    );
    let fields = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]);
    assert_eq!(refused(of(fields)), ["spec.nodeSelector.nodeSelectorTerms[0].matchFields"]);
    let imported = of(json!([has("zone", "a"), {}, has("zone", "b")]));
    let spec = spec_of(&imported);
    assert_eq!(spec["ipv4"]["blockSize"], 26);
    assert_eq!(
        spec["nodeSelector"]["matchExpressions"],
        json!([{"key": "zone", "operator": "In", "values": ["a", "b"]}])
    );
}

/// No advice may lead to two pools of one range: the older one would keep it, and the other would give nothing.
#[test]
fn no_advice_asks_for_a_second_pool_of_the_range() {
    let imported = calico(&json!({"cidr": "10.48.0.0/20", "nodeSelector": "zone == 'a' || rack == 'b'"}));
    let rule = &imported.errors[0].rule;
    assert!(rule.contains("one label") && !rule.contains("IPPool"), "{rule}");
}

#[test]
fn a_pool_of_cilium_keeps_its_name_and_its_ranges() {
    let imported = pod_ip_pool(&json!({
        "ipv4": {"cidrs": ["10.20.0.0/16", "10.30.0.0-10.30.2.255"], "maskSize": 27},
    }));
    let cidrs = json!([{"cidr": "10.20.0.0/16"}, {"cidr": "10.30.0.0/23"}, {"cidr": "10.30.2.0/24"}]);
    let spec = spec_of(&imported);
    assert_eq!((&spec["ipv4"]["cidrs"], &spec["podIPPool"]), (&cidrs, &json!("mars")));
}

#[test]
fn reserved_ranges_become_exclude() {
    let entry = |ranges: Value| json!({"cidr": "10.20.0.0/16", "reservedRanges": ranges});
    let of = |ranges: Value| pod_ip_pool(&json!({"ipv4": {"pool": [entry(ranges)], "maskSize": 27}}));
    let imported = of(json!([{"start": "10.20.0.0", "end": "10.20.0.5"}]));
    let expected = json!({"blockSize": 27, "cidrs": [{"cidr": "10.20.0.0/16"}],
                          "exclude": ["10.20.0.0/30", "10.20.0.4/31"]});
    assert_eq!((&spec_of(&imported)["ipv4"], &imported.notes[..]), (&expected, &[][..]));
    assert_eq!(refused(of(json!([{"start": "10.20.0.9"}]))), ["spec.ipv4.pool[0].reservedRanges[0]"]);
    let outside = of(json!([{"start": "10.20.255.255", "end": "10.21.0.0"}]));
    assert_eq!(spec_of(&outside)["ipv4"]["exclude"], json!(["10.20.255.255/32"]));
    assert!(outside.notes[0].contains("reservedRanges[0]: only"), "{:?}", outside.notes);
}

#[test]
fn addresses_that_calico_reserves_become_exclude() {
    let reserved = |cidrs: Value| object(CALICO, "IPReservation", "r", &json!({"reservedCIDRs": cidrs}));
    let reservation = reserved(json!(["10.48.0.0/29", "10.9.0.1", "any"]));
    let pool = object("projectcalico.org/v3", "IPPool", "a", &json!({"cidr": "10.48.0.0/20"}));
    let imported = last_of(&[reservation.clone(), pool.clone()]);
    assert_eq!(spec_of(&imported)["ipv4"]["exclude"], json!(["10.48.0.0/29"]));
    let imported = last_of(&[pool, reservation]);
    assert_eq!(
        imported.notes,
        ["spec.reservedCIDRs[1] is left out: no pool of Calico in the input has addresses of 10.9.0.1"]
    );
    assert_eq!(refused(imported), ["spec.reservedCIDRs[2]"]);
}

#[test]
fn the_limits_of_calicos_ipam_are_taken_or_named() {
    let pool = object(CALICO, "IPPool", "a", &json!({"cidr": "10.48.0.0/20"}));
    let config = |kind: &str, name: &str, spec: Value| object(CALICO, kind, name, &spec);
    let strict = json!({"strictAffinity": true, "maxBlocksPerHost": 4, "autoAllocateBlocks": true});
    for kind in ["IPAMConfig", "IPAMConfiguration"] {
        let taken = config(kind, "default", strict.clone());
        assert_eq!(last_of(&[pool.clone(), taken.clone()]), Imported::default());
        assert_eq!(spec_of(&last_of(&[taken, pool.clone()]))["perNode"]["maxBlocks"], 4);
    }
    let other = config("IPAMConfig", "other", strict);
    assert_eq!(spec_of(&last_of(&[other.clone(), pool.clone()]))["perNode"], Value::Null);
    assert!(last_of(&[other]).notes[0].contains("named `default`"));
    let loose =
        json!({"strictAffinity": false, "maxBlocksPerHost": 0, "autoAllocateBlocks": false, "odd": 1});
    let imported = last_of(&[config("IPAMConfig", "default", loose)]);
    let fields: Vec<&str> = imported.notes.iter().filter_map(|note| note.split(' ').next()).collect();
    assert_eq!(fields, ["spec.odd", "spec.strictAffinity", "spec.maxBlocksPerHost"]);
    assert_eq!(refused(imported), ["spec.autoAllocateBlocks"]);
    let wide = config("IPAMConfig", "default", json!({"strictAffinity": true, "maxBlocksPerHost": 100_000}));
    assert_eq!(refused(last_of(&[wide])), ["spec.maxBlocksPerHost"]);
}

#[test]
fn the_pools_of_an_installation_are_read() {
    let installation = |pools: Value| {
        let spec = json!({"variant": "Calico", "calicoNetwork": {"bgp": "Disabled", "ipPools": pools}});
        object("operator.tigera.io/v1", "Installation", "default", &spec)
    };
    let pools = json!([
        {"cidr": "10.48.0.0/20", "encapsulation": "None", "natOutgoing": "Enabled", "nodeSelector": "all()"},
        {"cidr": "10.49.0.0/20", "blockSize": 28, "natOutgoing": "Disabled", "odd": true},
        {"cidr": "fd00:1::/64"},
        {"name": "mine", "cidr": "10.50.0.0/20", "nodeSelector": "a == 'x' || b == 'y'"},
    ]);
    let imported = last_of(&[installation(pools.clone())]);
    let names: Vec<&Value> = imported.pools.iter().map(|pool| &pool["metadata"]["name"]).collect();
    assert_eq!(names, ["default-ipv4-ippool", "10-49-0-0-20", "default-ipv6-ippool"]);
    assert_eq!(imported.pools[1]["spec"]["ipv4"]["blockSize"], 28);
    let fields: Vec<&str> = imported.notes.iter().filter_map(|note| note.split(' ').next()).collect();
    let first = "spec.calicoNetwork.ipPools[0].natOutgoing";
    assert_eq!(
        fields,
        ["spec.variant", "spec.calicoNetwork.bgp", first, "spec.calicoNetwork.ipPools[1].odd"]
    );
    assert_eq!(imported.errors[0].field, "spec.calicoNetwork.ipPools[3].nodeSelector");

    // The operator has made an IPPool of an entry: that is the pool, and the entry is no second one.
    let made = object(CALICO, "IPPool", "made", &json!({"cidr": "10.48.0.0/20"}));
    let imported = last_of(&[made, installation(pools)]);
    assert_eq!(imported.pools.len(), 2);
    let note = "spec.calicoNetwork.ipPools[0] is left out: IPPool/made of the input has its range";
    assert!(imported.notes.contains(&note.to_owned()), "{:?}", imported.notes);
    assert_eq!(refused(last_of(&[installation(json!([]))])), ["spec.calicoNetwork.ipPools"]);
}

#[test]
fn every_field_that_is_not_used_is_named() {
    let fields = |imported: Imported| -> Vec<String> {
        imported.notes.iter().filter_map(|note| note.split(' ').next()).map(str::to_owned).collect()
    };
    let imported =
        calico(&json!({"cidr": "10.48.0.0/20", "numBlocks": 3, "allowedUses": ["Workload", "Tunnel"]}));
    assert_eq!(imported.notes[0], "spec.numBlocks is left out: import does not know this field");
    assert_eq!(fields(imported), ["spec.numBlocks", "spec.allowedUses"]);
    let imported = pod_ip_pool(&json!({
        "allowFirstIP": true, "odd": 1,
        "ipv4": {"cidrs": [{"cidr": "10.20.0.0/16", "state": "x"}], "maskSize": 27, "order": 1},
    }));
    assert_eq!(
        fields(imported),
        ["spec.odd", "spec.ipv4.order", "spec.ipv4.cidrs[0].state", "spec.allowFirstIP"]
    );
    let mut labelled = object(CALICO, "IPPool", "a", &json!({"cidr": "10.48.0.0/20"}));
    labelled["metadata"]["labels"] = json!({"team": "a"});
    labelled["metadata"]["uid"] = json!("u");
    labelled["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    assert_eq!(fields(last_of(&[labelled.clone()])), ["metadata.labels"]);
    labelled["metadata"]["annotations"]["mine"] = json!("x");
    assert_eq!(fields(last_of(&[labelled])), ["metadata.annotations", "metadata.labels"]);
}

/// The example of node-ipam-controller: the nodes of each class get a size of their own out of one range.
#[test]
fn cluster_cidrs_with_one_range_become_one_pool() {
    let of_class = |name: &str, bits: u8, values: &[&str]| {
        let expression = json!({"key": "class", "operator": "In", "values": values});
        let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
        let spec = json!({"perNodeHostBits": bits, "ipv4": "10.8.0.0/16", "nodeSelector": terms});
        object("networking.k8s.io/v1alpha1", "ClusterCIDR", name, &spec)
    };
    let pools = |documents: &[Value]| {
        let pools =
            documents.iter().flat_map(|document| convert(document, &Settings::of(documents)).unwrap().pools);
        merge(pools.collect())
    };
    let classes = [of_class("s", 5, &["s"]), of_class("m", 7, &["m"]), of_class("l", 8, &["l", "xl"])];
    let (merged, notes) = pools(&classes);
    assert_eq!(notes, ["m, l has the range of s: one pool, with a block size for the nodes of each"]);
    let [pool] = &merged[..] else { panic!("{merged:?}") };
    assert_eq!(check_document(pool), []);
    let of =
        |values: &[&str]| json!({"matchExpressions": [{"key": "class", "operator": "In", "values": values}]});
    assert_eq!(pool["spec"]["nodeSelector"], of(&["s", "m", "l", "xl"]));
    assert_eq!(
        pool["spec"]["ipv4"],
        json!({
            "blockSize": 27,
            "blockSizes": [
                {"nodeSelector": of(&["s"]), "blockSize": 27},
                {"nodeSelector": of(&["m"]), "blockSize": 25},
                {"nodeSelector": of(&["l", "xl"]), "blockSize": 24},
            ],
            "cidrs": [{"cidr": "10.8.0.0/16"}],
        })
    );
    // One for all other nodes gives the usual size.
    let mut rest = of_class("rest", 6, &[]);
    rest["spec"]["nodeSelector"] = Value::Null;
    let (merged, _) = pools(&[classes[2].clone(), rest]);
    assert_eq!(merged[0]["spec"]["nodeSelector"], Value::Null);
    assert_eq!(merged[0]["spec"]["ipv4"]["blockSize"], 26);
    // Only one of them can.
    let mut rest_too = of_class("rest-too", 7, &[]);
    let mut rest = of_class("rest", 6, &[]);
    rest["spec"]["nodeSelector"] = Value::Null;
    rest_too["spec"]["nodeSelector"] = Value::Null;
    let (merged, notes) = pools(&[rest, rest_too]);
    assert_eq!(merged.len(), 2);
    assert!(notes[0].ends_with("stay apart: rest and rest-too are both for all nodes"), "{notes:?}");
    // A selector can't say "one of two keys".
    let mut other = of_class("other", 6, &["x"]);
    other["spec"]["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"][0]["key"] = json!("pool");
    let (merged, notes) = pools(&[classes[0].clone(), other]);
    assert_eq!(merged.len(), 2);
    assert!(notes[0].starts_with("s and others have one range, and stay apart: "), "{notes:?}");
    // Other ranges stay pools of their own.
    let mut elsewhere = of_class("elsewhere", 6, &["x"]);
    elsewhere["spec"]["ipv4"] = json!("10.9.0.0/16");
    assert_eq!(pools(&[classes[0].clone(), elsewhere]).0.len(), 2);
}
