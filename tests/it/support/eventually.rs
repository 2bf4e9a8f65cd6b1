//! Polls for changes that nothing announces: in a Prometheus, at a port of the product, or inside the API server. For
//! changes that ring a bell, [`super::cluster::Cluster::wait_for`] waits.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns the result of `look`. An error of `look` says why it is not there yet. After the deadline, the last error is
/// returned.
pub(crate) async fn eventually<T>(deadline: Duration, mut look: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let limit = Instant::now() + deadline;
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(missing) if Instant::now() > limit => {
                return Err(missing).with_context(|| format!("waited {deadline:?} in vain"));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}
