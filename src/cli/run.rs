//! `cilium-node-ipam run`: the controller, and its dry run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

mod flags;

pub use flags::Args;

use crate::cli::screen;
use crate::controller::client::Clients;
use crate::controller::connectivity::Connectivity;
use crate::controller::dry_run;
use crate::controller::gather::{self, GatherOptions};
use crate::controller::lead::Lead;
use crate::controller::lease::{Election, Timing};
use crate::controller::review::Reviews;
use crate::controller::tasks::Tasks;
use crate::telemetry::access::Access;
use crate::telemetry::{Telemetry, http, logs, scrape};

/// Runs the controller, or its dry run.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    logs::start(args.log_format);
    // One thread. The loop, the requests and the ports mostly wait for the server, and waking another thread took a
    // sixth of the CPU. While the loop hangs, the lease is not renewed and `/livez` does not answer, so another
    // replica takes over.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(start(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn start(args: Args) -> anyhow::Result<()> {
    let config = config(args.kubeconfig.as_ref()).await?;
    info!(version = env!("CARGO_PKG_VERSION"), server = %config.cluster_url, "starting");
    let telemetry = Telemetry::start();
    let connectivity = Connectivity::new(&telemetry);
    let timing = Timing::new(args.lease_duration, args.renew_deadline, args.retry_period)?;
    let lead = if args.leader_elect { Lead::to_be_won() } else { Lead::unelected() };
    let clients = Clients::new(&config, args.request_timeout, connectivity.clone(), lead)
        .context("can't create a Kubernetes client")?;
    if args.dry_run {
        let options = GatherOptions {
            mode: args.mode(),
            namespace: args.namespace.clone(),
            cilium_namespace: args.cilium_namespace.clone(),
            time_limit: gather::TIME_LIMIT,
        };
        screen::print_lines(dry_run::run(&clients, &options, args.policy()).await?)?;
        return Ok(());
    }
    let election = args
        .leader_elect
        .then(|| {
            let identity = identity(pod(), &machine());
            let namespace = args.cilium_namespace.clone();
            Election::new(&config, connectivity, namespace, identity, timing, args.startup_taints.clone())
        })
        .transpose()
        .context("can't create a Kubernetes client")?;
    serve(args, clients, election, telemetry).await
}

async fn serve(
    args: Args,
    clients: Clients,
    election: Option<Election>,
    telemetry: Telemetry,
) -> anyhow::Result<()> {
    let options = args.options()?;
    let stop = CancellationToken::new();
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("can't listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    if let Some(file) = &args.address_file {
        announce(file, address)
            .with_context(|| format!("can't write the address file {}", file.display()))?;
    }
    info!(%address, "listening");
    let mut tasks = Tasks::default();
    tasks.spawn("http", http::serve(listener, telemetry.clone(), stop.clone()));
    match args.metrics.open(&machine()).await {
        Ok(Some((listener, certificate))) => {
            info!(address = %listener.local_addr()?, "listening for scrapers");
            let access = Access::by(Reviews(clients.clone()));
            let scrapes = scrape::serve(listener, certificate, access, telemetry.clone(), stop.clone());
            tasks.spawn("metrics port", scrapes);
        }
        Ok(None) => {}
        // Nodes get blocks without this port, and the alert that the controller is absent fires.
        Err(error) => error!("no metrics for other hosts until a restart: {error:#}"),
    }
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopper = stop.clone();
    tasks.spawn("signals", async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM"),
            _ = interrupt.recv() => info!("SIGINT"),
            () = stopper.cancelled() => {}
        }
        stopper.cancel();
        Ok(())
    });

    let end = crate::controller::run::run(clients, election, options, telemetry, stop.clone()).await;
    stop.cancel();
    tasks.finish().await;
    end
}

/// Writes the address file in one step, so that no reader gets half an address.
fn announce(file: &Path, address: SocketAddr) -> std::io::Result<()> {
    let part = file.with_extension("part");
    std::fs::write(&part, address.to_string())?;
    std::fs::rename(part, file)
}

/// The name of this process in the Lease: its Pod's name, which people know, and its Pod's uid, which no other
/// process ever has. Outside of a Pod both are replaced: by the name of the machine, and by a random value.
fn identity(pod: Option<(String, String)>, machine: &str) -> String {
    let (name, uid) =
        pod.unwrap_or_else(|| (machine.to_owned(), uuid::Uuid::new_v4().as_hyphenated().to_string()));
    format!("{name}_{uid}")
}

/// The name and uid of the Pod in which this process runs, as the manifests pass them.
fn pod() -> Option<(String, String)> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let uid = variable("POD_UID")?;
    Some((variable("POD_NAME").unwrap_or_else(|| "pod".to_owned()), uid))
}

/// The name of the machine, for people: `/etc/hostname` or the name that the shell exports.
fn machine() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "unknown".to_owned())
}

async fn config(kubeconfig: Option<&PathBuf>) -> anyhow::Result<Config> {
    match kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file)
                .with_context(|| format!("can't read the kubeconfig {}", file.display()))?;
            Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
        }
        None => Config::infer().await.context(
            "no API server is configured: set --kubeconfig or KUBECONFIG, or run in a pod with a service account",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_pod_or_else_by_chance() {
        let pod = || Some(("ipam-1".to_owned(), "0a1b".to_owned()));
        assert_eq!(identity(pod(), "machine"), "ipam-1_0a1b");
        let (one, other) = (identity(None, "machine"), identity(None, "machine"));
        assert!(one.starts_with("machine_") && one != other, "{one} {other}");
    }
}
