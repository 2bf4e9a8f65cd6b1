//! Requests to a GoBGP daemon by gRPC. Knows no policy.
//!
//! Keeps these invariants. The lead is checked right before each change is sent, and no answer is awaited once the
//! lead is over. Each change has a deadline that is shorter than a Lease. After a request without an answer the
//! connection is closed, and the next request makes another one.

use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tracing::{debug, info, warn};

use super::input::Input;
use super::lead::Lead;
use super::write_slots::WriteSlots;
use crate::model::gobgp::{Rib, RibChange, RibFailure, RibNews, RibOutcome, RibRequest};
use crate::net::cidr::Family;
use crate::wire::gobgp::{self, PathId, api, method};

/// The deadline of a change, with its connection: shorter than `--lease-duration` may be.
const CHANGE_WITHIN: Duration = Duration::from_secs(5);
/// The deadline of a list: at 20,000 paths a daemon takes about a second.
const LIST_WITHIN: Duration = Duration::from_secs(30);
/// How long an idle connection may be silent before a keep-alive is sent, and how long that may stay unanswered.
const PROBED_AFTER: Duration = Duration::from_secs(30);

/// An address of a daemon that can't be one, as the user gave it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{0}` is not HOST:PORT")]
pub struct NoAddress(String);

/// The client of a GoBGP daemon.
#[derive(Debug, Clone)]
pub struct Daemon {
    endpoint: Arc<Endpoint>,
    /// The connection, which is made by the first request.
    channel: Arc<Mutex<Option<Channel>>>,
    path_id: PathId,
}

/// Why a request to the daemon was not carried out.
enum Failed {
    /// The daemon refuses it.
    Refused(String),
    /// It has no answer.
    Unanswered(String),
}

impl Daemon {
    /// The client of the daemon at this address. It connects when it is first used.
    pub fn new(address: &str, path_id: PathId) -> Result<Self, NoAddress> {
        let no_address = || NoAddress(address.to_owned());
        let (host, port) = address.rsplit_once(':').ok_or_else(no_address)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(no_address());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| no_address())?;
        let endpoint = endpoint
            .connect_timeout(CHANGE_WITHIN)
            .http2_keep_alive_interval(PROBED_AFTER)
            .keep_alive_timeout(CHANGE_WITHIN);
        Ok(Self { endpoint: Arc::new(endpoint), channel: Arc::default(), path_id })
    }

    /// Carries out a request.
    pub(super) async fn carry_out(
        &self,
        request: RibRequest,
        lead: &Lead,
        places: &WriteSlots,
    ) -> RibOutcome {
        match request {
            RibRequest::List => match self.list().await {
                Ok(rib) => RibOutcome::Listed(rib),
                Err(why) => {
                    self.disconnect();
                    RibOutcome::Unlisted(RibFailure::Unanswered(why))
                }
            },
            RibRequest::Change(changes) => self.change(changes, lead, places).await,
        }
    }

    /// Sends the changes one after the other. The first one without an answer is the last.
    async fn change(&self, changes: Vec<RibChange>, lead: &Lead, places: &WriteSlots) -> RibOutcome {
        let (mut applied, mut refused, mut failure) = (Vec::new(), Vec::new(), None);
        for change in changes {
            if !lead.holds() || places.are_closed() {
                failure = Some(RibFailure::NotSent("this replica does not hold the Lease".to_owned()));
                break;
            }
            let ended = tokio::select! {
                // The process may have been stopped in between, and the end of the lead counts first then.
                biased;
                () = lead.ended() => {
                    Err(Failed::Unanswered("the Lease was lost before the answer".to_owned()))
                }
                ended = timeout(CHANGE_WITHIN, self.send(&change)) => {
                    ended.unwrap_or_else(|_| Err(Failed::Unanswered(no_answer(CHANGE_WITHIN))))
                }
            };
            match ended {
                Ok(()) => {
                    info!(%change, "GoBGP has applied a change");
                    applied.push(change);
                }
                Err(Failed::Refused(why)) => {
                    warn!(%change, why, "GoBGP has refused a change");
                    refused.push((change, why));
                }
                Err(Failed::Unanswered(why)) => {
                    warn!(%change, why, "no answer of GoBGP");
                    self.disconnect();
                    failure = Some(RibFailure::Unanswered(why));
                    break;
                }
            }
        }
        RibOutcome::Changed { applied, refused, failure }
    }

    async fn send(&self, change: &RibChange) -> Result<(), Failed> {
        match change {
            RibChange::Add(prefix, path) => {
                let second = jiff::Timestamp::now().as_second();
                let request = gobgp::add(*prefix, path, self.path_id, second);
                self.call::<_, api::AddPathResponse>(method::ADD_PATH, request).await.map(drop)
            }
            RibChange::Withdraw(prefix) => {
                let request = gobgp::withdraw(*prefix, self.path_id);
                self.call::<_, api::DeletePathResponse>(method::DELETE_PATH, request).await.map(drop)
            }
        }
    }

    async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, Failed>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let mut client = Grpc::new(self.channel());
        client.ready().await.map_err(|error| failed(&Status::from_error(error.into())))?;
        let mut request = tonic::Request::new(request);
        request.set_timeout(CHANGE_WITHIN);
        let codec = ProstCodec::<Q, A>::default();
        let answer = client.unary(request, PathAndQuery::from_static(method), codec).await;
        answer.map(tonic::Response::into_inner).map_err(|status| failed(&status))
    }

    /// The paths of the global table, of both families.
    pub async fn list(&self) -> Result<Rib, String> {
        let list = async {
            let mut rib = Rib::default();
            for family in Family::ALL {
                self.list_of(family, &mut rib).await.map_err(|status| words_of(&status))?;
            }
            Ok(rib)
        };
        let listed = timeout(LIST_WITHIN, list).await.unwrap_or_else(|_| Err(no_answer(LIST_WITHIN)));
        match &listed {
            Ok(rib) => debug!(paths = rib.own.len(), others = rib.others.len(), "GoBGP has listed its table"),
            Err(why) => warn!(why, "GoBGP does not list its table"),
        }
        listed
    }

    async fn list_of(&self, family: Family, rib: &mut Rib) -> Result<(), Status> {
        let mut client = Grpc::new(self.channel());
        client.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<api::ListPathRequest, api::ListPathResponse>::default();
        let request = tonic::Request::new(gobgp::list(family));
        let path = PathAndQuery::from_static(method::LIST_PATH);
        let mut answers = client.server_streaming(request, path, codec).await?.into_inner();
        while let Some(answer) = answers.message().await? {
            if let Some(destination) = answer.destination {
                gobgp::enter(&destination, self.path_id, rib);
            }
        }
        Ok(())
    }

    /// Follows the changes of the global table over a connection of its own, until that is closed.
    /// Keep-alive closes a connection to a silent daemon.
    pub(super) async fn follow(&self, inputs: &mpsc::Sender<Input>) -> Result<(), String> {
        self.watch(inputs).await.map_err(|status| words_of(&status))
    }

    async fn watch(&self, inputs: &mpsc::Sender<Input>) -> Result<(), Status> {
        let failed = |error: tonic::transport::Error| Status::from_error(error.into());
        let mut client = Grpc::new(self.endpoint.connect().await.map_err(failed)?);
        client.ready().await.map_err(failed)?;
        let codec = ProstCodec::<api::WatchEventRequest, api::WatchEventResponse>::default();
        let request = tonic::Request::new(gobgp::watch());
        let path = PathAndQuery::from_static(method::WATCH_EVENT);
        let mut events = client.server_streaming(request, path, codec).await?.into_inner();
        let mut has_joined = false;
        // The receiver is gone only when the process stops.
        while let Some(event) = events.message().await? {
            if !std::mem::replace(&mut has_joined, true) {
                let _ = inputs.send(Input::RibNews(RibNews::Joined)).await;
            }
            let paths = gobgp::best_paths(&event, self.path_id);
            if !paths.is_empty() {
                let _ = inputs.send(Input::RibNews(RibNews::Changed(paths))).await;
            }
        }
        Ok(())
    }

    fn channel(&self) -> Channel {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.get_or_insert_with(|| self.endpoint.connect_lazy()).clone()
    }

    /// Closes the connection, with every open request.
    fn disconnect(&self) {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn no_answer(within: Duration) -> String {
    format!("no answer within {}", humantime::format_duration(within))
}

/// Whether an answer is one of the daemon's own. Only such an answer says that nothing was applied.
fn failed(status: &Status) -> Failed {
    let is_own = status.source().is_none();
    match status.code() {
        Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated
            if is_own =>
        {
            Failed::Refused(words_of(status))
        }
        _ => Failed::Unanswered(words_of(status)),
    }
}

/// An error for people, with its innermost cause.
fn words_of(status: &Status) -> String {
    if status.code() == Code::Unimplemented && status.source().is_none() {
        return "it does not serve the API of GoBGP 4; GoBGP 3 is not supported".to_owned();
    }
    let mut cause = status.source();
    let mut words = status.message().to_owned();
    while let Some(error) = cause {
        words = error.to_string();
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;
    use crate::model::gobgp::RibPath;

    fn changes() -> RibRequest {
        let path = RibPath { next_hop: "192.0.2.1".parse().unwrap(), communities: BTreeSet::new() };
        RibRequest::Change(vec![RibChange::Add("10.0.0.0/26".parse().unwrap(), path)])
    }

    fn failure(outcome: RibOutcome) -> RibFailure {
        match outcome {
            RibOutcome::Changed { applied, refused, failure: Some(failure) } => {
                assert!(applied.is_empty() && refused.is_empty(), "{applied:?} {refused:?}");
                failure
            }
            RibOutcome::Unlisted(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn no_change_is_sent_without_the_lead_or_as_the_process_stops() {
        // A connection would fail in another way.
        let daemon = Daemon::new("127.0.0.1:1", PathId(7)).unwrap();
        let places = WriteSlots::new(1);
        let without_lead = daemon.carry_out(changes(), &Lead::to_be_won(), &places).await;
        assert!(matches!(failure(without_lead), RibFailure::NotSent(_)));
        places.close();
        let stopping = daemon.carry_out(changes(), &Lead::unelected(), &places).await;
        assert!(matches!(failure(stopping), RibFailure::NotSent(_)));
    }

    /// The daemon accepts the connection, and says nothing.
    #[tokio::test]
    async fn an_answer_is_not_waited_for_once_the_lead_has_ended_and_the_connection_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let daemon = Daemon::new(&listener.local_addr().unwrap().to_string(), PathId(7)).unwrap();
        let (lead, places) = (Lead::to_be_won(), WriteSlots::new(1));
        lead.lasts_until(Instant::now() + Duration::from_secs(60));
        let silent = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut received = vec![0; 1024];
            assert!(connection.read(&mut received).await.unwrap() > 0);
            lead.end();
            // It is closed, with the open request.
            while connection.read(&mut received).await.is_ok_and(|n_bytes| n_bytes > 0) {}
        };
        let (outcome, ()) = tokio::join!(daemon.carry_out(changes(), &lead, &places), silent);
        assert_eq!(
            failure(outcome),
            RibFailure::Unanswered("the Lease was lost before the answer".to_owned())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_answers_no_probe_is_not_followed_any_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let daemon = Daemon::new(&listener.local_addr().unwrap().to_string(), PathId(7)).unwrap();
        let (inputs, mut received) = mpsc::channel(1);
        let began = Instant::now();
        let (followed, accepted) = tokio::join!(daemon.follow(&inputs), listener.accept());
        assert_eq!(followed, Err("operation timed out".to_owned()));
        assert_eq!(began.elapsed().as_secs(), (PROBED_AFTER + CHANGE_WITHIN).as_secs());
        assert!(accepted.is_ok() && received.try_recv().is_err(), "nothing was heard");
    }

    #[tokio::test]
    async fn a_daemon_that_is_away_is_a_failure_in_words() {
        let daemon = Daemon::new("127.0.0.1:1", PathId(7)).unwrap();
        let outcome = daemon.carry_out(RibRequest::List, &Lead::unelected(), &WriteSlots::new(1)).await;
        let RibFailure::Unanswered(why) = failure(outcome) else { panic!("it was sent") };
        assert!(why.contains("refused"), "{why}");
    }

    #[test]
    fn only_an_answer_of_the_daemon_itself_is_a_refusal() {
        let is_refusal = |status: Status| matches!(failed(&status), Failed::Refused(_));
        assert!(is_refusal(Status::new(Code::Unknown, "nexthop not found")));
        assert!(!is_refusal(Status::from_error(Box::new(std::io::Error::other("connection reset")))));
        assert!(!is_refusal(Status::new(Code::Unavailable, "closing")));
        let Failed::Refused(why) = failed(&Status::new(Code::Unimplemented, "unknown service")) else {
            panic!()
        };
        assert!(why.contains("GoBGP 4"), "{why}");
    }
}
