//! Ids of decisions.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::SystemTime,
};

/// Returns whether a text has the form of an id, which another server may have made.
pub fn is_decision_id(text: &str) -> bool {
    let Some((start, count)) = text.split_once('-').filter(|_| text.len() <= MAX_LENGTH) else {
        return false;
    };
    [start, count].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The length of the longest id.
const MAX_LENGTH: usize = 16 + 1 + 16;

/// Makes the ids of decisions, which are unique among all servers: the start of the process and a count.
#[derive(Debug)]
pub struct DecisionIds {
    /// In hexadecimal digits, and the dash after it.
    start: Box<str>,
    count: AtomicU64,
}

impl DecisionIds {
    /// Returns a new id.
    pub fn next(&self) -> String {
        let mut count = self.count.fetch_add(1, Relaxed);
        // By hand: callgrind counts 815 instructions for `format!`, and each check has an id.
        let mut digits = [b'0'; 16];
        let mut first = digits.len();
        while count > 0 || first == digits.len() {
            first -= 1;
            digits[first] = b"0123456789abcdef"[(count & 15) as usize];
            count >>= 4;
        }
        let mut id = String::with_capacity(MAX_LENGTH);
        id.push_str(&self.start);
        id.push_str(str::from_utf8(&digits[first..]).unwrap_or_default());
        id
    }
}

impl Default for DecisionIds {
    fn default() -> Self {
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { start: format!("{:016x}-", start.as_nanos() as u64).into(), count: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_are_recognized() {
        let ids = DecisionIds::default();
        let (one, other) = (ids.next(), ids.next());
        assert_ne!(one, other);
        assert!(is_decision_id(&one) && is_decision_id(&other));
        for text in ["", "-", "1-", "-1", "12", "1-g", "a b-1", "11111111111111111111111111111111111-1"] {
            assert!(!is_decision_id(text), "{text}");
        }
    }
}
