//! Fingerprints of counters and calls.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hash, RandomState},
    time::Duration,
};

use mixer_adapter_core::value::Value;
use siphasher::sip128::{Hasher128, SipHasher13};

/// Makes fingerprints of 128 bits with a secret key, so that no client can choose values that collide. They take the same
/// memory whatever the length of the values.
#[derive(Debug)]
pub(super) struct Fingerprinter {
    key: (u64, u64),
}

impl Default for Fingerprinter {
    /// Takes a random key.
    fn default() -> Self {
        Self { key: (RandomState::new().hash_one(()), RandomState::new().hash_one(())) }
    }
}

impl Fingerprinter {
    /// Returns the fingerprint of a value.
    pub(super) fn fingerprint(&self, value: impl Hash) -> u128 {
        self.with_hasher(|hasher| value.hash(hasher))
    }

    /// Returns the fingerprint of a counter: each quota has one for each combination of all its dimensions, and for each window
    /// that callers set in place of the configured one.
    pub(super) fn counter(
        &self,
        instance: &str,
        dimensions: &BTreeMap<String, Value>,
        window: Option<Duration>,
    ) -> u128 {
        self.with_hasher(|hasher| {
            instance.hash(hasher);
            window.hash(hasher);
            for (name, value) in dimensions {
                name.hash(hasher);
                hash_value(value, hasher);
            }
        })
    }

    fn with_hasher(&self, feed: impl FnOnce(&mut SipHasher13)) -> u128 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        feed(&mut hasher);
        hasher.finish128().as_u128()
    }
}

fn hash_value(value: &Value, hasher: &mut SipHasher13) {
    value.value_type().hash(hasher);
    match value {
        Value::Unspecified => {}
        Value::String(text) => text.hash(hasher),
        Value::Int64(number) => number.hash(hasher),
        Value::Double(number) => number.to_bits().hash(hasher),
        Value::Bool(truth) => truth.hash(hasher),
        // An address can have 4 or 16 bytes.
        Value::IpAddress(ip) => match ip.addr() {
            Some(addr) => addr.hash(hasher),
            None => ip.value.hash(hasher),
        },
        Value::TimeStamp(time) => time.hash(hasher),
        Value::Duration(length) => length.nanos().hash(hasher),
        Value::EmailAddress(email) => email.value.hash(hasher),
        Value::DnsName(name) => name.value.hash(hasher),
        Value::Uri(uri) => uri.value.hash(hasher),
        Value::StringMap(map) => map.hash(hasher),
    }
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
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert_ne!(
                    fingerprinter.counter("q", one, None),
                    fingerprinter.counter("q", other, None),
                    "{one:?} {other:?}"
                );
            }
            assert_ne!(fingerprinter.counter("q", one, None), fingerprinter.counter("q2", one, None));
            assert_eq!(fingerprinter.counter("q", one, None), fingerprinter.counter("q", &one.clone(), None));
        }
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
