//! Waits for what announces nothing, so that it has to be looked at again and again: a Prometheus, a port of the product,
//! or what the API server takes in by itself. What rings a bell is waited for by [`super::cluster::Cluster::wait_for`].

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns what `look` finds. An error of it says what is missing still; the last one is the outcome after the deadline.
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
