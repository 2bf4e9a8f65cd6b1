//! Requests to the API server by verb, kind and code.
//!
//! All three are names from closed lists, so the number of series is bounded.

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;

use super::series::{Labels, Series};
use crate::telemetry::api_health::Right;

/// The counts. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ApiRequests(pub(super) Series<Labels<3>, Counter>);

impl ApiRequests {
    /// Starts the count of a request that needs this right; `None` if it concerns no object.
    pub fn begins(&self, right: Option<&Right>) -> SentRequest {
        let (verb, kind) = right.map_or(("get", "discovery"), |right| (right.verb, kind_of(&right.resource)));
        SentRequest { counts: self.clone(), verb, kind, code: NO_ANSWER }
    }
}

/// A request in flight. It is counted when this is dropped, so a request that is cut off counts too.
#[derive(Debug)]
#[must_use]
pub struct SentRequest {
    counts: ApiRequests,
    verb: &'static str,
    kind: &'static str,
    code: &'static str,
}

impl SentRequest {
    /// Notes the code of the answer.
    pub fn answered(mut self, code: StatusCode) {
        self.code = name_of(code);
    }
}

impl Drop for SentRequest {
    fn drop(&mut self) {
        self.counts.0.of(&[("verb", self.verb), ("kind", self.kind), ("code", self.code)]).inc();
    }
}

/// The code where there was no answer, or none in time.
const NO_ANSWER: &str = "none";

/// The kinds by their resources. The status of an object counts as the object.
const KINDS: [(&str, &str); 17] = [
    ("nodes", "Node"),
    ("ciliumnodes", "CiliumNode"),
    ("nodeippools", "NodeIPPool"),
    ("nodeipblocks", "NodeIPBlock"),
    ("configmaps", "ConfigMap"),
    ("leases", "Lease"),
    ("pods", "Pod"),
    ("events", "Event"),
    ("ciliumpodippools", "CiliumPodIPPool"),
    ("ciliumnodeconfigs", "CiliumNodeConfig"),
    ("frrconfigurations", "FRRConfiguration"),
    ("frrnodestates", "FRRNodeState"),
    ("ciliumbgpadvertisements", "CiliumBGPAdvertisement"),
    ("ciliumbgppeeringpolicies", "CiliumBGPPeeringPolicy"),
    ("tokenreviews", "TokenReview"),
    ("subjectaccessreviews", "SubjectAccessReview"),
    ("customresourcedefinitions", "CustomResourceDefinition"),
];

fn kind_of(resource: &str) -> &'static str {
    let resource = resource.split('/').next().unwrap_or_default();
    KINDS.iter().find(|(plural, _)| *plural == resource).map_or("other", |(_, kind)| kind)
}

/// The codes of the answers of an API server.
const CODES: [&str; 15] =
    ["200", "201", "400", "401", "403", "404", "409", "410", "413", "422", "429", "500", "502", "503", "504"];

/// The name of a code, or of its class.
fn name_of(code: StatusCode) -> &'static str {
    if let Some(name) = CODES.into_iter().find(|known| *known == code.as_str()) {
        return name;
    }
    match code.as_u16() / 100 {
        2 => "2xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    fn right(verb: &'static str, resource: &str) -> Right {
        Right { verb, group: String::new(), resource: resource.to_owned(), namespace: None, name: None }
    }

    #[test]
    fn requests_are_counted_by_names_from_closed_lists() {
        let requests = ApiRequests::default();
        requests.begins(Some(&right("patch", "ciliumnodes/status"))).answered(StatusCode::CONFLICT);
        requests.begins(Some(&right("list", "widgets"))).answered(StatusCode::IM_A_TEAPOT);
        drop(requests.begins(None));
        let count = |verb, kind, code| {
            let counter: Counter = requests.0.of(&[("verb", verb), ("kind", kind), ("code", code)]);
            counter.get()
        };
        assert_eq!(count("patch", "CiliumNode", "409"), 1);
        assert_eq!(count("list", "other", "4xx"), 1);
        assert_eq!(count("get", "discovery", "none"), 1);
    }
}
