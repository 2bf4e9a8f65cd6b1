//! Why a process gives no node a block, as `/metrics` shows it.

use crate::model::stable_names;

stable_names! {
    /// Why a process gives no node a block.
    pub enum NotServing {
        /// It starts, shuts down, or does not follow the API server.
        NotReady => "not_ready",
        /// Cilium is not in a mode in which it may write.
        Passive => "passive",
        /// Another replica leads, or none.
        Standby => "standby",
        /// An administrator has frozen writes.
        Frozen => "frozen",
    }
}
