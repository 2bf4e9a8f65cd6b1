//! The integration tests: one binary, a module a subject.

mod agents;
mod oracle;
mod support;
