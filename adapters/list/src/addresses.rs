//! Ranges of IP addresses.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use prefix_trie::joint::JointPrefixSet;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::error::ListError;

/// A set of address ranges. IPv4 addresses mapped to IPv6 are treated as IPv4.
#[derive(Debug)]
pub(super) struct Networks(Box<JointPrefixSet<IpNet>>);

/// The maximum number of YAML nodes, which the maximum length of a list does not reach.
const YAML_NODES: usize = 16 << 20;

impl Networks {
    /// Parses YAML with the key `whitelist` (also for blacklists) and adds the overrides.
    pub(super) fn parse(yaml: &str, overrides: &[String]) -> Result<Self, ListError> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_nodes: YAML_NODES, max_events: 2 * YAML_NODES },
            with_snippet: false,
        };
        let fetched: Option<Fetched> = serde_saphyr::from_str_with_options(yaml, options)?;
        let mut networks = Box::new(JointPrefixSet::new());
        for entry in fetched.unwrap_or_default().entries.iter().chain(overrides) {
            networks.insert(network(entry)?);
        }
        Ok(Self(networks))
    }

    pub(super) fn contain(&self, address: IpAddr) -> bool {
        self.0.is_covered(&IpNet::from(address.to_canonical()))
    }
}

/// Parses a range, or a single address.
pub(super) fn network(entry: &str) -> Result<IpNet, ListError> {
    let network = if entry.contains('/') {
        entry.parse().ok()
    } else {
        entry.parse().ok().map(|address: IpAddr| IpNet::from(address))
    };
    network.map(|network| unmapped(network).trunc()).ok_or_else(|| ListError::Address(entry.to_owned()))
}

/// Converts a range within `::ffff:0:0/96` to IPv4.
fn unmapped(network: IpNet) -> IpNet {
    if let IpNet::V6(v6) = network
        && let (Some(v4), Some(length)) = (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(96))
        && let Ok(v4) = Ipv4Net::new(v4, length)
    {
        return v4.into();
    }
    network
}

/// A fetched list. As in the original, the case of the key is ignored, and so are other keys.
#[derive(Debug, Default)]
struct Fetched {
    entries: Vec<String>,
}

impl<'de> Deserialize<'de> for Fetched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FetchedVisitor)
    }
}

struct FetchedVisitor;

impl<'de> Visitor<'de> for FetchedVisitor {
    type Value = Fetched;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with the key `whitelist`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fetched, A::Error> {
        let mut fetched = Fetched::default();
        while let Some(key) = map.next_key::<String>()? {
            if key.eq_ignore_ascii_case("whitelist") {
                fetched.entries = map.next_value::<Option<_>>()?.unwrap_or_default();
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(fetched)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn contains(yaml: &str, address: &str) -> bool {
        Networks::parse(yaml, &[]).unwrap().contain(address.parse().unwrap())
    }

    // The first five are TestIPList of list_test.go.
    #[test]
    fn addresses_are_found_in_ranges() {
        let list =
            "whitelist: [10.10.11.2, 10.10.11.3, 9.9.9.9/28, '2001:db8::/32', '::1', '::ffff:7.7.7.0/120']";
        for (address, listed) in [
            ("10.10.11.2", true),
            ("10.10.11.4", false),
            ("9.9.9.1", true),
            ("9.9.9.16", false),
            ("120.10.11.2", false),
            ("2001:db8:1::1", true),
            ("2001:db9::", false),
            ("::1", true),
            ("::ffff:9.9.9.1", true),
            ("7.7.7.200", true),
            ("7.7.8.0", false),
        ] {
            assert_eq!(contains(list, address), listed, "{address}");
        }
    }

    // A defect of the original, docs/behaviour/adapters.md#addresses-of-listchecker: `::1` became `::1/32` and let `::2` in.
    #[test]
    fn an_ipv6_address_without_a_length_is_that_address() {
        assert!(!contains("whitelist: ['::1']", "::2"));
    }

    #[test]
    fn the_original_key_is_read_whatever_its_case_and_others_are_not() {
        assert!(contains("WhiteList:\n- 1.2.3.4\nother: {a: [b]}\n", "1.2.3.4"));
        for nothing in ["", "whitelist:", "other: [1.2.3.4]", "{}"] {
            assert!(!contains(nothing, "1.2.3.4"), "{nothing:?}");
        }
    }

    #[test]
    fn what_is_no_list_of_addresses_is_refused() {
        for (yaml, part) in [
            ("whitelist: [10.10.11.2, X, 10.10.11.3]", "\"X\" is neither an IP address"),
            ("whitelist: [1.2.3.4/33]", "\"1.2.3.4/33\" is neither"),
            ("whitelist: [010.1.1.1]", "\"010.1.1.1\" is neither"),
            ("[JUNK]", "the list must be YAML"),
            ("JUNK", "the list must be YAML"),
            ("whitelist: {", "the list must be YAML"),
        ] {
            let error = Networks::parse(yaml, &[]).unwrap_err().to_string();
            assert!(error.contains(part), "{yaml}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn long_lists_are_read() {
        let entries = (0..250_001_u32).map(|n| format!("- {}\n", std::net::Ipv4Addr::from(0x0a00_0000 + n)));
        let yaml = "whitelist:\n".to_owned() + &entries.collect::<String>();
        let networks = Networks::parse(&yaml, &[]).unwrap();
        assert!(networks.contain("10.3.208.144".parse().unwrap()));
        assert!(!networks.contain("10.3.208.145".parse().unwrap()));
    }
}
