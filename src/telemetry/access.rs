//! Access to the metrics port: bearer tokens, and a short memory of the answers about them.
//!
//! Does not know the API server, which a [`Reviewer`] asks. Keeps one invariant: a token is neither kept nor logged, only
//! its digest is.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ring::digest;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::debug;

/// How long an answer of the API server counts, as in the components of Kubernetes. A right that is removed counts for that
/// long.
const COUNTS_FOR: Duration = Duration::from_secs(10);

/// The maximum number of answers in memory, many times the number of scrapers. Each has about a hundred bytes.
const MAX_ANSWERS: usize = 256;

/// The maximum number of reviews in flight, so that unknown tokens cost the API server little.
const MAX_REVIEWS: usize = 4;

/// The answer of the API server about a token and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The user may get the path.
    Allowed,
    /// The token is of no user.
    Unauthenticated,
    /// This user may not get the path.
    Forbidden(String),
}

/// The answer to come; an error is the reason why there is none.
pub type Review = Pin<Box<dyn Future<Output = Result<Verdict, String>> + Send>>;

/// Asks the API server about tokens.
pub trait Reviewer: Send + Sync + 'static {
    /// Asks whether the user of this token may get this path.
    fn review(&self, token: &str, path: &str) -> Review;
}

/// The digest of a token and a path.
type Key = [u8; digest::SHA256_OUTPUT_LEN];

/// Decides about requests. Clones share the memory.
#[derive(Clone)]
pub struct Access {
    reviewer: Arc<dyn Reviewer>,
    answers: Arc<Mutex<BTreeMap<Key, (Instant, Verdict)>>>,
    reviews: Arc<Semaphore>,
}

impl Access {
    /// The access that this reviewer grants.
    pub fn by(reviewer: impl Reviewer) -> Self {
        Self {
            reviewer: Arc::new(reviewer),
            answers: Arc::default(),
            reviews: Arc::new(Semaphore::new(MAX_REVIEWS)),
        }
    }

    /// Answers a request only if its user may get the path.
    pub(super) async fn guard(State(access): State<Self>, request: Request<Body>, next: Next) -> Response {
        let path = request.uri().path().to_owned();
        let Some(token) = token_of(request.headers()).map(str::to_owned) else {
            return unauthenticated("a bearer token is missing");
        };
        match access.verdict(&token, &path).await {
            Ok(Verdict::Allowed) => next.run(request).await,
            Ok(Verdict::Unauthenticated) => {
                unauthenticated("the API server does not accept the bearer token")
            }
            Ok(Verdict::Forbidden(user)) => {
                debug!(user, path, "forbidden");
                let words = format!(
                    "{user} may not get {path}: bind the user to a ClusterRole with the rule \
                     {{nonResourceURLs: [\"{path}\"], verbs: [\"get\"]}}\n"
                );
                (StatusCode::FORBIDDEN, words).into_response()
            }
            Err(why) => {
                debug!(path, why, "no review");
                let words = format!("the API server can't check the bearer token: {why}\n");
                (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
            }
        }
    }

    async fn verdict(&self, token: &str, path: &str) -> Result<Verdict, String> {
        let key = key_of(token, path);
        if let Some(verdict) = self.remembered(&key) {
            return Ok(verdict);
        }
        // The semaphore is never closed.
        let _permit = self.reviews.acquire().await.map_err(|error| error.to_string())?;
        // An equal request may have been answered meanwhile.
        if let Some(verdict) = self.remembered(&key) {
            return Ok(verdict);
        }
        let verdict = self.reviewer.review(token, path).await?;
        self.remember(key, verdict.clone());
        Ok(verdict)
    }

    fn remembered(&self, key: &Key) -> Option<Verdict> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, verdict) = answers.get(key)?;
        (at.elapsed() < COUNTS_FOR).then(|| verdict.clone())
    }

    fn remember(&self, key: Key, verdict: Verdict) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|_, (at, _)| at.elapsed() < COUNTS_FOR);
        if answers.len() >= MAX_ANSWERS
            && let Some(oldest) = answers.iter().min_by_key(|(_, (at, _))| *at).map(|(key, _)| *key)
        {
            answers.remove(&oldest);
        }
        answers.insert(key, (Instant::now(), verdict));
    }
}

/// The maximum length of a token in bytes. The API server is not asked about longer ones.
const LONGEST_TOKEN: usize = 16 * 1024;

fn unauthenticated(why: &str) -> Response {
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], format!("{why}\n")).into_response()
}

/// The bearer token of a request.
fn token_of(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let is_likely = !token.is_empty() && token.len() <= LONGEST_TOKEN;
    (scheme.eq_ignore_ascii_case("bearer") && is_likely).then_some(token)
}

fn key_of(token: &str, path: &str) -> Key {
    let mut context = digest::Context::new(&digest::SHA256);
    // A header has no such byte.
    for part in [token.as_bytes(), &[0], path.as_bytes()] {
        context.update(part);
    }
    let mut key = Key::default();
    key.copy_from_slice(context.finish().as_ref());
    key
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    /// An API server that knows two users, and notes the questions.
    #[derive(Clone, Default)]
    struct Server {
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Reviewer for Server {
        fn review(&self, token: &str, path: &str) -> Review {
            self.asked.lock().unwrap().push(format!("{token} {path}"));
            let verdict = match token {
                "scraper" => Ok(Verdict::Allowed),
                "visitor" => Ok(Verdict::Forbidden("jane".to_owned())),
                "late" => Err("no answer within 10s".to_owned()),
                _ => Ok(Verdict::Unauthenticated),
            };
            Box::pin(async { verdict })
        }
    }

    async fn ask(access: &Access, authorization: Option<&str>) -> (u16, String) {
        let routes = Router::new()
            .route("/metrics", get(|| async { "numbers" }))
            .layer(from_fn_with_state(access.clone(), Access::guard));
        let mut request = Request::builder().uri("/metrics");
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let answer = routes.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn only_a_user_with_the_right_gets_an_answer() {
        let access = Access::by(Server::default());
        for authorization in [None, Some("Bearer "), Some("Basic c2NyYXBlcg=="), Some("scraper")] {
            let (code, text) = ask(&access, authorization).await;
            assert_eq!((code, text.as_str()), (401, "a bearer token is missing\n"), "{authorization:?}");
        }
        assert_eq!(ask(&access, Some("Bearer scraper")).await, (200, "numbers".to_owned()));
        assert_eq!(ask(&access, Some("bearer scraper")).await.0, 200);
        assert_eq!(ask(&access, Some("Bearer stranger")).await.0, 401);
        let (code, text) = ask(&access, Some("Bearer visitor")).await;
        assert_eq!(code, 403);
        assert!(text.starts_with("jane may not get /metrics: bind the user"), "{text}");
        let (code, text) = ask(&access, Some("Bearer late")).await;
        let words = "the API server can't check the bearer token: no answer within 10s\n";
        assert_eq!((code, text.as_str()), (503, words));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_ten_seconds_and_an_error_not_at_all() {
        let server = Server::default();
        let access = Access::by(server.clone());
        let n_asked = || server.asked.lock().unwrap().len();
        for _ in 0..3 {
            ask(&access, Some("Bearer scraper")).await;
            ask(&access, Some("Bearer visitor")).await;
        }
        assert_eq!(n_asked(), 2);
        tokio::time::advance(COUNTS_FOR).await;
        ask(&access, Some("Bearer scraper")).await;
        assert_eq!(n_asked(), 3);
        ask(&access, Some("Bearer late")).await;
        ask(&access, Some("Bearer late")).await;
        assert_eq!(n_asked(), 5);
    }

    #[tokio::test]
    async fn the_memory_is_bounded_and_has_no_token() {
        let access = Access::by(Server::default());
        for number in 0..MAX_ANSWERS + 5 {
            ask(&access, Some(&format!("Bearer secret-{number}"))).await;
        }
        let answers = access.answers.lock().unwrap();
        assert_eq!(answers.len(), MAX_ANSWERS);
        assert!(!format!("{answers:?}").contains("secret"));
    }
}
