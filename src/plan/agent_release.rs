//! Whether the agent of a node is of a release that can be served.

use super::draft::Draft;
use super::subject::Subject;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::plan::Wait;

impl Subject<'_> {
    /// Whether no agent that may run on the node undoes what is published for it. An agent of an unknown release is
    /// trusted: most are of none that does, and a working cluster would stop.
    pub(super) fn has_supported_agent(&self) -> bool {
        self.world.support(&self.node.name).0.publishes()
    }

    /// Nothing is claimed or published for the node until its agent is another one. What it has, it keeps.
    pub(super) fn wait_for_upgrade(&self, draft: &mut Draft) {
        if let (_, Some(release)) = self.world.support(&self.node.name) {
            let why = self.publisher.why_unsupported(release);
            draft.findings.push(Finding::new(
                FindingKind::UnsupportedCilium,
                Kind::Node,
                self.node.name.as_str(),
                why,
            ));
        }
        draft.wait_for(Wait::Upgrade);
    }
}
