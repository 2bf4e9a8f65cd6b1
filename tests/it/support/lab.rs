//! A small network of real routers: a BIRD, FRR routers of racks, and nodes that run FRR with frr-k8s's own daemon and
//! reloader (`tests/routes/lab`).
//!
//! The nodes follow the API server of the test, and report to it. Nothing here knows their claims.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::watch;

use super::control_plane::tool;
use super::objects::Kind;
use super::peer::{Heard, Peer};
use super::rig::Rig;

/// FRR of three nodes starts on a machine that is busy with other tests.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// The addresses of the router in the networks of all nodes.
pub(crate) const ROUTER: [&str; 2] = ["172.31.255.254", "fd00:cafe::ffff:0"];
/// The lengths of the prefixes of those networks.
const LENGTHS: [u8; 2] = [12, 64];

/// The fate of the routes of a closed session in the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sessions {
    /// It drops them at once.
    Drop,
    /// It keeps them for as long as the node has asked for, two minutes: it helps the node to restart gracefully. So do
    /// BIRD, FRR and many routers by default.
    Keep,
}

/// A running network, until this is dropped.
pub(crate) struct Lab {
    peer: Peer,
}

/// A route of the router, best or not.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    pub(crate) prefix: String,
    /// The name of the node, or the address by which its router knows it.
    pub(crate) node: String,
    /// The next hop.
    pub(crate) via: String,
}

/// A route or a session that appeared or disappeared, as the router logs it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Change {
    /// Seconds of the system's clock.
    pub(crate) at: f64,
    pub(crate) node: String,
    /// The router's name of the session.
    pub(crate) session: String,
    pub(crate) what: String,
    #[serde(default)]
    pub(crate) prefix: String,
}

impl Lab {
    /// Starts the router alone.
    ///
    /// # Panics
    /// If a program was not built, or is not installed: a missing program must not let a test pass.
    pub(crate) async fn start(rig: &Rig, sessions: Sessions) -> Result<Self> {
        let lab = tool("NODEIPAM_FRR_LAB", "frr-lab");
        for program in ["/usr/lib/frr/bgpd", "/usr/lib/frr/frr-reload.py", "/usr/sbin/bird"] {
            let is_there = std::path::Path::new(program).is_file();
            assert!(is_there, "{program} is missing: run `scripts/need-routers` as root");
        }
        let mut command = as_root();
        command
            .args(["/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .arg(lab);
        command.arg("--daemon").arg(tool("NODEIPAM_FRR_K8S", "frr-k8s"));
        command.arg("--reloader").arg(tool("NODEIPAM_FRR_RELOADER", "frr-reloader.sh"));
        command.arg("--kubeconfig").arg(&rig.control_plane.admin_kubeconfig);
        command.arg("--logs").arg(rig.control_plane.dir());
        command.arg("--ipv4").arg(format!("{}/{}", ROUTER[0], LENGTHS[0]));
        command.arg("--ipv6").arg(format!("{}/{}", ROUTER[1], LENGTHS[1]));
        command.arg(format!("--helps={}", sessions == Sessions::Keep));
        // The lab uses the programs of the system, also from this folder and with this PATH.
        let elsewhere = rig.control_plane.dir().join("elsewhere");
        std::fs::create_dir(&elsewhere)?;
        let other = elsewhere.join("python3");
        std::fs::write(&other, "#!/bin/sh\nexit 1\n")?;
        std::fs::set_permissions(&other, Permissions::from_mode(0o755))?;
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", elsewhere.display())).current_dir(&elsewhere);
        let (said, mut saying) = watch::channel(false);
        let alarm = rig.control_plane.alarm.clone();
        let log = rig.control_plane.dir().join("frr-lab.log");
        let peer = Peer::start("the lab", command, &log, move |heard| match heard {
            Heard::Event(_) => drop(said.send_replace(true)),
            Heard::Ended => alarm.raise("the lab has ended by itself"),
        })?;
        let ready = async { saying.wait_for(|ready| *ready).await.context("the lab has ended").map(drop) };
        match tokio::time::timeout(ANSWERS_WITHIN, rig.control_plane.alarm.over(ready)).await {
            Ok(ready) => ready?,
            Err(_) => bail!("the lab did not start in {ANSWERS_WITHIN:?}"),
        }
        Ok(Self { peer })
    }

    async fn ask(&self, command: Value) -> Result<Value> {
        self.peer.ask(command, ANSWERS_WITHIN).await
    }

    /// Starts the machine of a Node, with the addresses that the Node has.
    pub(crate) async fn power_on(&self, rig: &Rig, node: &str) -> Result<()> {
        let object = rig.cluster.read(Kind::Node, node).await?;
        let addresses: Vec<String> = addresses(&object.data)
            .iter()
            .zip(LENGTHS)
            .map(|(address, length)| format!("{address}/{length}"))
            .collect();
        self.ask(json!({"cmd": "start", "node": node, "addresses": addresses})).await.map(drop)
    }

    /// Starts the router of a rack: an FRR with this configuration, at this address with its prefix length.
    pub(crate) async fn start_router(&self, router: &str, address: &str, configuration: &str) -> Result<()> {
        let command = json!({
            "cmd": "start-router", "router": router, "address": address, "configuration": configuration,
        });
        self.ask(command).await.map(drop)
    }

    /// Starts the machine of a Node in the network of the router of its rack, with this address and its prefix length.
    pub(crate) async fn power_on_in(&self, node: &str, router: &str, address: &str) -> Result<()> {
        let command = json!({"cmd": "start", "node": node, "router": router, "addresses": [address]});
        self.ask(command).await.map(drop)
    }

    /// All routes that the router of a rack has accepted, in order.
    pub(crate) async fn table_of(&self, router: &str) -> Result<Vec<Route>> {
        let answer = self.ask(json!({"cmd": "table", "router": router})).await?;
        let mut table: Vec<Route> = read(&answer["routes"])?;
        table.sort();
        Ok(table)
    }

    /// Whether a connection from the router of a rack to this address meets a machine that has it.
    pub(crate) async fn is_reached_by(&self, router: &str, address: &str) -> Result<bool> {
        let answer = self.ask(json!({"cmd": "answers", "router": router, "address": address})).await?;
        Ok(answer["answered"] == json!(true))
    }

    /// Does one thing to a node: `stop` (the power), `kill-frr`, `start-frr`, `kill-daemon`, `start-daemon`.
    pub(crate) async fn act(&self, what: &str, node: &str) -> Result<()> {
        self.ask(json!({"cmd": what, "node": node})).await.map(drop)
    }

    /// Plugs the cable of a node in or out.
    pub(crate) async fn link(&self, node: &str, up: bool) -> Result<()> {
        self.ask(json!({"cmd": "link", "node": node, "up": up})).await.map(drop)
    }

    /// Gives a node the address of a pod.
    pub(crate) async fn add_address(&self, node: &str, address: &str) -> Result<()> {
        self.ask(json!({"cmd": "address", "node": node, "address": address})).await.map(drop)
    }

    /// All routes that the router has, in order.
    pub(crate) async fn table(&self) -> Result<Vec<Route>> {
        let answer = self.ask(json!({"cmd": "table"})).await?;
        let mut routes: Vec<Route> = read(&answer["routes"])?;
        routes.sort();
        Ok(routes)
    }

    /// All routes and sessions that appeared or disappeared, in order.
    pub(crate) async fn changes(&self) -> Result<Vec<Change>> {
        read(&self.ask(json!({"cmd": "changes"})).await?["changes"])
    }

    /// Whether a connection from the router to this address meets a machine that has it.
    pub(crate) async fn reaches(&self, address: &str) -> Result<bool> {
        let answer = self.ask(json!({"cmd": "answers", "address": address})).await?;
        Ok(answer["answered"] == json!(true))
    }
}

/// The addresses of a Node: one of each family.
pub(crate) fn addresses(node: &Value) -> Vec<String> {
    let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let internal = addresses.iter().filter(|address| address["type"] == "InternalIP");
    internal.filter_map(|address| address["address"].as_str().map(str::to_owned)).collect()
}

fn read<T: for<'de> Deserialize<'de>>(value: &Value) -> Result<Vec<T>> {
    if value.is_null() { Ok(Vec::new()) } else { Ok(serde_json::from_value(value.clone())?) }
}

/// A command that runs as root: FRR drops its rights only where it has them.
fn as_root() -> Command {
    // Its owner is the user of this process.
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        return Command::new("/usr/bin/env");
    }
    let mut command = Command::new("/usr/bin/sudo");
    command.arg("--non-interactive");
    command
}
