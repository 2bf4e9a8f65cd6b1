//! Asks the API server about the tokens of scrapers: who a token is of (TokenReview), and whether that user may get a
//! path (SubjectAccessReview).
//!
//! Decides nothing, and keeps no answer.

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};

use super::client::{Clients, ReadError};
use crate::telemetry::access::{Review, Reviewer, Verdict};

/// Asks with the client for reads: a standby is scraped too, and the fence of writes would stop it.
#[derive(Clone)]
pub struct Reviews(pub Clients);

impl Reviewer for Reviews {
    fn review(&self, token: &str, path: &str) -> Review {
        let (clients, token, path) = (self.0.clone(), token.to_owned(), path.to_owned());
        Box::pin(async move { verdict(&clients, token, path).await })
    }
}

async fn verdict(clients: &Clients, token: String, path: String) -> Result<Verdict, String> {
    let reported = |error: ReadError| error.to_string();
    let spec = TokenReviewSpec { token: Some(token), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let reviews: Api<TokenReview> = Api::all(clients.reads.clone());
    let answer =
        clients.within_timeout(reviews.create(&PostParams::default(), &review)).await.map_err(reported)?;
    let status = answer.status.unwrap_or_default();
    // Its error says why a token is refused, too.
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
        return Ok(Verdict::Unauthenticated);
    };
    let name = user.username.clone().unwrap_or_default();
    let review = SubjectAccessReview { spec: question(user, path), ..SubjectAccessReview::default() };
    let reviews: Api<SubjectAccessReview> = Api::all(clients.reads.clone());
    let answer =
        clients.within_timeout(reviews.create(&PostParams::default(), &review)).await.map_err(reported)?;
    let is_allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
    Ok(if is_allowed { Verdict::Allowed } else { Verdict::Forbidden(name) })
}

fn question(user: UserInfo, path: String) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(path),
            verb: Some("get".to_owned()),
        }),
        ..SubjectAccessReviewSpec::default()
    }
}
