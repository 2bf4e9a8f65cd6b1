//! The election: one Lease, by which one of several processes writes and the others are on standby.
//!
//! Sends the requests that [`decision`] names, one at a time, and derives the [`Lead`] from the answers. Does not
//! know the purpose of a lead. Keeps three invariants. A write carries the version that was read last, so of two
//! winners the second is refused. A lead counts from when its last successful renewal was *sent*. It is renewed only
//! while the loop turns.
//!
//! No address depends on it (`docs/invariants.md`): it keeps processes from repeating and undoing each other's work.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use kube::api::{Api, DynamicObject};
use kube::client::ClientBuilder;
use kube::{Client, Config};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tower::util::MapResponseLayer;
use tracing::{debug, info, warn};

use super::backoff;
use super::client::{FIELD_MANAGER, post_params};
use super::clock::Clock;
use super::connectivity::{Connectivity, Observe};
use super::input::Input;
use super::lead::Lead;
use super::named::{self, Named};
use super::retry_after;
use super::watch::Watches;
use crate::model::leadership::Leadership;
use crate::telemetry::api_health::{LEASE, LEASES};
use crate::telemetry::leader::Leader;
use crate::telemetry::{Telemetry, heartbeat};

mod decision;
mod record;

use decision::{Own, Sight, Step, decide};
pub use decision::{Timing, TimingError};
pub use record::{LAST_WRITE, PACE, STARTUP_TAINTS, VERSION};

/// The name of the Lease. It is fixed, so that two installations in one cluster exclude each other.
pub const NAME: &str = FIELD_MANAGER;

/// How many versions of the Lease that the watch has shown may wait. Only the last matters, and each is taken in at
/// once.
const CAPACITY: usize = 4;

/// How long the process waits before it exits until its Lease is given back. The kubelet grants it 30 s in all, and
/// its writes may take 10 s of them.
const RELEASED_WITHIN: Duration = Duration::from_secs(5);

/// An election in which this process takes part.
#[derive(Clone)]
pub struct Election {
    /// A client of its own, so that no other request delays a renewal.
    client: Client,
    /// For the times in the Lease, which people read.
    clock: Clock,
    /// The namespace of the Lease.
    namespace: String,
    /// The name of this process in the Lease.
    identity: String,
    timing: Timing,
    /// The startup taints that the command line adds, for commands that explain decisions.
    startup_taints: Vec<String>,
}

/// The wish of the process in the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// It can't serve yet: it only watches.
    LookOn,
    /// It can serve: it leads if it may.
    Lead,
    /// All of its writes have finished: it gives the Lease back.
    Release,
}

impl Election {
    /// An election by the Lease in `namespace`.
    pub fn new(
        config: &Config,
        connectivity: Connectivity,
        namespace: String,
        identity: String,
        timing: Timing,
        startup_taints: Vec<String>,
    ) -> Result<Self, kube::Error> {
        let mut config = config.clone();
        config.default_retry = false;
        let server = config.cluster_url.clone();
        let readable = MapResponseLayer::new(retry_after::with_status);
        let clock = connectivity.clock.clone();
        let client = ClientBuilder::try_from(config)?
            .with_layer(&readable)
            .with_layer(&Observe::new(connectivity, &server));
        Ok(Self { client: client.build(), clock, namespace, identity, timing, startup_taints })
    }

    fn api(&self, client: Client) -> Api<DynamicObject> {
        Api::namespaced_with(client, &self.namespace, &record::resource())
    }

    /// Follows the Lease until the watches are stopped.
    pub(super) async fn follow(
        self,
        watches: Watches,
        shown: mpsc::Sender<Option<DynamicObject>>,
    ) -> anyhow::Result<()> {
        let api = self.api(watches.clients.reads.clone());
        let lease = Named { api, name: NAME, kind: LEASE };
        named::follow(watches, lease, shown, |lease: Option<&DynamicObject>| lease.cloned()).await
    }

    /// Takes part until the wish is [`Wish::Release`] and that is done, or until the sender of wishes is dropped.
    pub(super) async fn take_part(
        self,
        lead: Lead,
        telemetry: Telemetry,
        inputs: mpsc::Sender<Input>,
        wish: watch::Receiver<Wish>,
        shown: mpsc::Receiver<Option<DynamicObject>>,
    ) -> anyhow::Result<()> {
        info!(identity = self.identity, namespace = self.namespace, lease = NAME, "waiting for the lead");
        let own = Own { name: self.identity.clone(), renewed: None, is_unsettled: false };
        let part = Part {
            election: self,
            lead,
            telemetry,
            began: Instant::now(),
            sight: Sight::default(),
            own,
            latest: None,
            in_doubt: None,
            rests_until: Duration::ZERO,
            announced: Leadership::StandsBy,
            has_complained: false,
            n_moved: 0,
        };
        part.play(inputs, wish, shown).await;
        Ok(())
    }
}

/// Gives the Lease back, if this process takes part in an election and holds it. All of its writes have finished.
pub(super) async fn release(wish: &watch::Sender<Wish>) {
    wish.send_replace(Wish::Release);
    if tokio::time::timeout(RELEASED_WITHIN, wish.closed()).await.is_err() {
        warn!("can't release Lease {NAME} within {RELEASED_WITHIN:?}; it will expire");
    }
}

/// The channel of [`Election::follow`].
pub(super) fn channel() -> (mpsc::Sender<Option<DynamicObject>>, mpsc::Receiver<Option<DynamicObject>>) {
    mpsc::channel(CAPACITY)
}

/// A request about the Lease, and when it was sent.
#[derive(Debug, Clone)]
struct Sent {
    at: Duration,
    /// The time that it writes as the time of the renewal; `None` for a read.
    renewal: Option<String>,
}

/// The outcome of a request about the Lease.
enum Answer {
    /// This is the Lease now, or there is none.
    Is(Option<Box<DynamicObject>>),
    /// The Lease is not as it was when the request was decided.
    Moved,
    /// The server refused, or did not answer in time: why, and the wait that it asks for.
    Failed(String, Option<Duration>),
}

type Request = Pin<Box<dyn Future<Output = (Sent, Answer)> + Send>>;

/// The part of this process in the election.
struct Part {
    election: Election,
    lead: Lead,
    telemetry: Telemetry,
    /// The zero of its times.
    began: Instant,
    sight: Sight,
    own: Own,
    /// The latest version of the Lease, with its revision.
    latest: Option<(u64, Box<DynamicObject>)>,
    /// A write without an answer: a read that finds the Lease as it would have made it shows that it was applied.
    in_doubt: Option<Sent>,
    /// Until when nothing is sent, after a failure.
    rests_until: Duration,
    /// The leadership that the loop last received.
    announced: Leadership,
    /// Whether the failures since the last answer have been logged.
    has_complained: bool,
    /// How often in a row the Lease was not as it was when a write was decided.
    n_moved: u32,
}

impl Part {
    async fn play(
        mut self,
        inputs: mpsc::Sender<Input>,
        mut wish: watch::Receiver<Wish>,
        mut shown: mpsc::Receiver<Option<DynamicObject>>,
    ) {
        let mut request: Option<Request> = None;
        let mut is_followed = true;
        loop {
            let wished = *wish.borrow_and_update();
            self.settle(wished);
            let step = self.step(wished);
            if request.is_none() {
                match step {
                    Some(Step::Wait(_)) => {}
                    Some(step) => request = Some(self.send(step)),
                    None if wished == Wish::Release => return self.release().await,
                    None => {}
                }
            }
            let news = self.lead.leadership();
            let wake = self.began + self.wake(step);
            tokio::select! {
                biased;
                changed = wish.changed() => if changed.is_err() { return },
                (sent, answer) = async { request.as_mut().expect("there is one").await }, if request.is_some() => {
                    request = None;
                    self.answered(sent, answer);
                }
                lease = shown.recv(), if is_followed => match lease {
                    Some(lease) => self.shown(lease),
                    // The process is about to exit. Its own requests show enough until then.
                    None => is_followed = false,
                },
                permit = inputs.reserve(), if news != self.announced => {
                    // Without a receiver the loop has returned; the Lease is yet to be released.
                    if let Ok(permit) = permit {
                        permit.send(Input::Leadership(news));
                    }
                    self.announced = news;
                }
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The request to send now, or until when to wait; `None` where this process does not want to lead.
    fn step(&self, wished: Wish) -> Option<Step> {
        let now = self.now();
        let silence = self.telemetry.heartbeat.silence();
        match wished {
            Wish::LookOn => None,
            // The known Lease may be out of date, and a write that is in doubt may be applied yet.
            Wish::Release if !self.own.is_unsettled => None,
            Wish::Release if self.rests_until > now => Some(Step::Wait(self.rests_until)),
            Wish::Release => Some(Step::Read),
            Wish::Lead if silence > heartbeat::FRESH => None,
            Wish::Lead if self.rests_until > now => Some(Step::Wait(self.rests_until)),
            Wish::Lead => Some(decide(&self.sight, &self.own, self.election.timing, now)),
        }
    }

    /// When to look at the time again: the step, the end of the lead, or the next look at the heartbeat of the loop.
    fn wake(&self, step: Option<Step>) -> Duration {
        let at = match step {
            Some(Step::Wait(at)) => at,
            Some(_) | None => Duration::MAX,
        };
        let ends = self.own.renewed.map_or(Duration::MAX, |renewed| self.election.timing.ends(renewed));
        at.min(ends).min(self.now() + self.election.timing.retry_period())
    }

    /// Gives up a lead whose time is over, or that the Lease gives to another, and shows who leads.
    fn settle(&mut self, wished: Wish) {
        if let Some(renewed) = self.own.renewed {
            let is_over = self.election.timing.ends(renewed) <= self.now();
            let is_lost = !self.sight.allows_lead_of(&self.own.name);
            if is_over || is_lost || wished == Wish::Release {
                self.own.renewed = None;
                self.lead.end();
                let holder = self.sight.holder().unwrap_or("nobody");
                if is_lost {
                    warn!(holder, "lost the lead: Lease {NAME} has another holder; on standby");
                } else if is_over {
                    let silence = self.telemetry.heartbeat.silence();
                    warn!(
                        ?silence,
                        "lost the lead: no renewal succeeded before --renew-deadline; on standby"
                    );
                }
            }
        }
        self.telemetry.set_leader(if self.lead.holds() {
            Leader::This
        } else {
            // A holder that has not renewed its Lease in time does not lead, even if no other can take it over.
            let is_led = self.sight.is_led_by_another(&self.own.name, self.election.timing, self.now());
            match self.sight.holder() {
                Some(holder) if is_led => Leader::Other(holder.to_owned()),
                Some(_) | None => Leader::Nobody,
            }
        });
    }

    /// Takes in a version of the Lease, or its absence.
    fn show(&mut self, lease: Option<Box<DynamicObject>>) {
        let revision =
            |lease: &DynamicObject| lease.metadata.resource_version.as_deref()?.parse::<u64>().ok();
        let versioned = lease.map(|lease| (revision(&lease).unwrap_or_default(), lease));
        // An older version is no news: the watch may be behind the answers.
        if let (Some((new, _)), Some((latest, _))) = (&versioned, &self.latest)
            && new < latest
        {
            return;
        }
        let before = self.sight.holder().map(str::to_owned);
        let found = versioned.as_ref().map(|(_, lease)| record::record_of(lease));
        let (timing, now) = (self.election.timing, self.now());
        self.sight = std::mem::take(&mut self.sight).after(found, &self.own.name, timing, now);
        self.latest = versioned;
        if self.sight.is_led_by_another(&self.own.name, timing, now) {
            // This process writes no Lease while another replica leads, so it would never learn that the right is back.
            self.telemetry.api_health.forget(LEASES);
            self.telemetry.api_health.lease_settled();
        }
        if self.sight.holder() != before.as_deref() {
            info!(holder = self.sight.holder().unwrap_or("nobody"), "the Lease {NAME} has another holder");
        }
    }

    /// The watch has shown this.
    fn shown(&mut self, lease: Option<DynamicObject>) {
        match lease {
            Some(lease) => self.show(Some(Box::new(lease))),
            // The watch may be behind a Lease that was created since: only a read shows it.
            None if self.latest.is_some() => self.own.is_unsettled = true,
            None => self.show(None),
        }
    }

    fn answered(&mut self, sent: Sent, answer: Answer) {
        match answer {
            Answer::Is(lease) => {
                self.own.is_unsettled = false;
                self.has_complained = false;
                self.show(lease);
                let doubtful = self.in_doubt.take();
                let applied = if sent.renewal.is_some() { Some(sent) } else { doubtful };
                if let Some(applied) = applied {
                    if self.is_latest(&applied) {
                        self.renewed(applied.at);
                    } else {
                        // A webhook may change the written Lease; without a rest each write would follow the last at
                        // once.
                        self.rests_until = applied.at + self.retry_interval();
                        let why = "the server accepts it and stores another: a webhook or another process changes it";
                        self.telemetry.api_health.lease_failed(why.to_owned());
                    }
                }
            }
            Answer::Moved => {
                self.own.is_unsettled = true;
                self.n_moved += 1;
                // The first time another replica was faster. After that something refuses every write, such as a
                // webhook.
                if self.n_moved > 1 {
                    let why =
                        "each write conflicts (409): another process changes it, or a webhook refuses it";
                    self.telemetry.api_health.lease_failed(why.to_owned());
                    self.rests_until = sent.at + self.retry_interval();
                }
            }
            Answer::Failed(why, asked) => {
                self.telemetry.api_health.lease_failed(why.clone());
                if self.has_complained {
                    debug!(why, "request for Lease {NAME} failed");
                } else {
                    warn!(why, "request for Lease {NAME} failed; retrying every {:?}", self.retry_interval());
                    self.has_complained = true;
                }
                self.rests_until =
                    (sent.at + self.retry_interval()).max(self.now() + asked.unwrap_or_default());
                if sent.renewal.is_some() {
                    self.own.is_unsettled = true;
                    self.in_doubt = Some(sent);
                }
            }
        }
    }

    /// The time between two requests that fail in a row.
    fn retry_interval(&self) -> Duration {
        self.election.timing.retry_period().min(backoff::LONGEST)
    }

    /// Whether the latest version of the Lease is the one that this request has written.
    fn is_latest(&self, sent: &Sent) -> bool {
        let latest = self.latest.as_ref().and_then(|(_, lease)| record::renew_time(lease));
        self.sight.holder() == Some(self.own.name.as_str()) && latest == sent.renewal.as_deref()
    }

    /// A renewal that was sent at this time has been applied.
    fn renewed(&mut self, at: Duration) {
        let ends = self.election.timing.ends(at);
        if ends <= self.now() {
            return;
        }
        if !self.lead.holds() {
            info!(identity = self.own.name, "leading");
        }
        self.n_moved = 0;
        self.telemetry.api_health.lease_settled();
        self.own.renewed = Some(at);
        self.lead.lasts_until(self.began + ends);
    }

    fn send(&self, step: Step) -> Request {
        let api = self.election.api(self.election.client.clone());
        let at = self.now();
        let limit = self.election.timing.request_limit();
        let (own, duration) = (self.own.name.as_str(), self.election.timing.duration());
        let wall = self.election.clock.now().wall;
        let (lease, is_new) = match (step, &self.latest) {
            (Step::Create, _) => (Some(record::created(NAME, own, duration, wall)), true),
            (Step::Take | Step::Renew, Some((_, latest))) => {
                (Some(record::held(latest, own, duration, wall)), false)
            }
            (Step::Read | Step::Wait(_), _) | (Step::Take | Step::Renew, None) => (None, false),
        };
        let lease = lease.map(|lease| {
            let telemetry = &self.telemetry;
            record::described(
                lease,
                self.lead.last_write(),
                &telemetry.failures(),
                telemetry.pace(),
                &self.election.startup_taints,
            )
        });
        let renewal = lease.as_ref().and_then(record::renew_time).map(str::to_owned);
        let sent = Sent { at, renewal };
        Box::pin(async move {
            let answer = async {
                match lease {
                    Some(lease) if is_new => api.create(&post_params(), &lease).await.map(Some),
                    Some(lease) => api.replace(NAME, &post_params(), &lease).await.map(Some),
                    None => api.get_opt(NAME).await,
                }
            };
            let answer = match tokio::time::timeout(limit, answer).await {
                Ok(Ok(lease)) => Answer::Is(lease.map(Box::new)),
                Ok(Err(kube::Error::Api(status)))
                    if status.code == 409 || (status.code == 404 && !is_new) =>
                {
                    Answer::Moved
                }
                Ok(Err(kube::Error::Api(status))) => Answer::Failed(
                    format!("{} ({})", status.message, status.code),
                    retry_after::asked_for(&status),
                ),
                Ok(Err(error)) => Answer::Failed(error.to_string(), None),
                Err(_) => Answer::Failed(format!("no answer within {limit:?}"), None),
            };
            (sent, answer)
        })
    }

    /// Gives the Lease back, so that another replica need not wait until it expires.
    async fn release(self) {
        let Some((_, latest)) = self.latest.filter(|_| self.sight.holder() == Some(self.own.name.as_str()))
        else {
            return;
        };
        let api = self.election.api(self.election.client.clone());
        let free = record::released(&latest, self.election.clock.now().wall);
        let written = async { api.replace(NAME, &post_params(), &free).await };
        match tokio::time::timeout(self.election.timing.request_limit(), written).await {
            Ok(Ok(_)) => info!("released the Lease {NAME}"),
            Ok(Err(error)) => warn!(%error, "can't release Lease {NAME}; it will expire"),
            Err(_) => warn!("can't release Lease {NAME}: no answer; it will expire"),
        }
    }
}

#[cfg(test)]
mod tests;
