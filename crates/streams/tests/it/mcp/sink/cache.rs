//! What a sink has from its cache, and what it shows of refusals.

use super::*;

#[test]
fn a_cached_state_is_offered_before_any_stream_and_compared_with_what_comes() {
    let resource = |name: &str| {
        let mut first = Sink::of(&[RULES]).open();
        first.accept(push(RULES, "1", &[name]));
        let kept: Vec<_> = first.machine.collection(RULES).unwrap().resources().cloned().collect();
        Arc::clone(&kept[0])
    };
    let mut sink = Sink::of(&[RULES, HANDLERS]);
    sink.machine.restore(RULES, "7".to_owned(), vec![resource("ns/a@1")]);
    sink.machine.restore("not/wanted", "7".to_owned(), vec![resource("ns/a@1")]);
    sink.run();
    assert_eq!(of_change(&sink.changes[0]), (true, strings(&["ns/a@1"]), vec![]));
    sink.decide(RULES, Ok(()));
    assert_eq!(sink.machine.pending().map(|name| &**name).collect::<Vec<_>>(), [HANDLERS]);
    assert!(!sink.machine.collection(RULES).unwrap().synced());

    let mut sink = sink.open();
    assert_eq!(sink.accept(push(RULES, "1", &["ns/a@1"])).response_nonce, "1");
    assert_eq!(sink.changes.len(), 1, "it is what was kept");
    assert!(sink.machine.collection(RULES).unwrap().synced());
    sink.accept(push(RULES, "2", &[]));
    assert_eq!(of_change(&sink.changes[1]), (false, vec![], strings(&["ns/a"])));
}

#[test]
fn a_cache_the_application_refuses_is_what_pushes_are_compared_with() {
    let mut sink = Sink::of(&[RULES]);
    sink.machine.restore(RULES, "7".to_owned(), vec![]);
    sink.run();
    sink.decide(RULES, Err(whole("of an older version")));
    let mut sink = sink.open();
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    assert_eq!(of_change(&sink.changes[1]), (false, strings(&["ns/a@1"]), vec![]));
    assert_eq!(sink.held(RULES), ["ns/a@1"]);
}

#[test]
fn the_last_refusal_can_be_seen_until_something_is_accepted() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.receive(push(RULES, "1", &["ns/a@1"]));
    sink.decide(RULES, Err(fault("ns/a", "bad")));
    let view = sink.machine.collection(RULES).unwrap();
    assert_eq!(view.refused(), Some(("version of 1", &fault("ns/a", "bad"))));
    sink.sent.clear();
    sink.accept(push(RULES, "2", &["ns/a@2"]));
    let view = sink.machine.collection(RULES).unwrap();
    assert_eq!((view.refused(), view.version()), (None, "version of 2"));
}
