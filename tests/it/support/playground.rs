//! The playground of `docs/tutorial.md`: how its controller runs, and the environment of a shell for it.
//!
//! `make playground` and the test of the tutorial share it, so that both run the same.

use std::path::Path;

use anyhow::Result;

use super::control_plane::{ControlPlane, tool};
use super::controller::{Controller, ELECTED};

/// Agents write each second here, so a drain need not wait for the default of 30 s either.
const FLAGS: &[&str] = &[ELECTED, "--usage-query-interval", "5s"];

/// The controller as an installation runs it, except for its periods.
pub(crate) async fn start_controller(plane: &ControlPlane) -> Result<Controller> {
    Controller::start_ready(plane, FLAGS).await
}

/// The lines by which a shell finds the cluster, kubectl and the product's program, which is in the folder `programs`.
pub(crate) fn environment(plane: &ControlPlane, programs: &Path) -> String {
    let kubectl = tool("NODEIPAM_KUBECTL", "kubectl");
    let tools = kubectl.parent().unwrap_or(Path::new("/"));
    format!(
        "export KUBECONFIG='{}'\nexport PATH='{}:{}':\"$PATH\"\n",
        plane.admin_kubeconfig.display(),
        programs.display(),
        tools.display(),
    )
}
