//! In which version the server serves a kind of Cilium's, by discovery. Knows no policy.
//!
//! Discovery is a step behind. For a moment it may name a version that is not served any more, and none while one
//! version replaces another. So its callers look again.

use http::{Request, StatusCode};
use serde::Deserialize;

use super::client::{Clients, ReadError};
use crate::wire::cilium_group::{ApiVersion, GROUP};

/// The answer of discovery about a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// It is served in this version, and in no newer one that the controller knows.
    In(ApiVersion),
    /// It is served in no version that the controller knows.
    Nowhere,
    /// The server does not say. Each version may be served.
    Unreported,
}

impl Served {
    /// The versions to try, in this order.
    pub(super) fn versions(self) -> Vec<ApiVersion> {
        match self {
            Self::In(version) => vec![version],
            Self::Nowhere => Vec::new(),
            Self::Unreported => ApiVersion::NEWEST_FIRST.to_vec(),
        }
    }
}

/// The kinds that a server serves in one version of a group.
#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    name: String,
}

/// Looks up in which version a kind is served. `plural` is its name in paths.
pub(super) async fn served(clients: &Clients, plural: &str) -> Result<Served, ReadError> {
    for version in ApiVersion::NEWEST_FIRST {
        let path = format!("/apis/{GROUP}/{}", version.as_str());
        let request = Request::get(path).body(Vec::new()).expect("the path is one of a few, all valid");
        match clients.within_timeout(clients.reads.request::<Resources>(request)).await {
            Ok(found) if found.resources.iter().any(|resource| resource.name == plural) => {
                return Ok(Served::In(version));
            }
            Ok(_) => {}
            Err(error) => match error.answer().map(|status| status.code) {
                Some(code) if code == StatusCode::NOT_FOUND.as_u16() => {}
                // By default every user with credentials may ask (`system:discovery`).
                Some(code) if code == StatusCode::FORBIDDEN.as_u16() => return Ok(Served::Unreported),
                Some(_) | None => return Err(error),
            },
        }
    }
    Ok(Served::Nowhere)
}
