//! Consistent reads: those that a decision waits for, and those that settle an open outcome of a write.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use tracing::warn;

use super::{Executor, Purpose, RefusedRead, classify};
use crate::controller::backoff::Retries;
use crate::controller::client::ReadError;
use crate::controller::write_slots::Place;
use crate::controller::{forbidden, named};
use crate::model::claim::block_name;
use crate::model::names::NodeName;
use crate::model::observation::Object;
use crate::model::outcome::{Answer, Presence, Seen};
use crate::model::request::Read;
use crate::model::revision::{AnyRevision, Revision};
use crate::wire::node_pods::{NODE_FIELD, pods_on_node};
use crate::wire::watched::Wire;
use crate::wire::{CiliumNodes, Claims, Nodes};

impl Executor {
    pub(super) async fn read(&self, read: &Read, place: &Place) -> anyhow::Result<Seen> {
        match read {
            Read::ClaimsOf(node) => self.claims_of(node).await,
            Read::PodsOf(node, after) => self.pods_of(node, *after).await,
            Read::Claim(cidr, _) => {
                self.read_one::<Claims>(&block_name(*cidr), Purpose::Outcome(place)).await
            }
            Read::CiliumNode(node) => self.read_one::<CiliumNodes>(node.as_str(), Purpose::Decision).await,
            Read::Node(node, as_of) => self.read_node(node, *as_of).await,
        }
    }

    /// Reads one object by a consistent list, which has a revision even when there is no such object. Where that
    /// revision does not compare with those of claims, nothing is seen then.
    pub(super) async fn read_one<W: Wire>(&self, name: &str, purpose: Purpose<'_>) -> anyhow::Result<Seen> {
        let (revision, mut found) = self.read_all::<W>(&named::selector(name), purpose).await?;
        let absent = AnyRevision::from(revision).within().map_or(Seen::Nothing, Seen::Absent);
        Ok(found.pop().map_or(absent, |object| self.seen(object)))
    }

    async fn claims_of(&self, node: &NodeName) -> anyhow::Result<Seen> {
        let (revision, claims) =
            self.read_all::<Claims>(&format!("spec.node={node}"), Purpose::Decision).await?;
        let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
        for object in claims {
            match object {
                Object::Claim(claim) => readable.push(claim),
                Object::Unreadable(_, object) => unreadable.push(object),
                Object::Node(_) | Object::CiliumNode(_) | Object::Pool(_) => {}
            }
        }
        Ok(Seen::ClaimsOf { revision, claims: readable, unreadable })
    }

    /// The Pods that are bound to a node. If they can't be read, the next decision is made without them.
    async fn pods_of(&self, node: &NodeName, after: AnyRevision) -> anyhow::Result<Seen> {
        let api: Api<Pod> = Api::all(self.clients.reads.clone());
        let params = ListParams::default().fields(&format!("{NODE_FIELD}={node}"));
        match self.clients.within_timeout(api.list(&params)).await {
            Ok(list) => Ok(Seen::PodsOf { after, pods: pods_on_node(&list.items, &self.cilium_namespace) }),
            Err(error) => {
                warn!(%node, %error, "can't read the node's pods: no block of the node is reclaimed");
                Err(RefusedRead { why: error.to_string(), wait: error.asked_wait() }.into())
            }
        }
    }

    async fn read_node(&self, node: &NodeName, as_of: Revision) -> anyhow::Result<Seen> {
        let (read_at, mut found) =
            self.read_all::<Nodes>(&named::selector(node.as_str()), Purpose::Decision).await?;
        let presence = match found.pop() {
            None => Presence::Gone,
            Some(Object::Node(node)) => Presence::Is(node.uid),
            Some(Object::CiliumNode(_) | Object::Claim(_) | Object::Pool(_) | Object::Unreadable(..)) => {
                Presence::Unreadable
            }
        };
        Ok(Seen::Node { as_of, read_at, presence })
    }

    /// Reads the objects of a kind that a field selector selects, until there is an answer. A read for a decision
    /// also stops when the server refuses it.
    pub(super) async fn read_all<W: Wire>(
        &self,
        selector: &str,
        purpose: Purpose<'_>,
    ) -> anyhow::Result<(Revision<W::Store>, Vec<Object>)> {
        let params = ListParams::default().fields(selector);
        let mut retries = Retries::default();
        loop {
            match self.clients.list::<W>(&params, &self.timeline).await {
                Ok(found) => return Ok(found),
                Err(ReadError::StoreRewound(error)) => return Err(error.into()),
                Err(error) => {
                    if let Some(refused) = refused_by(&error) {
                        if let Some(event) = forbidden::event_of_reads(&self.clients.connectivity.api_health)
                        {
                            self.events.report(event);
                        }
                        match purpose {
                            Purpose::Decision => {
                                warn!(kind = W::KIND.as_str(), selector, %error, "read refused");
                                return Err(refused.into());
                            }
                            Purpose::Outcome(place) => place.yield_slot(),
                        }
                    }
                    let wait = retries.failed(error.asked_wait());
                    warn!(kind = W::KIND.as_str(), selector, %error, retry_in = ?wait, "read failed");
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }
}

/// Why the server does not carry out a read, where it says that. The same read gets the same answer until an
/// administrator changes something.
fn refused_by(error: &ReadError) -> Option<RefusedRead> {
    match classify(error.answer()?) {
        Answer::Refused(why, wait) => Some(RefusedRead { why, wait }),
        Answer::Conflict(why) => Some(RefusedRead { why, wait: None }),
        Answer::Done | Answer::Unknown(_) => None,
    }
}
