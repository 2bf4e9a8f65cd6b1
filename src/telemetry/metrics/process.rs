//! The part of `/metrics` about the process itself: whether it serves, since when it runs, and its memory.

use std::iter;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tokio::sync::watch;

use super::world::gauges;
use crate::telemetry::serving::NotServing;

/// Whether the process serves. There is one series at a time, so the reason of an alert is its label.
#[derive(Debug)]
pub(super) struct Serving(pub(super) watch::Receiver<Option<NotServing>>);

impl Collector for Serving {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let reason = *self.0.borrow();
        let series = ([("reason", reason.map_or("", NotServing::as_str))], u64::from(reason.is_none()));
        gauges(&mut encoder, "serving", "Service: 1 if this replica gives nodes blocks", iter::once(series))
    }
}

/// The process, under the names that Prometheus' own clients use.
#[derive(Debug)]
pub(super) struct Process {
    started_at: SystemTime,
}

impl Process {
    /// A process that starts now.
    pub(super) fn start() -> Self {
        Self { started_at: SystemTime::now() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        // A clock before 1970 shows 0.
        let started_at = self.started_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let metric = encoder.encode_descriptor(
            "process_start_time",
            "Start of the process, in seconds since 1970.",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        ConstGauge::new(started_at).encode(metric)?;
        let Some(memory) = resident_memory() else { return Ok(()) };
        let metric = encoder.encode_descriptor(
            "process_resident_memory",
            "Resident memory of the process.",
            Some(&Unit::Bytes),
            MetricType::Gauge,
        )?;
        ConstGauge::new(memory).encode(metric)
    }
}

/// The resident memory in bytes, where the kernel shows it.
fn resident_memory() -> Option<u64> {
    in_status(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The resident memory in the text of `/proc/PID/status`, which has it in KiB on every machine.
fn in_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(in_status("Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t  512 kB\n"), Some(512 * 1024));
        assert_eq!(in_status("Name:\tx\n"), None);
        assert_eq!(in_status("VmRSS:\t many kB\n"), None);
    }
}
