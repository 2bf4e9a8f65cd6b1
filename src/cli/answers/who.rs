//! `cilium-node-ipam who`: who has an address.

use std::io::Read as _;
use std::net::IpAddr;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::super::object;
use super::{Cluster, Live, Source, Verdict, around, block_on, fields};
use crate::cli::screen;
use crate::model::claim::{block_name, block_named};
use crate::net::cidr::Cidr;
use crate::view::who::{self, Answer, Word};

/// Say who has an address, a range or the block of a claim, in one word and with its source.
///
/// On a node: used (an agent reports it); reserved (for the agent itself); free (for the next pod); held (the answer is
/// about a range, or agents report no use in this mode); draining; releasing; node-address.
///
/// On no node: available (for the next node); cooling; excluded; closed (declared, but not given out); foreign (taken
/// without a claim); service (a Service, a load balancer or a device has it or may get it); outside (of all pools).
///
/// Kinds that you may not list are skipped, and standard error names them.
///
/// Exit codes: 0 every address is accounted for, 1 one is foreign, 2 the cluster could not be read.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam who 10.64.3.17\n  cilium-node-ipam who 10.64.0.0/24 -o json\n  \
                        kubectl get pods -A -o jsonpath='{.items[*].status.podIP}' | cilium-node-ipam who -"
)]
pub struct Args {
    /// Addresses, CIDRs or names of claims. `-` reads them from standard input, separated by white space.
    #[arg(value_name = "ADDRESS|CIDR|CLAIM", required = true)]
    asked: Vec<String>,

    #[command(flatten)]
    cluster: Source,
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
        let listed = args.cluster.list().await?;
        let others = match listed.live {
            Live::Cluster(clients) => around::ranges(&clients).await?,
            Live::Files { mut objects, .. } => {
                objects.skipped.retain(|skipped| around::is_of_range(skipped));
                objects
            }
        };
        let ranges = &others.around.ranges;
        let answers: Vec<Answer> =
            asked.iter().flat_map(|asked| who::who(&listed.world, ranges, *asked)).collect();
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

/// An address, the name of a claim, or a CIDR whose host bits may be set: the range that it lies in is meant.
fn parse(text: &str) -> anyhow::Result<Cidr> {
    if let Some(block) = object::claim(text).ok().and_then(|name| block_named(&name)) {
        return Ok(block);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Cidr::single(address));
    }
    let Some((address, prefix)) = text.split_once('/') else {
        bail!("`{text}` is neither an address nor a CIDR, nor the name of a claim");
    };
    let range = address.parse().ok().zip(prefix.parse().ok());
    range
        .and_then(|(address, prefix)| Cidr::containing(address, prefix))
        .with_context(|| format!("`{text}` is neither an address nor a CIDR, nor the name of a claim"))
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
        "why": answer.detail,
    })
}
