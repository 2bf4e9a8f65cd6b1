//! Structured logs on standard error.

use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged by default. kube logs every 5xx as an error, and whole bodies that it can't read as warnings. We get
/// both as errors too, and report them where they matter.
const DEFAULT_FILTER: &str = "info,kube_client=off,kube_runtime=error";

/// What is logged by a command that answers a question: what fails, and how far a list of many objects is.
const QUIET_FILTER: &str =
    "warn,cilium_node_ipam::controller::gather=info,kube_client=off,kube_runtime=error";

/// Starts logging for a command that answers a question: its answer is on standard output. `RUST_LOG` overrides what is
/// logged.
pub fn start_quiet() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(QUIET_FILTER));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    subscriber.with_ansi(false).without_time().with_target(false).init();
}

/// Starts logging. `RUST_LOG` overrides what is logged.
pub fn start(format: Format) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        Format::Text => subscriber.with_ansi(false).init(),
        Format::Json => subscriber.json().flatten_event(true).init(),
    }
}
