//! Which agent holds which address. The agents report it themselves when they take an address or give it back.
//!
//! This is the truth that the product must not break, and it needs no object of the API. If two nodes hold one address,
//! the alarm is raised here at once. The oracle gets the same reports in the same order.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::alarm::{Alarm, Bell};
use super::peer::Speaker;

/// The oracle answers in milliseconds, but the control plane may be busy with its own start.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum number of addresses in one message to the oracle: a line of some 100 kB.
const BATCH: usize = 2048;

/// The registry. Clones share it.
#[derive(Clone)]
pub(crate) struct Holdings(Arc<Shared>);

struct Shared {
    books: Mutex<Books>,
    written: Notify,
    reported: Notify,
    alarm: Alarm,
    bell: Bell,
}

#[derive(Default)]
struct Books {
    holders: HashMap<IpAddr, Holder>,
    /// Not yet sent to the oracle. It grows only as far as agents outrun one round trip on the loopback.
    unreported: Vec<Change>,
    /// Whether a message to the oracle is in flight.
    reporting: bool,
}

#[derive(Clone)]
struct Holder {
    node: String,
    owner: String,
}

struct Change {
    node: String,
    address: IpAddr,
    taken: bool,
}

impl Holdings {
    /// A registry that also reports to the oracle behind `speaker`, from a task of `tasks`.
    pub(crate) fn new(alarm: Alarm, bell: Bell, speaker: Arc<Speaker>, tasks: &mut JoinSet<()>) -> Self {
        let shared = Arc::new(Shared {
            books: Mutex::default(),
            written: Notify::new(),
            reported: Notify::new(),
            alarm,
            bell,
        });
        tasks.spawn(hand_over(Arc::clone(&shared), speaker));
        Self(shared)
    }

    /// The agent of `node` has given `address` to `owner`.
    pub(crate) fn take(&self, node: &str, address: IpAddr, owner: &str) {
        let holder = Holder { node: node.to_owned(), owner: owner.to_owned() };
        let mut books = self.0.books();
        if let Some(other) = books.holders.insert(address, holder)
            && (other.node != node || other.owner != owner)
        {
            let what = format!(
                "{address} is held twice: by {owner} of {node} and by {} of {}",
                other.owner, other.node
            );
            self.0.alarm.raise(what);
        }
        self.0.write(books, node, address, true);
    }

    /// The agent of `node` has taken `address` back from its owner.
    pub(crate) fn give_back(&self, node: &str, address: IpAddr) {
        let mut books = self.0.books();
        if books.holders.get(&address).is_some_and(|holder| holder.node == node) {
            books.holders.remove(&address);
        }
        self.0.write(books, node, address, false);
    }

    /// The machine of `node` is lost, and its pods with it.
    pub(crate) fn lose(&self, node: &str) {
        for (address, _) in self.of(node) {
            self.give_back(node, address);
        }
    }

    /// The addresses that `node` holds, with their owners.
    pub(crate) fn of(&self, node: &str) -> BTreeMap<IpAddr, String> {
        let books = self.0.books();
        let own = books.holders.iter().filter(|(_, holder)| holder.node == node);
        own.map(|(address, holder)| (*address, holder.owner.clone())).collect()
    }

    /// Returns when the oracle knows everything that was written before this call.
    pub(crate) async fn caught_up(&self) -> Result<()> {
        loop {
            let reported = self.0.reported.notified();
            let mut reported = std::pin::pin!(reported);
            // Before the look, so that no notification between the look and the wait is missed.
            reported.as_mut().enable();
            {
                let books = self.0.books();
                if books.unreported.is_empty() && !books.reporting {
                    return Ok(());
                }
            }
            let waited = async {
                reported.await;
                Ok(())
            };
            self.0.alarm.over(waited).await?;
        }
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut books: MutexGuard<'_, Books>, node: &str, address: IpAddr, taken: bool) {
        books.unreported.push(Change { node: node.to_owned(), address, taken });
        drop(books);
        self.written.notify_one();
        self.bell.ring();
    }
}

/// Sends every change to the oracle, in order.
async fn hand_over(shared: Arc<Shared>, speaker: Arc<Speaker>) {
    loop {
        shared.written.notified().await;
        let changes = {
            let mut books = shared.books();
            books.reporting = true;
            std::mem::take(&mut books.unreported)
        };
        for message in messages(&changes) {
            if let Err(error) = speaker.ask(message, REPORT_TIMEOUT).await {
                shared.alarm.raise(format!("the oracle can't be told what agents hold: {error:#}"));
                return;
            }
        }
        shared.books().reporting = false;
        shared.reported.notify_waiters();
    }
}

/// One message for each run of changes of one node and one direction, which keeps the order.
fn messages(changes: &[Change]) -> impl Iterator<Item = serde_json::Value> {
    let runs = changes.chunk_by(|a, b| a.node == b.node && a.taken == b.taken);
    runs.flat_map(|run| run.chunks(BATCH)).map(|run| {
        let addresses: Vec<_> = run.iter().map(|change| change.address.to_string()).collect();
        let field = if run[0].taken { "add" } else { "remove" };
        let mut message = json!({"cmd": "holds", "node": run[0].node});
        message[field] = addresses.into();
        message
    })
}
