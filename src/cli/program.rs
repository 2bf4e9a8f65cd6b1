//! The name by which a person calls this program.

use std::path::PathBuf;

/// The name of the binary as a plugin of kubectl.
const PLUGIN: &str = "kubectl-nodeipam";

/// How a person calls this program: as a plugin, or by its own name.
#[must_use]
pub fn program() -> &'static str {
    let called = std::env::args_os().next().map(PathBuf::from);
    let is_plugin = called.is_some_and(|path| path.file_stem().is_some_and(|name| name == PLUGIN));
    if is_plugin { "kubectl nodeipam" } else { "cilium-node-ipam" }
}
