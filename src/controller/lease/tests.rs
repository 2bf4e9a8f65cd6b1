//! Tests of the election's I/O against a server in memory that knows one Lease, on a paused clock.

use std::sync::{Arc, Mutex};

use http::{Method, Request as HttpRequest, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::telemetry::api_health::Right;

const SECOND: Duration = Duration::from_secs(1);

/// A server with at most one Lease.
#[derive(Debug, Default)]
struct Server {
    lease: Option<Value>,
    revision: u64,
    /// The next write is carried out, and its answer never comes.
    loses_answer: bool,
    /// Every write is refused, as by a webhook.
    refuses: bool,
    /// Every request gets this answer, as while the server starts.
    answers: Option<(u16, Value)>,
    n_writes: usize,
    n_reads: usize,
}

impl Server {
    /// The code and body of the answer; `None` where none comes.
    fn answer(&mut self, method: &Method, body: Option<Value>) -> Option<(u16, Value)> {
        if let Some(answer) = self.answers.clone() {
            return Some(answer);
        }
        let Some(mut written) = body else {
            self.n_reads += 1;
            return Some(self.lease.clone().map_or_else(|| status(404, "NotFound"), |lease| (200, lease)));
        };
        self.n_writes += 1;
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        let fits = match (&self.lease, method == Method::POST) {
            (None, creates) => creates,
            (Some(lease), false) => version(lease) == version(&written),
            (Some(_), true) => false,
        };
        if self.refuses || !fits {
            return Some(status(409, if method == Method::POST { "AlreadyExists" } else { "Conflict" }));
        }
        self.revision += 1;
        written["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.lease = Some(written.clone());
        (!std::mem::take(&mut self.loses_answer)).then_some((200, written))
    }

    fn holder(&self) -> Option<&str> {
        self.lease.as_ref()?["spec"]["holderIdentity"].as_str()
    }

    fn hold(&mut self, holder: &str) {
        self.revision += 1;
        self.lease = Some(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": NAME, "resourceVersion": self.revision.to_string()},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": self.revision.to_string()},
        }));
    }
}

fn status(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason,
        "reason": reason, "code": code,
    });
    (code, status)
}

/// A candidate, its server, and all of its inputs and outputs.
struct Candidate {
    server: Arc<Mutex<Server>>,
    lead: Lead,
    telemetry: Telemetry,
    wish: watch::Sender<Wish>,
    inputs: mpsc::Receiver<Input>,
    _shown: mpsc::Sender<Option<DynamicObject>>,
    _part: tokio::task::JoinSet<anyhow::Result<()>>,
}

impl Candidate {
    fn start(server: Server) -> Self {
        let server = Arc::new(Mutex::new(server));
        let shared = server.clone();
        let service = tower::service_fn(move |request: HttpRequest<Body>| {
            let shared = shared.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect().await.unwrap().to_bytes();
                let body = (!bytes.is_empty()).then(|| serde_json::from_slice(&bytes).unwrap());
                let answer = shared.lock().unwrap().answer(&parts.method, body);
                let Some((code, body)) = answer else { std::future::pending().await };
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let election = Election {
            client: Client::new(service, "default"),
            clock: Clock::default(),
            namespace: "kube-system".to_owned(),
            identity: "me_1".to_owned(),
            timing: Timing::new(15 * SECOND, 10 * SECOND, 2 * SECOND).unwrap(),
            startup_taints: Vec::new(),
        };
        let (lead, telemetry) = (Lead::to_be_won(), Telemetry::start());
        let (wish, wished) = watch::channel(Wish::Lead);
        let (input, inputs) = mpsc::channel(8);
        let (shown, versions) = channel();
        let mut part = tokio::task::JoinSet::new();
        part.spawn(election.take_part(lead.clone(), telemetry.clone(), input, wished, versions));
        Self { server, lead, telemetry, wish, inputs, _shown: shown, _part: part }
    }

    /// Lets this time pass while the loop turns.
    async fn pass(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.telemetry.heartbeat.beat();
            tokio::time::sleep(SECOND / 10).await;
        }
    }

    fn server(&self) -> std::sync::MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_exist_is_created_and_renewed_and_released_at_the_end() {
    let mut candidate = Candidate::start(Server::default());
    candidate.pass(SECOND).await;
    assert!(candidate.lead.holds());
    assert!(matches!(candidate.inputs.try_recv(), Ok(Input::Leadership(Leadership::Leads))));
    candidate.pass(30 * SECOND).await;
    assert!(candidate.lead.holds());
    let n_writes = candidate.server().n_writes;
    assert!((12..=17).contains(&n_writes), "{n_writes} writes in 31 s");
    // The loop has returned, and receives nothing any more.
    candidate.inputs.close();
    release(&candidate.wish).await;
    assert!(!candidate.lead.holds());
    assert_eq!(candidate.server().holder(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_came_is_settled_by_reading() {
    let candidate = Candidate::start(Server { loses_answer: true, ..Server::default() });
    candidate.pass(4 * SECOND).await;
    assert!(!candidate.lead.holds(), "nobody has answered yet");
    candidate.pass(3 * SECOND).await;
    // The write had been applied: there is no second one before the next renewal.
    assert!(candidate.lead.holds());
    assert_eq!(candidate.server().holder(), Some("me_1"));
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_another_is_taken_over_when_it_has_not_changed_for_its_duration() {
    let mut server = Server::default();
    server.hold("you_2");
    let candidate = Candidate::start(server);
    candidate.pass(14 * SECOND).await;
    assert!(!candidate.lead.holds());
    assert_eq!(candidate.telemetry.leader(), Leader::Other("you_2".to_owned()));
    candidate.pass(2 * SECOND).await;
    assert!(candidate.lead.holds());
}

/// It renewed in time, and the news of it never came: the version of the write that takes over is too old.
#[tokio::test(start_paused = true)]
async fn a_holder_that_lives_is_not_taken_over_by_a_process_that_has_not_heard_of_it() {
    let mut server = Server::default();
    server.hold("you_2");
    let candidate = Candidate::start(server);
    candidate.pass(10 * SECOND).await;
    candidate.server().hold("you_2");
    candidate.pass(6 * SECOND).await;
    assert!(!candidate.lead.holds());
    assert_eq!(candidate.server().holder(), Some("you_2"));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_again_and_again_is_no_storm() {
    let candidate = Candidate::start(Server { refuses: true, ..Server::default() });
    candidate.pass(20 * SECOND).await;
    assert!(!candidate.lead.holds());
    let server = candidate.server();
    let n_requests = server.n_writes + server.n_reads;
    assert!(n_requests <= 30, "{n_requests} requests in 20 s");
}

#[tokio::test(start_paused = true)]
async fn a_lead_without_renewals_ends_at_its_deadline_and_the_loop_hears_of_it() {
    let mut candidate = Candidate::start(Server::default());
    candidate.pass(SECOND).await;
    candidate.server().refuses = true;
    candidate.pass(8 * SECOND).await;
    assert!(candidate.lead.holds());
    candidate.pass(3 * SECOND).await;
    assert!(!candidate.lead.holds());
    let mut reported = Vec::new();
    while let Ok(Input::Leadership(leadership)) = candidate.inputs.try_recv() {
        reported.push(leadership);
    }
    assert_eq!(reported, [Leadership::Leads, Leadership::StandsBy]);
    candidate.server().refuses = false;
    candidate.pass(3 * SECOND).await;
    assert!(candidate.lead.holds(), "it does not lead again");
}

/// It answers 503 while its paths are not installed, then 429 while its stores initialize.
#[tokio::test(start_paused = true)]
async fn a_server_that_returns_is_used_again_within_six_seconds() {
    let candidate = Candidate::start(Server::default());
    candidate.pass(SECOND).await;
    for asked in [1, 4] {
        assert!(candidate.lead.holds());
        candidate.server().answers = Some(status(503, "ServiceUnavailable"));
        candidate.pass(20 * SECOND).await;
        assert!(!candidate.lead.holds());
        let (code, mut initializing) = status(429, "TooManyRequests");
        initializing["details"] = json!({"retryAfterSeconds": asked});
        candidate.server().answers = Some((code, initializing));
        candidate.pass(5 * SECOND).await;
        candidate.server().answers = None;
        candidate.pass(6 * SECOND).await;
    }
    assert!(candidate.lead.holds());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_the_server_asks_for_is_kept() {
    let candidate = Candidate::start(Server::default());
    let (code, mut busy) = status(429, "TooManyRequests");
    busy["details"] = json!({"retryAfterSeconds": 20});
    candidate.server().answers = Some((code, busy));
    candidate.pass(SECOND).await;
    candidate.server().answers = None;
    candidate.pass(18 * SECOND).await;
    assert_eq!(candidate.server().n_reads, 0);
    candidate.pass(3 * SECOND).await;
    assert!(candidate.lead.holds());
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_hangs_loses_its_lead() {
    let candidate = Candidate::start(Server::default());
    candidate.pass(5 * SECOND).await;
    assert!(candidate.lead.holds());
    tokio::time::sleep(heartbeat::FRESH + 11 * SECOND).await;
    assert!(!candidate.lead.holds());
    let n_writes = candidate.server().n_writes;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(candidate.server().n_writes, n_writes, "it renews although the loop hangs");
    candidate.pass(3 * SECOND).await;
    assert!(candidate.lead.holds(), "it turns again");
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_forgotten_when_another_replica_leads() {
    let candidate = Candidate::start(Server::default());
    candidate.pass(SECOND).await;
    candidate.telemetry.api_health.forbid(right());
    candidate.pass(4 * SECOND).await;
    assert_eq!(candidate.telemetry.api_health.forbidden(Duration::ZERO).len(), 1);
    candidate.server().hold("other_1");
    candidate.pass(4 * SECOND).await;
    assert!(!candidate.lead.holds());
    assert_eq!(candidate.telemetry.api_health.forbidden(Duration::ZERO), []);
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_reported_while_a_dead_leader_is_in_the_lease() {
    let candidate = Candidate::start(Server { refuses: true, ..Server::default() });
    candidate.server().hold("dead_1");
    candidate.pass(20 * SECOND).await;
    candidate.telemetry.api_health.forbid(right());
    candidate.pass(6 * SECOND).await;
    assert!(candidate.server().n_writes > 0);
    assert_eq!(candidate.telemetry.api_health.forbidden(Duration::ZERO).len(), 1);
}

/// The right to renew the Lease.
fn right() -> Right {
    Right {
        verb: "update",
        group: "coordination.k8s.io".to_owned(),
        resource: LEASES.to_owned(),
        namespace: Some("kube-system".to_owned()),
        name: Some(NAME.to_owned()),
    }
}
