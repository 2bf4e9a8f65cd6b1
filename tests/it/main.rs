//! The integration tests: one binary, a module a subject.

mod layout;
mod oracle;
mod support;
