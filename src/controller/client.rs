//! The clients: one for reads and watches, one for writes that repeats nothing by itself, and the consistent lists that
//! several parts need.

use std::future::Future;
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request, Response};
use kube::api::{Api, ListParams, PostParams};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::core::{ObjectList, Status};
use kube::{Client, Config};
use tower::BoxError;
use tower::timeout::TimeoutLayer;
use tower::util::{BoxService, MapResponseLayer};

use super::connectivity::{Connectivity, Observe};
use super::lead::{Fence, Lead};
use super::retry_after;
use super::timeline::{StoreRewound, Timeline};
use crate::model::observation::{Listing, Object};
use crate::model::revision::{AnyRevision, Revision};
use crate::wire::watched::{Watched, Wire};

/// The name under which this controller writes; the same in every version.
pub const FIELD_MANAGER: &str = "cilium-node-ipam";

/// The parameters with which this controller creates and replaces objects.
pub(super) fn post_params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// Objects per page of a list. The client copies a page before it is decoded, so this bounds the peak of memory.
pub(super) const PAGE_SIZE: u32 = 100;
/// After how many seconds of silence a watch is requested anew, as kube takes it. It bounds how stale a watch can be
/// that broke without a sign.
pub(super) const WATCH_SECONDS: u32 = 60;
/// How much longer than a watch a connection may be silent. The server closes each watch in time, so a connection
/// that is silent for longer is lost.
const SILENCE_MARGIN: Duration = Duration::from_secs(10);

/// The connection to a server, as kube builds one.
pub type Transport = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// Both clients.
#[derive(Clone)]
pub struct Clients {
    /// For reads and watches.
    pub reads: Client,
    /// For writes: a write that may have been applied is settled by reading, and never repeated by the client.
    pub writes: Client,
    /// The time limit of one request.
    pub timeout: Duration,
    /// The contact with the server, which sees every request of both.
    pub connectivity: Connectivity,
    /// The lead: without it no write is sent.
    pub lead: Lead,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The server refused, or could not be reached.
    #[error("{}", words_of(.0))]
    Kube(kube::Error),
    /// No answer came in time.
    #[error("no answer within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    /// The list has no resource version that is an integer.
    #[error("the resource version of the list is `{0}`, which is not an integer")]
    NoRevision(String),
    /// The store was restored from a backup.
    #[error(transparent)]
    StoreRewound(#[from] StoreRewound),
}

impl From<kube::Error> for ReadError {
    fn from(error: kube::Error) -> Self {
        Self::Kube(error)
    }
}

/// An answer for people: its message and code.
pub(super) fn words_of_answer(status: &Status) -> String {
    explained(status, format!("{} ({})", status.message, status.code))
}

/// An answer behind its cause, where its message does not name a remedy.
pub(super) fn explained(status: &Status, answer: String) -> String {
    // Only the message shows that a definition is being deleted.
    if status.message.contains("custom resource definition is terminating") {
        return format!(
            "the CustomResourceDefinition of this kind is being deleted; install it again when it is gone: {answer}"
        );
    }
    answer
}

/// An error for people. kube shows an answer as a Rust structure.
pub(super) fn words_of(error: &kube::Error) -> String {
    match error {
        // The body of a path that the server does not know.
        kube::Error::Api(status) if status.code == 404 && status.message.contains("page not found") => {
            "the API server does not serve this kind (404): install its CustomResourceDefinition".to_owned()
        }
        kube::Error::Api(status) => words_of_answer(status),
        kube::Error::Service(error) => error.to_string(),
        other => other.to_string(),
    }
}

impl ReadError {
    /// The wait that the server asks for.
    #[must_use]
    pub fn asked_wait(&self) -> Option<Duration> {
        self.answer().and_then(retry_after::asked_for)
    }

    /// The answer of the server, if there was one.
    #[must_use]
    pub fn answer(&self) -> Option<&Status> {
        if let Self::Kube(kube::Error::Api(status)) = self { Some(status) } else { None }
    }

    /// Whether the same request would get the same answer until an administrator changes the cluster or the
    /// credentials: no valid credentials (401), no right to read this (403), or no such kind (404).
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Kube(kube::Error::Api(status)) => matches!(status.code, 401 | 403 | 404),
            Self::StoreRewound(_) => true,
            Self::Kube(_) | Self::TimedOut(_) | Self::NoRevision(_) => false,
        }
    }
}

impl Clients {
    /// Clients of a cluster.
    ///
    /// kube waits without limit for the answer to a list and for the start of a watch; only a watch that has started
    /// has a limit. So the client for reads limits two times: the wait for the head of each answer, and how long the
    /// connection may be silent while the rest arrives.
    pub fn new(
        config: &Config,
        timeout: Duration,
        connectivity: Connectivity,
        lead: Lead,
    ) -> Result<Self, kube::Error> {
        Self::by(config, timeout, connectivity, lead, ClientBuilder::try_from)
    }

    /// The same, with `connect` for the connection to the server.
    pub fn by<E>(
        config: &Config,
        timeout: Duration,
        connectivity: Connectivity,
        lead: Lead,
        connect: impl Fn(Config) -> Result<ClientBuilder<Transport>, E>,
    ) -> Result<Self, E> {
        let mut reads = config.clone();
        reads.default_retry = false;
        let writes = reads.clone();
        reads.read_timeout = Some(Duration::from_secs(WATCH_SECONDS.into()) + SILENCE_MARGIN);
        let readable = MapResponseLayer::new(retry_after::with_status);
        let limit = TimeoutLayer::new(timeout);
        let seen = Observe::new(connectivity.clone(), &reads.cluster_url);
        let reads = connect(reads)?.with_layer(&readable).with_layer(&limit);
        let reads = reads.with_layer(&seen).build();
        let writes = connect(writes)?.with_layer(&readable).with_layer(&seen);
        // Outside of the contact: a write that is not sent says nothing about the server.
        let writes = writes.with_layer(&Fence(lead.clone())).build();
        Ok(Self { reads, writes, timeout, connectivity, lead })
    }

    /// A consistent list of a selection of one kind: the revision of the list, and the objects.
    ///
    /// For short lists only; a whole kind is listed page by page, by its watch or by [`Self::list_kind`].
    pub async fn list<W: Wire>(
        &self,
        params: &ListParams,
        timeline: &Timeline,
    ) -> Result<(Revision<W::Store>, Vec<Object>), ReadError> {
        let before = timeline.highest();
        let list = self.page::<W>(params).await?;
        let text = list.metadata.resource_version.unwrap_or_default();
        let revision = Revision::parse(&text).ok_or(ReadError::NoRevision(text))?;
        if let Some(custom) = AnyRevision::from(revision).within() {
            timeline.read(custom, before)?;
        }
        Ok((revision, list.items.into_iter().map(Watched::into_object).collect()))
    }

    /// The revision that the store of a kind has reached.
    pub async fn revision<W: Wire>(&self, timeline: &Timeline) -> Result<Revision<W::Store>, ReadError> {
        self.list::<W>(&ListParams::default().limit(1), timeline).await.map(|(revision, _)| revision)
    }

    /// All objects of a kind, page by page, between two reads of the store's revision: the list is not older than the
    /// first and not newer than the second. Calls `on_page` after each page with the number of objects so far.
    ///
    /// An error fails the whole list, and the next try reads the revision anew.
    pub async fn list_kind<W: Wire>(
        &self,
        timeline: &Timeline,
        mut on_page: impl FnMut(usize),
    ) -> Result<Listing, ReadError> {
        let at_least = self.revision::<W>(timeline).await?;
        let mut objects = Vec::new();
        let mut params = ListParams::default().limit(PAGE_SIZE);
        loop {
            // All pages show the revision of the first, which may be older than objects that were seen since.
            let page = self.page::<W>(&params).await?;
            for object in page.items.into_iter().map(Watched::into_object) {
                timeline.saw_object(&object);
                objects.push(object);
            }
            on_page(objects.len());
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        let at_most = self.revision::<W>(timeline).await?;
        Ok(Listing { kind: W::KIND, at_least: at_least.into(), at_most: at_most.into(), objects })
    }

    async fn page<W: Wire>(&self, params: &ListParams) -> Result<ObjectList<Watched<W>>, ReadError> {
        let api: Api<Watched<W>> = Api::all(self.reads.clone());
        self.within_timeout(api.list(params)).await
    }

    /// The answer to one read, if it comes in time.
    pub(super) async fn within_timeout<T>(
        &self,
        read: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ReadError> {
        self.limited(read).await.map_err(ReadError::TimedOut)?.map_err(ReadError::Kube)
    }

    /// The result of one request, or the time limit if there is none by then.
    pub(super) fn limited<T>(
        &self,
        request: impl Future<Output = T>,
    ) -> impl Future<Output = Result<T, Duration>> {
        tokio::time::timeout(self.timeout, request).map(|end| end.map_err(|_| self.timeout))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tower::Layer as _;

    use super::*;
    use crate::wire::{Claims, Nodes};

    /// The requests to a server of a test: for each its path behind the API group, and its query.
    pub(in super::super) type Asked = Arc<Mutex<Vec<String>>>;

    /// The code of a server that does not answer, as a watch on which nothing happens.
    pub(in super::super) const NO_ANSWER: u16 = 0;

    /// Clients of a server that answers a request, given as path and query, with a status code and a body. A string is
    /// the text of the body.
    pub(in super::super) fn answered_by(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (Clients, Asked) {
        let asked = Asked::default();
        let (noted, answer) = (asked.clone(), Arc::new(answer));
        let service = tower::service_fn(move |request: Request<Body>| {
            let target = request.uri().to_string();
            // `/api/v1/nodes?limit=1` is noted as `nodes?limit=1`.
            noted.lock().unwrap().push(target.rsplit('/').next().unwrap().to_owned());
            let (code, body) = answer(&target);
            let text = if let Value::String(text) = body { text } else { body.to_string() };
            let response = Response::builder().status(code.max(100)).body(Body::from(text.into_bytes()));
            async move {
                if code == NO_ANSWER {
                    std::future::pending::<()>().await;
                }
                Ok::<_, std::convert::Infallible>(response.unwrap())
            }
        });
        let connectivity = Connectivity::default();
        let client = Client::new(
            Observe::new(connectivity.clone(), &"https://server".parse().unwrap()).layer(service),
            "default",
        );
        let timeout = Duration::from_secs(10);
        let lead = Lead::unelected();
        (Clients { reads: client.clone(), writes: client, timeout, connectivity, lead }, asked)
    }

    /// A list at this revision with objects of these names.
    pub(in super::super) fn list(revision: u64, names: &[&str], token: &str) -> Value {
        let items: Vec<Value> = names
            .iter()
            .map(|name| json!({"metadata": {"name": name, "uid": "u", "resourceVersion": "5"}}))
            .collect();
        json!({"metadata": {"resourceVersion": revision.to_string(), "continue": token}, "items": items})
    }

    /// The answer of a server that refuses with this code.
    pub(in super::super) fn refusal(code: u16) -> (u16, Value) {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("refused with {code}"), "reason": "Test", "code": code,
        });
        (code, status)
    }

    #[tokio::test]
    async fn a_kind_is_listed_page_by_page_between_two_probes() {
        let revisions = Mutex::new(7..);
        let (clients, asked) = answered_by(move |target| {
            let revision = revisions.lock().unwrap().next().unwrap();
            (
                200,
                if target.ends_with("continue=more") {
                    // As a server answers: the pages of one list have the revision of the first.
                    list(8, &["c"], "")
                } else if target.ends_with("limit=100") {
                    list(revision, &["a", "b"], "more")
                } else {
                    list(revision, &["a"], "more")
                },
            )
        });
        let timeline = Timeline::default();
        let mut progress = Vec::new();
        let listing =
            clients.list_kind::<Nodes>(&timeline, |n_objects| progress.push(n_objects)).await.unwrap();
        let names: Vec<String> = listing.objects.iter().map(Object::name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(
            (listing.at_least, listing.at_most),
            (AnyRevision::of(listing.kind, 7), AnyRevision::of(listing.kind, 10))
        );
        assert_eq!(progress, [2, 3]);
        let expected =
            ["nodes?&limit=1", "nodes?&limit=100", "nodes?&limit=100&continue=more", "nodes?&limit=1"];
        assert_eq!(*asked.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn a_list_from_a_store_that_went_back_is_refused() {
        let (clients, _) = answered_by(|_| (200, list(7, &[], "")));
        let timeline = Timeline::default();
        timeline.saw(Revision::of(9));
        let error = clients.list_kind::<Claims>(&timeline, |_| {}).await.unwrap_err();
        assert!(matches!(error, ReadError::StoreRewound(_)) && error.is_final(), "{error}");
    }

    #[test]
    fn an_answer_is_shown_in_words() {
        let check = |code: u16, message: &str, expected: &str| {
            let status = Status::failure(message, "Reason").with_code(code).boxed();
            assert_eq!(ReadError::from(kube::Error::Api(status)).to_string(), expected);
        };
        check(403, "nodes is forbidden", "nodes is forbidden (403)");
        check(
            404,
            "404 page not found\n",
            "the API server does not serve this kind (404): install its CustomResourceDefinition",
        );
    }
}
