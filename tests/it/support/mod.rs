//! The harness: everything around the product that a test or the demo needs, and none of the product's own code.
//!
//! A real control plane runs in a process of its own with an oracle inside, and the product's binary as a child.
//! Cilium's agents are imitated by the thousand, or are Cilium's own code, one process each. Every wait is based on one
//! watch cache. The harness never decides whether the product is right: the oracle, the holdings of the agents and the
//! final look at the whole cluster do. A failure that one of them finds is raised as an [`alarm::Alarm`], and every
//! wait fails.

#![allow(
    dead_code,
    unused_imports,
    reason = "every program that includes the harness uses its own part of it"
)]

pub(crate) mod agent;
pub(crate) mod alarm;
pub(crate) mod bookkeeping;
pub(crate) mod cache;
pub(crate) mod cilium_operator;
pub(crate) mod cluster;
pub(crate) mod control_plane;
pub(crate) mod controller;
pub(crate) mod eventually;
pub(crate) mod families;
pub(crate) mod findings;
pub(crate) mod fleet;
pub(crate) mod gobgp_daemon;
pub(crate) mod holdings;
pub(crate) mod kubectl;
pub(crate) mod kubelet;
pub(crate) mod lab;
pub(crate) mod machines;
pub(crate) mod objects;
pub(crate) mod peer;
pub(crate) mod playground;
pub(crate) mod preparation;
pub(crate) mod prometheus;
pub(crate) mod proxy;
pub(crate) mod rig;
pub(crate) mod scheduler;
pub(crate) mod servers;
pub(crate) mod signals;
pub(crate) mod tails;
pub(crate) mod transcript;
pub(crate) mod views;
