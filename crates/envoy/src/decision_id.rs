use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::SystemTime,
};

/// Makes the ids of decisions, which are unique among all servers: the start of the process and a count.
#[derive(Debug)]
pub(crate) struct DecisionIds {
    start: u64,
    count: AtomicU64,
}

impl DecisionIds {
    pub(crate) fn new() -> Self {
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { start: start.as_nanos() as u64, count: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> String {
        format!("{:016x}-{:x}", self.start, self.count.fetch_add(1, Relaxed))
    }
}
