//! A small network for machines that run Cilium's real agent: a bridge, in namespaces of their own.
//!
//! All processes, devices, mounts and BPF objects of a lab belong to its first process, and disappear with it. That
//! process exits when its standard input closes, so also when the test is killed. The network of this machine is not
//! touched: nothing here runs outside these namespaces.
//!
//! Linux 6.18 keeps some empty program arrays of Cilium, of 712 bytes each. No program, pin or process refers to them, and
//! no test can delete them.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ping::Ping;
use crate::support::alarm::Alarm;
use crate::support::eventually::eventually;
use crate::support::peer::{Heard, Peer};
use crate::support::rig::Rig;

/// The programs that the datapath needs from Debian. `scripts/need-datapath` has the same list.
const NEEDED: [&str; 7] = [
    "/usr/bin/clang-19",
    "/usr/sbin/iptables",
    "/usr/sbin/ip6tables",
    "/usr/sbin/ipset",
    "/usr/bin/ping",
    "/usr/sbin/bird",
    // Agents of 1.17 run it.
    "/usr/sbin/bpftool",
];

/// The addresses of the bridge in the networks of all nodes. It is the gateway of the nodes, and a host outside the cluster.
pub(crate) const GATEWAY: [&str; 2] = ["172.31.255.254", "fd00:cafe::ffff:0"];
/// The lengths of the prefixes of those networks.
pub(super) const LENGTHS: [u8; 2] = [12, 64];

/// For a command that has no reason to wait, on a machine that is busy with other tests.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// The first lines of a script whose process stays: its process id as this machine sees it. `/run/machine` is the `/proc`
/// of this machine.
const STAY: &str = r#"echo "{\"pid\": $pid}"
cat >/dev/null
"#;

const NETWORK: &str = r"
read -r pid _ < /proc/self/stat
mount -t tmpfs tmpfs /run
mkdir /run/netns /run/machine
mount --bind /proc /run/machine
mount -t proc proc /proc
mount -t sysfs sysfs /sys
ip link set lo up
ip link add nodes type bridge
ip address add $1 dev nodes
ip address add $2 dev nodes nodad
ip link set nodes up
";

/// A process that keeps namespaces.
pub(super) struct Namespaces {
    _keeper: Peer,
    /// Its process id as this machine sees it.
    pub(super) pid: u32,
}

impl Namespaces {
    /// Starts a script in namespaces that `command` makes, and returns when the script is done. `$1` is the first of these
    /// arguments. The namespaces stay.
    pub(super) async fn make(
        name: &str,
        mut command: Command,
        script: &str,
        arguments: &[&str],
        log: &Path,
        alarm: &Alarm,
    ) -> Result<Self> {
        command.args(["sh", "-euc", &format!("{script}{STAY}"), "sh"]).args(arguments);
        let (said, mut saying) = watch::channel(None);
        let (raised, what) = (alarm.clone(), format!("{name} has ended by itself"));
        let keeper = Peer::start(name, command, log, move |heard| match heard {
            Heard::Event(event) => drop(said.send_replace(pid_of(&event))),
            Heard::Ended => raised.raise(&what),
        })?;
        let ready = async { Ok(*saying.wait_for(Option::is_some).await.context("it has ended")?) };
        let ready = tokio::time::timeout(COMMAND_TIMEOUT, alarm.over(ready));
        let pid = ready.await.with_context(|| format!("{name} does not start"))??;
        Ok(Self { _keeper: keeper, pid: pid.context("no process id")? })
    }

    /// A command in these namespaces.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("/usr/bin/nsenter");
        command
            .arg("--target")
            .arg(self.pid.to_string())
            .args(["--mount", "--net", "--pid", "--"])
            .arg(program);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs a script of the shell in these namespaces, and returns its output.
    pub(super) async fn sh(&self, script: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.command("sh");
        command.args(["-euc", script, "sh"]).args(arguments);
        output(command, script).await
    }
}

fn pid_of(event: &Value) -> Option<u32> {
    event["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
}

/// The PID namespace of a process, as this machine names it. Those of machines are within the one of their lab, and all
/// processes in them disappear with its first process.
fn pid_namespace(pid: u32) -> Result<PathBuf> {
    Ok(std::fs::read_link(format!("/proc/{pid}/ns/pid"))?)
}

/// The output of a command that must succeed.
pub(super) async fn output(mut command: Command, what: &str) -> Result<String> {
    let output = tokio::time::timeout(COMMAND_TIMEOUT, command.output());
    let output = output.await.with_context(|| format!("{what} runs for {COMMAND_TIMEOUT:?}"))??;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{what}: {}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(said)
}

/// The network of the machines.
pub(crate) struct Lab {
    pub(super) network: Namespaces,
    relays: JoinSet<()>,
}

/// The proof that nothing of a lab is left.
pub(super) struct Remains(PathBuf);

impl Remains {
    /// Returns when no process of the lab runs. Devices, mounts and BPF objects exist only as long as one does.
    pub(super) async fn wait_none(&self) -> Result<()> {
        eventually(COMMAND_TIMEOUT, async || {
            let processes = std::fs::read_dir("/proc")?.filter_map(|entry| {
                let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
                Some((pid, pid_namespace(pid).ok()?))
            });
            let left: Vec<u32> =
                processes.filter(|(_, namespace)| *namespace == self.0).map(|(pid, _)| pid).collect();
            ensure!(left.is_empty(), "these processes of a lab still run: {left:?}");
            Ok(())
        })
        .await
    }
}

impl Lab {
    /// Starts the network without machines.
    ///
    /// # Panics
    /// If a program is not installed: a missing program must not let a test pass.
    pub(crate) async fn start(rig: &Rig) -> Result<Self> {
        for program in NEEDED {
            assert!(Path::new(program).exists(), "{program} is missing: run `scripts/need-datapath` as root");
        }
        // The agents leave objects that no other test may find.
        rig.control_plane.keep_to_this_test();
        let mut unshare = Command::new("/usr/bin/unshare");
        unshare.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private"]);
        let addresses: Vec<String> =
            GATEWAY.iter().zip(LENGTHS).map(|(address, length)| format!("{address}/{length}")).collect();
        let log = rig.control_plane.dir().join("lab.log");
        let arguments = [addresses[0].as_str(), addresses[1].as_str()];
        let alarm = &rig.control_plane.alarm;
        let network = Namespaces::make("the lab", unshare, NETWORK, &arguments, &log, alarm).await?;
        Ok(Self { network, relays: JoinSet::new() })
    }

    /// The proof that the test has to give at its end.
    pub(super) fn remains(&self) -> Result<Remains> {
        Ok(Remains(pid_namespace(self.network.pid)?))
    }

    /// Lets a program of this machine reach an address in the network of the lab. Returns the port of `address` here.
    pub(super) async fn relay_into(&mut self, address: Ipv4Addr) -> Result<u16> {
        let listener = tokio::net::TcpListener::bind((address, 0)).await?;
        let to = listener.local_addr()?;
        let pid = self.network.pid;
        self.relays.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut outside, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(async move {
                    let inside = tokio::task::spawn_blocking(move || connect_in(pid, to)).await;
                    if let Ok(Ok(mut inside)) = inside {
                        let _ = copy_bidirectional(&mut inside, &mut outside).await;
                    }
                });
            }
        });
        Ok(to.port())
    }

    /// A ping from a host outside.
    pub(crate) async fn ping(&self, rig: &Rig, label: &str, to: IpAddr) -> Result<Ping> {
        Ping::start(rig, label.to_owned(), self.network.command("/usr/bin/ping"), to).await
    }

    /// A host outside the cluster, which listens.
    pub(super) fn listen_outside(&self) -> Result<tokio::net::TcpListener> {
        let listener = listen_in(self.network.pid, SocketAddr::new(GATEWAY[0].parse()?, 0))?;
        listener.set_nonblocking(true)?;
        Ok(tokio::net::TcpListener::from_std(listener)?)
    }

    /// Lets that host answer the pods of these addresses without masquerading.
    pub(super) async fn route_outside(&self, cidr: &str, via: IpAddr) -> Result<()> {
        self.network.sh("ip route replace \"$1\" via \"$2\"", &[cidr, &via.to_string()]).await.map(drop)
    }

    /// Lets programs in these namespaces reach the API server at the address that the kubeconfigs name.
    pub(super) fn relay_api_server(&mut self, rig: &Rig, namespaces: &Namespaces) -> Result<()> {
        let address = rig.control_plane.server.strip_prefix("https://").context("no address")?;
        let address: SocketAddr = address.parse()?;
        ensure!(address.ip() == Ipv4Addr::LOCALHOST, "{address} is reached by other networks too");
        let listener = listen_in(namespaces.pid, address)?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        self.relays.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut inside, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(async move {
                    // Without a server the connection just closes, and the agent tries again.
                    if let Ok(mut outside) = TcpStream::connect(address).await {
                        let _ = copy_bidirectional(&mut inside, &mut outside).await;
                    }
                });
            }
        });
        Ok(())
    }
}

/// Listens at an address in the network namespace of a process.
fn listen_in(pid: u32, address: SocketAddr) -> Result<TcpListener> {
    in_network_of(pid, move || Ok(TcpListener::bind(address)?))
}

/// Connects to an address in the network namespace of a process.
fn connect_in(pid: u32, address: SocketAddr) -> Result<TcpStream> {
    let stream = in_network_of(pid, move || Ok(std::net::TcpStream::connect(address)?))?;
    stream.set_nonblocking(true)?;
    Ok(TcpStream::from_std(stream)?)
}

/// Makes a socket in the network namespace of a process.
fn in_network_of<T: Send + 'static>(
    pid: u32,
    socket: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    // Only this thread enters the namespace. Its socket stays there.
    let thread = std::thread::spawn(move || {
        let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        socket()
    });
    thread.join().map_err(|_| anyhow::anyhow!("the thread in the other namespace has panicked"))?
}
