//! Proxies, as kubeconfigs and environments name them. Whole kubeconfigs are left out: they may name programs to run.
#![no_main]

use cilium_node_ipam::cli::fuzzing::read_proxy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| read_proxy(text));
