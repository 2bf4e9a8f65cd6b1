//! Addresses as values: prefixes, sets of addresses, and an index of prefixes. Knows nothing of pools, nodes or
//! Kubernetes.

pub mod address_map;
pub mod addresses;
pub mod cidr;
pub mod notation;
pub mod prefixes;
pub mod runs;
pub mod short_list;
pub mod small_set;
