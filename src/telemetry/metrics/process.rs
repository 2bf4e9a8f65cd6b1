//! The part of `/metrics` about the process itself: whether it serves, since when it runs, and its use of resources.

use std::iter;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
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
        let (seconds, bytes) = (Some(&Unit::Seconds), Some(&Unit::Bytes));
        let mut gauge = |name, help, unit: Option<&Unit>, value: f64| {
            let metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)
        };
        gauge("process_start_time", "Start of the process, in seconds since 1970.", seconds, started_at)?;
        let status = read("status");
        if let Some(memory) = kibibytes_in(&status, "VmRSS:") {
            gauge("process_resident_memory", "Resident memory of the process.", bytes, memory)?;
        }
        if let Some(memory) = kibibytes_in(&status, "VmSize:") {
            gauge("process_virtual_memory", "Virtual memory of the process.", bytes, memory)?;
        }
        if let Some(open) = open_files() {
            gauge("process_open_fds", "Open file descriptors of the process.", None, open)?;
        }
        if let Some(limit) = most_files(&read("limits")) {
            gauge("process_max_fds", "Maximum number of open file descriptors.", None, limit)?;
        }
        let Some(time) = processor_time(&read("stat")) else { return Ok(()) };
        let help = "Time of processors that the process has used, in user and system mode.";
        let metric = encoder.encode_descriptor("process_cpu", help, seconds, MetricType::Counter)?;
        ConstCounter::new(time).encode(metric)
    }
}

/// A file of `/proc/self`; empty where the kernel does not show it.
fn read(name: &str) -> String {
    std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default()
}

/// A number of bytes in the text of `/proc/PID/status`, which has it in KiB on every machine.
#[allow(clippy::cast_precision_loss, reason = "no memory has 2^53 bytes")]
fn kibibytes_in(status: &str, key: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes.checked_mul(1024)? as f64)
}

/// The number of open descriptors, without that of the look itself.
fn open_files() -> Option<f64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    u32::try_from(open.saturating_sub(1)).ok().map(f64::from)
}

/// The soft limit of open files in the text of `/proc/PID/limits`.
fn most_files(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The kernel shows times to user space in hundredths of a second on every machine (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// The time of processors in the text of `/proc/PID/stat`: its fields 14 and 15. The second is the name of the program
/// in parentheses, which may have spaces.
fn processor_time(stat: &str) -> Option<f64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut ticks = behind_name.split_whitespace().skip(11).map(str::parse::<f64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let resident = |status: &str| kibibytes_in(status, "VmRSS:");
        assert_eq!(resident("Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t  512 kB\n"), Some(512.0 * 1024.0));
        assert_eq!(resident("Name:\tx\n"), None);
        assert_eq!(resident("VmRSS:\t many kB\n"), None);
    }

    #[test]
    fn time_and_files_are_read_from_what_the_kernel_shows() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 899 0 0 0 150 25 0 0 20 0 1 0 5 6 7";
        assert_eq!(processor_time(stat), Some(1.75));
        assert_eq!(processor_time(""), None);
        let limits =
            "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024     524288     files\n";
        assert_eq!(most_files(limits), Some(1024.0));
        assert!(processor_time(&read("stat")).is_some() && most_files(&read("limits")).is_some());
        assert!(open_files() > Some(2.0));
    }
}
