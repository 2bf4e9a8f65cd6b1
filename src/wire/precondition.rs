//! The precondition of every patch: the version of the object that it was decided on.

use std::fmt::Display;

use serde_json::{Value, json};

use crate::model::names::Uid;

/// The patch, bound to one version of one object: the server refuses it for any other (safety rule 4).
pub(super) fn bound_to(uid: &Uid, revision: impl Display, mut patch: Value) -> Value {
    patch["metadata"]["uid"] = json!(uid.as_str());
    patch["metadata"]["resourceVersion"] = json!(revision.to_string());
    patch
}
