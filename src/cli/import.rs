//! `cilium-node-ipam import`: pools from the objects of other systems.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use super::documents::{Depth, Document, Input};
use crate::net::addresses::AddressSet;
use crate::wire::{FieldError, check, import};

/// The exit code when an object was refused.
const REFUSED: u8 = 1;
/// The exit code when a file could not be read.
const UNREADABLE: u8 = 2;

/// Convert pools of other systems into NodeIPPools: Calico's IPPool, ClusterCIDR, and CiliumPodIPPool.
///
/// It prints YAML for `kubectl apply`, after the same checks as `validate`, and reads no cluster. A range from one
/// address to another becomes CIDRs. A disabled IPPool becomes a pool whose CIDR is Cordoned. Reserved ranges of a
/// CiliumPodIPPool, and those of Calico's IPReservations, become `exclude`.
///
/// A setting that a NodeIPPool can't express is refused with file, line and field, and its object is left out. Standard
/// error names all other fields and documents that were not used.
///
/// Exit codes: 0 all converted, 1 an object was refused, 2 a file could not be read or has no such object.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  kubectl get ippools.crd.projectcalico.org -o yaml | cilium-node-ipam import -f - > pools.yaml"
)]
pub struct Args {
    /// A file, a directory (its *.yaml, *.yml and *.json files), or `-` for standard input. May be repeated.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required = true)]
    filename: Vec<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { filename } = args;
    let input = Input::of(&filename, Depth::One, |document| !document.is_null());
    for error in &input.unreadable {
        eprintln!("{error:#}");
    }
    let refuse = |document: &Document, errors: &[FieldError]| {
        for error in errors {
            eprintln!("{}: {}: {error}", document.place_of(error), document.name());
        }
    };
    let (mut pools, mut reserved) = (Vec::new(), AddressSet::new());
    let mut n_refused = 0;
    for document in &input.documents {
        match import::reserved_by(&document.value) {
            Some(Ok(addresses)) => reserved.extend_with(&addresses),
            Some(Err(errors)) => {
                n_refused += 1;
                refuse(document, &errors);
            }
            None if import::is_known(&document.value) => pools.push(document),
            None => eprintln!("{}: {}: not used: it is no pool", document.place(), document.name()),
        }
    }
    if pools.is_empty() {
        eprintln!("nothing to import: the input has no IPPool, ClusterCIDR or CiliumPodIPPool");
    }
    let mut out = Vec::new();
    for document in &pools {
        let name = document.name();
        let imported = match import::pool_of(&document.value, &reserved) {
            Ok(imported) => imported,
            Err(errors) => {
                n_refused += 1;
                refuse(document, &errors);
                continue;
            }
        };
        let errors = check::check_document(&imported.pool);
        if !errors.is_empty() {
            n_refused += 1;
            for error in &errors {
                eprintln!("{}: {name}: the pool would be refused: {error}", document.place());
            }
            continue;
        }
        for note in &imported.notes {
            eprintln!("{}: {name}: note: {note}", document.place());
        }
        for warning in check::warnings(&imported.pool) {
            eprintln!("{}: {name}: warning: {warning}", document.place());
        }
        out.push(serde_saphyr::to_string(&imported.pool)?);
    }
    std::io::stdout()
        .lock()
        .write_all(out.join("---\n").as_bytes())
        .context("can't write to standard output")?;
    Ok(if !input.unreadable.is_empty() || pools.is_empty() {
        ExitCode::from(UNREADABLE)
    } else if n_refused > 0 {
        ExitCode::from(REFUSED)
    } else {
        ExitCode::SUCCESS
    })
}
