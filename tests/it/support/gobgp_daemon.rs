//! A real GoBGP daemon with its API on a free port of the loopback network, and its global table as that API shows it.
//!
//! It is killed when this is dropped, also when a test fails.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use cilium_node_ipam::model::gobgp::RibPath;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::wire::gobgp::{self, PathId, api, method};
use http::uri::PathAndQuery;
use tokio::process::{Child, Command};
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use super::control_plane::tool;
use super::eventually::eventually;
use super::{signals, tails};

/// From its start until it serves its table, on a machine that is busy with other tests.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Without sessions: a test of a table needs none.
const CONFIGURATION: &str = "[global.config]\nas = 64512\nrouter-id = \"192.0.2.254\"\nport = -1\n";

/// The path identifier of another writer.
const FOREIGN: PathId = PathId(0);

/// A running daemon.
pub(crate) struct Daemon {
    child: Child,
    folder: PathBuf,
    pub(crate) address: String,
}

/// A path: its next hop, the path identifier, and the second of its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) next_hop: String,
    pub(crate) communities: Vec<u32>,
    pub(crate) identifier: u32,
    pub(crate) second: i64,
}

impl Daemon {
    /// Starts one without sessions, and waits until it serves.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        Self::start_with(folder, CONFIGURATION).await
    }

    /// Starts one with this configuration, and waits until it serves.
    pub(crate) async fn start_with(folder: &Path, configuration: &str) -> Result<Self> {
        std::fs::write(folder.join("gobgpd.toml"), configuration)?;
        // Another process may take the port first.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            if let Ok(daemon) = Self::start_at(folder, format!("127.0.0.1:{port}")).await {
                return Ok(daemon);
            }
        }
        bail!("no free port:\n{}", tails::tail(&folder.join("gobgpd.log")))
    }

    async fn start_at(folder: &Path, address: String) -> Result<Self> {
        let log = File::options().create(true).append(true).open(folder.join("gobgpd.log"))?;
        let child = Command::new(tool("NODEIPAM_GOBGPD", "gobgpd"))
            .args(["--pprof-disable", "--graceful-restart", "--api-hosts", &address, "--config-file"])
            .arg(folder.join("gobgpd.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let mut daemon = Self { child, folder: folder.to_owned(), address };
        daemon.wait_serving().await?;
        Ok(daemon)
    }

    async fn wait_serving(&mut self) -> Result<()> {
        // The daemon can't notify this process, so this one polls.
        let first_table = eventually(START_TIMEOUT, async || table_of(&self.address).await);
        tokio::select! {
            table = first_table => table.map(drop).context("gobgpd does not serve"),
            ended = self.child.wait() => bail!("gobgpd has ended, {}", ended?),
        }
    }

    /// Kills it and starts another one at the same address, with an empty table.
    pub(crate) async fn restart(mut self) -> Result<Self> {
        self.child.kill().await?;
        Self::start_at(&self.folder, self.address.clone()).await
    }

    /// Kills it. Returns the value that starts it again.
    pub(crate) async fn stop(mut self) -> Result<Stopped> {
        self.child.kill().await?;
        Ok(Stopped { folder: self.folder.clone(), address: self.address.clone() })
    }

    /// Stops it by SIGTERM, as systemd and kubelet do.
    pub(crate) async fn terminate(mut self) -> Result<Stopped> {
        signals::send(self.child.id().context("gobgpd has ended")?, "TERM").await?;
        self.child.wait().await?;
        Ok(Stopped { folder: self.folder.clone(), address: self.address.clone() })
    }

    /// The paths of its global table.
    pub(crate) async fn table(&self) -> Result<BTreeMap<String, Vec<Shown>>> {
        table_of(&self.address).await
    }

    /// Adds a path as another writer.
    pub(crate) async fn add_foreign(&self, prefix: &str, next_hop: &str) -> Result<()> {
        self.add(prefix, next_hop, FOREIGN).await
    }

    /// Adds a path with this identifier.
    pub(crate) async fn add(&self, prefix: &str, next_hop: &str, id: PathId) -> Result<()> {
        let path = RibPath { next_hop: next_hop.parse()?, communities: std::collections::BTreeSet::new() };
        let request = gobgp::add(prefix.parse::<Cidr>()?, &path, id, 1);
        let codec = ProstCodec::<api::AddPathRequest, api::AddPathResponse>::default();
        let method = PathAndQuery::from_static(method::ADD_PATH);
        client_of(&self.address).await?.unary(tonic::Request::new(request), method, codec).await?;
        Ok(())
    }

    /// Withdraws a path with this identifier.
    pub(crate) async fn withdraw(&self, prefix: &str, id: PathId) -> Result<()> {
        let request = gobgp::withdraw(prefix.parse::<Cidr>()?, id);
        let codec = ProstCodec::<api::DeletePathRequest, api::DeletePathResponse>::default();
        let method = PathAndQuery::from_static(method::DELETE_PATH);
        client_of(&self.address).await?.unary(tonic::Request::new(request), method, codec).await?;
        Ok(())
    }
}

async fn client_of(address: &str) -> Result<Grpc<tonic::transport::Channel>> {
    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = Grpc::new(channel);
    client.ready().await?;
    Ok(client)
}

async fn table_of(address: &str) -> Result<BTreeMap<String, Vec<Shown>>> {
    let mut table: BTreeMap<String, Vec<Shown>> = BTreeMap::new();
    for family in Family::ALL {
        let mut client = client_of(address).await?;
        let codec = ProstCodec::<api::ListPathRequest, api::ListPathResponse>::default();
        let request = tonic::Request::new(gobgp::list(family));
        let path = PathAndQuery::from_static(method::LIST_PATH);
        let mut answers = client.server_streaming(request, path, codec).await?.into_inner();
        while let Some(answer) = answers.message().await? {
            let destination = answer.destination.context("no destination")?;
            let paths = destination.paths.iter().map(shown).collect();
            table.insert(destination.prefix, paths);
        }
    }
    Ok(table)
}

/// A daemon that was killed.
pub(crate) struct Stopped {
    folder: PathBuf,
    address: String,
}

impl Stopped {
    pub(crate) async fn start(self) -> Result<Daemon> {
        Daemon::start_at(&self.folder, self.address).await
    }
}

fn shown(path: &api::Path) -> Shown {
    use api::attribute::Attr;
    let attributes = || path.pattrs.iter().filter_map(|attribute| attribute.attr.as_ref());
    let hops = attributes().filter_map(|attr| match attr {
        Attr::NextHop(hop) => Some(hop.next_hop.clone()),
        Attr::MpReach(reach) => reach.next_hops.first().cloned(),
        Attr::Origin(_) | Attr::Communities(_) => None,
    });
    let communities = attributes().filter_map(|attr| match attr {
        Attr::Communities(found) => Some(found.communities.clone()),
        Attr::NextHop(_) | Attr::MpReach(_) | Attr::Origin(_) => None,
    });
    Shown {
        next_hop: hops.collect::<Vec<_>>().join(","),
        communities: communities.flatten().collect(),
        identifier: path.identifier,
        second: path.age.map_or(0, |age| age.seconds),
    }
}
