//! Answers of a GoBGP daemon.
#![no_main]

use cilium_node_ipam::model::gobgp::Rib;
use cilium_node_ipam::wire::gobgp::{PathId, api, best_paths, enter};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(destination) = api::Destination::decode(bytes) {
        let mut rib = Rib::default();
        enter(&destination, PathId::DEFAULT, &mut rib);
    }
    if let Ok(event) = api::WatchEventResponse::decode(bytes) {
        drop(best_paths(&event, PathId::DEFAULT));
    }
});
