use std::collections::{BTreeMap, VecDeque};

use crate::stream::type_url::{collection_of, type_urls_of};
use mixer_adapter_config::Collection;

/// The number of remembered pushes without an answer. A sink does not answer pushes that a newer one has replaced.
const UNANSWERED: usize = 64;

/// The type URLs of one stream: by which collections are requested, and which pushes are unanswered.
///
/// A collection with several is requested by one after the other until a response has resources; that one is used from
/// then on.
#[derive(Debug, Default)]
pub(crate) struct TypeUrls {
    collections: BTreeMap<String, TypeUrlChoice>,
    /// The collection and the index among its candidates, by type URL.
    urls: BTreeMap<String, (String, usize)>,
    unanswered: VecDeque<Unanswered>,
    pushes: u64,
}

#[derive(Debug)]
struct TypeUrlChoice {
    candidates: Vec<String>,
    /// The number of requested type URLs.
    tried: usize,
    /// The type URL whose response had resources.
    chosen: Option<usize>,
}

#[derive(Debug)]
struct Unanswered {
    collection: String,
    key: String,
    answer: Answer,
}

/// The identification of a push in its answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) type_url: String,
    pub(crate) nonce: String,
    pub(crate) version: String,
    pub(crate) versions: PushedVersions,
}

/// The versions of the resources of a push.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PushedVersions {
    /// Whether the push is the whole collection.
    pub(crate) whole: bool,
    /// Names, with the versions of the resource and of the server, if the server has one.
    pub(crate) changed: Vec<(String, String, String)>,
}

/// The treatment of a push.
#[derive(Debug, PartialEq)]
pub(crate) enum Arrived {
    /// The state of this collection.
    Of(String),
    /// No state: another type URL is used for its collection.
    Nothing,
    /// It is empty, and the next type URL has to be requested.
    Empty { next: String },
}

impl TypeUrls {
    /// Returns the type URLs to request a collection by.
    pub(crate) fn request(&mut self, collection: &str) -> Vec<String> {
        if let Some(requested) = self.collections.get(collection) {
            return match requested.chosen {
                Some(chosen) => vec![requested.candidates[chosen].clone()],
                None => requested.candidates[..requested.tried].to_vec(),
            };
        }
        let candidates = type_urls_of(&Collection::new(collection));
        let first = candidates.first().cloned();
        for (place, url) in candidates.iter().enumerate() {
            self.urls.insert(url.clone(), (collection.to_owned(), place));
        }
        self.collections.insert(collection.to_owned(), TypeUrlChoice { candidates, tried: 1, chosen: None });
        first.into_iter().collect()
    }

    /// Returns whether its collection has no other type URL.
    pub(crate) fn is_only(&self, type_url: &str) -> bool {
        let requested = self.urls.get(type_url).and_then(|(collection, _)| self.collections.get(collection));
        requested.is_none_or(|requested| requested.candidates.len() == 1)
    }

    /// Handles a push; a collection may arrive by another type URL than the requested one. A push without a request is
    /// a collection of that name, which the sink refuses.
    pub(crate) fn arrived(&mut self, type_url: &str, empty: bool) -> Arrived {
        let Some((collection, place)) = self.urls.get(type_url) else {
            let collection = collection_of(type_url).as_str().to_owned();
            let requested = self.collections.contains_key(&collection);
            return Arrived::Of(if requested { collection } else { type_url.to_owned() });
        };
        let Some(requested) = self.collections.get_mut(collection) else {
            return Arrived::Of(type_url.to_owned());
        };
        match requested.chosen {
            Some(chosen) if chosen != *place => return Arrived::Nothing,
            None if empty && place + 1 < requested.tried => return Arrived::Nothing,
            None if empty && requested.tried < requested.candidates.len() => {
                requested.tried += 1;
                return Arrived::Empty { next: requested.candidates[requested.tried - 1].clone() };
            }
            None if !empty => requested.chosen = Some(*place),
            _ => {}
        }
        Arrived::Of(collection.clone())
    }

    /// Remembers the identification of a push for its answer; returns the nonce for the sink, which is never empty.
    pub(crate) fn remember(&mut self, collection: &str, answer: Answer) -> String {
        self.pushes += 1;
        let key =
            if answer.nonce.is_empty() { format!("push {}", self.pushes) } else { answer.nonce.clone() };
        if self.unanswered.len() == UNANSWERED {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(Unanswered { collection: collection.to_owned(), key: key.clone(), answer });
        key
    }

    /// Handles the answer of the sink to a push.
    pub(crate) fn answer(&mut self, collection: &str, key: &str) -> Option<Answer> {
        let place =
            self.unanswered.iter().position(|other| other.collection == collection && other.key == key)?;
        self.unanswered.remove(place).map(|unanswered| unanswered.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAYS: &str = "istio/networking/v1alpha3/gateways";
    const NEW: &str = "networking.istio.io/v1/Gateway";
    const OLD: &str = "networking.istio.io/v1alpha3/Gateway";

    fn requested() -> TypeUrls {
        let mut types = TypeUrls::default();
        assert_eq!(types.request(GATEWAYS), [NEW]);
        types
    }

    fn gateways() -> Arrived {
        Arrived::Of(GATEWAYS.to_owned())
    }

    #[test]
    fn the_next_is_asked_for_where_the_first_is_empty_and_what_has_resources_counts() {
        let mut types = requested();
        assert_eq!(types.arrived(NEW, true), Arrived::Empty { next: OLD.to_owned() });
        assert_eq!(types.arrived(NEW, true), Arrived::Nothing, "the answer to the second is under way");
        assert_eq!(types.arrived(OLD, false), gateways());
        assert_eq!(types.request(GATEWAYS), [OLD]);
        assert_eq!(types.arrived(NEW, true), Arrived::Nothing);
        assert_eq!(types.arrived(OLD, true), gateways(), "all of them were deleted");
    }

    #[test]
    fn a_collection_is_empty_when_all_its_types_are() {
        let mut types = requested();
        types.arrived(NEW, true);
        assert_eq!(types.arrived(OLD, true), gateways());
        assert_eq!(types.request(GATEWAYS), [NEW, OLD], "either may come to have some");
        assert_eq!(types.arrived(NEW, false), gateways());
        assert_eq!(types.arrived(OLD, false), Arrived::Nothing);
    }

    #[test]
    fn what_has_resources_at_once_is_not_looked_for_elsewhere() {
        let mut types = requested();
        assert_eq!(types.arrived(NEW, false), gateways());
        assert_eq!(types.arrived(NEW, true), gateways());
    }

    #[test]
    fn a_push_without_a_nonce_is_distinct_from_a_question_and_answered_without_one() {
        let mut types = requested();
        let push = Answer { type_url: NEW.to_owned(), version: "7".to_owned(), ..Answer::default() };
        let key = types.remember(GATEWAYS, push.clone());
        assert!(!key.is_empty());
        assert_eq!(types.answer(GATEWAYS, &key), Some(push));
        assert_eq!(types.answer(GATEWAYS, &key), None);
    }
}
