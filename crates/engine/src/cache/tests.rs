use super::*;
use crate::{
    answer::CheckAnswer,
    attribute::{AttributeValue, Attributes, StringMap, Vocabulary},
    resource_counts::AnswerOrigin,
};
use mixer_adapter_core::{proto::Status, value::ValueType};

fn vocabulary() -> Arc<Vocabulary> {
    let mut vocabulary = Vocabulary::new();
    vocabulary.declare("path", ValueType::String).unwrap();
    vocabulary.declare("headers", ValueType::StringMap).unwrap();
    vocabulary.declare("other", ValueType::String).unwrap();
    Arc::new(vocabulary)
}

fn answer(seconds: i64, uses: i32) -> CheckAnswer {
    CheckAnswer {
        status: Status::default(),
        valid_duration: prost_types::Duration { seconds, nanos: 0 },
        valid_use_count: uses,
        max_uses: (uses >= 0).then_some(uses),
        directive: None,
        details: Arc::default(),
    }
}

fn cache() -> CheckCache {
    let limits = CacheLimits { answers: 100, bytes: 1 << 20 };
    CheckCache::new(limits, Arc::default()).unwrap()
}

impl CheckCache {
    fn get(&self, bag: &Bag) -> Option<CheckAnswer> {
        self.find("ns", bag).ok().map(|found| found.answer)
    }

    fn put(&self, bag: &Bag, references: &References, answer: &CheckAnswer) -> Option<AnswerKey> {
        self.put_for("ns", bag, references, answer, 60)
    }

    /// Caches an answer that may be used for `stale` seconds after its expiry.
    fn put_for(
        &self,
        namespace: &str,
        bag: &Bag,
        references: &References,
        answer: &CheckAnswer,
        stale: u64,
    ) -> Option<AnswerKey> {
        let stale_if_error = Duration::from_secs(stale);
        let origin = &AnswerOrigin::default();
        let evaluated = Evaluated { answer, references, origin, stale_if_error, cost: Cost::default() };
        self.insert(namespace, bag, evaluated, false)
    }
}

/// References of a request whose path and header `x` were read.
fn references(bag: &Bag) -> References {
    let mut references = References::default();
    let path = bag.vocabulary().find("path").unwrap().slot;
    let headers = bag.vocabulary().find("headers").unwrap().slot;
    Attributes::from(bag).read(path, &mut references.after);
    let read = Attributes::from(bag).read(headers, &mut references.after);
    if let Some(AttributeValue::StringMap(map)) = read {
        let present = map.get("x").is_some();
        references.after.record_by_key(headers);
        references.after.record_key(headers, "x", present, || "x".into());
    }
    references
}

fn bag(path: &str, headers: &[(&str, &str)], other: &str) -> Bag {
    let mut bag = Bag::new(vocabulary());
    bag.insert("path", path);
    bag.insert("headers", headers.iter().copied().collect::<StringMap>());
    bag.insert("other", other);
    bag
}

#[tokio::test(start_paused = true)]
async fn requests_share_an_answer_if_all_referenced_values_are_equal() {
    let cache = cache();
    let first = bag("/a", &[("x", "1"), ("y", "1")], "one");
    cache.put(&first, &references(&first), &answer(5, 100));
    assert!(cache.get(&bag("/a", &[("x", "1"), ("y", "2")], "two")).is_some());
    assert!(cache.get(&bag("/b", &[("x", "1")], "one")).is_none());
    assert!(cache.get(&bag("/a", &[("x", "2")], "one")).is_none());
    assert!(cache.get(&bag("/a", &[], "one")).is_none());
}

#[tokio::test(start_paused = true)]
async fn requests_share_an_answer_that_read_a_whole_map_only_if_the_maps_are_equal() {
    let cache = cache();
    let first = bag("/a", &[("x", "1"), ("y", "1")], "");
    let mut references = references(&first);
    let headers = first.vocabulary().find("headers").unwrap().slot;
    Attributes::from(&first).read(headers, &mut references.after);
    cache.put(&first, &references, &answer(5, 100));
    assert!(cache.get(&first).is_some());
    assert!(cache.get(&bag("/a", &[("x", "1"), ("y", "2")], "")).is_none());
    assert!(cache.get(&bag("/a", &[("x", "1")], "")).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_used_until_its_duration_or_its_use_count_is_exhausted() {
    let cache = cache();
    let request = bag("/a", &[], "");
    cache.put(&request, &references(&request), &answer(5, 3));
    assert_eq!(cache.get(&request).unwrap().valid_use_count, 2);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(cache.get(&request).unwrap().valid_duration.seconds, 3);
    assert!(cache.get(&request).is_none(), "the request that was answered is the first of three uses");

    cache.put(&request, &references(&request), &answer(5, -1));
    tokio::time::advance(Duration::from_secs(4)).await;
    assert!((0..10).all(|_| cache.get(&request).is_some()));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(cache.get(&request).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_validity_is_not_cached() {
    let cache = cache();
    let request = bag("/a", &[], "");
    for (seconds, uses) in [(0, -1), (0, 5), (5, 0), (5, 1), (-5, 5)] {
        cache.put(&request, &references(&request), &answer(seconds, uses));
        assert!(cache.get(&request).is_none(), "{seconds} s, {uses} uses");
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_of_an_answer_is_described_by_names() {
    let cache = cache();
    let request = bag("/a", &[("x", "1")], "");
    let key = cache.put(&request, &references(&request), &answer(5, 100)).unwrap();
    assert_eq!(key.valid_for, Duration::from_secs(5));
    assert_eq!(key.names.iter().map(|name| &**name).collect::<Vec<_>>(), ["headers[x]", "path"]);
    assert_eq!(cache.find("ns", &request).unwrap().key.names, key.names);
}

#[tokio::test(start_paused = true)]
async fn an_expired_answer_is_used_for_a_second_at_a_time_until_the_end_of_its_grace() {
    let cache = cache();
    let request = bag("/a", &[], "");
    cache.put(&request, &references(&request), &answer(5, 100));
    for _ in 0..60 {
        tokio::time::advance(Duration::from_secs(5)).await;
        let missed = cache.find("ns", &request).unwrap_err();
        let Some(found) = cache.renew(&missed) else { break };
        assert!(found.is_stale && cache.find("ns", &request).unwrap().is_stale);
        assert_eq!(found.answer.valid_duration.seconds, 1);
    }
    let missed = cache.find("ns", &request).unwrap_err();
    assert!(cache.renew(&missed).is_none(), "65 s after it was made");
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_uses_left_is_not_stale_unless_the_policy_allows_it() {
    let cache = cache();
    let request = bag("/a", &[], "");
    cache.put_for("ns", &request, &references(&request), &answer(50, 2), 0);
    assert!(cache.get(&request).is_some());
    let missed = cache.find("ns", &request).unwrap_err();
    assert!(cache.renew(&missed).is_none());
}

/// References of a request whose path was read, but no header.
fn references_of_path(bag: &Bag) -> References {
    let mut references = References::default();
    let path = bag.vocabulary().find("path").unwrap().slot;
    Attributes::from(bag).read(path, &mut references.after);
    references
}

#[tokio::test(start_paused = true)]
async fn of_several_answers_that_have_expired_the_newest_is_used() {
    let cache = cache();
    let request = bag("/a", &[("x", "1")], "");
    for (references, message) in [(references(&request), "older"), (references_of_path(&request), "newer")] {
        let status = Status { message: message.to_owned(), ..Status::default() };
        cache.put(&request, &references, &CheckAnswer { status, ..answer(5, 100) });
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    let missed = cache.find("ns", &request).unwrap_err();
    assert_eq!(cache.renew(&missed).unwrap().answer.status.message, "newer");
    assert_eq!(cache.find("ns", &request).unwrap().answer.status.message, "newer");
}

#[tokio::test(start_paused = true)]
async fn an_expired_answer_does_not_replace_a_newer_one() {
    let cache = cache();
    let request = bag("/a", &[], "");
    let expire = async || {
        cache.put(&request, &references(&request), &answer(5, 100));
        tokio::time::advance(Duration::from_secs(5)).await;
        cache.find("ns", &request).unwrap_err()
    };
    let missed = expire().await;
    cache.put(&request, &references(&request), &answer(50, 100));
    assert!(!cache.renew(&missed).unwrap().is_stale);
    assert_eq!(cache.get(&request).unwrap().valid_duration.seconds, 50);

    tokio::time::advance(Duration::from_secs(50)).await;
    let missed = expire().await;
    cache.supersede(&missed);
    assert!(cache.renew(&missed).is_none());
    assert!(cache.get(&request).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_newer_answer_is_not_removed_with_the_one_it_replaces() {
    let cache = cache();
    let request = bag("/a", &[], "");
    cache.put(&request, &references(&request), &answer(5, 100));
    tokio::time::advance(Duration::from_secs(5)).await;
    let missed = cache.find("ns", &request).unwrap_err();
    cache.put(&request, &references(&request), &answer(5, 100));
    cache.supersede(&missed);
    assert!(cache.get(&request).is_some());
}

#[tokio::test(start_paused = true)]
async fn requests_are_equal_if_they_agree_in_all_that_answers_are_known_to_depend_on() {
    let cache = cache();
    let flight = |bag: &Bag| cache.find("ns", bag).unwrap_err().flight;
    let [one, two, three] = ["1", "1", "2"].map(|header| bag("/new", &[("x", header)], header));
    assert_eq!(flight(&one), None, "nothing is known yet");
    let known = bag("/a", &[("x", "1")], "");
    cache.put(&known, &references(&known), &answer(5, 100));
    assert!(flight(&one).is_some());
    assert_eq!(flight(&one), flight(&two));
    assert_ne!(flight(&one), flight(&three));
    assert!(cache.find("other", &one).unwrap_err().flight.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_number_of_signatures_and_of_namespaces_is_bounded() {
    let cache = cache();
    let request = bag("/a", &[("x", "1")], "");
    for number in 0..1000 {
        let mut references = references(&request);
        let headers = request.vocabulary().find("headers").unwrap().slot;
        let key = format!("key-{number}");
        references.after.record_by_key(headers);
        references.after.record_key(headers, &key, false, || key.as_str().into());
        cache.put(&request, &references, &answer(5, 100));
        assert!(cache.get(&request).is_some(), "the one that is used stays");
    }
    let namespace = cache.known_namespace("ns").unwrap();
    assert_eq!(namespace.signatures().list.len(), 16);
    for number in 0..1000 {
        let name = format!("ns-{number}");
        cache.put_for(&name, &request, &references(&request), &answer(5, 100), 0);
        assert!(cache.find(&name, &request).is_ok());
    }
    assert_eq!(cache.namespaces.read().len(), MAX_NAMESPACES);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_depends_on_large_values_is_not_cached() {
    let cache = cache();
    let path = "x".repeat(100 << 10);
    let request = bag(&path, &[("x", "1")], "");
    assert!(cache.put(&request, &references(&request), &answer(5, 100)).is_none());
    assert!(cache.find("ns", &request).unwrap_err().flight.is_none());
}
