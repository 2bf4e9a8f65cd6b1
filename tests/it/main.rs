//! The integration tests: one binary, a module a subject.

mod oracle;
mod support;
