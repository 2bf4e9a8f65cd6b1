//! The clients: one for reads and watches, one for writes that repeats nothing by itself, and the reads that several
//! parts share.

use std::time::Duration;

use kube::api::{Api, ListParams};
use kube::client::ClientBuilder;
use kube::{Client, Config};
use tower::timeout::TimeoutLayer;
use tower::util::MapResponseLayer;

use super::retry_after;
use super::timeline::{StoreRewound, Timeline};
use crate::model::names::Revision;
use crate::model::observation::Object;
use crate::wire::watched::{Watched, Wire};

/// How this controller signs its writes; constant across versions.
pub const FIELD_MANAGER: &str = "cilium-node-ipam";

/// After how many seconds of silence a watch is requested anew, as kube takes it. It bounds how stale a watch can be
/// that broke without a sign.
pub(super) const WATCH_SECONDS: u32 = 60;
/// How much longer than a watch lasts a connection may be silent: the server ends each watch in time.
const SILENCE_MARGIN: Duration = Duration::from_secs(10);

/// Both clients.
#[derive(Clone)]
pub struct Clients {
    /// For reads and watches.
    pub reads: Client,
    /// For writes: a write that may have been applied is settled by reading, and never repeated by the client.
    pub writes: Client,
    /// How long one request may take.
    pub timeout: Duration,
}

/// Why a read came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The server refused, or could not be reached.
    #[error(transparent)]
    Kube(#[from] kube::Error),
    /// No answer came in time.
    #[error("no answer within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    /// The list has no resource version that is an integer.
    #[error("the list has the resource version `{0}`, which is no integer")]
    NoRevision(String),
    /// The store went back.
    #[error(transparent)]
    StoreRewound(#[from] StoreRewound),
}

impl ReadError {
    /// How long the server asks to wait.
    #[must_use]
    pub fn asked_wait(&self) -> Option<Duration> {
        if let Self::Kube(error) = self { retry_after::asked_by(error) } else { None }
    }
}

impl Clients {
    /// Clients of a cluster.
    ///
    /// kube waits for ever for the answer to a list and for the beginning of a watch, and only the watch that has begun
    /// has a limit of its own. So the client that reads limits the wait for the head of each answer, and the silence of
    /// a connection that is to bring the rest.
    pub fn new(config: &Config, timeout: Duration) -> Result<Self, kube::Error> {
        let mut reads = config.clone();
        reads.default_retry = false;
        let writes = reads.clone();
        reads.read_timeout = Some(Duration::from_secs(WATCH_SECONDS.into()) + SILENCE_MARGIN);
        let readable = MapResponseLayer::new(retry_after::with_status);
        let limit = TimeoutLayer::new(timeout);
        let reads = ClientBuilder::try_from(reads)?.with_layer(&readable).with_layer(&limit).build();
        let writes = ClientBuilder::try_from(writes)?.with_layer(&readable).build();
        Ok(Self { reads, writes, timeout })
    }

    /// A consistent list of a selection of one kind: the objects, and the revision that the list shows.
    ///
    /// For short lists only; a whole kind is listed page by page by its watch.
    pub async fn list<W: Wire>(
        &self,
        params: &ListParams,
        timeline: &Timeline,
    ) -> Result<(Revision, Vec<Object>), ReadError> {
        let before = timeline.highest();
        let api: Api<Watched<W>> = Api::all(self.reads.clone());
        let list = tokio::time::timeout(self.timeout, api.list(params))
            .await
            .map_err(|_| ReadError::TimedOut(self.timeout))??;
        let text = list.metadata.resource_version.unwrap_or_default();
        let revision = Revision::parse(&text).ok_or(ReadError::NoRevision(text))?;
        if W::GROUP.is_empty() {
            // Kinds of the core group may live in another store.
        } else {
            timeline.read(revision, before)?;
        }
        Ok((revision, list.items.into_iter().map(Watched::into_object).collect()))
    }

    /// How far the store of a kind has come.
    pub async fn revision<W: Wire>(&self, timeline: &Timeline) -> Result<Revision, ReadError> {
        self.list::<W>(&ListParams::default().limit(1), timeline).await.map(|(revision, _)| revision)
    }
}
