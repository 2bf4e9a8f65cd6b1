//! The oracle judged: every rule is broken once on purpose, and must be found.

use anyhow::Result;

use crate::support::control_plane::{ControlPlane, Options};

#[tokio::test(flavor = "multi_thread")]
async fn empty_history_is_clean() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    control_plane.assert_clean().await
}
