//! What quota adapters share: limits by dimensions with overrides, counters in memory, fingerprints, and the answers of repeated
//! calls.

mod counter;
mod counters;
mod dedup;
mod fingerprint;
mod limits;
mod literal;
mod params;
mod warnings;

pub use counter::{Counter, Span};
pub use counters::{Capacity, Counters, FullError};
pub use dedup::Dedup;
pub use fingerprint::{Fingerprinter, SharedFingerprint};
pub use limits::{Limit, Limits, Quota};
pub use params::{OverrideParams, QuotaParams};
