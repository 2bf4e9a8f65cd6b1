//! Structured logs on standard error.

use tracing_subscriber::EnvFilter;

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
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter(QUIET_FILTER)).with_writer(std::io::stderr);
    subscriber.with_ansi(false).without_time().with_target(false).init();
}

/// Starts logging.
pub fn start(format: Format) {
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter(DEFAULT_FILTER)).with_writer(std::io::stderr);
    match format {
        // A module path does not help a person who reads the log; JSON keeps it for filters.
        Format::Text => subscriber.with_ansi(false).with_target(false).init(),
        Format::Json => subscriber.json().flatten_event(true).init(),
    }
}
