//! `cilium-node-ipam validate`: checks files of pools without a cluster.
//!
//! Asks [`crate::wire::check`] about the [`documents`](super::documents) in them, and prints. Knows no rule of one
//! object itself, only where several contradict each other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;

use super::documents::{Depth, Document, Input, Places, name_of};
use super::screen;
use crate::model::counted::counted;
use crate::model::pool::Pool;
use crate::net::cidr::Cidr;
use crate::wire::{FieldError, check};

/// The exit code when something was found.
const FINDINGS: u8 = 1;
/// The exit code when something could not be read; clap uses the same for wrong arguments.
const UNREADABLE: u8 = 2;

/// Check files of NodeIPPools as the API server and the controller do, without a cluster.
///
/// Reads YAML or JSON, with several documents or a List per file. Skips documents of other API groups. Prints one line
/// per problem, such as
///
/// `pools.yaml:9: NodeIPPool/beijing: spec.ipv4.cidrs[0].cidr: "10.0.0.5/24": must be written masked`
///
/// with the file, the line, the object, the field, its value, and the broken rule.
///
/// A warning names a setting that the server accepts and that has no use: a CIDR with all addresses excluded, an
/// exclusion outside of all CIDRs, thresholds or first grants beyond the limits of a node, and overlapping pools. In a
/// cluster the older pool keeps an overlap; a file has no age. A key that is set twice is a warning, too. Rules that
/// compare with the object in the cluster, such as the immutable blockSize, are not checked.
///
/// Files are read as `kubectl apply` reads them: UTF-8, or UTF-16 with a byte order mark.
///
/// Exit code: 0 no problem (warnings do not count), 1 problems, 2 a file is unreadable, or has nothing to check.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// A file, a directory (its *.yaml, *.yml and *.json files), or `-` for standard input. May be repeated.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required = true)]
    pub filename: Vec<PathBuf>,

    /// Also read the subdirectories of a directory.
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

const EXAMPLE: &str = "\
Example:
  Check all pools below a directory:
    cilium-node-ipam validate -R -f pools/";

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { filename, recursive } = args;
    let depth = if recursive { Depth::All } else { Depth::One };
    let Input { documents, unreadable, .. } = Input::of(&filename, depth, Places::Noted, check::is_ours);
    for file in &unreadable {
        screen::note(format_args!("{:#}", file.error));
    }
    let (n_findings, lines) = report(&documents);
    screen::print_lines(lines)?;
    if documents.is_empty() {
        screen::note("nothing to check: the input has no object of nodeipam.io");
    }
    Ok(if documents.is_empty() || !unreadable.is_empty() {
        ExitCode::from(UNREADABLE)
    } else if n_findings > 0 {
        ExitCode::from(FINDINGS)
    } else {
        ExitCode::SUCCESS
    })
}

/// The number of findings, and a line for each finding and warning, with the summary.
pub(super) fn report(documents: &[Document]) -> (usize, Vec<String>) {
    let (mut n_findings, mut lines) = (0, Vec::new());
    for document in documents {
        let mut findings = check::check_document(&document.value);
        findings.sort_by_key(|finding| document.line_of(finding));
        n_findings += findings.len();
        for finding in findings {
            lines.push(format!("{}: {}: {finding}", document.place_of(&finding), document.name()));
        }
    }
    let repeated = documents
        .iter()
        .flat_map(|document| document.repeated().iter().map(move |repeated| (document, repeated.clone())));
    let mut warnings = warnings(documents.iter().map(|document| (document, &document.value)));
    warnings.extend(repeated);
    for (document, warning) in &warnings {
        lines.push(format!("{}: {}: warning: {warning}", document.place_of(warning), document.name()));
    }
    lines.push(format!(
        "{} checked, {} found, {}",
        counted(documents.len(), "object"),
        counted(n_findings, "problem"),
        counted(warnings.len(), "warning")
    ));
    (n_findings, lines)
}

/// A pool, and the document that it is or was made of.
type Placed<'a> = (&'a Document, &'a Value);

/// Settings that can't work: in one pool, and where pools contradict each other by names given twice and ranges
/// offered twice.
pub(super) fn warnings<'a>(objects: impl IntoIterator<Item = Placed<'a>>) -> Vec<(&'a Document, FieldError)> {
    let mut warnings = Vec::new();
    let mut names: BTreeMap<String, &Document> = BTreeMap::new();
    let mut ranges: Vec<(Cidr, Placed<'a>, Pool)> = Vec::new();
    for (document, value) in objects {
        let mut of_document = check::warnings(value);
        of_document.sort_by_key(|warning| document.line_of(warning));
        warnings.extend(of_document.into_iter().map(|warning| (document, warning)));
        if let Some(first) = names.insert(name_of(value), document) {
            let name = |rule| FieldError::new("metadata.name", &value["metadata"]["name"], rule);
            let rule = format!(
                "is also used in {}: the object applied last replaces the other",
                first.place_of(&name(String::new()))
            );
            warnings.push((document, name(rule)));
            continue;
        }
        let Some(pool) = check::offline_pool(value) else { continue };
        for (family, offered) in &pool.families {
            for cidr in offered.cidrs.keys() {
                for (other, (at, of), other_pool) in &ranges {
                    if other.overlaps(*cidr) && other_pool.name != pool.name {
                        let range = |cidr: &Cidr, rule| {
                            FieldError::new(format!("spec.{family}.cidrs"), &cidr.to_string(), rule)
                        };
                        let left = |pool: &Pool, older: &Pool| {
                            let (all, left) = check::blocks_beside(pool, older, *family);
                            format!("{} has {left} of {}", pool.name, counted(all, "block"))
                        };
                        let rule = format!(
                            "overlaps {other} of {} in {}: the older pool keeps the range; if {} is older, {}; \
                             if {} is older, {}",
                            name_of(of),
                            at.place_of(&range(other, String::new())),
                            other_pool.name,
                            left(&pool, other_pool),
                            pool.name,
                            left(other_pool, &pool)
                        );
                        warnings.push((document, range(cidr, rule)));
                    }
                }
            }
        }
        warnings.extend(sizes_differ((document, value), &pool, &ranges));
        let offered = pool.families.values().flat_map(|ranges| ranges.cidrs.keys().copied());
        ranges.extend(offered.map(|cidr| (cidr, (document, value), pool.clone())));
    }
    warnings
}

/// Families for which an earlier pool has blocks of another size for the same Cilium pool.
fn sizes_differ<'a>(
    (document, _): Placed<'a>,
    pool: &Pool,
    earlier: &[(Cidr, Placed<'a>, Pool)],
) -> Vec<(&'a Document, FieldError)> {
    let mut warnings = Vec::new();
    for (family, ranges) in &pool.families {
        let size = |prefix: u8, rule| FieldError::new(format!("spec.{family}.blockSize"), &prefix, rule);
        let other = earlier.iter().find_map(|(_, at, other)| {
            let prefix = other.families.get(family)?.block_prefix;
            let is_other = other.name != pool.name && other.pod_ip_pool == pool.pod_ip_pool;
            (is_other && prefix != ranges.block_prefix).then_some((prefix, at))
        });
        if let Some((prefix, (at, of))) = other.filter(|_| pool.pod_ip_pool.is_some()) {
            let rule = format!(
                "differs from {prefix} of {} in {}, which has the same podIPPool: Cilium's BGP announces only \
                 one block size per family",
                name_of(of),
                at.place_of(&size(prefix, String::new()))
            );
            warnings.push((document, size(ranges.block_prefix, rule)));
        }
    }
    warnings
}
