//! A real BIRD with one BGP session to gobgpd on the loopback network: its table, and every change of it.
//!
//! It needs no rights, because it writes no route into a kernel, and next hops need not exist. It is killed when this
//! is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::{Child, Command};

use crate::scene::SOON;
use crate::support::eventually::eventually;
use crate::support::lab::{Change, Route};
use crate::support::tails;

/// The program, as `scripts/need-routers` installs it.
const PROGRAM: &str = "/usr/sbin/bird";

/// The address of the only router.
pub(super) const ADDRESS: &str = "127.0.0.3";

/// One router of several.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Its address.
    pub(super) address: &'static str,
    /// Its BGP identifier.
    pub(super) id: &'static str,
    /// The set of prefixes that it accepts, as BIRD writes it; `None` for all.
    pub(super) accepts: Option<&'static str>,
}

const ONLY: Place = Place { address: ADDRESS, id: "192.0.2.1", accepts: None };

/// It waits for gobgpd to connect. For each route that it hears it logs the next hop, which its traces lack.
const CONFIGURATION: &str = r#"
log "LOG" all;
timeformat log "%s %f";
router id ID;
protocol device {}
filter with_hop { CONDITION print "hop ", net, " ", bgp_next_hop; accept; }
protocol bgp gobgp {
  local ADDRESS port PORT as 64513;
  neighbor 127.0.0.1 as 64512;
  multihop;
  strict bind on;
  passive on;
  debug { states, routes, events };
  ipv4 { import filter with_hop; export none; };
  ipv6 { import filter with_hop; export none; };
}
"#;

/// A running router.
pub(super) struct Bird {
    child: Child,
    folder: PathBuf,
    place: Place,
    pub(super) port: u16,
}

impl Bird {
    /// Starts the only router, and waits until it listens.
    ///
    /// # Panics
    /// If it is not installed: no test may pass because of that.
    pub(super) async fn start(folder: &Path) -> Result<Self> {
        Self::start_at(folder, ONLY).await
    }

    /// As [`Bird::start`], for one of several. Each needs a folder of its own.
    pub(super) async fn start_at(folder: &Path, place: Place) -> Result<Self> {
        assert!(Path::new(PROGRAM).is_file(), "{PROGRAM} is missing: run `scripts/need-routers` as root");
        // Another process may take the port first.
        for _ in 0..5 {
            let port = TcpListener::bind((place.address, 0))?.local_addr()?.port();
            let mut bird = Self::spawn(folder, place, port)?;
            if bird.listens().await? {
                return Ok(bird);
            }
        }
        bail!("no free port:\n{}", tails::tail(&folder.join("bird.log")))
    }

    fn spawn(folder: &Path, place: Place, port: u16) -> Result<Self> {
        let configuration = folder.join("bird.conf");
        let log = folder.join("bird.log");
        let condition =
            place.accepts.map_or(String::new(), |prefixes| format!("if ! (net ~ {prefixes}) then reject;"));
        let text = CONFIGURATION
            .replace("LOG", &log.to_string_lossy())
            .replace("ADDRESS", place.address)
            .replace("ID;", &format!("{};", place.id))
            .replace("CONDITION", &condition)
            .replace("PORT", &port.to_string());
        std::fs::write(&configuration, text)?;
        let output = File::options().create(true).append(true).open(folder.join("bird-output.log"))?;
        let child = Command::new(PROGRAM)
            .arg("-f")
            .arg("-c")
            .arg(configuration)
            .arg("-s")
            .arg(folder.join("bird.ctl"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { child, folder: folder.to_owned(), place, port })
    }

    /// Kills it and starts another one at the same port, with an empty table.
    pub(super) async fn restart(mut self) -> Result<Self> {
        self.child.kill().await?;
        let mut bird = Self::spawn(&self.folder, self.place, self.port)?;
        ensure!(bird.listens().await?, "another process has taken port {}", self.port);
        Ok(bird)
    }

    /// Whether it has got its port.
    async fn listens(&mut self) -> Result<bool> {
        let folder = self.folder.clone();
        let reported = eventually(SOON, async || {
            let protocols = ask(&folder, &["show", "protocols"]).await?;
            match protocols.lines().find(|line| line.starts_with("gobgp ")) {
                Some(line) if line.contains("Passive") => Ok(true),
                Some(line) if line.contains("No listening socket") => Ok(false),
                other => bail!("it is {other:?}"),
            }
        });
        tokio::select! {
            listens = reported => listens.context("BIRD does not answer"),
            ended = self.child.wait() => bail!("BIRD has ended, {}", ended?),
        }
    }

    /// All routes that it has, each with its next hop as the node.
    pub(super) async fn table(&self) -> Result<Vec<Route>> {
        Ok(self.routes().await?.into_iter().map(|(route, _)| route).collect())
    }

    /// The communities that its routes have.
    pub(super) async fn communities(&self) -> Result<BTreeSet<String>> {
        Ok(self.routes().await?.into_iter().map(|(_, communities)| communities).collect())
    }

    /// All routes with their communities.
    async fn routes(&self) -> Result<Vec<(Route, String)>> {
        let said = ask(&self.folder, &["show", "route", "all"]).await?;
        let mut routes: Vec<(Route, String)> = Vec::new();
        let mut prefix = "";
        for line in said.lines() {
            let field = |name| line.trim_start().strip_prefix(name);
            if let Some((start, _)) = line.split_once(" [gobgp ") {
                // The line of a second route of a prefix has spaces in place of the prefix.
                if !line.starts_with(' ') {
                    prefix = start.split_whitespace().next().context("no prefix")?;
                }
                let (node, via) = (String::new(), String::new());
                routes.push((Route { prefix: prefix.to_owned(), node, via }, String::new()));
            } else if let Some((route, communities)) = routes.last_mut() {
                if let Some(hops) = field("BGP.next_hop: ") {
                    hops.split_whitespace().next().unwrap_or_default().clone_into(&mut route.via);
                    route.node.clone_from(&route.via);
                } else if let Some(found) = field("BGP.community: ") {
                    found.clone_into(communities);
                }
            }
        }
        Ok(routes)
    }

    /// All changes of routes and of the session, in order, each with its next hop as the node. The end of its process
    /// is no change.
    pub(super) fn changes(&self) -> Result<Vec<Change>> {
        let log = self.log()?;
        let (mut heard, mut present) = (BTreeMap::new(), BTreeMap::new());
        let mut changes = Vec::new();
        for line in log.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let change = |what: &str, prefix: &str, node: &str| -> Result<Change> {
                let at = format!("{}.{:0>6}", fields[0], fields[1]).parse()?;
                let [session, what, prefix, node] = ["gobgp", what, prefix, node].map(str::to_owned);
                Ok(Change { at, node, session, what, prefix })
            };
            match fields[..] {
                [_, _, _, "gobgp:", "Initializing"] => present.clear(),
                [_, _, _, "hop", prefix, hop, ..] => drop(heard.insert(prefix, hop)),
                // `> added [best] 10.1.0.0/28 0L 2G unreachable`, and with some words no brackets.
                [_, _, _, _, ">", what, ref rest @ ..] => {
                    let prefix = rest.iter().find(|word| !word.starts_with('[')).context("no prefix")?;
                    match what {
                        "added" | "updated" | "replaced" => {
                            let hop = heard.get(prefix).copied().context("no next hop")?;
                            match present.insert(*prefix, hop) {
                                Some(before) if before != hop => {
                                    changes.push(change("removed", prefix, before)?);
                                }
                                _ => {}
                            }
                            changes.push(change("added", prefix, hop)?);
                        }
                        "removed" => {
                            let hop = present.remove(prefix).context("it was not there")?;
                            changes.push(change("removed", prefix, hop)?);
                        }
                        _ => {}
                    }
                }
                [_, _, _, "gobgp:", "State", "changed", "to", state] => changes.push(change(state, "", "")?),
                _ => {}
            }
        }
        Ok(changes)
    }

    /// How often it has got all routes of a daemon that had restarted.
    pub(super) fn n_restarts(&self) -> Result<usize> {
        Ok(self.log()?.matches("Neighbor graceful restart done").count())
    }

    /// Its log, without a line that is being written.
    fn log(&self) -> Result<String> {
        let mut log = std::fs::read_to_string(self.folder.join("bird.log"))?;
        log.truncate(log.rfind('\n').map_or(0, |end| end + 1));
        Ok(log)
    }
}

async fn ask(folder: &Path, command: &[&str]) -> Result<String> {
    let said =
        Command::new("/usr/sbin/birdc").arg("-s").arg(folder.join("bird.ctl")).args(command).output().await?;
    ensure!(said.status.success(), "birdc: {} {}", said.status, String::from_utf8_lossy(&said.stderr));
    Ok(String::from_utf8(said.stdout)?)
}
