//! The reading of a claim: forgiving where it needs no guess, and strict everywhere else.

use super::{BlockState, NodeIPBlock, NodeIPBlockSpec};
use crate::model::claim::{Claim, ClaimState, Reason, block_name};
use crate::model::names::{PodIpPoolName, Uid};
use crate::model::pool::widest_block;
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::wire::{FieldError, InvalidObject, rules};

impl TryFrom<&NodeIPBlock> for Claim {
    type Error = InvalidObject;

    /// Reads a claim as the server stores it.
    ///
    /// A reason or a CiliumNode uid in a state that has none is dropped, and excluded addresses may have any readable
    /// form. Everything that needs a guess is an error: then the block stays taken, and the controller does nothing
    /// with it.
    fn try_from(block: &NodeIPBlock) -> Result<Self, Self::Error> {
        let mut errors = Vec::new();
        let spec = &block.spec;
        let cidr = read_cidr(block, &mut errors);
        for (field, text) in
            [("spec.pool", &spec.pool), ("spec.node", &spec.node), ("spec.nodeUID", &spec.node_uid)]
        {
            if text.is_empty() {
                errors.push(FieldError::new(field, text, "must not be empty"));
            }
        }
        let excluded = read_excluded(spec, cidr, &mut errors);
        let state = read_state(spec, &mut errors);
        let metadata = &block.metadata;
        let uid = metadata.uid.as_deref().filter(|uid| !uid.is_empty());
        if uid.is_none() {
            errors.push(FieldError::absent("metadata.uid", "must be set by the server"));
        }
        let revision = metadata.resource_version.as_deref().and_then(Revision::parse);
        if revision.is_none() {
            errors.push(FieldError::new(
                "metadata.resourceVersion",
                &metadata.resource_version,
                "must be an integer",
            ));
        }
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        if created.is_none() {
            errors.push(FieldError::absent("metadata.creationTimestamp", "must be set by the server"));
        }
        match (cidr, state, uid, revision, created) {
            (Some(cidr), Some(state), Some(uid), Some(revision), Some(created)) if errors.is_empty() => {
                Ok(Self {
                    cidr,
                    pool: spec.pool.as_str().into(),
                    node: spec.node.as_str().into(),
                    node_uid: spec.node_uid.as_str().into(),
                    pod_ip_pool: spec.pod_ip_pool.as_deref().map(PodIpPoolName::from),
                    excluded,
                    state,
                    since: spec.since,
                    created_for: spec.created_for_cilium_node_uid.as_deref().map(Uid::from),
                    uid: uid.into(),
                    revision,
                    created,
                    deleting: metadata.deletion_timestamp.is_some(),
                    finalizers: metadata.finalizers.clone().unwrap_or_default(),
                    status: block.status.as_ref().map(Into::into).unwrap_or_default(),
                })
            }
            _ => Err(InvalidObject { errors }),
        }
    }
}

/// The block, if text and name agree on it and a pool could have cut it.
fn read_cidr(block: &NodeIPBlock, errors: &mut Vec<FieldError>) -> Option<Cidr> {
    let Ok(cidr) = block.spec.cidr.parse::<Cidr>() else {
        errors.push(FieldError::new("spec.cidr", &block.spec.cidr, rules::CANONICAL_CIDR));
        return None;
    };
    let name = block.metadata.name.as_deref().unwrap_or_default();
    if name != block_name(cidr) {
        errors.push(FieldError::new("metadata.name", name, rules::NAME_IS_CIDR));
        return None;
    }
    if cidr.prefix_len() < widest_block(cidr.family()) {
        errors.push(FieldError::new("spec.cidr", &block.spec.cidr, rules::BLOCK_BOUND));
        return None;
    }
    Some(cidr)
}

/// The state with its fields; fields of another state are dropped.
fn read_state(spec: &NodeIPBlockSpec, errors: &mut Vec<FieldError>) -> Option<ClaimState> {
    let reason = || spec.reason.map(Reason::from).ok_or(("spec.reason", rules::REASON_WITH_STATE));
    let uid = spec.cilium_node_uid.as_deref();
    let state = match spec.state {
        BlockState::Held => Ok(ClaimState::Held),
        BlockState::Draining => uid
            .map(|uid| ClaimState::Draining(uid.into()))
            .ok_or(("spec.ciliumNodeUID", rules::CILIUM_NODE_UID_WITH_STATE)),
        BlockState::Releasing => reason().map(ClaimState::Releasing),
        BlockState::Cooling => reason().map(ClaimState::Cooling),
    };
    state.map_err(|(field, rule)| errors.push(FieldError::absent(field, rule))).ok()
}

/// The excluded addresses; an entry that can't be read or lies elsewhere is an error, because its meaning is unknown.
fn read_excluded(spec: &NodeIPBlockSpec, cidr: Option<Cidr>, errors: &mut Vec<FieldError>) -> AddressSet {
    let mut excluded = AddressSet::new();
    for (index, text) in spec.excluded.iter().enumerate() {
        let entry = text.parse().map(Cidr::single).ok().or_else(|| Cidr::parse_lenient(text));
        match (entry, cidr) {
            (None, _) => {
                errors.push(FieldError::new(format!("spec.excluded[{index}]"), text, rules::EXCLUDED_TEXT));
            }
            (Some(entry), Some(cidr)) if !cidr.covers(entry) => {
                errors.push(FieldError::new("spec.excluded", text, rules::EXCLUDED_INSIDE));
            }
            (Some(entry), _) => excluded.insert_cidr(entry),
        }
    }
    excluded
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Reads a stored claim with these fields changed, and compares its main fields, or the errors, as text.
    fn check(metadata: &Value, spec: &Value, expected: &str) {
        let mut object = json!({
            "apiVersion": "nodeipam.io/v1alpha1",
            "kind": "NodeIPBlock",
            "metadata": {
                "name": "10.0.0.32-27", "uid": "u1", "resourceVersion": "17",
                "creationTimestamp": "1970-01-01T00:00:09Z",
            },
            "spec": {
                "cidr": "10.0.0.32/27", "pool": "beijing", "node": "node-7", "nodeUID": "n1", "state": "Held",
                "since": "1970-01-01T00:00:01.5Z",
            },
        });
        for (part, changes) in [("metadata", metadata), ("spec", spec)] {
            for (key, value) in changes.as_object().into_iter().flatten() {
                object[part][key] = value.clone();
            }
        }
        let block: NodeIPBlock = serde_json::from_value(object).unwrap();
        let found = match Claim::try_from(&block) {
            Ok(claim) => format!(
                "{:?} {} since {} created {} excluded {:?}",
                claim.state, claim.revision, claim.since, claim.created, claim.excluded
            ),
            Err(invalid) => invalid.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_stored_claim_is_read() {
        check(
            &json!({}),
            &json!({}),
            "Held 17 since 1970-01-01T00:00:01.5Z created 1970-01-01T00:00:09Z excluded {}",
        );
    }

    #[test]
    fn what_needs_no_guess_is_forgiven() {
        check(
            &json!({}),
            &json!({
                "reason": "Unused", "ciliumNodeUID": "c1",
                "excluded": ["10.0.0.33", "10.0.0.32/32", "10.0.0.35/31", "10.0.0.33"],
            }),
            "Held 17 since 1970-01-01T00:00:01.5Z created 1970-01-01T00:00:09Z excluded {10.0.0.32/30}",
        );
        let draining = json!({ "state": "Draining", "reason": "Unused", "ciliumNodeUID": "c1" });
        check(
            &json!({}),
            &draining,
            "Draining(\"c1\") 17 since 1970-01-01T00:00:01.5Z created 1970-01-01T00:00:09Z excluded {}",
        );
        let cooling = json!({ "state": "Cooling", "reason": "NodeGone", "ciliumNodeUID": "c1" });
        check(
            &json!({}),
            &cooling,
            "Cooling(NodeGone) 17 since 1970-01-01T00:00:01.5Z created 1970-01-01T00:00:09Z excluded {}",
        );
    }

    #[test]
    fn what_would_be_a_guess_is_refused() {
        let name = "metadata.name: \"10.0.0.64-27\": must be the CIDR: 10.0.0.32-27 for 10.0.0.32/27, IPv6 exploded \
                    with `-` in place of `:` and `/`";
        check(&json!({ "name": "10.0.0.64-27" }), &json!({}), name);
        check(
            &json!({ "resourceVersion": "x" }),
            &json!({ "state": "Cooling", "excluded": ["first", "10.0.0.64"] }),
            "spec.excluded[0]: \"first\": must be an address or a masked CIDR in canonical form; \
             spec.excluded: \"10.0.0.64\": must lie in cidr; \
             spec.reason: must be set in the states Releasing and Cooling and in no other state; \
             metadata.resourceVersion: \"x\": must be an integer",
        );
        let uid = "spec.ciliumNodeUID: must be set in the state Draining, and must not be in the state Held";
        check(&json!({}), &json!({ "state": "Draining" }), uid);
    }
}
