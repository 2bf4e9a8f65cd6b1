//! `migrate init`: the files of a move.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::cli::answers::{Cluster, Gathered, Verdict, block_on};
use crate::cli::program::program;
use crate::cli::screen::{self, Line};
use crate::model::counted::counted;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_by_number, ten_of};
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::mode::{Mode, Publishers};
use crate::publisher::pod_cidrs_on;
use crate::wire::check;
use crate::world::World;

/// The label by which a CiliumNodeConfig gives a node the mode crd.
const LABEL: (&str, &str) = ("nodeipam.io/ipam", "crd");

/// The maximum number of CIDRs of a family in a pool.
const MAX_CIDRS: usize = 64;

/// Write the files of a move to the mode crd: pools with the blocks that nodes have, a CiliumNodeConfig that moves
/// labelled nodes, and values for the charts of Cilium and of the controller. It changes nothing.
///
/// The pools are Cordoned and have the lowest priority: nodes keep their blocks, and further ones come from your own
/// pools.
///
/// Exit codes: 0 written, 1 a node has a block that can't move, and nothing was written, 2 the cluster could not be read
/// or a file could not be written.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  cilium-node-ipam migrate init --out move\n  kubectl apply -f move/pools.yaml"
)]
pub(super) struct Args {
    /// Write the files into this directory, which must not have them yet.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    #[command(flatten)]
    cluster: Cluster,
}

pub(super) fn run(args: Args) -> anyhow::Result<Verdict> {
    block_on(async move {
        let (Gathered { world, .. }, unlisted) = args.cluster.access.gather_readable().await?;
        for kind in [Kind::Node, Kind::CiliumNode] {
            if let Some(why) = unlisted.get(&kind) {
                bail!("can't list {}s: {why}", kind.as_str());
            }
        }
        let Mode::Active(publishers) = world.mode() else {
            bail!("cilium-config can't be read, or its mode is not served: {} preflight", program());
        };
        if publishers.ipam_mode() == IpamMode::Crd {
            bail!("cilium-config has `ipam: crd` already: {} migrate status", program());
        }
        let blocks = Blocks::of(&world);
        let refused = blocks.refused(publishers);
        if !refused.is_empty() {
            screen::note("nothing was written, because these nodes can't move with their pods:");
            for why in &refused {
                screen::note(format_args!("  {why}"));
            }
            return Ok(Verdict::Found);
        }
        if blocks.0.is_empty() {
            bail!(
                "no CiliumNode has a podCIDR without a pool, so there is nothing to import: {} migrate status",
                program()
            );
        }
        let pools = blocks.pools()?;
        for pool in &pools {
            let name = pool["metadata"]["name"].as_str().unwrap_or_default();
            if world.pool_object(&name.into()).is_some() {
                bail!("NodeIPPool {name} exists already: rename or delete it first");
            }
        }
        let files = [
            ("pools.yaml", pools.iter().map(yaml).collect::<Result<Vec<_>, _>>()?.join("---\n")),
            ("ciliumnodeconfig.yaml", node_config(&args.cluster.access.cilium_namespace)),
            ("cilium-values.yaml", cilium_values(publishers.ipam_mode())),
            ("values.yaml", format!("modes: [{}, crd]\n", publishers.ipam_mode())),
        ];
        std::fs::create_dir_all(&args.out).with_context(|| format!("can't create {}", args.out.display()))?;
        for (name, text) in &files {
            let path = args.out.join(name);
            let file = std::fs::File::create_new(&path)
                .with_context(|| format!("can't create {}", path.display()))?;
            std::io::Write::write_all(&mut &file, text.as_bytes())
                .with_context(|| format!("can't write {}", path.display()))?;
        }
        screen::print_lines(next_lines(&args.out.display().to_string(), &blocks, publishers.ipam_mode()))?;
        Ok(Verdict::Fine)
    })
}

fn next_lines(out: &str, blocks: &Blocks<'_>, mode: IpamMode) -> Vec<Line> {
    let program = program();
    let n_nodes = counted(blocks.nodes().len(), "node");
    let other = match mode {
        IpamMode::Kubernetes => "start kube-controller-manager with --allocate-node-cidrs=false".to_owned(),
        IpamMode::Crd | IpamMode::MultiPool | IpamMode::ClusterPool => format!(
            "helm upgrade cilium … --reuse-values -f {out}/cilium-values.yaml turns the allocator of the operator off"
        ),
    };
    [
        format!("Wrote pools.yaml, ciliumnodeconfig.yaml, cilium-values.yaml and values.yaml to {out}: {n_nodes} can move."),
        "Read them, and then:".to_owned(),
        format!("  1. {other}"),
        format!("  2. install the controller with -f {out}/values.yaml; it brings the CRDs"),
        format!("  3. kubectl apply -f {out}/pools.yaml -f {out}/ciliumnodeconfig.yaml"),
        format!("  4. {program} migrate check"),
        format!("  5. {program} migrate status   # all nodes are Claimed"),
        format!("  6. {program} migrate next NODE"),
    ]
    .into_iter()
    .map(|line| Line::from(line).below(5))
    .collect()
}

fn yaml(object: &Value) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(object)?)
}

fn node_config(namespace: &str) -> String {
    let (key, value) = LABEL;
    format!(
        "# Agents of Cilium before 1.16 know CiliumNodeConfigs as cilium.io/v2alpha1.\napiVersion: cilium.io/v2\nkind: \
         CiliumNodeConfig\nmetadata:\n  name: cilium-node-ipam-move\n  namespace: {namespace}\nspec:\n  nodeSelector:\n    \
         matchLabels:\n      {key}: {value}\n  defaults:\n    ipam: crd\n"
    )
}

fn cilium_values(mode: IpamMode) -> String {
    let operator = match mode {
        IpamMode::ClusterPool => {
            "# Add other arguments that your operator has: Helm replaces a list as a whole.\noperator:\n  extraArgs: \
             [--ipam=kubernetes]\n"
        }
        IpamMode::Kubernetes | IpamMode::Crd | IpamMode::MultiPool => {
            "# cilium-operator allocates nothing in this mode.\n"
        }
    };
    format!("{operator}# Agents restart one by one, when you say so.\nrollOutCiliumPods: false\n")
}

/// The podCIDRs of nodes that are blocks of no pool, by family and prefix length.
struct Blocks<'a>(BTreeMap<(Family, u8), BTreeMap<Cidr, &'a NodeName>>);

impl<'a> Blocks<'a> {
    fn of(world: &'a World) -> Self {
        let mut blocks: BTreeMap<(Family, u8), BTreeMap<Cidr, &NodeName>> = BTreeMap::new();
        for cilium_node in world.cilium_nodes() {
            // A pool that has the block adopts it.
            for cidr in
                pod_cidrs_on(cilium_node).iter().filter(|cidr| world.pools_of_block(**cidr).next().is_none())
            {
                blocks
                    .entry((cidr.family(), cidr.prefix_len()))
                    .or_default()
                    .insert(*cidr, &cilium_node.name);
            }
        }
        Self(blocks)
    }

    fn nodes(&self) -> BTreeSet<&NodeName> {
        self.0.values().flat_map(BTreeMap::values).copied().collect()
    }

    /// The blocks that are too wide for the mode crd, a sentence for each size.
    fn refused(&self, publishers: &Publishers) -> Vec<String> {
        let Some(crd) = publishers.of_mode(IpamMode::Crd) else {
            let mode = publishers.ipam_mode();
            return vec![format!("all: nodes of the mode {mode} can't move one by one")];
        };
        let wide = self.0.iter().filter(|((family, length), _)| *length < crd.widest_block(*family));
        wide.map(|((family, length), blocks)| {
            format!(
                "{} {family} blocks are /{length}, and the widest block in the mode crd is /{}: {}",
                blocks.len(),
                crd.widest_block(*family),
                ten_by_number(blocks.values())
            )
        })
        .collect()
    }

    /// Pools with exactly these blocks, for each size of a family. The first ones of both families share an object.
    fn pools(&self) -> anyhow::Result<Vec<Value>> {
        let mut of_family: BTreeMap<Family, Vec<(u8, Vec<Cidr>)>> = BTreeMap::new();
        for ((family, length), blocks) in &self.0 {
            let ranges: Vec<Cidr> = blocks.keys().copied().collect::<AddressSet>().cidrs().collect();
            let parts = ranges.chunks(MAX_CIDRS).map(|part| (*length, part.to_vec()));
            of_family.entry(*family).or_default().extend(parts);
        }
        let n_pools = of_family.values().map(Vec::len).max().unwrap_or_default();
        let pools: Vec<Value> = (0..n_pools).map(|number| pool(number, &of_family)).collect();
        for pool in &pools {
            let errors: Vec<String> = check::check_document(pool).iter().map(ToString::to_string).collect();
            if !errors.is_empty() {
                bail!("the blocks of nodes make no valid pool: {}", ten_of(errors));
            }
        }
        Ok(pools)
    }
}

fn pool(number: usize, of_family: &BTreeMap<Family, Vec<(u8, Vec<Cidr>)>>) -> Value {
    let name = if number == 0 { "legacy".to_owned() } else { format!("legacy-{}", number + 1) };
    let mut spec = json!({"priority": -1000});
    for (family, sizes) in of_family {
        let Some((length, ranges)) = sizes.get(number) else { continue };
        let cidrs: Vec<Value> =
            ranges.iter().map(|range| json!({"cidr": range.to_string(), "state": "Cordoned"})).collect();
        spec[family.as_str()] = json!({"blockSize": length, "cidrs": cidrs});
    }
    json!({
        "apiVersion": "nodeipam.io/v1alpha1", "kind": "NodeIPPool", "metadata": {"name": name}, "spec": spec,
    })
}
