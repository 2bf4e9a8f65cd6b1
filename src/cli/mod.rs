//! The command line: one module a subcommand.

pub mod crd;
pub mod validate;
