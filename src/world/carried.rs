//! Which blocks carriers have carried, as this process has seen it.
//!
//! A process that has just started has seen nothing. So this tells a repair from growth in the log, and keeps a claim from
//! moving; it never moves one.

use super::{KnownClaim, World};
use crate::model::names::NodeName;
use crate::net::cidr::Cidr;

impl World {
    /// Notes which claims of the node its carrier carries, for when somebody takes them off.
    pub(super) fn note_carried(&mut self, node: &NodeName) {
        let Some(carrier) = self.carrier(node) else { return };
        let uid = carrier.uid().clone();
        let is_news = |known: &&KnownClaim| {
            known.carried_by.as_ref() != Some(&uid) && self.reader.carries(carrier, known.claim.cidr)
        };
        let news: Vec<Cidr> = self.claims_of(node).filter(is_news).map(|known| known.claim.cidr).collect();
        for cidr in news {
            if let Some(known) = self.claims.get_mut(&cidr) {
                known.carried_by = Some(uid.clone());
            }
        }
    }
}
