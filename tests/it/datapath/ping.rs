//! Continuous pings, and their losses.
//!
//! They count by the sequence numbers of the answers: a late answer is not a lost one. A ping stops with an answer, so all
//! pings that were sent before it had the time for theirs.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::machine::Setup;
use super::with_lab;
use crate::support::control_plane::Options;
use crate::support::families::Family;
use crate::support::objects::NodeSpec;
use crate::support::rig::Rig;

/// The pause between two pings.
const EVERY: &str = "0.05";

/// The number of pings of a minute.
const A_MINUTE: u64 = 1200;

/// For an answer that must come. The first one to a new pod may wait until all agents know it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// A running ping.
pub(crate) struct Ping {
    label: String,
    seen: watch::Receiver<Seen>,
    // Killed when this is dropped. The program behind it then fails to write.
    _child: Child,
    _reader: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Seen {
    answered: BTreeSet<u64>,
    /// The number and the time of each ping that had no answer when the next one was sent.
    late: Vec<(u64, f64)>,
}

impl Seen {
    fn last(&self) -> u64 {
        self.answered.last().copied().unwrap_or_default()
    }

    fn note(&mut self, line: &str) -> Option<()> {
        let (_, rest) = line.split_once("icmp_seq=")?;
        let number = rest.split(|next: char| !next.is_ascii_digit()).next()?.parse().ok()?;
        if line.contains("bytes from") {
            self.answered.insert(number);
        } else if let Some(time) = line.strip_prefix('[') {
            self.late.push((number, time.split(']').next()?.parse().ok()?));
        }
        Some(())
    }
}

/// The result of one or several pings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) sent: usize,
    pub(crate) lost: usize,
    /// The names of the pings that have lost something, with the times.
    pub(crate) gaps: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.lost += other.lost;
        self.gaps.extend(other.gaps);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pings, {} lost", self.sent, self.lost)?;
        self.gaps.iter().try_for_each(|gap| write!(f, "\n  {gap}"))
    }
}

impl Ping {
    /// Starts a ping by a command that lacks the options and the address. Returns with its first answer.
    pub(super) async fn start(rig: &Rig, label: String, mut ping: Command, to: IpAddr) -> Result<Self> {
        ping.args(["-n", "-D", "-O", "-i", EVERY]).arg(to.to_string());
        ping.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = ping.spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let (seen, seeing) = watch::channel(Seen::default());
        let mut reader = JoinSet::new();
        reader.spawn(read(stdout, seen));
        let mut ping = Self { label, seen: seeing, _child: child, _reader: reader };
        ping.wait_answer_after(rig, 0).await?;
        Ok(ping)
    }

    /// Returns after this number of further answers: the time that this takes is known by [`EVERY`].
    pub(crate) async fn wait_answers(&mut self, rig: &Rig, count: u64) -> Result<()> {
        let limit = self.seen.borrow().last() + count;
        while self.seen.borrow().last() < limit {
            let last = self.seen.borrow().last();
            self.wait_answer_after(rig, last).await?;
        }
        Ok(())
    }

    /// Stops it with one more answer, and counts the unanswered pings before that.
    pub(crate) async fn finish(mut self, rig: &Rig) -> Result<Tally> {
        self.tally(rig).await
    }

    /// Waits for one more answer, and counts the unanswered pings before that.
    async fn tally(&mut self, rig: &Rig) -> Result<Tally> {
        let before = self.seen.borrow().last();
        self.wait_answer_after(rig, before).await?;
        let seen = self.seen.borrow();
        let sent = usize::try_from(seen.last())?;
        let lost = sent - seen.answered.len();
        let mut gaps = Vec::new();
        if lost > 0 {
            let times: Vec<f64> = seen
                .late
                .iter()
                .filter(|(number, _)| !seen.answered.contains(number))
                .map(|(_, time)| *time)
                .collect();
            let time = |time: Option<&f64>| time.map_or(String::new(), |time| format!("{time:.2}"));
            gaps.push(format!(
                "{}: {lost} of {sent}, from {} to {}",
                self.label,
                time(times.first()),
                time(times.last())
            ));
        }
        Ok(Tally { sent, lost, gaps })
    }

    async fn wait_answer_after(&mut self, rig: &Rig, number: u64) -> Result<()> {
        let label = &self.label;
        let answered = async {
            let answered = self.seen.wait_for(|seen| seen.last() > number).await;
            answered.map(drop).with_context(|| format!("{label}: the ping has ended"))
        };
        let answered = tokio::time::timeout(ANSWERED_WITHIN, rig.control_plane.alarm.over(answered));
        answered
            .await
            .with_context(|| format!("{label}: no answer in {ANSWERED_WITHIN:?} after ping {number}"))?
    }
}

async fn read(stdout: ChildStdout, seen: watch::Sender<Seen>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        seen.send_if_modified(|seen| seen.note(&line).is_some());
    }
}

/// The pings of a scenario.
#[derive(Default)]
pub(crate) struct Pings {
    running: Vec<Ping>,
    done: Tally,
    /// Until the last call of [`Pings::since_last`].
    counted: Tally,
}

impl Pings {
    pub(crate) fn add(&mut self, ping: Ping) {
        self.running.push(ping);
    }

    /// Returns when the first ping has sent and received for a minute.
    pub(crate) async fn wait_minute(&mut self, rig: &Rig) -> Result<()> {
        let first = self.running.first_mut().context("no ping runs")?;
        first.wait_answers(rig, A_MINUTE).await
    }

    /// Waits for one more answer to each ping. Returns the number of pings, and of lost ones, since the last call.
    pub(crate) async fn since_last(&mut self, rig: &Rig) -> Result<Tally> {
        let mut now = Tally::default();
        for ping in &mut self.running {
            now.add(ping.tally(rig).await?);
        }
        let since =
            Tally { sent: now.sent - self.counted.sent, lost: now.lost - self.counted.lost, ..now.clone() };
        self.counted = now;
        Ok(since)
    }

    /// Stops all pings whose labels start with these words.
    pub(crate) async fn finish(&mut self, rig: &Rig, label: &str) -> Result<()> {
        let (finished, running) = self.running.drain(..).partition(|ping| ping.label.starts_with(label));
        self.running = running;
        for ping in finished {
            self.done.add(ping.finish(rig).await?);
        }
        Ok(())
    }

    /// Stops all pings. Fails if one of them has lost anything.
    pub(crate) async fn none_lost(mut self, rig: &Rig, scenario: &str) -> Result<()> {
        self.finish(rig, "").await?;
        println!("datapath: {scenario}: {}", self.done);
        ensure!(self.done.sent > 0 && self.done.lost == 0, "{scenario}: {}", self.done);
        Ok(())
    }
}

/// The control of all scenarios: they notice that pings are dropped. A cut cable would not do, because packets wait until
/// the neighbour is found again.
#[tokio::test(flavor = "multi_thread")]
async fn a_scenario_fails_if_pings_are_lost() -> Result<()> {
    with_lab(Options::default(), async |rig, lab| {
        rig.cluster.create_node(&NodeSpec::new("one")).await?;
        let machine = lab.power_on(rig, "one", Setup::default()).await?;
        let mut pings = Pings::default();
        pings.add(lab.ping(rig, "outside to the machine", machine.address(Family::V4)?).await?);
        machine.drop_pings(rig, 10).await?;
        let counted = pings.since_last(rig).await?;
        let since = pings.since_last(rig).await?;
        ensure!(counted.lost >= 10 && since.lost == 0 && since.sent > 0, "{counted}, and then {since}");
        let error =
            pings.none_lost(rig, "control: a machine drops pings").await.err().context("nothing was lost")?;
        ensure!(error.to_string().contains("outside to the machine: "), "{error}");
        Ok(machine)
    })
    .await
}
