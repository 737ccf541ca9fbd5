//! Messages of single values: `istio.policy.v1beta1.{IPAddress, Duration, TimeStamp, ...}`.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration as StdDuration, SystemTime},
};

use prost::bytes::Bytes;

/// `istio.policy.v1beta1.IPAddress`: 4 or 16 bytes, as the proxy sends them.
///
/// `ip("..")` in an expression always yields 16; a quoted constant in the configuration of a real Mixer arrives as the text of the address
/// (docs/behaviour/values.md#addresses). Encodings of one address are equal: 4 bytes, 16 bytes and text.
#[derive(Clone, prost::Message)]
pub struct IpAddress {
    /// The encoded address.
    #[prost(bytes = "bytes", tag = "1")]
    pub value: Bytes,
}

impl IpAddress {
    /// Returns the address: v4-mapped IPv6 as IPv4, text parsed; `None` if the bytes are not an address.
    pub fn addr(&self) -> Option<IpAddr> {
        if let Ok(four) = <[u8; 4]>::try_from(&self.value[..]) {
            return Some(IpAddr::V4(Ipv4Addr::from(four)));
        }
        if let Ok(sixteen) = <[u8; 16]>::try_from(&self.value[..]) {
            return Some(IpAddr::V6(Ipv6Addr::from(sixteen)).to_canonical());
        }
        std::str::from_utf8(&self.value).ok()?.parse().ok()
    }

    /// Returns the address in the form in which it is compared.
    fn canonical(&self) -> Option<IpAddr> {
        self.addr().map(|addr| addr.to_canonical())
    }
}

impl PartialEq for IpAddress {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value || self.canonical().is_some_and(|addr| other.canonical() == Some(addr))
    }
}

impl Eq for IpAddress {}

impl Hash for IpAddress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.canonical() {
            Some(addr) => addr.hash(state),
            None => self.value.hash(state),
        }
    }
}

impl From<IpAddr> for IpAddress {
    fn from(addr: IpAddr) -> Self {
        let value = match addr {
            IpAddr::V4(v4) => Bytes::copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => Bytes::copy_from_slice(&v6.octets()),
        };
        Self { value }
    }
}

/// `istio.policy.v1beta1.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Duration {
    /// Absent in an empty message, which means zero.
    #[prost(message, optional, tag = "1")]
    pub value: Option<prost_types::Duration>,
}

impl Duration {
    /// Returns the duration in nanoseconds, which can be negative.
    pub fn nanos(&self) -> i128 {
        self.value.map_or(0, |d| i128::from(d.seconds) * 1_000_000_000 + i128::from(d.nanos))
    }

    /// Returns the duration; `None` if it is negative.
    pub fn get(&self) -> Option<StdDuration> {
        self.value.unwrap_or_default().try_into().ok()
    }
}

impl From<StdDuration> for Duration {
    fn from(duration: StdDuration) -> Self {
        // Durations over 292 billion years are truncated to the maximum of the message.
        let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        Self { value: Some(prost_types::Duration { seconds, nanos: duration.subsec_nanos() as i32 }) }
    }
}

/// `istio.policy.v1beta1.TimeStamp`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct TimeStamp {
    /// Absent in an empty message, which means the epoch.
    #[prost(message, optional, tag = "1")]
    pub value: Option<prost_types::Timestamp>,
}

impl TimeStamp {
    /// Returns the time; `None` if the platform cannot represent it.
    pub fn get(&self) -> Option<SystemTime> {
        self.value.unwrap_or_default().try_into().ok()
    }
}

impl From<SystemTime> for TimeStamp {
    fn from(instant: SystemTime) -> Self {
        Self { value: Some(instant.into()) }
    }
}

macro_rules! text_message {
    ($(#[doc = $doc:literal] $name:ident),* $(,)?) => {
        $(
            #[doc = $doc]
            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct $name {
                /// The text. It is not validated, because Mixer does not validate constants in its configuration.
                #[prost(string, tag = "1")]
                pub value: String,
            }

            impl From<&str> for $name {
                fn from(text: &str) -> Self {
                    Self { value: text.to_owned() }
                }
            }
        )*
    };
}

text_message! {
    #[doc = "`istio.policy.v1beta1.DNSName`."]
    DnsName,
    #[doc = "`istio.policy.v1beta1.EmailAddress`."]
    EmailAddress,
    #[doc = "`istio.policy.v1beta1.Uri`."]
    Uri,
}

/// `istio.policy.v1beta1.StringMap`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct StringMap {
    /// The entries, by key.
    #[prost(btree_map = "string, string", tag = "1")]
    pub value: BTreeMap<String, String>,
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for StringMap {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self { value: entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::value::Value;

    #[test]
    fn addresses_and_values_of_them_are_equal_however_they_are_encoded() {
        let of = |value: &[u8]| IpAddress { value: Bytes::copy_from_slice(value) };
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        let same = [of(&[10, 0, 0, 1]), of(&mapped), of(b"10.0.0.1"), of(b"::ffff:10.0.0.1")];
        let value = |address: &IpAddress| Value::IpAddress(address.clone());
        assert!(same.iter().all(|address| value(address) == value(&same[0])));
        assert_ne!(value(&of(&[10, 0, 0, 2])), value(&same[0]));
        assert_eq!(HashSet::from(same).len(), 1);
        let others = [of(&[10, 0, 0, 1]), of(&[10, 0, 0, 2]), of(b"10.0.0.01"), of(b""), of(b"x")];
        assert_eq!(HashSet::from(others).len(), 5);
    }
}
