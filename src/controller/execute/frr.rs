//! Writes to FRRConfigurations.
//!
//! The server drops fields that it does not know, and a selector that is dropped selects every node. So each write asks
//! for strict validation, and its answer shows the stored object.

use http::Method;
use kube::api::Api;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{Ended, Executor};
use crate::controller::client::FIELD_MANAGER;
use crate::model::frr::{FrrChange, FrrConfiguration, FrrWrite};
use crate::model::outcome::{Answer, Seen};
use crate::wire::frr;
use crate::wire::side_watched::SideWatched;

impl Executor {
    /// Carries out a write to an FRRConfiguration. If the answer is lost, the watch shows the outcome. A late
    /// write does no harm: the server refuses it once the object has a later version.
    pub(super) async fn write_frr(&self, write: &FrrWrite) -> Ended {
        let namespace = self.frr_namespace.as_str();
        let object = frr::object(write, namespace);
        let path = Api::<SideWatched<FrrConfiguration>>::namespaced_with(
            self.clients.writes.clone(),
            namespace,
            &(),
        )
        .resource_url()
        .to_owned();
        let name = write.name.as_str();
        let query = format!("fieldManager={FIELD_MANAGER}&fieldValidation=Strict");
        let (method, target, body) = match &write.change {
            FrrChange::Create { .. } => (Method::POST, format!("{path}?{query}"), object),
            FrrChange::Replace { .. } => (Method::PUT, format!("{path}/{name}?{query}"), object),
            FrrChange::Delete { uid, revision } => {
                let conditions = json!({"uid": uid.as_str(), "resourceVersion": revision.to_string()});
                (Method::DELETE, format!("{path}/{name}"), Some(json!({"preconditions": conditions})))
            }
        };
        let body = serde_json::to_vec(&body.unwrap_or_default())?;
        let request = http::Request::builder()
            .method(method)
            .uri(target)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)?;
        Ok(match self.attempt(self.clients.writes.request::<Value>(request)).await {
            Ok(answer) => {
                info!(name, node = %write.node, "wrote: {write}");
                let seen = match &write.change {
                    // Another answer is the object, which waits for a finalizer.
                    FrrChange::Delete { uid, .. } if answer["kind"] == "Status" => Seen::Deleted(uid.clone()),
                    FrrChange::Create { .. } | FrrChange::Replace { .. } | FrrChange::Delete { .. } => {
                        let stored = serde_json::from_value::<SideWatched<FrrConfiguration>>(answer)?;
                        stored.into_value().map_or(Seen::Nothing, |found| Seen::Frr(Box::new(found)))
                    }
                };
                (Answer::Done, seen)
            }
            Err(answer) => {
                match &answer {
                    Answer::Unknown(why) => {
                        warn!(name, node = %write.node, why, "FRRConfiguration maybe not written");
                    }
                    Answer::Refused(why, _) => {
                        warn!(name, node = %write.node, why, "FRRConfiguration refused");
                    }
                    Answer::Done | Answer::Conflict(_) => {}
                }
                (answer, Seen::Nothing)
            }
        })
    }
}
