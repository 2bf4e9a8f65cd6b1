//! Access to the metrics port: bearer tokens, and a short memory of the answers about them.
//!
//! Does not know the API server, which a [`Reviewer`] asks. Keeps two invariants. A token is neither kept nor logged:
//! only its digest is. A client causes a bounded number of reviews that end in a refusal, for any tokens that it
//! sends.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ring::digest;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::debug;

/// How long an answer of the API server counts, as in the components of Kubernetes. A right that is removed counts for
/// that long.
const COUNTS_FOR: Duration = Duration::from_secs(10);

/// The maximum number of answers in memory, many times the number of scrapers. Each has about a hundred bytes.
const MAX_ANSWERS: usize = 256;

/// The maximum number of reviews in flight, so that unknown tokens cost the API server little.
const MAX_REVIEWS: usize = 4;

/// How long an accepted token is reviewed again, even if its client has also sent refused tokens. Kubernetes replaces
/// the tokens of pods once per hour.
const TRUSTED_FOR: Duration = Duration::from_secs(3600);

/// How many refusals a client may cause within [`COUNTS_FOR`]. A scraper causes none, and a person with a wrong token
/// a few. Reviews in flight may add [`MAX_REVIEWS`].
const MAX_REFUSALS: u32 = 8;

/// The maximum number of clients whose refusals are counted. While there are more, no unknown token of another client
/// is reviewed. 64 connections are open at a time, so only a client with many addresses reaches this number.
const MAX_CLIENTS: usize = 256;

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

/// Decides about the requests of one client. Clones share the memory.
#[derive(Clone)]
pub struct Access {
    client: IpAddr,
    reviewer: Arc<dyn Reviewer>,
    memory: Arc<Mutex<Memory>>,
    reviews: Arc<Semaphore>,
}

/// The memory of tokens and clients.
#[derive(Debug, Default)]
struct Memory {
    answers: BTreeMap<Key, (Instant, Verdict)>,
    /// When the first refusal of each client was, and how many there were since.
    refusals: BTreeMap<IpAddr, (Instant, u32)>,
}

/// Why a token is not reviewed, or the review has no answer.
#[derive(Debug, PartialEq, Eq)]
enum NoVerdict {
    /// The API server can't answer.
    Unanswered(String),
    /// The client has sent too many tokens that were refused.
    TooMany,
}

impl Access {
    /// The access that this reviewer grants.
    pub fn by(reviewer: impl Reviewer) -> Self {
        Self {
            client: IpAddr::from([0; 16]),
            reviewer: Arc::new(reviewer),
            memory: Arc::default(),
            reviews: Arc::new(Semaphore::new(MAX_REVIEWS)),
        }
    }

    /// The same for a client with this address.
    #[must_use]
    pub(super) fn of_client(&self, address: IpAddr) -> Self {
        Self { client: client(address), ..self.clone() }
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
            Err(NoVerdict::Unanswered(why)) => {
                debug!(path, why, "no review");
                let words = format!("the API server can't check the bearer token: {why}\n");
                (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
            }
            Err(NoVerdict::TooMany) => {
                debug!(path, client = %access.client, "too many refused tokens");
                let words = format!("too many refused tokens from {}: retry later\n", access.client);
                let retry_after = [(RETRY_AFTER, COUNTS_FOR.as_secs().to_string())];
                (StatusCode::TOO_MANY_REQUESTS, retry_after, words).into_response()
            }
        }
    }

    async fn verdict(&self, token: &str, path: &str) -> Result<Verdict, NoVerdict> {
        let key = key_of(token, path);
        if let Some(verdict) = self.memory().remembered(&key) {
            return Ok(verdict);
        }
        // The semaphore is never closed.
        let permit = self.reviews.acquire().await;
        let _permit = permit.map_err(|error| NoVerdict::Unanswered(error.to_string()))?;
        {
            let memory = self.memory();
            // An equal request may have been answered meanwhile.
            if let Some(verdict) = memory.remembered(&key) {
                return Ok(verdict);
            }
            if !memory.may_review(&key, self.client) {
                return Err(NoVerdict::TooMany);
            }
        }
        let answer = self.reviewer.review(token, path).await;
        let mut memory = self.memory();
        if !matches!(answer, Ok(Verdict::Allowed)) {
            memory.refused(self.client);
        }
        let verdict = answer.map_err(NoVerdict::Unanswered)?;
        memory.remember(key, verdict.clone());
        Ok(verdict)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // No panic leaves the memory half changed.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn remembered(&self, key: &Key) -> Option<Verdict> {
        let (at, verdict) = self.answers.get(key)?;
        (at.elapsed() < COUNTS_FOR).then(|| verdict.clone())
    }

    /// Whether the API server may be asked about a token of this client.
    fn may_review(&self, key: &Key, client: IpAddr) -> bool {
        let is_trusted = self
            .answers
            .get(key)
            .is_some_and(|(at, verdict)| *verdict == Verdict::Allowed && at.elapsed() < TRUSTED_FOR);
        let is_recent = |first: &Instant| first.elapsed() < COUNTS_FOR;
        let n_clients = || self.refusals.values().filter(|(first, _)| is_recent(first)).count();
        is_trusted
            || match self.refusals.get(&client) {
                Some((first, n)) if is_recent(first) => *n < MAX_REFUSALS,
                Some(_) | None => n_clients() < MAX_CLIENTS,
            }
    }

    fn refused(&mut self, client: IpAddr) {
        self.refusals.retain(|_, (first, _)| first.elapsed() < COUNTS_FOR);
        let (_, n) = self.refusals.entry(client).or_insert((Instant::now(), 0));
        *n = n.saturating_add(1);
    }

    fn remember(&mut self, key: Key, verdict: Verdict) {
        self.answers.retain(|_, (at, verdict)| {
            at.elapsed() < if *verdict == Verdict::Allowed { TRUSTED_FOR } else { COUNTS_FOR }
        });
        // Refused tokens make room first.
        let age = |(at, verdict): &(Instant, Verdict)| (*verdict == Verdict::Allowed, *at);
        if self.answers.len() >= MAX_ANSWERS
            && let Some(oldest) =
                self.answers.iter().min_by_key(|(_, answer)| age(answer)).map(|(key, _)| *key)
        {
            self.answers.remove(&oldest);
        }
        self.answers.insert(key, (Instant::now(), verdict));
    }
}

/// The client with this address. A host usually has all addresses of an IPv6 network of 64 bits.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
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
    use futures::future::join_all;
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

    /// A client with this number.
    fn client_of(access: &Access, number: usize) -> Access {
        let [.., high, low] = number.to_be_bytes();
        access.of_client([10, 0, high, low].into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_wrong_tokens_causes_few_reviews_and_locks_out_no_scraper() {
        let server = Server::default();
        let access = Access::by(server.clone());
        let n_asked = || server.asked.lock().unwrap().len();
        let (attacker, other) = (client_of(&access, 1), client_of(&access, 2));
        assert_eq!(ask(&attacker, Some("Bearer scraper")).await.0, 200);
        tokio::time::advance(COUNTS_FOR).await;
        let tokens: Vec<String> = (0..500).map(|number| format!("Bearer wrong-{number}")).collect();
        let answers = join_all(tokens.iter().map(|token| ask(&attacker, Some(token)))).await;
        let most = usize::try_from(MAX_REFUSALS).unwrap() + MAX_REVIEWS;
        assert!((2..=most + 1).contains(&n_asked()), "{}", n_asked());
        let (code, text) = &answers[499];
        assert_eq!((*code, text.as_str()), (429, "too many refused tokens from 10.0.0.1: retry later\n"));

        let before = n_asked();
        assert_eq!(ask(&attacker, Some("Bearer wrong-500")).await.0, 429);
        assert_eq!(ask(&attacker, Some("Bearer scraper")).await.0, 200, "it was accepted before");
        assert_eq!(ask(&other, Some("Bearer visitor")).await.0, 403, "another client");
        assert_eq!(n_asked(), before + 2);
        tokio::time::advance(COUNTS_FOR).await;
        assert_eq!(ask(&attacker, Some("Bearer wrong-501")).await.0, 401, "it may try again");
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_without_an_answer_are_bounded_too() {
        let server = Server::default();
        let access = Access::by(server.clone());
        for _ in 0..50 {
            ask(&access, Some("Bearer late")).await;
        }
        assert_eq!(server.asked.lock().unwrap().len(), usize::try_from(MAX_REFUSALS).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn many_clients_together_cause_a_bounded_number_of_reviews() {
        let server = Server::default();
        let access = Access::by(server.clone());
        for number in 0..MAX_CLIENTS + 50 {
            ask(&client_of(&access, number), Some(&format!("Bearer wrong-{number}"))).await;
        }
        assert_eq!(server.asked.lock().unwrap().len(), MAX_CLIENTS);
    }

    #[test]
    fn a_client_is_an_address_or_a_network_of_64_bits() {
        for (address, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("fd00:1:2:3:4:5:6:7", "fd00:1:2:3::"),
        ] {
            assert_eq!(client(address.parse().unwrap()), expected.parse::<IpAddr>().unwrap());
        }
    }

    #[tokio::test]
    async fn the_memory_is_bounded_and_has_no_token() {
        let access = Access::by(Server::default());
        ask(&client_of(&access, 0), Some("Bearer scraper")).await;
        for number in 0..MAX_ANSWERS + 5 {
            let client = client_of(&access, number / 4);
            ask(&client, Some(&format!("Bearer secret-{number}"))).await;
        }
        let memory = access.memory();
        assert_eq!(memory.answers.len(), MAX_ANSWERS);
        assert!(memory.answers.values().any(|(_, verdict)| *verdict == Verdict::Allowed), "the scraper's");
        assert!(!format!("{memory:?}").contains("secret"));
    }
}
