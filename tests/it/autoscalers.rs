//! `docs/how-to/autoscalers.md`: its commands on a real API server, and its examples compared with each other. The
//! autoscalers themselves are not run.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::answers::ask;
use crate::node_condition::shell_words;
use crate::scene::{PROMPT, join, wait_ready, wait_status};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::kubectl::{apply, kubectl};
use crate::support::objects::NodeSpec;
use crate::support::rig::under_oracle;

const PAGE: &str = include_str!("../../docs/how-to/autoscalers.md");

/// The rule whose taint the examples name.
const RULE: &str = include_str!("../../manifests/examples/node-readiness-rule.yaml");

/// The blocks of the page in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let all = PAGE.split("\n```").skip(1).step_by(2);
    all.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// The example with these words, as JSON.
fn example(words: &str) -> Result<Value> {
    let found = blocks("yaml").into_iter().find(|block| block.contains(words)).context(words.to_owned())?;
    Ok(serde_saphyr::from_str(found)?)
}

/// The number of blocks of the pool of the page.
fn n_blocks(pool: &Value) -> Result<u64> {
    let cidr = pool["spec"]["ipv4"]["cidrs"][0]["cidr"].as_str().context("no CIDR")?;
    let range: ipnet::IpNet = cidr.parse()?;
    let size = pool["spec"]["ipv4"]["blockSize"].as_u64().context("no size")?;
    Ok(1 << (size - u64::from(range.prefix_len())))
}

/// Why `--startup-taint` refuses this taint.
async fn refusal(taint: &str) -> Result<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
    command.args(["run", "--startup-taint", taint]).env("KUBECONFIG", Path::new("/nonexistent"));
    let output = command.stdin(Stdio::null()).output().await?;
    ensure!(output.status.code() == Some(2), "{taint}: {output:?}");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_have_the_labels_the_number_and_the_taints_of_the_pool() -> Result<()> {
    let pool = example("kind: NodeIPPool")?;
    let (labels, n_nodes) = (&pool["spec"]["nodeSelector"]["matchLabels"], n_blocks(&pool)?.to_string());
    let rule: Value = serde_saphyr::from_str(RULE)?;
    let taint = &rule["spec"]["taint"];
    let key = taint["key"].as_str().context("no key")?;

    let karpenter = example("kind: NodePool")?;
    let template = &karpenter["spec"]["template"];
    ensure!(template["metadata"]["labels"] == *labels, "{karpenter}");
    ensure!(karpenter["spec"]["limits"]["nodes"] == n_nodes.as_str(), "{karpenter}");
    let startup = template["spec"]["startupTaints"].as_array().context("no taints")?;
    ensure!(startup.contains(taint), "{startup:?} and {taint}");
    for taint in startup {
        let refused = refusal(taint["key"].as_str().context("no key")?).await?;
        ensure!(refused.contains("stays until the node has addresses"), "{refused}");
    }

    let autoscaler = example("./cluster-autoscaler")?;
    let flags: Vec<&str> =
        autoscaler["command"].as_array().context("no flags")?.iter().filter_map(Value::as_str).collect();
    ensure!(flags.contains(&format!("--nodes=1:{n_nodes}:workers").as_str()), "{flags:?}");
    ensure!(flags.contains(&format!("--status-taint={key}").as_str()), "{flags:?}");

    let deployment = example("kind: MachineDeployment")?;
    let maximum = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    ensure!(deployment["metadata"]["annotations"][maximum] == n_nodes.as_str(), "{deployment}");
    let labels = deployment["spec"]["template"]["metadata"]["labels"].as_object().context("no labels")?;
    for (key, value) in labels {
        let named = format!("`{key}: {}`", value.as_str().unwrap_or_default());
        ensure!(key.starts_with("node.cluster.x-k8s.io/") && PAGE.contains(&named), "{named}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_headroom_of_a_pool_follows_its_free_blocks() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        let pool = blocks("yaml").into_iter().find(|block| block.contains("kind: NodeIPPool"));
        apply(plane, pool.context("no pool")?).await?;
        let controller = Controller::start_ready(plane, PROMPT).await?;
        let nodes = ["a", "b"].map(|name| NodeSpec::new(name).label("example.com/pool", "workers"));
        let agents = join(rig, &nodes).await?;
        wait_ready(rig, &agents).await?;
        wait_status(rig, "workers", "two nodes", |status| status["nodes"]["served"] == 2).await?;

        let mut outputs = Vec::new();
        for line in blocks("sh").iter().flat_map(|block| block.lines()) {
            let words = shell_words(line)?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (program, arguments) = words.split_first().context("no command")?;
            outputs.push(match *program {
                "kubectl" => kubectl(plane, arguments).await?,
                "cilium-node-ipam" => ask(plane, arguments).await?.text,
                other => anyhow::bail!("{other} is not run"),
            });
        }
        let [shown, planned, _patched, _waited] = &outputs[..] else { anyhow::bail!("{outputs:#?}") };
        // Of 32 blocks with 30 addresses, two are held, and each agent takes two addresses.
        ensure!(shown == "30 more nodes, 840 more pods, 2 served\n", "{shown}");
        ensure!(planned.contains("10 added nodes can run 280 pods with addresses"), "{planned}");

        let is_raised = |status: &Value| status["headroom"]["ipv4"]["nodes"] == 62;
        wait_status(rig, "workers", "another CIDR", is_raised).await?;
        let described = kubectl(plane, &["describe", "nip", "workers"]).await?;
        ensure!(described.contains("Headroom:") && described.contains("Pods:   1736"), "{described}");
        Ok((controller, agents))
    })
    .await
}
