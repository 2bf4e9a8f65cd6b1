//! The command line: one module a subcommand.

pub mod crd;
pub mod run;
pub mod validate;
