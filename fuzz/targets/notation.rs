//! CIDRs, addresses and ranges as people and other systems write them.
#![no_main]

use cilium_node_ipam::net::cidr::Cidr;
use cilium_node_ipam::net::notation::{address_and_prefix, any_notation, other_notation};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let strict = text.parse::<Cidr>().ok();
    let lenient = Cidr::parse_lenient(text);
    if let Some(cidr) = strict {
        // The one form that is accepted is the one that is written.
        assert_eq!(cidr.to_string(), text);
        assert_eq!(lenient, Some(cidr));
    }
    for cidr in lenient.into_iter().chain(any_notation(text).into_iter().flatten()) {
        assert_eq!(cidr.to_string().parse::<Cidr>().ok(), Some(cidr), "{text:?}");
        assert!(cidr.contains(cidr.first_address()) && cidr.contains(cidr.last_address()));
    }
    if let Some((address, prefix)) = address_and_prefix(text) {
        assert!(prefix.contains(address), "{text:?}");
    }
    if let Some(span) = other_notation(text) {
        // They are in order, and do not overlap.
        let cidrs = span.cidrs();
        assert!(!cidrs.is_empty(), "{text:?}");
        assert!(cidrs.windows(2).all(|pair| pair[0].last_address() < pair[1].first_address()), "{text:?}");
    }
});
