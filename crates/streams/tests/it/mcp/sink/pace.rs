//! How fast a sink answers and asks, and when it gives up.

use super::*;

#[test]
fn a_source_that_floods_with_increments_is_cut_off() {
    let mut sink = Sink::of(&[RULES]).open();
    for nonce in 0..9 {
        sink.receive(increment(RULES, &nonce.to_string(), &["ns/a@1"], &[]));
        assert!(sink.ended.is_empty());
    }
    sink.receive(increment(RULES, "9", &["ns/a@1"], &[]));
    assert_eq!(sink.ended[0].1.code(), Code::ResourceExhausted);
}

#[test]
fn a_source_that_repeats_itself_is_answered_ever_more_slowly() {
    for bad in [false, true] {
        let mut sink = Sink::of(&[RULES]).open();
        sink.accept(push(RULES, "1", &["ns/a@1"]));
        let mut answers = 0;
        for second in 0..60 {
            for _ in 0..100 {
                let mut again = push(RULES, "", &["ns/a@1"]);
                if bad {
                    again.resources[0].body = None;
                }
                sink.receive(again);
                answers += sink.sent.drain(..).len();
            }
            assert!(answers <= 11 + second / 5, "{answers} answers after {second} s");
            sink.sleep(1);
        }
        answers += sink.sent.len();
        assert!(answers >= 20, "it is answered still: {answers}");
        sink.sent.clear();
        sink.sleep(10);
        sink.sent.clear();
        sink.accept(push(RULES, "2", &["ns/a@2"]));
    }
}

/// A source that waits for the answer sends the push that corrects a mistake at once, however many mistakes were before.
#[test]
fn a_source_whose_pushes_are_refused_one_after_the_other_is_answered_at_once() {
    let mut sink = Sink::of(&[RULES]).open();
    let refused = |sink: &mut Sink, push: Resources, reason: &str| {
        sink.receive(push);
        sink.decide(RULES, Err(whole(reason)));
        assert_eq!(error(&sink.answer()).0, Code::InvalidArgument as i32);
    };
    for round in 0..20 {
        let named = |what: &str| push(RULES, &format!("{what} {round}"), &[&format!("ns/a@{what}{round}")]);
        refused(&mut sink, named("first"), "no such handler");
        refused(&mut sink, named("second"), "no such handler");
        let mut unreadable = named("third");
        unreadable.resources[0].body = None;
        sink.receive(unreadable);
        assert_eq!(error(&sink.answer()).0, Code::InvalidArgument as i32);
        sink.accept(named("good"));
    }
}

#[test]
fn at_most_100_requests_go_out_at_once() {
    let collections: Vec<String> = (0..130).map(|n| format!("c/{n:03}")).collect();
    let mut sink = Sink::of(&collections.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(sink.reopen(STREAM).len(), 100);
    let wakeup = sink.machine.wakeup(sink.now).unwrap();
    assert_eq!(wakeup - sink.now, Duration::from_millis(100));
    sink.sleep(1);
    assert_eq!(sink.sent.len(), 10);
    sink.sleep(2);
    assert_eq!(sink.sent.len(), 30);
    assert_eq!(sink.machine.wakeup(sink.now), None);
}

#[test]
fn a_collection_the_source_does_not_serve_is_skipped_and_retried_later() {
    let mut sink = Sink::of(&[RULES, HANDLERS]).open();
    let refusal = || Status::invalid_argument(format!("unsupported collection \"{HANDLERS}\""));
    let closed = sink.close(refusal());
    assert_eq!(closed, Closed { good: false, unsupported: Some(HANDLERS.into()) });
    sink.run();
    assert_eq!(of_change(&sink.changes[0]), (true, vec![], vec![]), "it counts as empty");
    sink.decide(HANDLERS, Ok(()));
    assert_eq!(sink.machine.pending().map(|name| &**name).collect::<Vec<_>>(), [RULES]);
    let requests = sink.reopen(STREAM);
    assert_eq!(requests.iter().map(|r| r.collection.as_str()).collect::<Vec<_>>(), [RULES]);
    assert!(sink.machine.collection(HANDLERS).unwrap().unsupported());

    sink.sleep(599);
    assert!(sink.sent.is_empty());
    assert_eq!(sink.machine.wakeup(sink.now), Some(sink.now + Duration::from_secs(1)));
    sink.sleep(1);
    let request = sink.answer();
    assert_eq!((request.collection.as_str(), request.response_nonce.as_str()), (HANDLERS, ""));
    sink.close(refusal());
    assert_eq!(sink.reopen(STREAM).len(), 1, "still not");

    sink.sleep(600);
    sink.answer();
    sink.accept(push(HANDLERS, "1", &[]));
    assert!(!sink.machine.collection(HANDLERS).unwrap().unsupported());
    assert_eq!(sink.reopen(2).len(), 2);
}

#[test]
fn a_source_says_in_several_ways_that_it_does_not_have_a_collection() {
    // By which xDS subscribes to it.
    let type_url = "config.istio.io/v1alpha2/handler";
    for status in [
        Status::invalid_argument(format!("unsupported collection {HANDLERS}")),
        Status::unimplemented(HANDLERS),
        Status::unimplemented(format!("no resources of {HANDLERS}.")),
        Status::unimplemented(format!("collection {HANDLERS:?}: not served")),
        Status::unimplemented(format!("unknown type URL '{type_url}'")),
    ] {
        let mut sink = Sink::of(&[RULES, HANDLERS]).open();
        assert_eq!(sink.close(status.clone()).unsupported, Some(HANDLERS.into()), "{status}");
        sink.run();
        assert_eq!(of_change(&sink.changes[0]), (true, vec![], vec![]), "{status}: it counts as empty");
        sink.decide(HANDLERS, Ok(()));
        assert_eq!(sink.machine.pending().map(|name| &**name).collect::<Vec<_>>(), [RULES]);
    }
}

#[test]
fn other_endings_leave_no_collection_out() {
    let mut sink = Sink::of(&[RULES, HANDLERS]).open();
    for status in [
        Status::unavailable(format!("unsupported collection \"{RULES}\"")),
        Status::invalid_argument("unsupported collection \"of another\""),
        Status::invalid_argument("something else"),
        Status::invalid_argument(format!("a bad request for {RULES}")),
        // What a server answers that knows nothing of the protocol: nothing may count as empty.
        Status::not_found(""),
        Status::unimplemented("unknown service istio.mcp.v1alpha1.ResourceSource"),
        Status::unimplemented(format!("{RULES}-of-another and another-{RULES}")),
        // It may come.
        Status::not_found(format!("no snapshot yet for {RULES}")),
        Status::internal(format!("{RULES} not found")),
    ] {
        assert_eq!(sink.close(status.clone()).unsupported, None, "{status}");
        assert_eq!(sink.reopen(STREAM).len(), 2, "{status}");
        assert!(sink.changes.is_empty(), "{status}");
    }
}
