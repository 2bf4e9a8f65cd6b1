//! The integration tests: one binary, a module a subject.

mod agents;
mod api_claim;
mod api_table;
mod chronicle;
mod cli_validate;
mod dry_run;
mod dual_stack;
mod events;
mod growth;
mod joining;
mod killed;
mod killed_under_load;
mod labels;
mod layout;
mod leaving;
mod lost_answers;
mod malformed;
mod mode;
mod one_bad_node;
mod oracle;
mod real_agent;
mod replicas;
mod scene;
mod server_restarts;
mod support;
