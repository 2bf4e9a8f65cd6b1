//! The vocabulary: every value that the other rooms pass to each other, and nothing that decides or acts.
//!
//! Objects as they were read, requests and their outcomes, plans with their reasons, findings, status values, the
//! freeze, and the waits between tries.

pub mod address_class;
pub mod agent;
pub mod availability;
pub mod backoff;
pub mod carrier;
pub mod cilium_version;
pub mod claim;
pub mod community;
pub mod counted;
pub mod crd;
pub mod definition;
pub mod failure;
pub mod finding;
pub mod freeze;
pub mod frr;
pub mod gobgp;
pub mod installation;
pub mod kind;
pub mod leadership;
pub mod multi_pool;
pub mod names;
pub mod news;
pub mod node;
pub mod node_config;
pub mod observation;
pub mod outcome;
pub mod patience;
pub mod plan;
pub mod pod_ip_pool;
pub mod pool;
pub mod printable;
pub mod request;
pub mod revision;
pub mod speaker;
mod stable;
pub mod startup_taint;
pub mod status;
pub mod surroundings;
pub mod time;
pub mod transitions;
pub mod write_class;

pub(crate) use stable::stable_names;
