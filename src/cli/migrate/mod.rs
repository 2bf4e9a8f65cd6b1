//! `cilium-node-ipam migrate`: moves the nodes of a running cluster to the mode crd of Cilium, one by one, and back.
//!
//! Knows the answers for a person, and the objects that a step writes. The state of a node and the gates of its steps are in
//! [`crate::view::moving`].

use super::answers::Verdict;

mod check;
mod init;
mod look;
mod rejoin;
mod routes;
mod status;
mod steps;

/// Move the nodes of a running cluster to Cilium's mode crd, one by one and without the loss of a pod, and back.
///
/// First the blocks of a node become claims. Then its addresses are written onto its CiliumNode, while its agent runs on
/// in the old mode. A restart of the agent takes them up. Until `migrate commit` the node gets no further
/// block, so that it can go back. No step depends on an earlier command: each command reads how far every node is.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

const EXAMPLE: &str = "\
Example:
  cilium-node-ipam migrate init --out move
  cilium-node-ipam migrate check
  cilium-node-ipam migrate status
  cilium-node-ipam migrate next worker-17 --yes
  cilium-node-ipam migrate commit worker-17 --yes
  cilium-node-ipam migrate rejoin worker-17";

#[derive(Debug, clap::Subcommand)]
#[allow(
    missing_docs,
    reason = "a comment on a variant would replace what its arguments say of the subcommand"
)]
enum Subcommand {
    Init(init::Args),
    Check(check::Args),
    Status(status::Args),
    Next(steps::Next),
    Back(steps::Back),
    Commit(steps::Commit),
    Rejoin(rejoin::Args),
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    match args.command {
        Subcommand::Init(args) => init::run(args),
        Subcommand::Check(args) => check::run(args),
        Subcommand::Status(args) => status::run(args),
        Subcommand::Next(args) => steps::next(args),
        Subcommand::Back(args) => steps::back(args),
        Subcommand::Commit(args) => steps::commit(args),
        Subcommand::Rejoin(args) => rejoin::run(args),
    }
}
