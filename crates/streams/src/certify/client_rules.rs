use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{MAX_VIOLATIONS, Violation};
use crate::stream::shorthand::Shorthand;

const NODE: &str = "the first request of a stream says who asks";
const FIRST: &str = "the first request for a type has no nonce and no error";
const NONCE: &str = "a nonce is one that the server sent for the type";
const ACK: &str = "an acknowledgement has the version of its response";
const NACK: &str = "a rejection has an error with a code and a message, and the version that the client has";
const NAMES: &str = "a request has each name once";
const INITIAL: &str = "the versions of known resources are in the first request for a type";
const ANSWER: &str = "each response is answered";

/// The number of nonces of a type that are remembered.
const MAX_NONCES: usize = 1_000;
/// The number of types that are observed.
const MAX_TYPES: usize = 200;

/// The obligations of a client on a stream.
#[derive(Debug, Default)]
pub struct ClientRules {
    began: bool,
    types: BTreeMap<String, Type>,
    reported: usize,
}

#[derive(Debug, Default)]
struct Type {
    /// Nonces and versions, the newest last.
    sent: VecDeque<(String, String)>,
    /// The number of answered ones: an answer to one is an answer to all before it.
    answered: usize,
}

impl ClientRules {
    /// Records a response of the server.
    pub fn sent(&mut self, response: &Shorthand) {
        for (type_url, of) in &mut self.types {
            // Responses of the first incremental protocol of MCP have no type.
            if !response.type_url.is_empty() && *type_url != response.type_url {
                continue;
            }
            of.sent.push_back((response.nonce.clone(), response.version.clone()));
            if of.sent.len() > MAX_NONCES {
                of.sent.pop_front();
                of.answered = of.answered.saturating_sub(1);
            }
        }
    }

    /// Records a request of the client for this type, which a request on a stream of one type may omit. Returns the
    /// violated rules.
    pub fn received(&mut self, request: &Shorthand, type_url: &str) -> Vec<Violation> {
        let mut violations = Vec::new();
        if !self.began && request.node.as_deref().unwrap_or_default().is_empty() {
            violations.push(Violation::new(NODE, "a first request without a node, or whose node has no id"));
        }
        self.began = true;
        let known: BTreeSet<_> = request.names.iter().collect();
        if known.len() < request.names.len() {
            violations.push(Violation::new(NAMES, "a name twice"));
        }
        if let Some(of) = self.types.get_mut(type_url) {
            violations.extend(of.answered(request));
            if request.resumes {
                violations.push(Violation::new(INITIAL, "a later request with initial_resource_versions"));
            }
        } else if self.types.len() < MAX_TYPES {
            self.types.insert(type_url.to_owned(), Type::default());
            if !request.nonce.is_empty() || request.error.is_some() {
                let observed = format!("a first request with the nonce {:?}", request.nonce);
                violations.push(Violation::new(FIRST, observed));
            }
        }
        violations.truncate(MAX_VIOLATIONS.saturating_sub(self.reported));
        self.reported += violations.len();
        violations
    }

    /// Returns the responses that are not answered, for a stream that ends normally.
    pub fn unanswered(&self) -> Vec<Violation> {
        let open = self.types.iter().filter(|(_, of)| of.answered < of.sent.len());
        let open = open.take(MAX_VIOLATIONS.saturating_sub(self.reported));
        open.map(|(type_url, _)| {
            Violation::new(ANSWER, format!("no answer to the last response of {type_url}"))
        })
        .collect()
    }
}

impl Type {
    fn answered(&mut self, request: &Shorthand) -> Option<Violation> {
        if request.nonce.is_empty() {
            return request
                .error
                .as_ref()
                .map(|_| Violation::new(NACK, "an error without the nonce of a response"));
        }
        // The newest first: a good client answers the newest.
        let Some(place) = self.sent.iter().rposition(|(nonce, _)| *nonce == request.nonce) else {
            return Some(Violation::new(NONCE, format!("the nonce {:?}", request.nonce)));
        };
        self.answered = self.answered.max(place + 1);
        let (_, version) = &self.sent[place];
        // Requests for changes have no versions.
        let has_version = !request.version.is_empty();
        match &request.error {
            None if has_version && request.version != *version => Some(Violation::new(
                ACK,
                format!("version {:?} for the nonce of version {version:?}", request.version),
            )),
            Some(error) if error.code == 0 || error.message.is_empty() => {
                Some(Violation::new(NACK, format!("code {} and message {:?}", error.code, error.message)))
            }
            Some(_) if has_version && request.version == *version => {
                let accepted_before = self.sent.iter().filter(|(_, other)| other == version).count() > 1;
                (!accepted_before).then(|| Violation::new(NACK, format!("the rejected version {version:?}")))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use mixer_adapter_core::proto::Status;

    use super::*;

    fn request(version: &str, nonce: &str) -> Shorthand {
        Shorthand {
            version: version.to_owned(),
            nonce: nonce.to_owned(),
            type_url: "t".to_owned(),
            node: Some("me".to_owned()),
            ..Shorthand::default()
        }
    }

    fn refusal(version: &str, nonce: &str, code: i32) -> Shorthand {
        let error = Status { code, message: "no".to_owned(), details: Vec::new() };
        Shorthand { error: Some(error), ..request(version, nonce) }
    }

    fn broken(rules: &mut ClientRules, request: &Shorthand) -> Vec<&'static str> {
        rules.received(request, "t").iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_good_client_breaks_no_rule() {
        let mut rules = ClientRules::default();
        assert!(broken(&mut rules, &request("", "")).is_empty());
        rules.sent(&request("1", "a"));
        assert!(broken(&mut rules, &request("1", "a")).is_empty());
        rules.sent(&request("2", "b"));
        assert!(broken(&mut rules, &refusal("1", "b", 3)).is_empty());
        assert!(broken(&mut rules, &Shorthand { names: vec!["x".to_owned()], ..request("", "") }).is_empty());
        assert!(rules.unanswered().is_empty());
    }

    #[test]
    fn versions_of_known_resources_are_in_the_first_request_alone() {
        let mut rules = ClientRules::default();
        let resuming = |nonce: &str| Shorthand { resumes: true, ..request("", nonce) };
        assert!(broken(&mut rules, &resuming("")).is_empty());
        rules.sent(&request("1", "a"));
        assert_eq!(broken(&mut rules, &resuming("a")), [INITIAL]);
    }

    #[test]
    fn an_answer_to_a_response_is_one_to_all_before_it() {
        let mut rules = ClientRules::default();
        broken(&mut rules, &request("", ""));
        for nonce in 0..MAX_NONCES + 1 {
            rules.sent(&request("1", &nonce.to_string()));
        }
        assert!(broken(&mut rules, &request("1", "500")).is_empty());
        assert_eq!(rules.unanswered().len(), 1, "the last response of the type");
        assert_eq!(broken(&mut rules, &request("1", "0")), [NONCE], "the oldest is forgotten");
        assert!(broken(&mut rules, &request("1", &MAX_NONCES.to_string())).is_empty());
        assert!(rules.unanswered().is_empty());
    }

    #[test]
    fn what_is_reported_is_bounded() {
        let mut rules = ClientRules::default();
        for n in 0..MAX_TYPES {
            let type_url = n.to_string();
            rules.received(&Shorthand { type_url: type_url.clone(), ..request("", "") }, &type_url);
            rules.sent(&Shorthand { type_url, ..request("1", "a") });
        }
        assert_eq!(rules.unanswered().len(), MAX_VIOLATIONS);
        for _ in 0..MAX_VIOLATIONS {
            rules.received(&request("1", "z"), "0");
        }
        assert!(rules.unanswered().is_empty());
    }

    #[test]
    fn each_rule_is_found_broken() {
        let mut rules = ClientRules::default();
        assert_eq!(broken(&mut rules, &Shorthand { node: None, ..request("", "old") }), [NODE, FIRST]);
        rules.sent(&request("1", "a"));
        assert_eq!(rules.unanswered().len(), 1);
        assert_eq!(broken(&mut rules, &request("1", "z")), [NONCE]);
        assert_eq!(broken(&mut rules, &request("0", "a")), [ACK]);
        assert_eq!(broken(&mut rules, &refusal("0", "a", 0)), [NACK]);
        assert_eq!(broken(&mut rules, &refusal("1", "a", 3)), [NACK]);
        assert_eq!(broken(&mut rules, &refusal("", "", 3)), [NACK]);
        let twice = vec!["x".to_owned(), "x".to_owned()];
        assert_eq!(broken(&mut rules, &Shorthand { names: twice, ..request("", "") }), [NAMES]);
    }
}
