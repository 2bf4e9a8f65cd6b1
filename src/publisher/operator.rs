//! The signs on a CiliumNode that cilium-operator allocates for its node (`docs/cilium.md`, A second allocator).

use crate::model::node::CiliumNode;

/// How to turn its allocator off, for a person.
pub(super) const TURN_OFF: &str = "turn the allocator of cilium-operator off with `--ipam=kubernetes` \
     (`operator.extraArgs` of Cilium's chart)";

/// The sign that it does, and how to remove that sign when it no longer does.
///
/// With `--ipam=kubernetes` an operator writes nothing to CiliumNodes. Our patch drops the names of all writers, so a
/// name beside our blocks is of a later write. A name beside earlier CIDRs may be old. It does not count if these are
/// all CIDRs that a node ever gets (`is_complete`).
pub(super) fn sign(cilium_node: &CiliumNode, is_complete: bool) -> Option<String> {
    let name = &cilium_node.name;
    if let Some(error) = &cilium_node.pools.operator_error {
        return Some(format!(
            "status.ipam.operator-status.error is `{error}`: cilium-operator allocates for this node (once it \
             has stopped: kubectl patch ciliumnode {name} --subresource=status --type=merge -p \
             '{{\"status\":{{\"ipam\":{{\"operator-status\":null}}}}}}')"
        ));
    }
    let manager = cilium_node.operator.as_ref().filter(|_| !is_complete)?;
    // A time and no age: the text stays the same as long as the operator writes nothing.
    let since = manager.at.map(|at| format!(", last at {at:.0}")).unwrap_or_default();
    Some(format!(
        "metadata.managedFields names {}{since}, which writes CiliumNodes only if it allocates (once it has \
         stopped: kubectl patch ciliumnode {name} --type=merge -p \
         '{{\"metadata\":{{\"managedFields\":[{{}}]}}}}')",
        manager.manager
    ))
}
