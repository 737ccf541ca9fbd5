//! Metrics of the process, under the names that all client libraries of Prometheus use, and of the build. By hand:
//! `prometheus-client` has no collector of processes.

use std::{fs, sync::LazyLock, time::SystemTime};

use prometheus_client::{
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

use super::metrics_encoder::{Encoded, Families, loaded};
use crate::{build_info, log_output};
use mixer_adapter_net::tls;

/// Encodes the metrics of the build and of the process.
pub(crate) fn encode(families: &mut Families<'_>) -> Encoded {
    let build = [build_info::VERSION.into(), build_info::features().join(",").into()];
    families.encode(
        "mixer_adapter_build_info",
        None,
        ["version", "features"],
        [(build, ConstGauge::new(1_i64))],
    )?;
    if let Some(lines) = log_output::counts() {
        let lines = loaded(["written", "dropped", "failed"], [&lines.written, &lines.dropped, &lines.failed]);
        families.counters("mixer_adapter_log_lines", "result", lines)?;
    }
    let ends = tls::certificate_ends();
    let ends = ends.iter().filter_map(|(file, end)| {
        let end = end.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(([file.to_string_lossy()], ConstGauge::new(end.as_secs_f64())))
    });
    families.encode("mixer_adapter_certificate_end_timestamp", Some(Unit::Seconds), ["file"], ends)?;
    ProcessUse::read().map_or(Ok(()), |process| process.encode(families))
}

/// The resources that the process uses, from Linux' `/proc`. Other systems have no such files, and no series.
#[derive(Debug, PartialEq)]
struct ProcessUse {
    cpu_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    open_files: u64,
    /// `None` for an unlimited number.
    max_open_files: Option<u64>,
    threads: u64,
    start_seconds: Option<f64>,
}

/// Units of time in `/proc` for each second: Linux has this value on all platforms that Rust supports.
const TICKS: f64 = 100.0;

impl ProcessUse {
    fn read() -> Option<Self> {
        static BOOT_TIME: LazyLock<Option<f64>> = LazyLock::new(|| {
            let stat = fs::read_to_string("/proc/stat").ok()?;
            stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
        });
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let open_files = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        Self::parse(&stat, &status, &limits, open_files, *BOOT_TIME)
    }

    /// Parses the files as proc(5) describes them.
    fn parse(
        stat: &str,
        status: &str,
        limits: &str,
        open_files: u64,
        boot_seconds: Option<f64>,
    ) -> Option<Self> {
        // The second field is the name of the program in parentheses, which may contain both spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let max_open_files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let started = number(&fields, 22)? as f64 / TICKS;
        Some(Self {
            cpu_seconds: (number(&fields, 14)? + number(&fields, 15)?) as f64 / TICKS,
            virtual_bytes: bytes(status, "VmSize:")?,
            resident_bytes: bytes(status, "VmRSS:")?,
            open_files,
            max_open_files: max_open_files.and_then(|line| line.split_whitespace().next()?.parse().ok()),
            threads: number(&fields, 20)?,
            start_seconds: boot_seconds.map(|boot| boot + started),
        })
    }

    fn encode(&self, families: &mut Families<'_>) -> Encoded {
        families.encode(
            "process_cpu",
            Some(Unit::Seconds),
            [],
            [([], ConstCounter::new(self.cpu_seconds))],
        )?;
        families.measure("process_virtual_memory", Unit::Bytes, self.virtual_bytes as f64)?;
        families.measure("process_resident_memory", Unit::Bytes, self.resident_bytes as f64)?;
        families.gauge("process_open_fds", self.open_files as usize)?;
        families.gauge("process_threads", self.threads as usize)?;
        if let Some(limit) = self.max_open_files {
            families.gauge("process_max_fds", limit as usize)?;
        }
        self.start_seconds
            .map_or(Ok(()), |start| families.measure("process_start_time", Unit::Seconds, start))
    }
}

/// Returns a field of `/proc/self/stat`; `fields` starts at the third field.
fn number(fields: &[&str], field: usize) -> Option<u64> {
    fields.get(field - 3)?.parse().ok()
}

/// Returns a value of `/proc/self/status`, which has it in kilobytes.
fn bytes(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The example of proc(5): the fields are numbered from 1.
    #[test]
    fn the_files_of_the_system_are_read_whatever_the_name_of_the_program() {
        let numbers: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("1 (a) b (c) S {}", numbers.join(" "));
        let status = "Name:\ta\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 4096                 files     \n";
        let expected = ProcessUse {
            cpu_seconds: 0.29,
            virtual_bytes: 2 << 20,
            resident_bytes: 1 << 20,
            open_files: 3,
            max_open_files: Some(1024),
            threads: 20,
            start_seconds: Some(1000.22),
        };
        assert_eq!(ProcessUse::parse(&stat, status, limits, 3, Some(1000.0)), Some(expected));
        let unlimited = limits.replace("1024", "unlimited");
        let parsed = ProcessUse::parse(&stat, status, &unlimited, 3, None).unwrap();
        assert_eq!((parsed.max_open_files, parsed.start_seconds), (None, None));
    }

    #[test]
    fn files_of_another_form_are_no_series() {
        for (stat, status) in [("", ""), ("1 (a) S 1 2", "VmSize: 1 kB\nVmRSS: 1 kB\n"), ("1 (a S", "")] {
            assert_eq!(ProcessUse::parse(stat, status, "", 0, None), None);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_uses_memory_and_files() {
        let process = ProcessUse::read().unwrap();
        assert!(process.resident_bytes > 0 && process.open_files > 0 && process.threads > 0, "{process:?}");
    }
}
