//! What Cilium's contract demands of the objects that its agents read, and nothing else does.
//!
//! Pure. The facts are in `docs/cilium.md`.

pub mod projection;
pub mod settings;
