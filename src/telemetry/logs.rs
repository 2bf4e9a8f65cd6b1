//! Structured logs on standard error.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

use crate::model::printable::{printable, printable_json};

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The filter without `RUST_LOG`. kube logs every 5xx as an error, and whole bodies that it can't read as warnings. The
/// controller gets both as errors too, and reports them where they matter.
const DEFAULT_FILTER: &str = "info,kube_client=off,kube_runtime=error";

/// The filter of a command that answers a question: failures, and the progress of long lists.
const QUIET_FILTER: &str =
    "warn,cilium_node_ipam::controller::gather=info,kube_client=off,kube_runtime=error";

/// The default filter with the additions and replacements of `RUST_LOG`. `RUST_LOG=debug` shows more of the
/// controller, and kube stays off unless it is named.
fn filter(default: &str) -> EnvFilter {
    let added = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    EnvFilter::try_new(format!("{default},{added}")).unwrap_or_else(|_| EnvFilter::new(default))
}

/// Starts logging for a command that answers a question: its answer is on standard output.
pub fn start_quiet() {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(QUIET_FILTER))
        .with_writer(|| Printable(Format::Text));
    subscriber.with_ansi(false).without_time().with_target(false).init();
}

/// Starts logging.
pub fn start(format: Format) {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(DEFAULT_FILTER))
        .with_writer(move || Printable(format));
    match format {
        // A module path does not help a person who reads the log; JSON keeps it for filters.
        Format::Text => subscriber.with_ansi(false).with_target(false).init(),
        Format::Json => subscriber.json().flatten_event(true).init(),
    }
}

/// Standard error. It gets each event with escapes in place of its hidden characters: a name or an error may have any.
struct Printable(Format);

impl Write for Printable {
    /// An event is written as a whole.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(shown(self.0, &String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// One line.
fn shown(format: Format, event: &str) -> String {
    match format {
        Format::Text => format!("{}\n", printable(event.trim_end_matches('\n'))),
        Format::Json => printable_json(event).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_without_hidden_characters() {
        let event = "INFO passive why=a\u{1b}[2J\n\u{9b}\u{202e}b\n";
        assert_eq!(shown(Format::Text, event), "INFO passive why=a\\u{1b}[2J\\n\\u{9b}\\u{202e}b\n");
        let event = "{\"why\":\"\\u001b\\n\u{9b}\u{202e}\"}\n";
        assert_eq!(shown(Format::Json, event), "{\"why\":\"\\u001b\\n\\u009b\\u202e\"}\n");
    }
}
