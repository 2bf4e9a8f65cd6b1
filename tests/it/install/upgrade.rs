//! An upgrade from another version, a roll back, and the upgrade again: with Helm, and with plain manifests.
//!
//! Both programs are real, and so are both versions of the definitions, rights and policies. In each step blocks drain
//! and nodes grow, the objects of the target version come first, and then its replicas replace the others one at a
//! time. Nodes join in every state between, and are served.
//!
//! `make test-upgrade` builds the other version and runs these tests; no other target does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::helm::{CHART, deployment, helm};
use super::{MANIFEST, NAME, NAMESPACE, SOON, granted};
use crate::scene::insist;
use crate::support::agent::{FakeAgent, Release};
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, ELECTED};
use crate::support::eventually::eventually;
use crate::support::kubectl::kubectl;
use crate::support::kubelet::{Health, create_agent_pod, report};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Claim;

/// The nodes of the test. Each of the four steps has a quarter of them.
const N_NODES: usize = 60;

/// More pods than the addresses of a node here.
const MANY: usize = 64;

/// The replicas of the Deployment.
const REPLICAS: usize = 2;

/// Nodes grow at once, and agents are asked often. The program of another version must know these flags.
const PROMPT: [&str; 5] = [ELECTED, "--min-write-interval", "0s", "--usage-query-interval", "5s"];

/// The metric of findings, and the finding of a block whose pods still run.
const FINDINGS: &str = "cilium_node_ipam_findings{";
const DRAIN_WAITS: &str = "kind=\"DrainWaits\"";

/// The writes of a pool's status that the object does not show, and their finding.
const WITHOUT_EFFECT: &str = "kind=\"WriteWithoutEffect\"";
const DROPPED: &str = "kind=\"pool_status\",outcome=\"no_effect\"";

/// A version of the product.
struct Version {
    name: &'static str,
    /// Has its chart, definitions and manifests.
    folder: PathBuf,
    program: PathBuf,
}

impl Version {
    fn present() -> Self {
        Self {
            name: "present",
            folder: env!("CARGO_MANIFEST_DIR").into(),
            program: env!("CARGO_BIN_EXE_cilium-node-ipam").into(),
        }
    }

    /// The version that `make test-upgrade` has built.
    ///
    /// # Panics
    /// If there is none: the test must not pass without it.
    fn former() -> Self {
        let folder = std::env::var_os("NODEIPAM_FORMER").map(PathBuf::from);
        let folder = folder.expect("NODEIPAM_FORMER is missing: run `make test-upgrade FROM=COMMIT`");
        let program = folder.join("build/cilium-node-ipam");
        assert!(program.is_file(), "{} is missing: run `make test-upgrade`", program.display());
        Self { name: "former", folder, program }
    }

    fn path(&self, name: &str) -> Result<String> {
        let path = self.folder.join(name).into_os_string().into_string();
        path.map_err(|path| anyhow::anyhow!("{} is no UTF-8", Path::new(&path).display()))
    }

    /// Whether its definition of pools has this field: the names from `spec` or `status` on.
    fn knows(&self, field: &[String]) -> Result<bool> {
        let text = std::fs::read_to_string(self.path("crds/nodeippools.nodeipam.io.yaml")?)?;
        let definition: Value = serde_saphyr::from_str(&text)?;
        let mut schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for name in field {
            while schema["items"].is_object() {
                schema = &schema["items"];
            }
            let properties = &schema["properties"];
            schema = if properties.is_object() { &properties[name] } else { &schema["additionalProperties"] };
            if schema.is_null() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// How an administrator installs.
#[derive(Clone, Copy)]
enum Way {
    /// With the Helm of this major.
    Helm(&'static str),
    /// With `kubectl apply`.
    Plain,
}

/// An action of an administrator with a version.
#[derive(Clone, Copy)]
enum Deed {
    Install,
    Upgrade,
    /// To the version that was installed first.
    RollBack,
}

impl Way {
    /// Brings the objects of a version into the cluster, as docs/how-to/upgrade.md says.
    async fn apply(self, rig: &Rig, deed: Deed, version: &Version) -> Result<()> {
        let plane = &rig.control_plane;
        match self {
            Self::Helm(major) => {
                let chart = version.path(CHART)?;
                let arguments = match deed {
                    Deed::Install => vec!["install", NAME, &chart],
                    Deed::Upgrade => vec!["upgrade", NAME, &chart, "--reset-then-reuse-values"],
                    Deed::RollBack => vec!["rollback", NAME, "1"],
                };
                helm(plane, major, &arguments).await?;
            }
            Self::Plain => {
                let apply = ["apply", "--server-side", "--force-conflicts", "-f"];
                for file in ["crds", MANIFEST] {
                    kubectl(plane, &[&apply[..], &[&version.path(file)?]].concat()).await?;
                }
            }
        }
        kubectl(plane, &["wait", "--for=condition=Established", "-f", &version.path("crds")?]).await?;
        wait_rights(rig).await
    }
}

/// Returns when the controller has the rights of the roles that are installed.
async fn wait_rights(rig: &Rig) -> Result<()> {
    let plane = &rig.control_plane;
    let everywhere: Api<ClusterRole> = Api::all(plane.admin.clone());
    let everywhere = everywhere.get(NAME).await?.rules.unwrap_or_default();
    for namespace in [NAMESPACE, "default"] {
        let roles: Api<Role> = Api::namespaced(plane.admin.clone(), namespace);
        let ours = ListParams::default().labels(&format!("app.kubernetes.io/name={NAME}"));
        let here = roles.list(&ours).await?.items.into_iter().flat_map(|role| role.rules.unwrap_or_default());
        let installed: BTreeSet<String> = everywhere.iter().cloned().chain(here).flat_map(rights).collect();
        eventually(SOON, async || {
            let granted = granted(plane, namespace).await?;
            ensure!(granted == installed, "in {namespace} {granted:?} are granted, not {installed:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The rights of a rule, each in one line.
fn rights(rule: PolicyRule) -> Vec<String> {
    let (groups, resources) = (rule.api_groups.unwrap_or_default(), rule.resources.unwrap_or_default());
    let kinds = groups.iter().flat_map(|group| resources.iter().map(move |name| format!("{group}/{name}")));
    kinds.flat_map(|kind| rule.verbs.iter().map(move |verb| format!("{verb} {kind}"))).collect()
}

/// The nodes with their agents.
struct Nodes<'a> {
    rig: &'a Rig,
    agents: BTreeMap<String, FakeAgent>,
    n_waves: usize,
}

impl Nodes<'_> {
    /// Nodes join, and are served. Their label makes them a group of their own.
    async fn join(&mut self, count: usize, label: (&str, &str)) -> Result<Vec<String>> {
        let first = self.agents.len();
        let names: Vec<String> = (first..first + count).map(|number| format!("n{number:02}")).collect();
        let client = &self.rig.cluster.client;
        for name in &names {
            let node = NodeSpec::new(name).label("zone", "a").label(label.0, label.1);
            self.rig.cluster.create_node(&node).await?;
            let pod = format!("cilium-{name}");
            create_agent_pod(client, &pod, name, Release::Newest.as_str()).await?;
            let mut agent = self.rig.agents.fake(name);
            agent.start()?;
            self.agents.insert(name.clone(), agent);
        }
        for name in &names {
            self.agents[name].wait_ready(SOON).await?;
            report(client, &format!("cilium-{name}"), 0, Health::Ready).await?;
        }
        Ok(names)
    }

    /// Starts pods until no address is left, so that these nodes grow.
    fn fill(&self, names: &[String], prefix: &str) -> Result<()> {
        for name in names {
            let filled = self.agents[name].allocate_many(&format!("ns/{prefix}-"), MANY);
            ensure!(filled.error.is_some(), "{name} has room for {MANY} pods");
        }
        Ok(())
    }

    async fn wait_blocks(&self, names: &[String], count: usize) -> Result<()> {
        let n_blocks = |name: &String| self.rig.cluster.published(name).unwrap_or_default().pod_cidrs.len();
        let what = format!("{count} blocks on each of {names:?}");
        let have = async || Ok(names.iter().all(|name| n_blocks(name) >= count));
        self.rig.cluster.wait_until(&what, SOON, have).await
    }

    /// Nodes join and grow into a pool of their own, which then drains. Their pods keep its blocks until they are
    /// deleted. Returns the nodes and the pool.
    async fn begin_drains(&mut self, count: usize) -> Result<(Vec<String>, String)> {
        self.n_waves += 1;
        let wave = self.n_waves.to_string();
        let (name, range) = (format!("wave-{wave}"), format!("10.2.{wave}.0/24"));
        let nodes = self.join(count, ("wave", &wave)).await?;
        let pool = pool(&name).select("wave", &wave).ipv4(28, &[&range]).with("priority", 10);
        self.rig.cluster.create_pool(&pool).await?;
        self.fill(&nodes, "early")?;
        self.wait_blocks(&nodes, 2).await?;
        for node in &nodes {
            for number in 0..3 {
                let pod = format!("ns/late-{number}");
                insist(self.rig, async || self.agents[node].allocate(&pod)).await?;
            }
        }
        let draining = json!({"ipv4": {"cidrs": [{"cidr": range, "state": "Draining"}]}});
        self.rig.cluster.patch_pool(&name, draining).await?;
        let drain = async || {
            let claims = claims(self.rig, &name);
            Ok(claims.len() == count && claims.iter().all(|claim| claim.state == "Draining"))
        };
        self.rig.cluster.wait_until(&format!("all blocks of {name} to drain"), SOON, drain).await?;
        Ok((nodes, name))
    }

    /// The pods of these nodes are deleted, and the blocks of the pool leave.
    async fn end_drains(&self, (nodes, pool): &(Vec<String>, String)) -> Result<()> {
        for node in nodes {
            let agent = &self.agents[node];
            let pods: BTreeSet<String> =
                agent.held().into_values().filter(|owner| owner.starts_with("ns/")).collect();
            ensure!(!pods.is_empty(), "{node} has no pods");
            pods.iter().try_for_each(|pod| agent.release(pod))?;
        }
        let none = async || Ok(claims(self.rig, pool).is_empty());
        self.rig.cluster.wait_until(&format!("no block of {pool} to be left"), SOON, none).await
    }
}

fn claims(rig: &Rig, pool: &str) -> Vec<Claim> {
    let claims = rig.cluster.objects(Kind::Block).into_iter().map(|block| Claim::of(&block));
    claims.filter(|claim| claim.pool == pool).collect()
}

fn pool(name: &str) -> PoolSpec {
    let pool = PoolSpec::new(name).with("reuseAfter", "1s").with("reuseAfterNodeLoss", "1s");
    pool.with("reclaim", json!({"mode": "Disabled"}))
}

/// Starts a replica as the Deployment does.
async fn start(rig: &Rig, version: &Version) -> Result<Controller> {
    let spec = deployment(&rig.control_plane, NAME).await?.spec.and_then(|spec| spec.template.spec);
    let arguments = spec.context("no pod")?.containers[0].args.clone().context("no arguments")?;
    let own = arguments.iter().map(String::as_str);
    let own = own.filter(|argument| *argument != "run" && !argument.starts_with("--listen="));
    let flags: Vec<&str> = own.chain(PROMPT).collect();
    Controller::start_ready_other(&rig.control_plane, &version.program, &flags)
        .await
        .with_context(|| format!("starting a {} replica", version.name))
}

/// Stops a replica as the Deployment does. Fails if the server refused any of its requests.
async fn stop(controller: Controller) -> Result<()> {
    ensure_accepted(&controller, Objects::OfAnotherVersion).await?;
    let status = controller.sigterm_and_wait().await?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Returns when no replica has a finding any more.
async fn wait_no_findings(replicas: &[Controller]) -> Result<()> {
    for replica in replicas {
        let none = |answer: &Result<(u16, String)>| {
            let is_none = |line: &str| !line.starts_with(FINDINGS) || line.ends_with(" 0");
            Ok(answer.as_ref().is_ok_and(|(_, metrics)| metrics.lines().all(is_none)))
        };
        replica.wait_answer("/metrics", "no findings", SOON, none).await?;
    }
    Ok(())
}

/// The objects that a replica has met.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Objects {
    OfItsVersion,
    /// The API server may have dropped fields of the status of pools that the definition lacks.
    OfAnotherVersion,
}

/// Fails if a request of this replica was refused, if a write had no effect, or if it has a finding. Blocks may wait for
/// pods.
async fn ensure_accepted(controller: &Controller, objects: Objects) -> Result<()> {
    let (_, metrics) = controller.get("/metrics").await?;
    let is_bad = |line: &&str| {
        let (series, value) = line.rsplit_once(' ').unwrap_or_default();
        let refused = ["code=\"400\"", "code=\"403\"", "code=\"422\"", "outcome=\"refused\""];
        let may_drop = objects == Objects::OfAnotherVersion;
        let is_dropped = may_drop && series.contains(DROPPED);
        let without_effect = series.contains("outcome=\"no_effect\"") && !is_dropped;
        let mut expected = [DRAIN_WAITS].into_iter().chain(may_drop.then_some(WITHOUT_EFFECT));
        let finding = series.starts_with(FINDINGS) && !expected.any(|name| series.contains(name));
        !series.starts_with('#')
            && value != "0"
            && (finding || without_effect || refused.iter().any(|label| series.contains(label)))
    };
    let bad: Vec<&str> = metrics.lines().filter(is_bad).collect();
    ensure!(bad.is_empty(), "{bad:#?}");
    for line in metrics.lines().filter(|line| line.contains(DROPPED) && !line.ends_with(" 0")) {
        eprintln!("a replica on the definitions of another version: {line}");
    }
    let log = std::fs::read_to_string(controller.log())?;
    for word in ["forbidden", "denied"] {
        ensure!(!log.to_lowercase().contains(word), "it says {word}:\n{log}");
    }
    Ok(())
}

/// One step to another version. Blocks drain and nodes grow throughout.
async fn step(
    nodes: &mut Nodes<'_>,
    (way, deed): (Way, Deed),
    to: &Version,
    running: Vec<Controller>,
) -> Result<Vec<Controller>> {
    let rig = nodes.rig;
    let drains = nodes.begin_drains(5).await?;
    let growing = nodes.join(3, ("grows", "yes")).await?;
    nodes.fill(&growing, "before")?;
    way.apply(rig, deed, to).await?;
    eprintln!("the objects are of the {} version", to.name);
    // The replicas of the version before run on these objects, until theirs is stopped.
    nodes.join(2, ("while", "objects")).await?;
    let mut replaced = Vec::new();
    for replica in running {
        stop(replica).await?;
        replaced.push(start(rig, to).await?);
        nodes.join(2, ("while", "replicas")).await?;
    }
    eprintln!("both replicas are of the {} version", to.name);
    nodes.wait_blocks(&growing, 2).await?;
    nodes.end_drains(&drains).await?;
    nodes.join(1, ("while", "done")).await?;
    rig.cluster.wait_served(SOON, &BTreeSet::new()).await?;
    wait_no_findings(&replaced).await?;
    for replica in &replaced {
        ensure_accepted(replica, Objects::OfItsVersion).await?;
    }
    rig.assert_clean().await?;
    Ok(replaced)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_between_two_versions_serves_all_nodes_helm_3() -> Result<()> {
    every_step_between_two_versions_serves_all_nodes(Way::Helm("3")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_between_two_versions_serves_all_nodes_helm_4() -> Result<()> {
    every_step_between_two_versions_serves_all_nodes(Way::Helm("4")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_between_two_versions_serves_all_nodes_plain() -> Result<()> {
    every_step_between_two_versions_serves_all_nodes(Way::Plain).await
}

async fn every_step_between_two_versions_serves_all_nodes(way: Way) -> Result<()> {
    let (former, present) = (Version::former(), Version::present());
    under_oracle(Options { manifests: Vec::new(), ..Options::default() }, async |rig| {
        let (plane, cluster) = (&rig.control_plane, &rig.cluster);
        plane.keep_to_this_test();
        // The rig needs the definitions at its start, but those of the former version count.
        kubectl(plane, &["delete", "-f", "crds"]).await?;
        way.apply(rig, Deed::Install, &former).await?;
        cluster.create_pool(&pool("first").select("zone", "a").ipv4(28, &["10.1.0.0/20"])).await?;
        let mut nodes = Nodes { rig, agents: BTreeMap::new(), n_waves: 0 };
        let mut running = Vec::new();
        for _ in 0..REPLICAS {
            running.push(start(rig, &former).await?);
        }
        nodes.join(N_NODES / 4, ("from", "the-beginning")).await?;

        running = step(&mut nodes, (way, Deed::Upgrade), &present, running).await?;
        // A pool with all fields of the present version, and a node with a block of another size.
        cluster.create_pool(&sizes()).await?;
        let large = nodes.join(1, ("size", "large")).await?;
        ensure!(blocks(rig, &large[0]) == ["10.3.0.0/27"], "{:?}", blocks(rig, &large[0]));
        let before = settled_pool(rig, "sizes").await?;
        // A change that a former version may refuse.
        cluster.patch_pool("first", json!({"ipv4": {"blockSize": 27}})).await?;

        running = step(&mut nodes, (way, Deed::RollBack), &former, running).await?;
        let lost = lost_fields(rig, "sizes", &before, &former).await?;
        eprintln!("the former version has lost {lost:?}");
        // The node keeps its block, and another one gets a block of the size that the former version knows.
        ensure!(blocks(rig, &large[0]) == ["10.3.0.0/27"], "{:?}", blocks(rig, &large[0]));
        let meanwhile = nodes.join(1, ("size", "large")).await?;
        let of_default_size = |block: &String| block.ends_with("/28");
        let served = blocks(rig, &meanwhile[0]);
        ensure!(served.iter().all(of_default_size) == lost.contains("spec.ipv4.blockSizes"), "{served:?}");

        running = step(&mut nodes, (way, Deed::Upgrade), &present, running).await?;
        // The administrator applies the pool again.
        cluster.patch_pool("sizes", sizes().spec).await?;
        let again = nodes.join(1, ("size", "large")).await?;
        ensure!(blocks(rig, &again[0])[0].ends_with("/27"), "{:?}", blocks(rig, &again[0]));
        ensure!(nodes.agents.len() >= N_NODES, "{} nodes", nodes.agents.len());
        for replica in &running {
            ensure_accepted(replica, Objects::OfItsVersion).await?;
        }
        Ok((running, nodes.agents))
    })
    .await
}

/// A pool with fields that a former version may lack.
fn sizes() -> PoolSpec {
    let mut sizes = pool("sizes").select("size", "large").ipv4(28, &["10.3.0.0/24"]).with("priority", 10);
    let large = json!({"blockSize": 27, "nodeSelector": {"matchLabels": {"size": "large"}}});
    sizes.spec["ipv4"]["blockSizes"] = json!([large]);
    sizes
}

fn blocks(rig: &Rig, node: &str) -> Vec<String> {
    rig.cluster.published(node).unwrap_or_default().pod_cidrs
}

/// The pool when its status has counted the node.
async fn settled_pool(rig: &Rig, name: &str) -> Result<Value> {
    let counted = async || {
        let pool = rig.cluster.object(Kind::Pool, name).map(|pool| pool.data.clone()).unwrap_or_default();
        Ok((pool["status"]["nodes"]["served"] == 1).then_some(pool))
    };
    rig.cluster.wait_for(&format!("the node in the status of {name}"), SOON, counted).await
}

/// The fields that the pool had and that the definition of this version does not know. Fails if the pool still has one,
/// or if its spec has lost any other field.
async fn lost_fields(rig: &Rig, name: &str, before: &Value, version: &Version) -> Result<BTreeSet<String>> {
    let text = kubectl(&rig.control_plane, &["get", "nodeippool", name, "-o", "json"]).await?;
    let after: Value = serde_json::from_str(&text)?;
    let (before, after) = (fields(before), fields(&after));
    let mut lost = BTreeSet::new();
    for field in before {
        let is_left = after.contains(&field);
        if version.knows(&field)? {
            ensure!(is_left || field[0] != "spec", "{field:?} was lost");
        } else {
            ensure!(!is_left, "{field:?} is left");
            lost.insert(field.join("."));
        }
    }
    Ok(lost)
}

/// The fields below `spec` and `status`, with those of all items of a list.
fn fields(object: &Value) -> BTreeSet<Vec<String>> {
    fn visit(value: &Value, path: &[String], found: &mut BTreeSet<Vec<String>>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let path = [path, std::slice::from_ref(name)].concat();
                    visit(value, &path, found);
                    found.insert(path);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| visit(item, path, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    for name in ["spec", "status"] {
        visit(&object[name], &[name.to_owned()], &mut found);
    }
    found
}
