//! What the process says of itself: logs, and the HTTP endpoints.

pub mod http;
pub mod logs;
