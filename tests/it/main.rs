//! The integration tests: one binary, a module a subject.

mod agents;
mod api_claim;
mod api_table;
mod cli_validate;
mod oracle;
mod support;
