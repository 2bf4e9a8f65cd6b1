//! A proxy between one controller or agent and the API server. It loses answers, cuts connections, refuses and delays
//! requests, pauses the watch of a kind, and sets the dates of answers. It forwards requests with the rights of its
//! client.
//!
//! It counts how often each planted fault happened, so that a test can show that it happened at all. It also counts the
//! requests that pass, as far as tests need it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use futures::StreamExt as _;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::SignedDuration;
use k8s_openapi::jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::alarm::Bell;
use super::control_plane::ControlPlane;
use super::objects::Kind;

/// Numbers the kubeconfigs of this process.
static STARTED: AtomicU32 = AtomicU32::new(0);

type Body = UnsyncBoxBody<Bytes, anyhow::Error>;

/// A running proxy. Dropping it closes its connections.
pub(crate) struct Proxy {
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    upstream: Client,
    bell: Bell,
    rules: Mutex<Vec<Arc<Rule>>>,
    rng: Mutex<fastrand::Rng>,
    /// The kinds whose watches are paused.
    held: watch::Sender<BTreeSet<Kind>>,
    /// How far the clock of the server is ahead, as the dates of its answers show it.
    ahead: watch::Sender<SignedDuration>,
    passing: Mutex<Passing>,
    /// Whether each change and each answer is noted. A run of hours has no use for them, and no memory.
    notes_changes: AtomicBool,
    /// Requests whose clients have disconnected.
    late: Mutex<JoinSet<()>>,
}

/// The requests that have passed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passing {
    /// Creates of claims that the server refused because the claim exists.
    pub(crate) create_conflicts: usize,
    /// Patches of CiliumNodes that the server refused because of their version.
    pub(crate) refused_patches: usize,
    /// Patches and deletions of claims that the server refused because of their version.
    pub(crate) refused_moves: usize,
    /// The server's answers to writes of CiliumNodes, in this order.
    pub(crate) answers: Vec<Answered>,
    /// How often a write of each object was tried.
    pub(crate) writes: BTreeMap<(Kind, String), usize>,
    /// The CiliumNodes that are being patched, and the number of such patches of each.
    patching: BTreeMap<String, usize>,
    /// The maximum number of CiliumNodes that were being patched concurrently.
    pub(crate) most_patched: usize,
    /// Every request for a change, in the order of arrival.
    pub(crate) changes: Vec<Change>,
}

/// A request for a change.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The time of its arrival at the proxy.
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    /// The code of the server's answer. `None` before the answer.
    pub(crate) code: Option<u16>,
}

/// The answer to a write.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) code: u16,
}

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Patch,
    /// A PUT, as agents write.
    Update,
    Delete,
    /// A list or a read.
    Read,
    Watch,
}

/// One or more requests.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    /// `None` means any, here and below.
    verb: Option<Verb>,
    kind: Option<Kind>,
    name: Option<String>,
}

impl Requests {
    pub(crate) fn new(verb: Verb, kind: Kind) -> Self {
        Self { verb: Some(verb), kind: Some(kind), name: None }
    }

    /// All requests.
    pub(crate) fn all() -> Self {
        Self { verb: None, kind: None, name: None }
    }

    /// Only those for the object of this name.
    #[must_use]
    pub(crate) fn of(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    fn contains(&self, request: &Asked) -> bool {
        let named = self.name.is_none() || self.name == request.name;
        let is_verb = self.verb.is_none() || self.verb == request.verb;
        let is_kind = self.kind.is_none() || self.kind == request.kind;
        is_verb && is_kind && named
    }
}

/// The fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server carries it out, and its answer never arrives.
    AnswerLost,
    /// The connection closes before the server has seen it.
    CutBefore,
    /// The connection closes after the server has carried it out.
    CutAfter,
    /// It is answered with this code, and the server never sees it.
    Status(u16),
    /// The server carries it out, and it is answered with this code nevertheless.
    StatusAfter(u16),
    /// It is answered with 429, as by the server's flow control, and with this number of seconds to wait.
    TooMany(u32),
    /// The server carries it out, and its answer comes later.
    SlowAnswer(Duration),
    /// It reaches the server later.
    Delay(Duration),
    /// It reaches the server later, even if its client no longer waits for the answer.
    Late(Duration),
    /// It reaches the server when the plant is dropped.
    Stall,
}

/// How often a fault is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Often {
    Always,
    /// The first requests, this many.
    Times(usize),
    /// With this probability, and at most this often.
    Sometimes(f64, usize),
}

struct Rule {
    requests: Requests,
    fault: Fault,
    often: Often,
    fired: AtomicUsize,
    over: watch::Sender<bool>,
}

/// A planted fault. Dropping it removes the fault and forwards the requests that it stalls.
pub(crate) struct Planted {
    rule: Arc<Rule>,
    shared: Arc<Shared>,
}

impl Planted {
    pub(crate) fn fault(&self) -> Fault {
        self.rule.fault
    }

    /// How often the fault happened.
    pub(crate) fn fired(&self) -> usize {
        self.rule.fired.load(Ordering::SeqCst)
    }
}

impl std::fmt::Display for Planted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Requests { verb, kind, .. } = &self.rule.requests;
        write!(f, "{:?} on {verb:?} of {kind:?}: {}", self.rule.fault, self.fired())
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        self.shared.rules().retain(|rule| !Arc::ptr_eq(rule, &self.rule));
        self.rule.over.send_replace(true);
    }
}

/// A paused watch. It continues when this is dropped.
pub(crate) struct Held {
    kind: Kind,
    shared: Arc<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.held.send_modify(|held| {
            held.remove(&self.kind);
        });
    }
}

/// The purpose of a request, from its request line.
struct Asked {
    verb: Option<Verb>,
    kind: Option<Kind>,
    name: Option<String>,
    /// Its index among the changes, if it is one.
    change: Option<usize>,
}

impl Asked {
    fn of(method: &Method, uri: &Uri) -> Self {
        let mut segments =
            uri.path().split('/').skip_while(|segment| *segment != "v1" && !is_version(segment));
        segments.next();
        let plural = segments.next().unwrap_or_default();
        let kind = Kind::ALL.into_iter().find(|kind| kind.resource().plural == plural);
        let query = uri.query().unwrap_or_default();
        let verb = match *method {
            Method::POST => Some(Verb::Create),
            Method::PATCH => Some(Verb::Patch),
            Method::PUT => Some(Verb::Update),
            Method::DELETE => Some(Verb::Delete),
            Method::GET if query.split('&').any(|part| part == "watch=true") => Some(Verb::Watch),
            Method::GET => Some(Verb::Read),
            _ => None,
        };
        Self { verb, kind, name: segments.next().map(str::to_owned), change: None }
    }
}

fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

impl Proxy {
    /// Starts a proxy on a free port, for a controller.
    pub(crate) async fn start(control_plane: &ControlPlane, bell: Bell) -> Result<Self> {
        Self::start_as(control_plane, &control_plane.controller_kubeconfig, bell).await
    }

    /// Starts a proxy for a client with the rights of `kubeconfig`.
    pub(crate) async fn start_as(
        control_plane: &ControlPlane,
        kubeconfig: &Path,
        bell: Bell,
    ) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        // A client's request is forwarded only once.
        config.default_retry = false;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = format!("http://{}", listener.local_addr()?);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let kubeconfig = control_plane.dir().join(format!("proxy-{number}.kubeconfig"));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": server}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        });
        std::fs::write(&kubeconfig, text.to_string())?;
        let shared = Arc::new(Shared {
            upstream: Client::try_from(config)?,
            bell,
            rules: Mutex::default(),
            rng: Mutex::new(fastrand::Rng::with_seed(7)),
            held: watch::Sender::default(),
            ahead: watch::Sender::default(),
            passing: Mutex::default(),
            notes_changes: AtomicBool::new(true),
            late: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { kubeconfig, shared, _tasks: tasks })
    }

    /// The kubeconfig by which a client finds the proxy.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Lets `fault` happen to `requests`. Each request has at most one fault: the first planted one that is due.
    pub(crate) fn plant(&self, requests: Requests, fault: Fault, often: Often) -> Planted {
        let rule =
            Rule { requests, fault, often, fired: AtomicUsize::new(0), over: watch::Sender::new(false) };
        let rule = Arc::new(rule);
        self.shared.rules().push(Arc::clone(&rule));
        Planted { rule, shared: Arc::clone(&self.shared) }
    }

    /// Pauses the watch of `kind`. The other watches continue.
    pub(crate) fn hold(&self, kind: Kind) -> Held {
        self.shared.held.send_modify(|held| {
            held.insert(kind);
        });
        Held { kind, shared: Arc::clone(&self.shared) }
    }

    /// From now on the clock of the server appears to be ahead by this time: the dates of its answers are.
    pub(crate) fn put_clock_ahead(&self, by: SignedDuration) {
        self.shared.ahead.send_replace(by);
    }

    /// From now on only counts requests, and keeps none of them.
    pub(crate) fn keep_counts_only(&self) {
        self.shared.notes_changes.store(false, Ordering::Relaxed);
    }

    /// The requests that have passed so far.
    pub(crate) fn passing(&self) -> Passing {
        self.shared.passing().clone()
    }
}

impl Passing {
    /// The object with the most writes, and their number.
    pub(crate) fn most_written(&self, kind: Kind) -> (String, usize) {
        let of_kind = self.writes.iter().filter(|((of, _), _)| *of == kind);
        let most = of_kind.max_by_key(|(_, n_writes)| **n_writes);
        most.map(|((_, name), n_writes)| (name.clone(), *n_writes)).unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve(stream, Arc::clone(&shared)))),
                // For example no free file descriptors. The controller tries again.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Small answers would wait for each other otherwise.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| Arc::clone(&shared).handle(request));
    // An error cuts the connection, or the client has disconnected.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Vec<Arc<Rule>>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passing(&self) -> MutexGuard<'_, Passing> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one request; an error cuts the connection.
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>> {
        let asked = Asked::of(request.method(), request.uri());
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let name = match &asked.name {
            None if asked.verb == Some(Verb::Create) => name_in(&body),
            name => name.clone(),
        };
        let asked = Asked { name, ..asked };
        let _patching = self.note(&asked);
        let is_noted = parts.method != Method::GET && self.notes_changes.load(Ordering::Relaxed);
        let change = is_noted.then(|| self.note_change(parts.uri.path(), &body));
        let asked = Asked { change, ..asked };
        let Some(rule) = self.next_fault(&asked) else {
            return self.forward(&asked, Request::from_parts(parts, body)).await;
        };
        self.bell.ring();
        match rule.fault {
            Fault::CutBefore => return Err(anyhow!("cut")),
            Fault::Status(code) => return Ok(refusal(code, &asked)),
            Fault::TooMany(seconds) => return Ok(too_many(seconds)),
            Fault::Delay(pause) => tokio::time::sleep(pause).await,
            Fault::Stall => drop(rule.over.subscribe().wait_for(|over| *over).await),
            Fault::Late(pause) => {
                self.forward_late(asked, Request::from_parts(parts, body), pause);
                return std::future::pending().await;
            }
            Fault::AnswerLost | Fault::CutAfter | Fault::SlowAnswer(_) | Fault::StatusAfter(_) => {}
        }
        let answer = self.forward(&asked, Request::from_parts(parts, body)).await?;
        match rule.fault {
            Fault::AnswerLost => std::future::pending().await,
            Fault::CutAfter => Err(anyhow!("cut")),
            Fault::StatusAfter(code) => Ok(refusal(code, &asked)),
            Fault::SlowAnswer(pause) => {
                tokio::time::sleep(pause).await;
                Ok(answer)
            }
            Fault::CutBefore
            | Fault::Status(_)
            | Fault::TooMany(_)
            | Fault::Delay(_)
            | Fault::Late(_)
            | Fault::Stall => Ok(answer),
        }
    }

    /// Counts a write. Until the guard is dropped, the write counts as in flight.
    fn note(self: &Arc<Self>, asked: &Asked) -> Option<Patching> {
        let (Some(Verb::Create | Verb::Patch | Verb::Delete), Some(kind), Some(name)) =
            (asked.verb, asked.kind, &asked.name)
        else {
            return None;
        };
        let mut passing = self.passing();
        *passing.writes.entry((kind, name.clone())).or_default() += 1;
        if (asked.verb, kind) != (Some(Verb::Patch), Kind::CiliumNode) {
            return None;
        }
        *passing.patching.entry(name.clone()).or_default() += 1;
        passing.most_patched = passing.most_patched.max(passing.patching.len());
        drop(passing);
        Some(Patching(name.clone(), Arc::clone(self)))
    }

    /// Notes a request that asks for a change. Returns its number.
    fn note_change(&self, path: &str, body: &Bytes) -> usize {
        let mut passing = self.passing();
        let change = Change { at: Instant::now(), path: path.to_owned(), body: body.clone(), code: None };
        passing.changes.push(change);
        passing.changes.len() - 1
    }

    /// The first planted fault that is due.
    fn next_fault(&self, asked: &Asked) -> Option<Arc<Rule>> {
        let rules = self.rules();
        let due = rules.iter().find(|rule| {
            let fired = rule.fired.load(Ordering::SeqCst);
            rule.requests.contains(asked)
                && match rule.often {
                    Often::Always => true,
                    Often::Times(times) => fired < times,
                    Often::Sometimes(share, times) => {
                        fired < times && self.rng.lock().unwrap_or_else(PoisonError::into_inner).f64() < share
                    }
                }
        });
        let due = due?;
        due.fired.fetch_add(1, Ordering::SeqCst);
        Some(Arc::clone(due))
    }

    fn forward_late(self: &Arc<Self>, asked: Asked, request: Request<Bytes>, pause: Duration) {
        let shared = Arc::clone(self);
        self.late.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            tokio::time::sleep(pause).await;
            let _ = shared.forward(&asked, request).await;
        });
    }

    fn set_date(&self, headers: &mut HeaderMap) -> Result<()> {
        let date = headers.get_mut(header::DATE).ok_or_else(|| anyhow!("an answer without a date"))?;
        let ahead = DateTimeParser::new().parse_timestamp(date.as_bytes())? + *self.ahead.borrow();
        *date = DateTimePrinter::new().timestamp_to_rfc9110_string(&ahead)?.parse()?;
        Ok(())
    }

    async fn forward(&self, asked: &Asked, mut request: Request<Bytes>) -> Result<Response<Body>> {
        for name in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH] {
            request.headers_mut().remove(name);
        }
        let path = request.uri().path().to_owned();
        let request = request.map(|body| kube::client::Body::from(body.to_vec()));
        let (mut parts, body) = self.upstream.send(request).await?.into_parts();
        self.set_date(&mut parts.headers)?;
        if let Some(change) = asked.change {
            self.passing().changes[change].code = Some(parts.status.as_u16());
        }
        if let (Some(Verb::Patch | Verb::Update), Some(Kind::CiliumNode)) = (asked.verb, asked.kind)
            && self.notes_changes.load(Ordering::Relaxed)
        {
            let answered = Answered { at: Instant::now(), path, code: parts.status.as_u16() };
            self.passing().answers.push(answered);
        }
        if parts.status == StatusCode::CONFLICT {
            match (asked.verb, asked.kind) {
                (Some(Verb::Create), Some(Kind::Block)) => self.passing().create_conflicts += 1,
                (Some(Verb::Patch), Some(Kind::CiliumNode)) => self.passing().refused_patches += 1,
                (Some(Verb::Patch | Verb::Delete), Some(Kind::Block)) => self.passing().refused_moves += 1,
                _ => {}
            }
            self.bell.ring();
        }
        let body = body.map_err(anyhow::Error::from);
        let Some(Verb::Watch) = asked.verb else {
            // Complete, so that an answer is lost only after the server has carried the request out.
            let whole = Full::new(body.collect().await?.to_bytes());
            return Ok(Response::from_parts(parts, whole.map_err(from_infallible).boxed_unsync()));
        };
        let held = self.held.subscribe();
        let kind = asked.kind;
        let frames = BodyStream::new(body).then(move |frame| {
            let mut held = held.clone();
            async move {
                // The sender is dropped only with the proxy.
                let _ = held.wait_for(|held| kind.is_none_or(|kind| !held.contains(&kind))).await;
                frame
            }
        });
        Ok(Response::from_parts(parts, StreamBody::new(frames).boxed_unsync()))
    }
}

/// A patch of a CiliumNode in flight.
struct Patching(String, Arc<Shared>);

impl Drop for Patching {
    fn drop(&mut self) {
        let mut passing = self.1.passing();
        if let Some(n_patches) = passing.patching.get_mut(&self.0) {
            *n_patches -= 1;
            if *n_patches == 0 {
                passing.patching.remove(&self.0);
            }
        }
    }
}

fn name_in(body: &Bytes) -> Option<String> {
    let object: serde_json::Value = serde_json::from_slice(body).ok()?;
    object["metadata"]["name"].as_str().map(str::to_owned)
}

/// The API server's answer with this code.
fn refusal(code: u16, asked: &Asked) -> Response<Body> {
    let reason = match (code, asked.verb) {
        (409, Some(Verb::Create)) => "AlreadyExists",
        (409, _) => "Conflict",
        (422, _) => "Invalid",
        (500, _) => "InternalError",
        (504, _) => "Timeout",
        _ => "",
    };
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": format!("the proxy says {code}"), "reason": reason, "code": code,
    });
    answer(code, "application/json", status.to_string())
}

/// The server's flow control answers in plain text, without a `Status`.
fn too_many(seconds: u32) -> Response<Body> {
    let text = "Too many requests, please try again later.\n".to_owned();
    let mut answer = answer(429, "text/plain; charset=utf-8", text);
    answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    answer
}

fn answer(code: u16, content_type: &'static str, text: String) -> Response<Body> {
    let mut answer = Response::new(Full::new(Bytes::from(text)).map_err(from_infallible).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    answer
}

fn from_infallible(never: Infallible) -> anyhow::Error {
    match never {}
}
