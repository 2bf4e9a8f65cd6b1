//! The freeze, as the controller's own ConfigMap says it.
//!
//! [`crate::wire::freeze`] knows the meaning of its content.

use super::client::{Clients, ReadError};
use super::config_map::Place;
use super::input::Input;
use super::watch::Watches;
use crate::model::freeze::Freeze;
use crate::telemetry::api_health::FREEZE;
use crate::wire::freeze::freeze_of;

/// Reads the ConfigMap in `namespace` once.
pub(super) async fn read(clients: &Clients, namespace: &str) -> Result<Freeze, ReadError> {
    let found = place(namespace).read(clients).await?;
    Ok(freeze_of(found.as_ref(), namespace))
}

/// Follows the ConfigMap in `namespace` until the watches are stopped.
pub async fn follow(watches: Watches, namespace: String) -> anyhow::Result<()> {
    place(&namespace).follow(watches, |found| Input::Freeze(freeze_of(found, &namespace))).await
}

fn place(namespace: &str) -> Place {
    Place { namespace: namespace.to_owned(), config_map: FREEZE }
}
