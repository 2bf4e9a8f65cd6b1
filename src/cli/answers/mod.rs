//! The commands that answer a question. They list the cluster once, decide with the controller's own planner, and
//! write nothing.
//!
//! The exit code is 0 if there is no problem, 1 if there is one, and 2 if the command could not look.

pub(in crate::cli) mod around;
pub mod check;
pub(in crate::cli) mod controller;
pub(in crate::cli) mod files;
mod follow;
mod lease;
pub mod map;
pub mod plan;
pub(in crate::cli) mod pods;
pub mod preflight;
pub(in crate::cli) mod replicas;
pub mod routes;
pub mod status;
pub(in crate::cli) mod unreadable;
pub mod version;
pub mod who;
pub mod why;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use files::{Files, Namespaces};
use http::Uri;
use k8s_openapi::api::coordination::v1::Lease;
use replicas::Replicas;
use serde_json::{Map, Value};
use unreadable::{Unreadable, explained};

use super::access::Access;
use super::program::program;
use super::screen::{self, Line, PLAIN, Reader, Table};
use crate::controller::broken_invariant::BrokenInvariant;
use crate::controller::client::Clients;
use crate::controller::gather::{GatherOptions, list_cluster, list_readable};
use crate::controller::mode::ModeSource;
use crate::forecast::plan_all;
use crate::forecast::rejoin::rejoined;
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::plan::NodePlan;
use crate::model::time::Now;
use crate::net::cidr::Cidr;
use crate::plan::Policy;
use crate::publisher::settings::Settings;
use crate::telemetry::logs;
use crate::world::World;

/// The version of the JSON and YAML that these commands print.
pub const API_VERSION: &str = "cli.nodeipam.io/v1";

/// How long a command lists, repeated attempts included. A person waits for it, and sees each failure at once.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Something was found that is wrong.
const FOUND: u8 = 1;
/// The command could not look.
const COULD_NOT_LOOK: u8 = 2;

/// Where the cluster is, and how an answer is printed.
#[derive(Debug, Clone, clap::Args)]
pub struct Cluster {
    #[command(flatten)]
    pub(in crate::cli) access: Access,

    /// The form of the answer.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Table, help_heading = "Output")]
    pub(in crate::cli) output: Format,

    /// Print tables without their headers, and each row on one line.
    #[arg(long, help_heading = "Output")]
    no_headers: bool,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For people, with more columns.
    Wide,
    /// One JSON object with `apiVersion: cli.nodeipam.io/v1`.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Whether an answer says that something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is wrong.
    Fine,
    /// Something is.
    Found,
}

/// A cluster that was listed once.
pub(in crate::cli) struct Gathered {
    pub(in crate::cli) clients: Clients,
    pub(in crate::cli) world: World,
    pub(in crate::cli) now: Now,
}

/// Where an answer comes from.
#[derive(Debug, Clone, clap::Args)]
pub struct Source {
    /// Read a bundle, or a directory with files of objects, instead of a cluster.
    #[arg(long, value_name = "FILE|DIR", help_heading = "Cluster")]
    from: Option<PathBuf>,

    #[command(flatten)]
    pub(in crate::cli) cluster: Cluster,
}

/// The origin of a world, for reading more.
pub(in crate::cli) enum Live {
    /// A cluster.
    Cluster(Clients),
    /// Files.
    Files {
        objects: around::Objects,
        /// The Lease of the controller; an error says that it is unknown.
        lease: Box<Result<Option<Lease>, String>>,
        replicas: Option<Replicas>,
        cilium_namespace: String,
    },
}

/// A world that was read once, with the plan of each node.
pub(in crate::cli) struct Listed {
    pub(in crate::cli) live: Live,
    pub(in crate::cli) world: World,
    pub(in crate::cli) plans: Vec<NodePlan>,
    now: Now,
    /// The Lease of the controller; an error says that it is unknown.
    lease: Result<Option<Lease>, String>,
    /// How long its answer took.
    lease_took: Duration,
}

impl Listed {
    /// The blocks of these nodes after a rejoin of each.
    pub(in crate::cli) fn rejoined(&self, nodes: &[NodeName]) -> BTreeMap<NodeName, Vec<Cidr>> {
        rejoined(&self.world, nodes, lease::policy(&self.lease, &self.world, self.now.wall), self.now)
    }
}

/// The exit code of a command. An error is one sentence on standard error.
#[must_use]
pub fn end(outcome: anyhow::Result<Verdict>) -> ExitCode {
    match outcome {
        Ok(Verdict::Fine) => ExitCode::SUCCESS,
        Ok(Verdict::Found) => ExitCode::from(FOUND),
        Err(error) => {
            screen::note(format_args!("{}: {error:#}", program()));
            ExitCode::from(COULD_NOT_LOOK)
        }
    }
}

/// The same, with the address of the server before an error that does not explain itself.
fn about_server<T>(outcome: anyhow::Result<T>, server: &Uri) -> anyhow::Result<T> {
    match outcome {
        Err(error) if !error.is::<Unreadable>() => {
            Err(error.context(format!("can't read the cluster {server}")))
        }
        outcome => outcome,
    }
}

/// Runs a command to its end.
pub(in crate::cli) fn block_on(
    command: impl Future<Output = anyhow::Result<Verdict>>,
) -> anyhow::Result<Verdict> {
    logs::start_quiet();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(command)
}

impl Deref for Source {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Source {
    /// Reads everything, and decides for each node.
    pub(in crate::cli) async fn list(&self) -> anyhow::Result<Listed> {
        let (live, mut world, now) = self.read().await?;
        let began = tokio::time::Instant::now();
        let lease = self.access.lease(&live).await;
        let lease_took = began.elapsed();
        if let Ok(Some(lease)) = &lease {
            world.suppose_failures(lease::failures(lease, now.wall));
        }
        let policy = lease::policy(&lease, &world, now.wall);
        let plans = plan_all(&mut world, policy, now);
        Ok(Listed { live, world, plans, now, lease, lease_took })
    }

    fn namespaces(&self) -> Namespaces {
        self.cluster.access.namespaces()
    }

    /// Reads everything.
    async fn read(&self) -> anyhow::Result<(Live, World, Now)> {
        self.cluster.access.read(self.from.as_deref()).await
    }

    /// Reads everything, for a plan with pools: before the installation the cluster has none.
    async fn read_before_installation(&self) -> anyhow::Result<(Live, World, Now)> {
        match self.read().await {
            Err(error) if matches!(error.downcast_ref(), Some(Unreadable::NotInstalled(_))) => {}
            outcome => return outcome,
        }
        let (Gathered { clients, world, now }, unlisted) = self.cluster.access.gather_readable().await?;
        if let Some((kind, why)) = unlisted.first_key_value() {
            bail!("can't list {}s: {why}", kind.as_str());
        }
        Ok((Live::Cluster(clients), world, now))
    }
}

impl Access {
    fn namespaces(&self) -> Namespaces {
        Namespaces { cilium: self.cilium_namespace.clone(), own: self.namespace.clone() }
    }

    /// Reads everything, from a bundle or a directory with files if one is given.
    async fn read(&self, from: Option<&Path>) -> anyhow::Result<(Live, World, Now)> {
        let Some(path) = from else {
            let Gathered { clients, world, now } = self.gather().await?;
            return Ok((Live::Cluster(clients), world, now));
        };
        let Files { world, objects, now, namespaces, lease, replicas } =
            files::read_bundle(path, self.namespaces())?;
        BrokenInvariant::of(world.check())?;
        let (lease, cilium_namespace) = (Box::new(lease), namespaces.cilium);
        Ok((Live::Files { objects, lease, replicas, cilium_namespace }, world, now))
    }

    /// The Lease of the controller; an error says that it is unknown.
    async fn lease(&self, live: &Live) -> Result<Option<Lease>, String> {
        match live {
            Live::Cluster(clients) => lease::read_lease(clients, &self.cilium_namespace).await,
            Live::Files { lease, .. } => (**lease).clone(),
        }
    }

    /// The policy of the leader, as far as it is known.
    async fn policy(&self, live: &Live, world: &World, now: Now) -> Policy {
        lease::policy(&self.lease(live).await, world, now.wall)
    }

    /// The policy of the leader in a cluster, as far as it is known.
    pub(in crate::cli) async fn policy_in(&self, clients: &Clients, world: &World, now: Now) -> Policy {
        lease::policy(&lease::read_lease(clients, &self.cilium_namespace).await, world, now.wall)
    }

    /// Lists the cluster.
    pub(in crate::cli) async fn gather(&self) -> anyhow::Result<Gathered> {
        let (clients, server) = self.clients().await?;
        let world = match list_cluster(&clients, &self.gather_options()).await {
            Ok(world) => world,
            Err(error) => return about_server(Err(explained(error, &clients, self).await), &server),
        };
        BrokenInvariant::of(world.check())?;
        let now = clients.connectivity.clock.now();
        Ok(Gathered { clients, world, now })
    }

    /// Lists the cluster as far as that is possible. Kinds that can't be listed are empty in the world, and returned
    /// with the cause.
    pub(in crate::cli) async fn gather_readable(&self) -> anyhow::Result<(Gathered, BTreeMap<Kind, String>)> {
        let (clients, server) = self.clients().await?;
        let listed = list_readable(&clients, &self.gather_options()).await;
        let (world, unlisted) = about_server(listed, &server)?;
        let now = clients.connectivity.clock.now();
        Ok((Gathered { clients, world, now }, unlisted))
    }

    /// How the cluster is listed. The flags of the controller are not known here: the result shows its actions in the
    /// mode of the cluster.
    fn gather_options(&self) -> GatherOptions {
        let settings = Settings::of_every_mode();
        GatherOptions {
            mode: ModeSource::ConfigMapIn(self.cilium_namespace.clone(), settings),
            namespace: self.namespace.clone(),
            cilium_namespace: self.cilium_namespace.clone(),
            time_limit: self.time_limit(TIME_LIMIT),
        }
    }
}

impl Cluster {
    /// Prints an answer: lines for people, or `fields` of an object of this kind.
    pub(in crate::cli) fn print<L: Into<Line>>(
        &self,
        kind: &str,
        fields: Map<String, Value>,
        text: impl FnOnce() -> Vec<L>,
    ) -> anyhow::Result<Reader> {
        let mut object = Map::new();
        object.insert("apiVersion".to_owned(), API_VERSION.into());
        object.insert("kind".to_owned(), kind.into());
        object.extend(fields);
        match self.output {
            Format::Table | Format::Wide => screen::print_lines(text()),
            Format::Json => screen::print_json(&Value::Object(object)),
            Format::Yaml => screen::print_yaml(&[Value::Object(object)]),
        }
    }

    /// The parts that only the wide form has.
    fn wide<T>(&self, more: impl IntoIterator<Item = T>) -> Vec<T> {
        if self.output == Format::Wide { more.into_iter().collect() } else { Vec::new() }
    }

    /// The lines of a table without colours.
    pub(in crate::cli) fn table<'a>(
        &self,
        headers: impl IntoIterator<Item = &'a str>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Vec<Line> {
        let mut table = Table::new(headers);
        rows.into_iter().for_each(|row| table.add(PLAIN, row));
        self.table_lines(table)
    }

    /// The lines of a table.
    pub(in crate::cli) fn table_lines(&self, table: Table) -> Vec<Line> {
        screen::table_lines(table, !self.no_headers)
    }
}

/// The fields of a JSON object.
pub(in crate::cli) fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => [("value".to_owned(), other)].into_iter().collect(),
    }
}
