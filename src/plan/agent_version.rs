//! Whether the controller supports the Cilium version that the agent of a node runs.

use std::ops::ControlFlow;

use super::draft::{Draft, End, NEXT, Step};
use super::subject::Subject;
use crate::model::finding::{Finding, FindingKind};
use crate::model::plan::Wait;

impl Subject<'_> {
    /// Whether no agent that may run on the node overwrites published blocks. An agent of unknown version is trusted:
    /// most versions do not overwrite them, and distrust would stop a working cluster.
    pub(super) fn has_supported_agent(&self) -> bool {
        self.world.support(&self.node.name).0.publishes()
    }

    /// Claims and publishes nothing for the node until its agent has another version. The node keeps its blocks.
    pub(super) fn await_supported_agent(&self, draft: &mut Draft) -> Step {
        if self.has_supported_agent() {
            return NEXT;
        }
        if let (_, Some(release)) = self.world.support(&self.node.name) {
            let why = self.publisher.why_unsupported(release);
            draft.findings.push(Finding::of_node(FindingKind::UnsupportedCilium, &self.node.name, why));
        }
        ControlFlow::Break(End::Waits(Wait::Upgrade))
    }
}
