//! What Cilium's contract demands of the objects that its agents read, and nothing else does.
//!
//! Pure, like `crate::ipam`. The facts are in `docs/cilium.md`.

pub mod publish;
pub mod settings;
