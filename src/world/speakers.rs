//! The known objects that make Cilium announce blocks too. Knows no routes.

use std::collections::BTreeSet;

use crate::model::speaker::{SpeakerKind, SpeakerNews};

/// The objects that make Cilium announce blocks.
#[derive(Debug, Clone, Default)]
pub struct Speakers(BTreeSet<(SpeakerKind, String)>);

impl Speakers {
    /// The known ones.
    #[must_use]
    pub fn announcing(&self) -> &BTreeSet<(SpeakerKind, String)> {
        &self.0
    }

    pub(super) fn observe(&mut self, kind: SpeakerKind, news: SpeakerNews) {
        let all = match news {
            SpeakerNews::Unlisted(_) => return,
            SpeakerNews::Listed(all) => {
                self.0.retain(|(of, _)| *of != kind);
                all
            }
            SpeakerNews::Applied(one) => {
                self.0.remove(&(kind, one.name.clone()));
                vec![one]
            }
            SpeakerNews::Deleted(one) => {
                self.0.remove(&(kind, one.name));
                Vec::new()
            }
        };
        let announcing = all.into_iter().filter(|one| one.announces_blocks);
        self.0.extend(announcing.map(|one| (kind, one.name)));
    }
}
