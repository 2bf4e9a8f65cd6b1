//! The integration tests: one binary, a module a subject.

mod agents;
mod api_claim;
mod api_table;
mod cli_validate;
mod dry_run;
mod dual_stack;
mod growth;
mod install;
mod joining;
mod killed;
mod labels;
mod layout;
mod malformed;
mod mode;
mod oracle;
mod real_agent;
mod scene;
mod support;
