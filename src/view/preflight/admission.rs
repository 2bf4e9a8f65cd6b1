//! Webhooks and policies that can stop the writes of the controller.

use super::points::{Lines, Point};
use crate::model::installation::Installation;
use crate::publisher::ipam_mode::IpamMode;
use crate::world::World;

/// The resource that the controller writes in the mode kubernetes only.
const OF_KUBERNETES: &str = "nodes";

pub(super) fn look(world: &World, installation: &Installation, lines: &mut Lines) {
    let how = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,\
               validatingadmissionpolicies,validatingadmissionpolicybindings -o yaml";
    let Some(guards) = lines.seen(Point::Admission, &installation.guards, how) else { return };
    let writes_nodes = world.mode().ipam_mode() == Some(IpamMode::Kubernetes);
    for guard in guards {
        let mut resources = guard.resources.clone();
        resources.retain(|resource| writes_nodes || resource != OF_KUBERNETES);
        if resources.is_empty() {
            continue;
        }
        lines.warn(
            Point::Admission,
            format!(
                "{} {} covers {} and fails closed: while it refuses a write or its backend is away, nodes that join \
                 get no addresses",
                guard.kind,
                guard.name,
                resources.join(", ")
            ),
            format!(
                "Exempt system:serviceaccount:{}:cilium-node-ipam in its matchConditions, or set failurePolicy to \
                 Ignore.",
                installation.namespace
            ),
        );
    }
    lines
        .ok_if_silent(Point::Admission, "no webhook or policy covers the objects that the controller writes");
}
