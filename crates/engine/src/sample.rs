use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A share of all calls, evenly spread.
#[derive(Debug)]
pub(crate) struct Sample {
    /// From 0 to 1.
    share: f64,
    calls: AtomicU64,
}

impl Sample {
    pub(crate) fn new(share: f64) -> Self {
        Self { share, calls: AtomicU64::new(0) }
    }

    /// Returns whether the next call is in the sample.
    pub(crate) fn includes_next(&self) -> bool {
        // Multiples of the golden ratio are evenly spread over the fractions, without a lock.
        let count = self.calls.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let fraction = (count >> 11) as f64 / (1_u64 << 53) as f64;
        fraction < self.share
    }
}
