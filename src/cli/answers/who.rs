//! `cilium-node-ipam who`: who has an address.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::IpAddr;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::super::object;
use super::around::{self, Objects};
use super::pods::{self, PodArgument};
use super::{Cluster, Listed, Live, Source, Verdict, block_on, fields};
use crate::cli::screen;
use crate::model::claim::{block_name, block_named};
use crate::net::cidr::Cidr;
use crate::view::who::{self, Answer, Pods, Word};

/// Say who has an address, a range, the block of a claim or the address of a pod, in one word and with its source.
///
/// On a node: used (an agent reports it); reserved (for the agent itself); free (for the next pod); held (the answer is
/// about a range, or agents report no use in this mode); draining; releasing; node-address.
///
/// On no node: available (for the next node); cooling; excluded; closed (declared, but not given out); foreign (taken
/// without a claim); service (a Service, a load balancer or a device has it or may get it); outside (of all pools).
///
/// The pod of an address is named as its Pod or its agent says. Kinds that you may not list are skipped, and standard
/// error names them.
///
/// Exit codes: 0 every address is accounted for, 1 one is foreign, 2 the cluster could not be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cilium-node-ipam who 10.64.3.17\n  cilium-node-ipam who shop/web-1\n  \
                        cilium-node-ipam who 10.64.0.0/24 -o json\n  \
                        kubectl get pods -A -o jsonpath='{.items[*].status.podIP}' | cilium-node-ipam who -")]
pub struct Args {
    /// Addresses, CIDRs, names of claims, or pods as `NAMESPACE/NAME` or `pod/NAME`. `-` reads them from standard
    /// input, separated by white space.
    #[arg(value_name = "ADDRESS|CIDR|CLAIM|POD", required = true)]
    asked: Vec<String>,

    #[command(flatten)]
    cluster: Source,
}

/// The subject of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Range(Cidr),
    Pod(PodArgument),
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    let mut asked = Vec::new();
    for text in &args.asked {
        if text == "-" {
            let mut input = String::new();
            std::io::stdin().read_to_string(&mut input).context("can't read standard input")?;
            for text in input.split_whitespace() {
                asked.push(parse(text)?);
            }
        } else {
            asked.push(parse(text)?);
        }
    }
    block_on(async move {
        let Listed { world, live, .. } = args.cluster.list().await?;
        let mut ranges = Vec::new();
        for asked in asked {
            match asked {
                Asked::Range(range) => ranges.push(range),
                Asked::Pod(pod) => ranges.extend(pod.addresses(&live).await?.into_iter().map(Cidr::single)),
            }
        }
        let answers = |others: &Objects, pods: &Pods| -> Vec<Answer> {
            let ranges = ranges.iter();
            ranges.flat_map(|range| who::who(&world, &others.around.ranges, pods, *range)).collect()
        };
        let mut others = match &live {
            Live::Cluster(clients) => around::ranges(clients).await?,
            Live::Files { objects, .. } => {
                let mut objects = objects.clone();
                objects.skipped.retain(|skipped| around::is_of_range(skipped) || pods::is_of_pods(skipped));
                objects
            }
        };
        let (mut nodes, mut elsewhere) = (BTreeSet::new(), BTreeSet::new());
        for answer in answers(&others, &Pods::new()) {
            let is_single = answer.range.size() == 1;
            match answer.node {
                // Its pods are on the network of the host.
                Some(_) if answer.word == Word::NodeAddress => {}
                Some(node) if is_single || answer.word == Word::Draining => {
                    nodes.insert(node);
                }
                None if is_single && answer.word != Word::Service => {
                    elsewhere.insert(answer.range.first_address());
                }
                Some(_) | None => {}
            }
        }
        pods::add_pods(&live, &nodes, &elsewhere, &mut others).await?;
        let answers = answers(&others, &others.around.by_address());
        for skipped in &others.skipped {
            screen::note(format_args!("not seen: {skipped}"));
        }
        let items: Vec<Value> = answers.iter().map(object).collect();
        let object = json!({"items": items, "skipped": others.skipped});
        args.cluster.print("Who", fields(object), || {
            let cluster = &args.cluster;
            let headers = ["ADDRESS", "IS", "NODE", "POOL"].into_iter();
            let headers = headers.chain(cluster.wide(["CLAIM", "UNTIL"])).chain(["WHY"]);
            cluster.table(headers, answers.iter().map(|answer| row(cluster, answer)))
        })?;
        let is_foreign = answers.iter().any(|answer| answer.word == Word::Foreign);
        Ok(if is_foreign { Verdict::Found } else { Verdict::Fine })
    })
}

/// An address, the name of a claim, a pod, or a CIDR with any host bits: the range around it is meant.
fn parse(text: &str) -> anyhow::Result<Asked> {
    if let Some(block) = object::claim(text).ok().and_then(|name| block_named(&name)) {
        return Ok(Asked::Range(block));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Asked::Range(Cidr::single(address)));
    }
    let parts =
        text.split_once('/').and_then(|(address, prefix)| address.parse().ok().zip(prefix.parse().ok()));
    let range = parts.and_then(|(address, prefix)| Cidr::containing(address, prefix)).map(Asked::Range);
    // An address before the slash is that of a wrong CIDR.
    let is_cidr = text.split_once('/').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok());
    let pod = || PodArgument::parse(text).filter(|_| !is_cidr).map(Asked::Pod);
    range.or_else(pod).with_context(|| {
        format!(
            "`{text}` is neither an address nor a CIDR, nor the name of a claim, nor a pod (NAMESPACE/NAME)"
        )
    })
}

fn name(range: Cidr) -> String {
    if range.size() == 1 { range.first_address().to_string() } else { range.to_string() }
}

fn row(cluster: &Cluster, answer: &Answer) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut row = vec![
        name(answer.range),
        answer.word.as_str().to_owned(),
        or_none(answer.node.as_ref().map(ToString::to_string)),
        or_none(answer.pool.as_ref().map(ToString::to_string)),
    ];
    row.extend(
        cluster
            .wide([answer.block.map(block_name), answer.until.map(|until| until.to_string())])
            .into_iter()
            .map(or_none),
    );
    row.push(answer.detail.clone());
    row
}

fn object(answer: &Answer) -> Value {
    json!({
        "address": name(answer.range),
        "is": answer.word.as_str(),
        "block": answer.block.map(|block| block.to_string()),
        "node": answer.node.as_ref().map(ToString::to_string),
        "pool": answer.pool.as_ref().map(ToString::to_string),
        "until": answer.until.map(|until| until.to_string()),
        "pods": answer.pods,
        "why": answer.detail,
    })
}
