//! The integration tests: one binary, a module a subject.

mod agents;
mod api_claim;
mod api_table;
mod chronicle;
mod cli_validate;
mod dry_run;
mod dual_stack;
mod growth;
mod joining;
mod killed;
mod labels;
mod leaving;
mod malformed;
mod mode;
mod oracle;
mod pools;
mod returning;
mod scene;
mod support;
