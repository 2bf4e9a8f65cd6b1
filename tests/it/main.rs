//! The integration tests: one binary, a module a subject.

mod agents;
mod api_claim;
mod api_table;
mod chronicle;
mod claims;
mod cli_validate;
mod creating;
mod dry_run;
mod dual_stack;
mod events;
mod growth;
mod joining;
mod killed;
mod labels;
mod layout;
mod leaving;
mod malformed;
mod mode;
mod operator;
mod oracle;
mod pools;
mod real_agent;
mod returning;
mod scene;
mod support;
mod uninstall;
