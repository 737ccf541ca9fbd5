//! Fingerprints of counters and calls.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    net::IpAddr,
    time::Duration,
};

use mixer_adapter_core::{QuotaRequest, value::Value};
use sha2::{Digest as _, Sha256};
use siphasher::sip128::SipHasher13;

/// Makes fingerprints of 128 bits with a secret key, so that no client can choose values that collide. They take the same
/// memory whatever the length of the values.
#[derive(Debug)]
pub struct Fingerprinter {
    key: (u64, u64),
}

impl Default for Fingerprinter {
    /// Takes a random key.
    fn default() -> Self {
        Self { key: (RandomState::new().hash_one(()), RandomState::new().hash_one(())) }
    }
}

impl Fingerprinter {
    /// Returns the fingerprint of a counter: each quota has one for each combination of all its dimensions, and for each window
    /// that callers set in place of the configured one.
    pub fn counter(
        &self,
        instance: &str,
        dimensions: &BTreeMap<String, Value>,
        window: Option<Duration>,
    ) -> u128 {
        self.of(|write| {
            counter(instance, dimensions, write);
            window.into_iter().for_each(|window| write(&window.as_nanos().to_le_bytes()));
        })
    }

    /// Returns the fingerprint of a call; repeated calls have the same.
    pub(crate) fn call(&self, quota: &str, request: &QuotaRequest) -> u128 {
        self.of(|write| call(quota, request, write))
    }

    fn of(&self, feed: impl FnOnce(&mut dyn FnMut(&[u8]))) -> u128 {
        // At once: callgrind counts half of the instructions that the hasher takes for parts.
        let mut bytes = Vec::with_capacity(256);
        feed(&mut |part| bytes.extend_from_slice(part));
        SipHasher13::new_with_keys(self.key.0, self.key.1).hash(&bytes).as_u128()
    }
}

/// A fingerprint of 128 bits that is equal in every process: the start of a SHA-256, for which nobody finds collisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedFingerprint(pub u128);

impl SharedFingerprint {
    /// Returns the fingerprint of a counter, which has a combination of all dimensions and a kind of window.
    pub fn counter(instance: &str, dimensions: &BTreeMap<String, Value>, window: &[u64]) -> Self {
        Self::of(|write| {
            counter(instance, dimensions, write);
            window.iter().for_each(|part| write(&part.to_le_bytes()));
        })
    }

    /// Returns the fingerprint of a call; repeated calls have the same.
    pub fn call(quota: &str, request: &QuotaRequest) -> Self {
        Self::of(|write| call(quota, request, write))
    }

    fn of(feed: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Self {
        let mut hasher = Sha256::new();
        feed(&mut |bytes| hasher.update(bytes));
        let mut first = [0; 16];
        first.copy_from_slice(&hasher.finalize()[..16]);
        Self(u128::from_be_bytes(first))
    }
}

/// Calls are equal if they have the same quota, id, amount and best effort.
fn call(quota: &str, request: &QuotaRequest, write: &mut dyn FnMut(&[u8])) {
    write_text(quota, write);
    write_text(&request.dedup_id, write);
    write(&request.amount.to_le_bytes());
    write(&[request.best_effort.into()]);
}

/// Writes a counter so that different ones have different bytes, whatever follows them.
fn counter(instance: &str, dimensions: &BTreeMap<String, Value>, write: &mut dyn FnMut(&[u8])) {
    write_text(instance, write);
    write_length(dimensions.len(), write);
    for (name, value) in dimensions {
        write_text(name, write);
        write_value(value, write);
    }
}

fn write_value(value: &Value, write: &mut dyn FnMut(&[u8])) {
    write(&(value.value_type() as i32).to_le_bytes());
    match value {
        Value::Unspecified => {}
        Value::String(text) => write_text(text, write),
        Value::Int64(number) => write(&number.to_le_bytes()),
        Value::Double(number) => write(&number.to_bits().to_le_bytes()),
        Value::Bool(truth) => write(&[(*truth).into()]),
        // An address can have 4 or 16 bytes.
        Value::IpAddress(ip) => match ip.addr() {
            Some(IpAddr::V4(addr)) => write_bytes(&addr.octets(), write),
            Some(IpAddr::V6(addr)) => write_bytes(&addr.octets(), write),
            None => write_bytes(&ip.value, write),
        },
        Value::TimeStamp(time) => {
            let time = time.value.unwrap_or_default().normalized();
            write(&time.seconds.to_le_bytes());
            write(&time.nanos.to_le_bytes());
        }
        Value::Duration(length) => write(&length.nanos().to_le_bytes()),
        Value::EmailAddress(email) => write_text(&email.value, write),
        Value::DnsName(name) => write_text(&name.value, write),
        Value::Uri(uri) => write_text(&uri.value, write),
        Value::StringMap(map) => {
            write_length(map.value.len(), write);
            for (key, value) in &map.value {
                write_text(key, write);
                write_text(value, write);
            }
        }
    }
}

fn write_text(text: &str, write: &mut dyn FnMut(&[u8])) {
    write_bytes(text.as_bytes(), write);
}

fn write_bytes(bytes: &[u8], write: &mut dyn FnMut(&[u8])) {
    write_length(bytes.len(), write);
    write(bytes);
}

fn write_length(length: usize, write: &mut dyn FnMut(&[u8])) {
    write(&(length as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use mixer_adapter_core::value::{IpAddress, StringMap};

    use super::*;

    fn dimensions(entries: &[(&str, Value)]) -> BTreeMap<String, Value> {
        entries.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    /// The collisions of the original's keys (docs/behaviour/adapters.md#counters-of-memquota).
    #[test]
    fn similar_dimensions_have_different_counters() {
        let map = |entries: &[(&str, &str)]| Value::from(entries.iter().copied().collect::<StringMap>());
        let all = [
            dimensions(&[]),
            dimensions(&[("a", "1;b=2".into())]),
            dimensions(&[("a", "1".into()), ("b", "2".into())]),
            dimensions(&[("a", 1.into()), ("b", 2.into())]),
            dimensions(&[("a", "1".into()), ("b", Value::Unspecified)]),
            dimensions(&[("m", map(&[("a", "bc")]))]),
            dimensions(&[("m", map(&[("ab", "c")]))]),
        ];
        let fingerprinter = Fingerprinter::default();
        let fingerprints = |quota: &str, dimensions: &BTreeMap<String, Value>| {
            let shared = SharedFingerprint::counter(quota, dimensions, &[]);
            [fingerprinter.counter(quota, dimensions, None), shared.0]
        };
        for (index, one) in all.iter().enumerate() {
            let ones = fingerprints("q", one);
            for other in &all[index + 1..] {
                for (one, another) in ones.iter().zip(fingerprints("q", other)) {
                    assert_ne!(*one, another, "{other:?}");
                }
            }
            for (one, another) in ones.iter().zip(fingerprints("q2", one)) {
                assert_ne!(*one, another);
            }
            assert_eq!(ones, fingerprints("q", &one.clone()));
        }
    }

    #[test]
    fn windows_of_a_counter_have_different_fingerprints() {
        let counter = |window: &[u64]| SharedFingerprint::counter("q", &dimensions(&[]), window);
        assert_ne!(counter(&[100, 600]), counter(&[100, 601]));
        assert_eq!(counter(&[100, 600]), counter(&[100, 600]));
    }

    #[test]
    fn an_address_has_the_same_counter_in_4_and_in_16_bytes() {
        let ip = |bytes: &[u8]| Value::from(IpAddress { value: bytes.to_vec().into() });
        let fingerprinter = Fingerprinter::default();
        let [four, sixteen] =
            [ip(&[10, 1, 2, 3]), ip(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3])]
                .map(|ip| fingerprinter.counter("q", &dimensions(&[("ip", ip)]), None));
        assert_eq!(four, sixteen);
    }
}
