use std::{
    collections::BTreeMap,
    hash::{BuildHasher, DefaultHasher, Hash, RandomState},
};

use mixer_adapter_core::value::Value;

/// Names things by 128 bits that nobody can aim at: two hashes with secret keys. So a name of any length costs no
/// memory, and two that differ never meet in practice.
#[derive(Debug, Default)]
pub(super) struct Digester {
    keys: [RandomState; 2],
}

impl Digester {
    pub(super) fn digest(&self, feed: impl Fn(&mut DefaultHasher)) -> u128 {
        self.keys.iter().fold(0, |digest, key| {
            let mut hasher = key.build_hasher();
            feed(&mut hasher);
            digest << 64 | u128::from(std::hash::Hasher::finish(&hasher))
        })
    }

    /// The name of a counter: each quota has one for each combination of all its dimensions.
    pub(super) fn counter(&self, instance: &str, dimensions: &BTreeMap<String, Value>) -> u128 {
        self.digest(|hasher| {
            instance.hash(hasher);
            for (name, value) in dimensions {
                name.hash(hasher);
                hash_value(value, hasher);
            }
        })
    }
}

fn hash_value(value: &Value, hasher: &mut DefaultHasher) {
    value.value_type().hash(hasher);
    match value {
        Value::Unspecified => {}
        Value::String(text) => text.hash(hasher),
        Value::Int64(number) => number.hash(hasher),
        Value::Double(number) => number.to_bits().hash(hasher),
        Value::Bool(truth) => truth.hash(hasher),
        // The same address comes in 4 and in 16 bytes.
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
    fn dimensions_that_only_look_alike_have_counters_of_their_own() {
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
        let digester = Digester::default();
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert_ne!(digester.counter("q", one), digester.counter("q", other), "{one:?} {other:?}");
            }
            assert_ne!(digester.counter("q", one), digester.counter("q2", one));
            assert_eq!(digester.counter("q", one), digester.counter("q", &one.clone()));
        }
    }

    #[test]
    fn an_address_counts_as_one_in_4_and_in_16_bytes() {
        let ip = |bytes: &[u8]| Value::from(IpAddress { value: bytes.to_vec().into() });
        let digester = Digester::default();
        let [four, sixteen] =
            [ip(&[10, 1, 2, 3]), ip(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3])]
                .map(|ip| digester.counter("q", &dimensions(&[("ip", ip)])));
        assert_eq!(four, sixteen);
    }
}
