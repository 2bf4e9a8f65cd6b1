//! Selectors of Calico, and the pools that are made of them.
#![no_main]

use cilium_node_ipam::wire::check::check_document;
use cilium_node_ipam::wire::import::{Settings, convert};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|selector: &str| {
    let pool = json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": {"name": "a"},
        "spec": {"cidr": "10.0.0.0/16", "blockSize": 26, "nodeSelector": selector},
    });
    let settings = Settings::of([&pool]);
    let imported = convert(&pool, &settings).expect("it is an IPPool");
    for pool in &imported.pools {
        // `import` refuses a pool that the API server would refuse, such as one with a quote in a label value.
        drop(check_document(pool));
    }
});
