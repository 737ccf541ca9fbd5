use std::collections::{BTreeMap, VecDeque};

use crate::{
    Collection,
    stream::{collection_of, type_urls_of},
};

/// How many pushes that wait for an answer are remembered. A sink does not answer those that a newer one made moot.
const UNANSWERED: usize = 64;

/// What one stream knows of type URLs: by which collections are asked for, and what is under way.
///
/// A collection with several is asked for by one after the other until an answer has resources; that one counts from then on.
#[derive(Debug, Default)]
pub(crate) struct TypeUrls {
    collections: BTreeMap<String, TypeUrlChoice>,
    /// Type URL to collection and place among its candidates.
    urls: BTreeMap<String, (String, usize)>,
    unanswered: VecDeque<Unanswered>,
    pushes: u64,
}

#[derive(Debug)]
struct TypeUrlChoice {
    candidates: Vec<String>,
    /// How many were asked for.
    tried: usize,
    /// The one that had resources.
    chosen: Option<usize>,
}

#[derive(Debug)]
struct Unanswered {
    collection: String,
    key: String,
    answer: Answer,
}

/// What an answer to a push has to name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) type_url: String,
    pub(crate) nonce: String,
    pub(crate) version: String,
}

/// What is to be done with a push.
#[derive(Debug, PartialEq)]
pub(crate) enum Arrived {
    /// It is the state of this collection.
    Of(String),
    /// It says nothing: another type URL counts for its collection.
    Nothing,
    /// It is empty, and the next type URL is to be asked for.
    Empty { next: String },
}

impl TypeUrls {
    /// The type URLs to ask for a collection by.
    pub(crate) fn ask(&mut self, collection: &str) -> Vec<String> {
        if let Some(asked) = self.collections.get(collection) {
            return match asked.chosen {
                Some(chosen) => vec![asked.candidates[chosen].clone()],
                None => asked.candidates[..asked.tried].to_vec(),
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

    /// Whether a type URL is the only one of its collection.
    pub(crate) fn is_only(&self, type_url: &str) -> bool {
        let asked = self.urls.get(type_url).and_then(|(collection, _)| self.collections.get(collection));
        asked.is_none_or(|asked| asked.candidates.len() == 1)
    }

    /// A push arrived; a collection may come by another type URL than it was asked for. What nobody asked for is a collection of that
    /// name, for the sink to refuse.
    pub(crate) fn arrived(&mut self, type_url: &str, empty: bool) -> Arrived {
        let Some((collection, place)) = self.urls.get(type_url) else {
            let collection = collection_of(type_url).as_str().to_owned();
            let asked = self.collections.contains_key(&collection);
            return Arrived::Of(if asked { collection } else { type_url.to_owned() });
        };
        let Some(asked) = self.collections.get_mut(collection) else {
            return Arrived::Of(type_url.to_owned());
        };
        match asked.chosen {
            Some(chosen) if chosen != *place => return Arrived::Nothing,
            None if empty && place + 1 < asked.tried => return Arrived::Nothing,
            None if empty && asked.tried < asked.candidates.len() => {
                asked.tried += 1;
                return Arrived::Empty { next: asked.candidates[asked.tried - 1].clone() };
            }
            None if !empty => asked.chosen = Some(*place),
            _ => {}
        }
        Arrived::Of(collection.clone())
    }

    /// Remembers what the answer to a push has to name; the result is the nonce for the sink, which is never empty.
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

    /// The sink answers a push.
    pub(crate) fn answer(&mut self, collection: &str, key: &str) -> Option<Answer> {
        let answered = |other: &Unanswered| other.collection == collection && other.key == key;
        let place = self.unanswered.iter().position(answered)?;
        self.unanswered.remove(place).map(|unanswered| unanswered.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAYS: &str = "istio/networking/v1alpha3/gateways";
    const NEW: &str = "networking.istio.io/v1/Gateway";
    const OLD: &str = "networking.istio.io/v1alpha3/Gateway";

    fn asked() -> TypeUrls {
        let mut types = TypeUrls::default();
        assert_eq!(types.ask(GATEWAYS), [NEW]);
        types
    }

    fn gateways() -> Arrived {
        Arrived::Of(GATEWAYS.to_owned())
    }

    #[test]
    fn the_next_is_asked_for_where_the_first_is_empty_and_what_has_resources_counts() {
        let mut types = asked();
        assert_eq!(types.arrived(NEW, true), Arrived::Empty { next: OLD.to_owned() });
        assert_eq!(types.arrived(NEW, true), Arrived::Nothing, "the answer to the second is under way");
        assert_eq!(types.arrived(OLD, false), gateways());
        assert_eq!(types.ask(GATEWAYS), [OLD]);
        assert_eq!(types.arrived(NEW, true), Arrived::Nothing);
        assert_eq!(types.arrived(OLD, true), gateways(), "all of them were deleted");
    }

    #[test]
    fn a_collection_is_empty_when_all_its_types_are() {
        let mut types = asked();
        types.arrived(NEW, true);
        assert_eq!(types.arrived(OLD, true), gateways());
        assert_eq!(types.ask(GATEWAYS), [NEW, OLD], "either may come to have some");
        assert_eq!(types.arrived(NEW, false), gateways());
        assert_eq!(types.arrived(OLD, false), Arrived::Nothing);
    }

    #[test]
    fn what_has_resources_at_once_is_not_looked_for_elsewhere() {
        let mut types = asked();
        assert_eq!(types.arrived(NEW, false), gateways());
        assert_eq!(types.arrived(NEW, true), gateways());
    }

    #[test]
    fn a_push_without_a_nonce_is_distinct_from_a_question_and_answered_without_one() {
        let mut types = asked();
        let push = Answer { type_url: NEW.to_owned(), nonce: String::new(), version: "7".to_owned() };
        let key = types.remember(GATEWAYS, push.clone());
        assert!(!key.is_empty());
        assert_eq!(types.answer(GATEWAYS, &key), Some(push));
        assert_eq!(types.answer(GATEWAYS, &key), None);
    }
}
