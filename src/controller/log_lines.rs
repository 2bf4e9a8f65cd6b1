//! The lines that this crate logs in a test, as an administrator reads them.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};

/// A second subscriber. With a single one `tracing` asks only that of the thread which comes to a line first. If this
/// is the thread of another test, the line is off for all threads.
static OF_OTHERS: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// Takes in the lines that this thread logs, as long as it lives.
pub(super) struct LogLines {
    text: Text,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl LogLines {
    /// Starts to take in lines of level INFO and above.
    pub(super) fn capture() -> Self {
        LazyLock::force(&OF_OTHERS);
        let text = Text::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(concat!(env!("CARGO_CRATE_NAME"), "=info"))
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .finish();
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines since the last time.
    pub(super) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.text.0.lock().unwrap())).unwrap()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
