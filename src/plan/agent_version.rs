//! Whether the controller supports the Cilium version that the agent of a node runs.

use std::ops::ControlFlow;

use super::draft::{Draft, End, NEXT, Step};
use super::subject::Subject;
use crate::model::finding::{Finding, FindingKind};
use crate::model::plan::Wait;

impl Subject<'_> {
    /// Whether blocks are published for every agent that may run on the node. An agent of unknown version is trusted:
    /// most versions are supported, and distrust would stop a working cluster.
    pub(super) fn publishes_for_agent(&self) -> bool {
        self.world.support(&self.node.name).0.publishes()
    }

    /// Reports an agent that is too old. If it does not take part in the protocol of the mode, the node gets nothing
    /// until it has another version, and keeps its blocks.
    pub(super) fn await_supported_agent(&self, draft: &mut Draft) -> Step {
        if let (support, Some(release)) = self.world.support(&self.node.name)
            && support.is_too_old()
        {
            let why = self.publisher.why_unsupported(release);
            draft.findings.push(Finding::of_node(FindingKind::UnsupportedCilium, &self.node.name, why));
        }
        if self.publishes_for_agent() { NEXT } else { ControlFlow::Break(End::Waits(Wait::Upgrade)) }
    }
}
