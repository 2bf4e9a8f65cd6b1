//! Bundles. The first byte says whether the rest is an archive, or must be unpacked first: random changes of packed bytes
//! mostly break their checksum.
#![no_main]

use cilium_node_ipam::cli::fuzzing::{Form, read_archive};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, content)) = bytes.split_first() else { return };
    read_archive(if first % 2 == 0 { Form::Plain } else { Form::Packed }, content);
});
