//! `NodeIPBlock` on the wire: the claim of one node on one block, and its conversion in both directions.
//!
//! Only the controller writes the object. The server enforces the rules that make it a lock: the name is the CIDR, the
//! claimed block, its pool and its node never change, and the state moves as [`crate::model::transitions`] says.
//! Reading is forgiving only where it needs no guess.

#![allow(unreachable_pub, reason = "`KubeSchema` generates a public copy of each struct inside a function")]
#![allow(clippy::duplicated_attributes, reason = "one printcolumn has the type of another")]

use std::sync::LazyLock;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::mirror::mirror;
use super::precondition::bound_to;
use super::watched::{Meta, Wire};
use super::{GROUP, InvalidObject, VERSION, rules, schema};
use crate::model::claim::{Claim, Reason, block_name};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName};
use crate::model::observation::Object;
use crate::model::request::{ClaimChange, ClaimUpdate, NewClaim};
use crate::model::revision::{Custom, Revision};
use crate::model::transitions::State;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

mod convert;
mod status;

pub use status::{NodeIPBlockStatus, status_patch};

/// NodeIPBlocks.
#[derive(Debug, Clone)]
pub struct Claims;

impl Wire for Claims {
    const KIND: Kind = Kind::Claim;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
    const PLURAL: &'static str = "nodeipblocks";
    type Store = Custom;

    fn node_named_in(object: &Value) -> Option<NodeName> {
        named_in(object, "/spec/node").map(Into::into)
    }

    fn pool_named_in(object: &Value) -> Option<PoolName> {
        named_in(object, "/spec/pool").map(Into::into)
    }

    fn read(json: &str, _: &Meta, _: Revision<Custom>) -> Result<Object, String> {
        let block: NodeIPBlock = serde_json::from_str(json).map_err(|error| error.to_string())?;
        (&block).try_into().map(Object::Claim).map_err(|invalid: InvalidObject| invalid.to_string())
    }
}

/// The name at this place in a claim that can't be read.
fn named_in<'a>(object: &'a Value, place: &str) -> Option<&'a str> {
    object.pointer(place)?.as_str().filter(|name| !name.is_empty())
}

/// The table of states as CEL: each state with its reason as one key, and the states that may follow it.
static TRANSITIONS: LazyLock<String> = LazyLock::new(|| {
    let rows: Vec<String> = State::ALL
        .iter()
        .map(|from| {
            let next: Vec<String> = from.may_follow().iter().map(|to| format!("'{to}'")).collect();
            format!("'{from}': [{}]", next.join(", "))
        })
        .collect();
    format!("{{{}}}", rows.join(", "))
});

/// The rule of [`TRANSITIONS`]. A missing reason breaks another rule and is looked up as the bare state.
fn transition_rule() -> String {
    let key = |object: &str| {
        format!(
            "({object}.state in ['Releasing', 'Cooling'] && has({object}.reason) ? {object}.state + '/' + {object}.reason : {object}.state)"
        )
    };
    let (old, new, table) = (key("oldSelf"), key("self"), &*TRANSITIONS);
    format!("!({old} in {table}) || {new} in {table}[{old}]")
}

/// The rule that ties the name to the CIDR.
///
/// The exploded form of an IPv6 address is compared as a prefix, which CEL can parse but not write.
fn name_rule() -> String {
    "!isCIDR(self.spec.cidr) || (cidr(self.spec.cidr).ip().family() == 4 \
     ? self.metadata.name == self.spec.cidr.replace('/', '-') \
     : self.metadata.name.matches('^[0-9a-f]{4}(-[0-9a-f]{4}){7}-[0-9]{1,3}$') && \
       self.metadata.name.substring(40) == string(cidr(self.spec.cidr).prefixLength()) && \
       cidr(self.metadata.name.substring(0, 39).replace('-', ':') + '/' + self.metadata.name.substring(40)) \
         == cidr(self.spec.cidr))"
        .into()
}

/// The claim of one node on one block.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "nodeipam.io",
    version = "v1alpha1",
    kind = "NodeIPBlock",
    plural = "nodeipblocks",
    singular = "nodeipblock",
    shortname = "nib",
    category = "nodeipam",
    status = "NodeIPBlockStatus",
    derive = "PartialEq",
    doc = "NodeIPBlock is the claim of one node on one block of a NodeIPPool. Its name is the CIDR. Only the controller may write it.",
    selectable = ".spec.pool",
    selectable = ".spec.node",
    selectable = ".spec.state",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    // The first result is shown, and a union yields those of its first name first: `status.shownAs` where it is set, or
    // else `spec.state`. No other field at this depth has one of the two names. So the status has to be written only
    // for a claim that shows another word than its state.
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".*['shownAs','state']",
        description = "The state, or WillDrain (held, and must leave its node) or Deleting"
    ),
    printcolumn(
        name = "Pods",
        type_ = "integer",
        json_path = ".status.drain.podCount",
        description = "Addresses that pods still use. Only of a draining block"
    ),
    printcolumn(
        name = "Until",
        type_ = "string",
        json_path = ".status.until",
        description = "End of the cooling",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr", priority = 1),
    printcolumn(
        name = "Waiting for",
        type_ = "string",
        json_path = ".status.drain.waitingFor",
        description = "Why the block can't be removed yet",
        priority = 1
    ),
    validation = Rule::new(name_rule()).message(rules::NAME_IS_CIDR).field_path(".metadata.name")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(self.state in ['Releasing', 'Cooling']) == has(self.reason)")
        .message(rules::REASON_WITH_STATE)
        .field_path(".reason"),
    validation = Rule::new("self.state == 'Draining' ? has(self.ciliumNodeUID) : self.state != 'Held' || !has(self.ciliumNodeUID)")
        .message(rules::CILIUM_NODE_UID_WITH_STATE)
        .field_path(".ciliumNodeUID"),
    validation = Rule::new(
        "!(self.state == 'Draining' && oldSelf.state == 'Draining' && has(self.ciliumNodeUID) && \
         has(oldSelf.ciliumNodeUID)) || self.ciliumNodeUID == oldSelf.ciliumNodeUID"
    )
    .message(rules::CILIUM_NODE_UID_FIXED)
    .field_path(".ciliumNodeUID"),
    validation = Rule::new(
        "has(self.createdForCiliumNodeUID) == has(oldSelf.createdForCiliumNodeUID) && \
         (!has(self.createdForCiliumNodeUID) || self.createdForCiliumNodeUID == oldSelf.createdForCiliumNodeUID)"
    )
    .message(rules::FIXED_WHEN_CREATED)
    .field_path(".createdForCiliumNodeUID"),
    validation = Rule::new(
        "has(self.podIPPool) == has(oldSelf.podIPPool) && (!has(self.podIPPool) || self.podIPPool == oldSelf.podIPPool)"
    )
    .message(rules::FIXED_WHEN_CREATED)
    .field_path(".podIPPool"),
    validation = Rule::new("self.nodeUID == oldSelf.nodeUID || self.state == 'Held'")
        .message(rules::NODE_UID_WITH_HELD)
        .field_path(".nodeUID"),
    validation = Rule::new(transition_rule()).message(rules::TRANSITION).field_path(".state"),
    validation = Rule::new(
        "!isCIDR(self.cidr) || self.excluded.all(w, isIP(w) ? cidr(self.cidr).containsIP(w) : \
         !isCIDR(w) || cidr(self.cidr).containsCIDR(w))"
    )
    .message(rules::EXCLUDED_INSIDE)
    .field_path(".excluded")
)]
pub struct NodeIPBlockSpec {
    /// The block.
    #[schemars(schema_with = "schema::claimed_cidr")]
    pub cidr: String,

    /// The pool of the block.
    #[schemars(schema_with = "schema::immutable_object_name")]
    pub pool: String,

    /// The node that holds the block.
    #[schemars(schema_with = "schema::immutable_object_name")]
    pub node: String,

    /// The uid of the Node object. It changes when a recreated Node of the same name gets its blocks back.
    #[serde(rename = "nodeUID")]
    #[schemars(schema_with = "schema::uid")]
    pub node_uid: String,

    /// The CiliumPodIPPool under which Cilium serves the block. Immutable. Absent in modes without CiliumPodIPPools.
    #[serde(default, rename = "podIPPool", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub pod_ip_pool: Option<String>,

    /// Addresses and prefixes of the block that pods never get. Immutable.
    #[serde(default)]
    #[schemars(schema_with = "schema::excluded")]
    pub excluded: Vec<String>,

    /// Held: on the node. Draining: on the node, but closed to new pods. Releasing: being removed from the node.
    /// Cooling: removed, and not yet free for another node.
    pub state: BlockState,

    /// Start of this state.
    #[schemars(schema_with = "schema::timestamp")]
    pub since: Timestamp,

    /// Why the block left its node. Set in the states Releasing and Cooling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<BlockReason>,

    /// The uid of the CiliumNode from which the block drains. Set in the state Draining.
    #[serde(default, rename = "ciliumNodeUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uid")]
    pub cilium_node_uid: Option<String>,

    /// The uid of the first CiliumNode of the node that may have the block. Absent if an earlier one may have had it.
    #[serde(default, rename = "createdForCiliumNodeUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uid")]
    pub created_for_cilium_node_uid: Option<String>,
}

/// The state of a claim, see [`ClaimState`](crate::model::claim::ClaimState).
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
#[allow(
    missing_docs,
    reason = "comments on variants make schemars write a `oneOf`, which no structural schema has"
)]
pub enum BlockState {
    Held,
    Draining,
    Releasing,
    Cooling,
}

/// Why a claim left its node, see [`Reason`].
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
#[allow(
    missing_docs,
    reason = "comments on variants make schemars write a `oneOf`, which no structural schema has"
)]
pub enum BlockReason {
    Reclaimed,
    NodeGone,
    Unused,
}

mirror!(BlockReason, Reason { Reclaimed, NodeGone, Unused });

/// The object to create for a new claim: held since `since`, in milliseconds since the epoch.
///
/// The name is the lock: only one replica can create the object, and then its node holds the block.
#[must_use]
pub fn new_claim(claim: &NewClaim) -> NodeIPBlock {
    NodeIPBlock {
        metadata: ObjectMeta {
            name: Some(block_name(claim.cidr)),
            finalizers: Some(vec![Claim::FINALIZER.into()]),
            ..ObjectMeta::default()
        },
        spec: NodeIPBlockSpec {
            cidr: claim.cidr.to_string(),
            pool: claim.pool.to_string(),
            node: claim.node.to_string(),
            node_uid: claim.node_uid.to_string(),
            pod_ip_pool: claim.pod_ip_pool.as_ref().map(ToString::to_string),
            excluded: excluded_text(claim.cidr, &claim.excluded),
            state: BlockState::Held,
            since: claim.since,
            reason: None,
            cilium_node_uid: None,
            created_for_cilium_node_uid: claim.created_for.as_ref().map(ToString::to_string),
        },
        status: None,
    }
}

/// A move of a claim as a merge patch; `None` for a deletion, which needs no patch.
///
/// Carries uid and version. Every move keeps our finalizer, and restores it where it is missing (safety rule 1): an
/// earlier version removed it with the move to Cooling. It is not restored to a claim that is being deleted: the server
/// would refuse that write every time.
#[must_use]
pub fn update_patch(update: &ClaimUpdate) -> Option<Value> {
    let mut finalizers: Vec<&str> = update.finalizers.iter().map(String::as_str).collect();
    if !finalizers.contains(&Claim::FINALIZER) && !update.deleting {
        finalizers.push(Claim::FINALIZER);
    }
    let since = update.since;
    let spec = match &update.change {
        ClaimChange::Keep => {
            let patch = json!({ "metadata": { "finalizers": finalizers } });
            return Some(bound_to(&update.uid, update.revision, patch));
        }
        ClaimChange::Hold(node_uid) => json!({
            "state": BlockState::Held,
            "since": since,
            "nodeUID": node_uid.as_str(),
            "reason": null,
            "ciliumNodeUID": null,
        }),
        ClaimChange::Drain(uid) => {
            let uid = uid.as_str();
            json!({ "state": BlockState::Draining, "since": since, "reason": null, "ciliumNodeUID": uid })
        }
        ClaimChange::Release(reason) => {
            json!({ "state": BlockState::Releasing, "since": since, "reason": reason.as_str() })
        }
        ClaimChange::Cool => json!({ "state": BlockState::Cooling, "since": since }),
        ClaimChange::Delete => return None,
    };
    let patch = json!({ "metadata": { "finalizers": finalizers }, "spec": spec });
    Some(bound_to(&update.uid, update.revision, patch))
}

/// The patch that drops our finalizer before a deletion; `None` if the claim does not have it.
#[must_use]
pub fn drop_finalizer_patch(update: &ClaimUpdate) -> Option<Value> {
    let others: Vec<&String> =
        update.finalizers.iter().filter(|finalizer| *finalizer != Claim::FINALIZER).collect();
    (others.len() < update.finalizers.len())
        .then(|| bound_to(&update.uid, update.revision, json!({ "metadata": { "finalizers": others } })))
}

/// The excluded addresses within a block, in as few prefixes as possible; single addresses have no length.
fn excluded_text(cidr: Cidr, excluded: &AddressSet) -> Vec<String> {
    excluded
        .within(cidr)
        .cidrs()
        .map(|piece| if piece.size() == 1 { piece.first_address().to_string() } else { piece.to_string() })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::wire::watched::tests::read;

    /// A server without the rule may have stored such a claim. It is no block of any pool, and a taken range of its
    /// size would stop all pools in it.
    #[test]
    fn a_claim_larger_than_any_block_is_reported_and_does_not_take_its_range() {
        let object = read::<Claims>(
            r#"{"apiVersion":"nodeipam.io/v1alpha1","kind":"NodeIPBlock",
                "metadata":{"name":"fd00-0000-0000-0000-0000-0000-0000-0000-63","uid":"u","resourceVersion":"7",
                            "creationTimestamp":"2026-11-21T03:00:00Z"},
                "spec":{"cidr":"fd00::/63","pool":"p","node":"n","nodeUID":"nu","excluded":["fd00::1"],
                        "state":"Held","since":"2026-11-21T03:00:00Z"}}"#,
        );
        let Object::Unreadable(Kind::Claim, unreadable) = object else { panic!("{object:?}") };
        assert_eq!(format!("{:?}", unreadable.addresses), "{fd00::1/128}");
        assert_eq!(unreadable.node, Some("n".into()));
        assert!(unreadable.reason.contains("IPv6 /64 to /128"), "{}", unreadable.reason);
    }

    /// The sentence is for people and can't be generated in good English, so its states are compared.
    #[test]
    fn the_sentence_about_transitions_names_the_moves_of_the_table() {
        let names = |text: &str| -> BTreeSet<&str> {
            let words = text.split(|letter: char| !letter.is_alphanumeric());
            let known: BTreeSet<&str> = State::ALL.iter().map(|state| state.name()).collect();
            words.filter_map(|word| known.get(word).copied()).collect()
        };
        let (_, clauses) = rules::TRANSITION.split_once(": ").unwrap();
        let mut said: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for clause in clauses.split("; ") {
            let (from, to) = clause.split_once(" to ").unwrap();
            said.insert(names(from).pop_first().unwrap(), names(to));
        }
        let mut table: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for from in State::ALL {
            let next = from.may_follow().iter().filter(|to| **to != from).map(|to| to.name());
            table.entry(from.name()).or_default().extend(next);
        }
        assert_eq!(said, table);
    }

    #[test]
    fn no_finalizer_is_added_to_a_claim_that_is_being_deleted() {
        let finalizers = |change: ClaimChange, deleting: bool, before: &[&str]| {
            let update = ClaimUpdate {
                cidr: "10.0.0.32/27".parse().unwrap(),
                node: "n".into(),
                uid: "u".into(),
                revision: Revision::of(7),
                finalizers: before.iter().map(ToString::to_string).collect(),
                deleting,
                change,
                since: Timestamp::UNIX_EPOCH,
            };
            let patch = update_patch(&update).expect("it is no deletion");
            serde_json::from_value::<Vec<String>>(patch["metadata"]["finalizers"].clone()).unwrap().join(" ")
        };
        let (ours, hold) = (Claim::FINALIZER, || ClaimChange::Hold("n1".into()));
        let both = format!("theirs {ours}");
        assert_eq!(finalizers(hold(), false, &["theirs"]), both);
        assert_eq!(finalizers(hold(), true, &["theirs"]), "theirs");
        assert_eq!(finalizers(hold(), true, &[ours, "theirs"]), format!("{ours} theirs"));
        let release = || ClaimChange::Release(Reason::NodeGone);
        assert_eq!(finalizers(release(), true, &["theirs"]), "theirs");
        assert_eq!(finalizers(release(), true, &[ours]), ours);
        // A cooling claim needs the finalizer too: without it, `kubectl delete` would free a block that a lost machine
        // may still use.
        assert_eq!(finalizers(ClaimChange::Cool, true, &[ours, "theirs"]), format!("{ours} theirs"));
        assert_eq!(finalizers(ClaimChange::Cool, false, &[]), ours);
    }

    #[test]
    fn withheld_is_written_with_the_fewest_entries_and_within_the_block() {
        let excluded: AddressSet =
            ["10.0.0.0/26", "fd00::/8"].iter().map(|text| text.parse::<Cidr>().unwrap()).collect();
        let text =
            |cidr: &str, excluded: &AddressSet| excluded_text(cidr.parse().unwrap(), excluded).join(" ");
        assert_eq!(text("10.0.0.32/27", &excluded), "10.0.0.32/27");
        let mut excluded = AddressSet::new();
        for member in ["10.0.0.32", "10.0.0.40", "10.0.0.41", "10.0.0.42", "10.0.0.63", "10.0.0.64"] {
            excluded.insert(member.parse().unwrap());
        }
        assert_eq!(text("10.0.0.32/27", &excluded), "10.0.0.32 10.0.0.40/31 10.0.0.42 10.0.0.63");
    }
}
