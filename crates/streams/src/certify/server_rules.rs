use std::collections::{BTreeMap, BTreeSet};

use super::{MAX_VIOLATIONS, Protocol, Violation};
use crate::stream::shorthand::Shorthand;

pub(super) const NONCE: &str = "each response has a nonce of its own";
pub(super) const TYPE: &str = "a response has a type that was asked for";
pub(super) const VERSION: &str = "a response has a version";
pub(super) const NAMES: &str = "a response names each of its resources, and each once";
pub(super) const REPEATED: &str = "an answered version is not sent again";

/// The endings of the types of clusters and of their endpoints, in each version of Envoy's API.
const CLUSTER: &str = ".Cluster";
const ENDPOINTS: &str = ".ClusterLoadAssignment";

/// The rules of servers on a stream, independent of the client.
#[derive(Debug)]
pub struct ServerRules {
    protocol: Protocol,
    asked: BTreeSet<String>,
    nonces: BTreeSet<String>,
    /// The last response per type, and whether the client has since sent a request that is not an answer.
    last: BTreeMap<String, Last>,
    reported: usize,
}

#[derive(Debug, Default)]
struct Last {
    version: String,
    names: Vec<String>,
    asked_since: bool,
    /// The names of the last request.
    wanted: Vec<String>,
}

impl ServerRules {
    /// The rules for a stream that has just opened.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, asked: BTreeSet::new(), nonces: BTreeSet::new(), last: BTreeMap::new(), reported: 0 }
    }

    /// The client sent a request.
    pub fn sent(&mut self, request: &Shorthand) {
        self.asked.insert(request.type_url.clone());
        let last = self.last.entry(request.type_url.clone()).or_default();
        // New names, or a request that answers no response, may be answered with a version that the client has.
        last.asked_since |=
            request.nonce.is_empty() || request.names != last.wanted || !request.removed.is_empty();
        last.wanted.clone_from(&request.names);
    }

    /// Records a response of the server and returns its violations.
    pub fn received(&mut self, response: &Shorthand) -> Vec<Violation> {
        let mut violations = Vec::new();
        if self.protocol == Protocol::Rest {
            // Each response belongs to its request.
        } else if response.nonce.is_empty() {
            violations.push(Violation::new(NONCE, "a response without a nonce"));
        } else if !self.nonces.insert(response.nonce.clone()) {
            violations.push(Violation::new(NONCE, format!("the nonce {:?} a second time", response.nonce)));
        }
        if !self.asked.contains(&response.type_url) {
            violations.push(Violation::new(TYPE, format!("a response of the type {:?}", response.type_url)));
        }
        // The version of a response of changes is for debugging.
        if response.version.is_empty() && !self.protocol.is_delta() {
            violations.push(Violation::new(VERSION, "a response without a version"));
        }
        violations.extend(names(response));
        let last = self.last.entry(response.type_url.clone()).or_default();
        let same =
            last.version == response.version && last.names == response.names && !response.version.is_empty();
        if same && !last.asked_since && response.removed.is_empty() && !self.protocol.is_delta() {
            violations
                .push(Violation::new(REPEATED, format!("version {:?} a second time", response.version)));
        }
        (last.version, last.names) = (response.version.clone(), response.names.clone());
        last.asked_since = false;
        if response.type_url.ends_with(CLUSTER) {
            // Clusters that warm need their endpoints again (docs/behaviour/xds.md#rule-9-warming).
            let endpoints = self.last.iter_mut().filter(|(type_url, _)| type_url.ends_with(ENDPOINTS));
            endpoints.for_each(|(_, last)| last.asked_since = true);
        }
        violations.truncate(MAX_VIOLATIONS.saturating_sub(self.reported));
        self.reported += violations.len();
        violations
    }
}

fn names(response: &Shorthand) -> Option<Violation> {
    let mut seen = BTreeSet::new();
    for name in response.names.iter().chain(&response.removed) {
        if name.is_empty() {
            return Some(Violation::new(NAMES, "a resource without a name"));
        }
        if !seen.insert(name) {
            return Some(Violation::new(NAMES, format!("the resource {name:?} twice")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{stream::sink::dialect::Variant, xds::sink::dial::ApiVersion};

    const SOTW: Protocol = Protocol::Xds(ApiVersion::V3, Variant::Sotw);

    fn request(nonce: &str) -> Shorthand {
        Shorthand { type_url: "t".to_owned(), nonce: nonce.to_owned(), ..Shorthand::default() }
    }

    fn response(version: &str, nonce: &str, names: &[&str]) -> Shorthand {
        Shorthand {
            version: version.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..request(nonce)
        }
    }

    fn broken(rules: &mut ServerRules, response: &Shorthand) -> Vec<&'static str> {
        rules.received(response).iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_good_server_breaks_no_rule() {
        let mut rules = ServerRules::new(SOTW);
        rules.sent(&request(""));
        assert!(broken(&mut rules, &response("1", "a", &["x", "y"])).is_empty());
        rules.sent(&request("a"));
        assert!(broken(&mut rules, &response("2", "b", &["x"])).is_empty());
        rules.sent(&Shorthand { names: vec!["x".to_owned()], ..request("b") });
        assert!(broken(&mut rules, &response("2", "c", &["x"])).is_empty(), "new names are answered");
    }

    #[test]
    fn endpoints_may_be_sent_again_while_their_cluster_warms() {
        let of = |type_url: &str, message: Shorthand| Shorthand { type_url: type_url.to_owned(), ..message };
        let mut rules = ServerRules::new(SOTW);
        for (type_url, nonce) in [("a.Cluster", "1"), ("a.ClusterLoadAssignment", "2"), ("a.Cluster", "3")] {
            rules.sent(&of(type_url, request("")));
            assert!(broken(&mut rules, &of(type_url, response(nonce, nonce, &["x"]))).is_empty());
        }
        let endpoints = |nonce| of("a.ClusterLoadAssignment", response("2", nonce, &["x"]));
        assert!(broken(&mut rules, &endpoints("4")).is_empty());
        assert_eq!(broken(&mut rules, &endpoints("5")), [REPEATED]);
    }

    #[test]
    fn each_rule_is_found_broken() {
        let mut rules = ServerRules::new(SOTW);
        assert_eq!(broken(&mut rules, &response("1", "a", &[])), [TYPE]);
        rules.sent(&request(""));
        assert_eq!(broken(&mut rules, &response("2", "", &[])), [NONCE]);
        assert_eq!(broken(&mut rules, &response("3", "a", &[])), [NONCE]);
        assert_eq!(broken(&mut rules, &response("", "b", &[])), [VERSION]);
        assert_eq!(broken(&mut rules, &response("4", "c", &["x", "x"])), [NAMES]);
        assert_eq!(broken(&mut rules, &response("5", "d", &[""])), [NAMES]);
        rules.sent(&request("d"));
        assert_eq!(broken(&mut rules, &response("6", "e", &["x"])), [""; 0]);
        rules.sent(&request("e"));
        assert_eq!(broken(&mut rules, &response("6", "f", &["x"])), [REPEATED]);
    }

    #[test]
    fn what_is_reported_is_bounded() {
        let mut rules = ServerRules::new(Protocol::Mcp);
        let all: usize = (0..1000).map(|_| rules.received(&response("", "", &["", ""])).len()).sum();
        assert_eq!(all, MAX_VIOLATIONS);
    }
}
