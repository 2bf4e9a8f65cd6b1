//! `cilium-node-ipam import`: pools from the objects of other systems.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;

use super::documents::{Depth, Document, Input, Places};
use super::screen;
use super::validate;
use crate::wire::check;
use crate::wire::import::{self, Settings};

/// The exit code when an object was refused.
const REFUSED: u8 = 1;
/// The exit code when a file could not be read.
const UNREADABLE: u8 = 2;

/// Convert pools of other systems into NodeIPPools: Calico's IPPool and Installation, ClusterCIDR, and CiliumPodIPPool.
///
/// It prints YAML for `kubectl apply`, after the same checks as `validate`, and reads no cluster. A range from one
/// address to another becomes CIDRs. A disabled IPPool becomes a pool whose CIDR is Cordoned. Reserved ranges of a
/// CiliumPodIPPool, and those of Calico's IPReservations, become `exclude`. The limit of Calico's IPAMConfiguration
/// becomes `perNode.maxBlocks`.
///
/// A setting that a NodeIPPool can't express is refused with file, line and field, and its pool is left out. Standard
/// error names all other fields and documents that were not used.
///
/// Exit codes: 0 all converted, 1 an object was refused, 2 a file could not be read or has no such object.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLE
)]
pub struct Args {
    /// A file, a directory (its *.yaml, *.yml and *.json files), or `-` for standard input. May be repeated.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required = true)]
    filename: Vec<PathBuf>,
}

const EXAMPLE: &str = "\
Example:
  kubectl get ippools.crd.projectcalico.org,ipreservations.crd.projectcalico.org,ipamconfigs.crd.projectcalico.org \
-o yaml | cilium-node-ipam import -f - > pools.yaml";

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { filename } = args;
    let input = Input::of(&filename, Depth::One, Places::Noted, |document| !document.is_null());
    for file in &input.unreadable {
        screen::note(format_args!("{:#}", file.error));
    }
    let settings = Settings::of(input.documents.iter().map(|document| &document.value));
    let mut pools: Vec<(&Document, Value)> = Vec::new();
    // The pools that may share a range, and the first document of these.
    let mut shared: (Option<&Document>, Vec<Value>) = (None, Vec::new());
    let mut n_refused = 0;
    for document in &input.documents {
        let (place, name) = (document.place(), document.name());
        for repeated in document.repeated() {
            screen::note(format_args!("{}: {name}: warning: {repeated}", document.place_of(repeated)));
        }
        let Some(imported) = import::convert(&document.value, &settings) else {
            screen::note(format_args!("{place}: {name}: not used: it is no pool"));
            continue;
        };
        for note in &imported.notes {
            screen::note(format_args!("{place}: {name}: note: {note}"));
        }
        n_refused += imported.errors.len();
        for error in &imported.errors {
            screen::note(format_args!("{}: {name}: {error}", document.place_of(error)));
        }
        for pool in imported.pools {
            let n_errors = note_refusals(document, &pool);
            n_refused += n_errors;
            if n_errors == 0 && import::is_cluster_cidr(&document.value) {
                shared.0.get_or_insert(document);
                shared.1.push(pool);
            } else if n_errors == 0 {
                pools.push((document, pool));
            }
        }
    }
    if let (Some(first), of_cluster_cidrs) = shared {
        let (merged, notes) = import::merge(of_cluster_cidrs);
        for note in notes {
            screen::note(format_args!("note: ClusterCIDR {note}"));
        }
        let of = |pool: &Value| {
            let mut documents = input.documents.iter();
            let named =
                documents.find(|document| document.value["metadata"]["name"] == pool["metadata"]["name"]);
            named.unwrap_or(first)
        };
        for pool in merged {
            let document = of(&pool);
            let n_errors = note_refusals(document, &pool);
            n_refused += n_errors;
            if n_errors == 0 {
                pools.push((document, pool));
            }
        }
    }
    let is_nothing = !input.documents.iter().any(|document| import::has_pools(&document.value));
    if is_nothing {
        screen::note(
            "nothing to import: the input has no IPPool, Installation, ClusterCIDR or CiliumPodIPPool",
        );
    }
    for (document, warning) in validate::warnings(pools.iter().map(|(document, pool)| (*document, pool))) {
        screen::note(format_args!(
            "{}: {}: warning: {warning}",
            document.place_of(&warning),
            document.name()
        ));
    }
    let out: Vec<Value> = pools.into_iter().map(|(_, pool)| pool).collect();
    screen::print_yaml(&out)?;
    Ok(if !input.unreadable.is_empty() || is_nothing {
        ExitCode::from(UNREADABLE)
    } else if n_refused > 0 {
        ExitCode::from(REFUSED)
    } else {
        ExitCode::SUCCESS
    })
}

/// Notes why the API server would refuse a pool that was made of this document, and counts the reasons.
fn note_refusals(document: &Document, pool: &Value) -> usize {
    let errors = check::check_document(pool);
    for error in &errors {
        let (place, name) = (document.place(), document.name());
        screen::note(format_args!("{place}: {name}: the pool would be refused: {error}"));
    }
    errors.len()
}
