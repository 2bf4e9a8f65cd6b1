//! A machine: Cilium's real agent with its eBPF programs, and pods that Cilium's CNI plugin attaches.
//!
//! It is a set of namespaces with a link to the bridge of the lab. The test plays kubelet: it creates the Node, the Pod of
//! the agent and the Pods of the machine, calls the plugin, and reports agents and pods as ready.

mod pod;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Child;

pub(crate) use self::pod::Pod;
use self::pod::{FIRST_IDENTITY, POD_STARTS, delete_pod, report_end};
use super::lab::{GATEWAY, LENGTHS, Lab, Namespaces, output};
use super::ping::Ping;
use crate::agent_pods::{self, create_agent_pod, delete_at_once, report};
use crate::support::agent::Release;
use crate::support::eventually::eventually;
use crate::support::families::Family;
use crate::support::kubelet::Health;
use crate::support::lab::addresses;
use crate::support::objects::{Kind, NodeSpec};
use crate::support::rig::Rig;

/// From the start of an agent until it serves. It compiles its programs first, on a machine that is busy with other tests.
/// In multi-pool mode an update that fails costs it a minute.
pub(crate) const AGENT_STARTS: Duration = Duration::from_secs(300);

/// As kubelet gives the agent, by Cilium's DaemonSet.
const GRACE: Duration = Duration::from_secs(1);

/// How packets cross from node to node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routing {
    /// By routes that the agents of all nodes make.
    Native,
    /// In VXLAN.
    Tunnel,
}

/// How the traffic of pods to hosts outside gets the address of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Masquerading {
    /// By iptables, on the interfaces that `egress-masquerade-interfaces` names.
    OnInterfaces,
    /// By iptables without such interfaces.
    WithoutInterfaces,
    /// By the programs of the datapath.
    Bpf,
    /// Not at all: hosts outside see the addresses of pods.
    Off,
}

/// How agents of a cluster are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) release: Release,
    pub(crate) ipam: &'static str,
    pub(crate) routing: Routing,
    pub(crate) masquerading: Masquerading,
    pub(crate) endpoint_routes: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            release: Release::Newest,
            ipam: "crd",
            routing: Routing::Native,
            masquerading: Masquerading::OnInterfaces,
            endpoint_routes: true,
        }
    }
}

/// The folder with Cilium's programs of a version, its CRDs, and the sources of its datapath.
///
/// # Panics
/// If it was not built: a missing program must not let a test pass.
pub(super) fn cilium(release: Release) -> PathBuf {
    let version = release.as_str();
    let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("build/bin/cilium-{minor}"));
    let is_built = folder.join("cilium-health-responder").is_file();
    assert!(is_built, "{} is incomplete: run `make build/bin/cilium-{minor}`", folder.display());
    folder
}

/// The files of a machine at the usual paths, and its link. The process id comes first, because `/run` is replaced.
const MACHINE: &str = r#"
read -r pid _ < /run/machine/self/stat
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run
mkdir /run/netns /run/cilium /run/tools
ln -s /usr/bin/clang-19 /run/tools/clang
# The agent would change settings of the machine that is below all of these.
mount --bind /proc/sys/kernel /proc/sys/kernel
mount -o remount,bind,ro /proc/sys/kernel
mount -t tmpfs tmpfs /var/lib
mkdir /var/lib/cilium
ip link set lo up
ip address add "$1" dev eth0
ip address add "$2" dev eth0 nodad
ip link set eth0 up
ip route add default via "$3"
ip -6 route add default via "$4"
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
"#;

/// Agents of 1.17 do not start without a list of loaded modules, which a kernel without modules does not have. All other
/// files of `/proc` are links to the real ones, also those of later processes.
const MODULES: &str = r"
if [ ! -e /proc/modules ]; then
    mkdir /run/proc
    mount --rbind /proc /run/proc
    mount -t tmpfs tmpfs /proc
    ln -s -t /proc /run/proc/[!0-9]*
    seq -f /run/proc/%.0f 32768 | xargs ln -s -t /proc
    touch /proc/modules
fi
";

const CABLE: &str = r#"
ip link delete "to-$1" 2>/dev/null || true
ip netns delete "$1" 2>/dev/null || true
ip netns add "$1"
ip link add "to-$1" type veth peer name eth0 netns "$1"
ip link set "to-$1" master nodes up
"#;

/// A running machine.
pub(crate) struct Machine {
    pub(crate) name: String,
    addresses: Vec<IpAddr>,
    namespaces: Namespaces,
    setup: Setup,
    agent: Option<Child>,
    n_starts: u32,
}

impl Lab {
    /// A node joins: its Node, its machine, and an agent that serves pods.
    pub(crate) async fn join(&mut self, rig: &Rig, name: &str, setup: Setup) -> Result<Machine> {
        rig.cluster.create_node(&NodeSpec::new(name)).await?;
        self.serve(rig, name, setup).await
    }

    /// As [`Lab::join`], for a Node that exists.
    pub(crate) async fn serve(&mut self, rig: &Rig, name: &str, setup: Setup) -> Result<Machine> {
        let mut machine = self.power_on(rig, name, setup).await?;
        create_agent_pod(rig, &machine.agent_pod(), name, setup.release.as_str()).await?;
        machine.start_agent(rig)?;
        machine.wait_ready(rig).await?;
        Ok(machine)
    }

    /// Starts the machine of a Node, with the addresses that the Node has.
    pub(crate) async fn power_on(&mut self, rig: &Rig, name: &str, setup: Setup) -> Result<Machine> {
        self.network.sh(CABLE, &[name]).await?;
        let node = rig.cluster.read(Kind::Node, name).await?;
        let addresses = addresses(&node.data);
        let with_length: Vec<String> =
            addresses.iter().zip(LENGTHS).map(|(address, length)| format!("{address}/{length}")).collect();
        let mut command = self.network.command("ip");
        command.args(["netns", "exec", name, "unshare", "--mount", "--propagation", "private"]);
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        let arguments = [with_length[0].as_str(), with_length[1].as_str(), GATEWAY[0], GATEWAY[1]];
        let (log, alarm) = (rig.control_plane.dir().join(format!("{name}.log")), &rig.control_plane.alarm);
        let modules = if setup.release == Release::V1_17 { MODULES } else { "" };
        let (what, script) = (format!("the machine {name}"), format!("{MACHINE}{modules}"));
        let namespaces = Namespaces::make(&what, command, &script, &arguments, &log, alarm).await?;
        self.relay_api_server(rig, &namespaces)?;
        let addresses = addresses.iter().map(|address| Ok(address.parse()?)).collect::<Result<_>>()?;
        Ok(Machine { name: name.to_owned(), addresses, namespaces, setup, agent: None, n_starts: 0 })
    }
}

impl Machine {
    fn agent_pod(&self) -> String {
        format!("cilium-{}", self.name)
    }

    /// Its address of a family.
    pub(crate) fn address(&self, family: Family) -> Result<IpAddr> {
        let address = self.addresses.iter().find(|address| Family::of(**address) == family);
        address.copied().with_context(|| format!("{} has no address of {family:?}", self.name))
    }

    /// The setup of the next start of its agent.
    pub(crate) fn set_up(&mut self, setup: Setup) {
        self.setup = setup;
    }

    /// Starts the agent, and does not wait for it.
    pub(crate) fn start_agent(&mut self, rig: &Rig) -> Result<()> {
        let folder = cilium(self.setup.release);
        let log = std::fs::File::options().create(true).append(true).open(self.log(rig))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = self.namespaces.command("sh");
        // The agent writes a header into the sources of its datapath.
        let start = "rm -rf /var/lib/cilium/bpf && cp --recursive \"$1/bpf\" /var/lib/cilium/bpf && cd / && shift && \
                     echo $$ > /run/agent.pid && exec \"$@\"";
        command.args(["-euc", start, "sh"]).arg(&folder).arg(folder.join("cilium-agent"));
        command
            .args(flags(rig, self.setup).iter().map(|(flag, value)| format!("--{flag}={value}")))
            .env("PATH", format!("/run/tools:{}:{path}", folder.display()))
            .env("K8S_NODE_NAME", &self.name)
            .env("CILIUM_K8S_NAMESPACE", "kube-system")
            .stdout(log.try_clone()?)
            .stderr(log);
        self.agent = Some(command.spawn()?);
        Ok(())
    }

    /// Returns when the agent serves pods, and kubelet has reported it.
    pub(crate) async fn wait_ready(&mut self, rig: &Rig) -> Result<()> {
        let agent = self.agent.as_mut().context("no agent was started")?;
        let (pid, name) = (self.namespaces.pid, &self.name);
        let serves = async {
            eventually(AGENT_STARTS, async || {
                let status = ask_agent(pid, "/healthz").await?;
                let state = status["cilium"].clone();
                ensure!(state["state"] == "Ok", "the agent of {name} says {state}");
                Ok(())
            })
            .await
        };
        tokio::select! {
            biased;
            ready = rig.control_plane.alarm.over(serves) => ready?,
            status = agent.wait() => bail!("the agent of {name} has ended as it started: {}", status?),
        }
        report(rig, &self.agent_pod(), self.n_starts, Health::Ready).await?;
        self.n_starts += 1;
        Ok(())
    }

    /// Kills the agent, or asks it to exit as kubelet does. Its pods stay.
    pub(crate) async fn stop_agent(&mut self, rig: &Rig, signal: &str) -> Result<()> {
        let mut agent = self.agent.take().context("no agent runs")?;
        let kill = "kill -\"$1\" \"$(cat /run/agent.pid)\"";
        self.namespaces.sh(kill, &[signal]).await?;
        if tokio::time::timeout(GRACE, agent.wait()).await.is_err() {
            // It may have exited meanwhile.
            let _ = self.namespaces.sh(kill, &["KILL"]).await;
            agent.wait().await?;
        }
        report(rig, &self.agent_pod(), self.n_starts, Health::Starting).await
    }

    /// The lines of the log of its agents that have these words.
    pub(crate) fn logged(&self, rig: &Rig, words: &str) -> Result<Vec<String>> {
        let log = std::fs::read_to_string(self.log(rig))?;
        Ok(log.lines().filter(|line| line.contains(words)).map(str::to_owned).collect())
    }

    fn log(&self, rig: &Rig) -> PathBuf {
        rig.control_plane.dir().join(format!("{}-agent.log", self.name))
    }

    /// Restarts the agent under its pods. Returns when it has restored and regenerated all of them.
    pub(crate) async fn restart_agent(&mut self, rig: &Rig, signal: &str) -> Result<()> {
        let before = self.endpoints().await?;
        self.stop_agent(rig, signal).await?;
        self.start_agent(rig)?;
        self.wait_ready(rig).await?;
        self.wait_restored(rig, &before).await
    }

    /// Waits until another process deletes the Pod of the agent, and replaces it as the DaemonSet does, by one that is set up
    /// so. Returns when the new agent has restored all pods.
    pub(crate) async fn replace_agent(
        &mut self,
        rig: &Rig,
        setup: impl AsyncFnOnce() -> Result<Setup>,
    ) -> Result<()> {
        let pod = self.agent_pod();
        let deleted = eventually(AGENT_STARTS, async || {
            let found = agent_pods::pods(rig).get(&pod).await?;
            ensure!(found.metadata.deletion_timestamp.is_some(), "Pod {pod} is not deleted");
            Ok(())
        });
        rig.control_plane.alarm.over(deleted).await?;
        let before = self.endpoints().await?;
        self.set_up(setup().await?);
        self.stop_agent(rig, "TERM").await?;
        delete_at_once(rig, &pod).await?;
        create_agent_pod(rig, &pod, &self.name, self.setup.release.as_str()).await?;
        self.n_starts = 0;
        self.start_agent(rig)?;
        self.wait_ready(rig).await?;
        self.wait_restored(rig, &before).await
    }

    /// Returns when the agent has the same endpoints as before.
    async fn wait_restored(&self, rig: &Rig, before: &BTreeMap<String, u64>) -> Result<()> {
        // It lists its endpoints one by one as it restores them.
        let restored = eventually(AGENT_STARTS, async || {
            let endpoints = ask_agent(self.namespaces.pid, "/endpoint").await?;
            let states: Vec<&Value> = each(&endpoints).map(|endpoint| &endpoint["status"]["state"]).collect();
            let (name, after) = (&self.name, self.endpoints().await?);
            ensure!(*before == after, "the agent of {name} had {before:?}, and has {after:?}");
            ensure!(states.iter().all(|state| **state == "ready"), "the endpoints of {name} are {states:?}");
            Ok(())
        });
        rig.control_plane.alarm.over(restored).await
    }

    /// The addresses of the pods that the agent has, with the numbers of their endpoints.
    async fn endpoints(&self) -> Result<BTreeMap<String, u64>> {
        let endpoints = ask_agent(self.namespaces.pid, "/endpoint").await?;
        let mut found = BTreeMap::new();
        for endpoint in each(&endpoints) {
            let id = endpoint["id"].as_u64().context("an endpoint without a number")?;
            let status = &endpoint["status"];
            if status["identity"]["id"].as_u64().unwrap_or_default() < FIRST_IDENTITY {
                continue;
            }
            for addresses in each(&status["networking"]["addressing"]) {
                let of_families =
                    ["ipv4", "ipv6"].into_iter().filter_map(|family| addresses[family].as_str());
                found.extend(of_families.filter(|text| !text.is_empty()).map(|text| (text.to_owned(), id)));
            }
        }
        Ok(found)
    }

    /// Cuts the power. Everything of the machine disappears, its pods too, and their Pods are deleted.
    pub(crate) async fn power_off(self, rig: &Rig, pods_of_machine: &[&Pod]) -> Result<()> {
        let name = self.name.clone();
        drop(self);
        for pod in pods_of_machine {
            report_end(rig, &name, pod).await?;
            delete_pod(rig, &pod.name).await?;
        }
        delete_at_once(rig, &format!("cilium-{name}")).await
    }

    /// Returns when the agent has exited by itself as it started.
    pub(crate) async fn wait_agent_exit(&mut self) -> Result<()> {
        let agent = self.agent.as_mut().context("no agent was started")?;
        let status =
            tokio::time::timeout(AGENT_STARTS, agent.wait()).await.context("the agent still runs")??;
        ensure!(!status.success(), "the agent has exited without a failure");
        Ok(())
    }

    /// Connects from a pod to a host outside.
    pub(crate) async fn connect_from(&self, from: &Pod, to: SocketAddr) -> Result<()> {
        let mut command = self.namespaces.command("ip");
        let script = format!(": < /dev/tcp/{}/{}", to.ip(), to.port());
        command.args(["netns", "exec", &from.name, "bash", "-c", &script]);
        output(command, &format!("a connection from {} to {to}", from.name)).await.map(drop)
    }

    /// Drops at least this many pings to this machine.
    pub(super) async fn drop_pings(&self, rig: &Rig, count: u64) -> Result<()> {
        let change = "iptables --wait \"$1\" INPUT --protocol icmp --jump DROP";
        self.namespaces.sh(change, &["--insert"]).await?;
        let dropped = eventually(POD_STARTS, async || {
            let list = "iptables --wait --list INPUT 1 --verbose --exact --numeric";
            let rule = self.namespaces.sh(list, &[]).await?;
            let packets: u64 = rule.split_whitespace().next().context("no rule")?.parse()?;
            ensure!(packets >= count, "{packets} packets were dropped");
            Ok(())
        });
        rig.control_plane.alarm.over(dropped).await?;
        self.namespaces.sh(change, &["--delete"]).await.map(drop)
    }

    /// The number of answers to ten pings from a pod.
    pub(crate) async fn answers_of_ten(&self, from: &Pod, to: IpAddr) -> Result<usize> {
        let mut command = self.namespaces.command("ip");
        // It exits with a failure if none is answered.
        let script = "ping -n -c 10 -i 0.05 -W 5 \"$1\" || true";
        command.args(["netns", "exec", &from.name, "sh", "-euc", script, "sh", &to.to_string()]);
        let said = output(command, "ten pings").await?;
        ensure!(said.contains("10 packets transmitted"), "{said}");
        Ok(said.lines().filter(|line| line.contains("bytes from")).count())
    }

    /// A ping from this machine itself.
    pub(crate) async fn ping(&self, rig: &Rig, label: &str, to: IpAddr) -> Result<Ping> {
        Ping::start(rig, label.to_owned(), self.namespaces.command("/usr/bin/ping"), to).await
    }

    /// A ping from one of its pods.
    pub(crate) async fn ping_from(&self, rig: &Rig, from: &Pod, label: &str, to: IpAddr) -> Result<Ping> {
        let mut command = self.namespaces.command("ip");
        command.args(["netns", "exec", &from.name, "/usr/bin/ping"]);
        Ping::start(rig, label.to_owned(), command, to).await
    }

    /// Returns when its next hop to a CIDR is this machine, or there is none.
    pub(crate) async fn wait_route(&self, rig: &Rig, cidr: &str, to: Option<&Self>) -> Result<()> {
        self.namespaces.wait_route(rig, &self.name, cidr, to).await
    }
}

impl Namespaces {
    /// The next hops of their routes, by CIDR.
    async fn routes(&self) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for family in ["-4", "-6"] {
            let routes: Value = serde_json::from_str(&self.sh("ip -j \"$1\" route", &[family]).await?)?;
            let vias =
                each(&routes).filter_map(|route| Some((route["dst"].as_str()?, route["gateway"].as_str()?)));
            found.extend(vias.map(|(to, via)| (to.to_owned(), via.to_owned())));
        }
        Ok(found)
    }

    /// Returns when the next hop to a CIDR is this machine, or there is none.
    pub(super) async fn wait_route(
        &self,
        rig: &Rig,
        name: &str,
        cidr: &str,
        to: Option<&Machine>,
    ) -> Result<()> {
        let family = Family::of_text(cidr);
        let via = to.map(|to| to.address(family).map(|address| address.to_string())).transpose()?;
        let routed = eventually(POD_STARTS, async || {
            let routes = self.routes().await?;
            ensure!(
                routes.get(cidr) == via.as_ref(),
                "{name} has the routes {routes:?}, and not {cidr} via {via:?}"
            );
            Ok(())
        });
        rig.control_plane.alarm.over(routed).await
    }
}

/// The answer of an agent to a GET of its API.
async fn ask_agent(pid: u32, path: &str) -> Result<Value> {
    // The file system of its machine.
    let mut stream = UnixStream::connect(format!("/proc/{pid}/root/run/cilium/cilium.sock")).await?;
    // In a version of HTTP that has no chunks.
    stream.write_all(format!("GET /v1{path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut answer)).await??;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    ensure!(head.split(' ').nth(1) == Some("200"), "{answer}");
    Ok(serde_json::from_str(body)?)
}

/// The settings of agents that are set up so, as `cilium-config` has them beside the mode.
pub(super) fn settings(rig: &Rig, setup: Setup) -> BTreeMap<&'static str, String> {
    let mut settings = flags(rig, setup);
    settings.retain(|key, _| !["k8s-kubeconfig-path", "ipam"].contains(key));
    settings
}

fn flags(rig: &Rig, setup: Setup) -> BTreeMap<&'static str, String> {
    let families = rig.control_plane.options.families;
    let kubeconfig = rig.control_plane.admin_kubeconfig.display().to_string();
    let is_native = setup.routing == Routing::Native;
    let mut flags = BTreeMap::from([
        ("k8s-kubeconfig-path", kubeconfig),
        ("ipam", setup.ipam.to_owned()),
        ("enable-ipv4", families.ipv4().to_string()),
        ("enable-ipv6", families.ipv6().to_string()),
        ("routing-mode", if is_native { "native" } else { "tunnel" }.to_owned()),
        ("auto-direct-node-routes", is_native.to_string()),
        ("enable-endpoint-routes", setup.endpoint_routes.to_string()),
        ("enable-bpf-masquerade", (setup.masquerading == Masquerading::Bpf).to_string()),
    ]);
    for flag in ["enable-ipv4-masquerade", "enable-ipv6-masquerade"] {
        flags.insert(flag, (setup.masquerading != Masquerading::Off).to_string());
    }
    if setup.masquerading == Masquerading::OnInterfaces {
        flags.insert("egress-masquerade-interfaces", "eth0".to_owned());
    }
    let same = [
        ("cluster-name", "default"),
        ("identity-allocation-mode", "crd"),
        ("ipam-cilium-node-update-rate", "5s"),
        ("ipv4-native-routing-cidr", "10.0.0.0/8"),
        ("ipv6-native-routing-cidr", "fd00::/8"),
        ("install-iptables-rules", "true"),
        ("enable-policy", "default"),
        ("cni-exclusive", "false"),
        // These two would attach programs to the root cgroup of this machine.
        ("kube-proxy-replacement", "false"),
        ("bpf-lb-sock", "false"),
        ("enable-l7-proxy", "false"),
        ("enable-hubble", "false"),
        ("enable-health-checking", "true"),
        ("enable-endpoint-health-checking", "true"),
        ("bpf-map-dynamic-size-ratio", "0.0025"),
    ];
    flags.extend(same.map(|(flag, value)| (flag, value.to_owned())));
    flags
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
