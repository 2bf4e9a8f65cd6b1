//! Files of YAML and JSON, as `validate` and `import` read them. The first byte chooses the name of the file.
#![no_main]

use cilium_node_ipam::cli::fuzzing::read_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, content)) = bytes.split_first() else { return };
    read_file(if first % 2 == 0 { "a.yaml" } else { "a.json" }, content);
});
