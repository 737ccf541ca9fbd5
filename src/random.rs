//! Random numbers.

use std::hash::{BuildHasher as _, RandomState};

/// Returns a random number for an id; it is not 0.
pub(crate) fn random_id() -> u64 {
    // The keys of std's hash maps are random, which is enough for an id.
    RandomState::new().hash_one(0).max(1)
}
