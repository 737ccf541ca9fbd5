//! The recorded dispatch cases of a real Mixer 1.3.8, run against the engine in this process: the same configuration and
//! the same request bytes lead to the same calls of adapters and the same answers (`tests/data/dispatch`, whose format
//! is described in its README).

mod backend;
mod case;
mod compare;
mod config;

use crate::referenced;

use case::Case;
use mixer_adapter_engine::dispatch::{Caller, Request};

/// Cases in which a real Mixer is wrong, and the engine differs on purpose; docs/compatibility.md says how.
const DIFFERENT_ON_PURPOSE: &[&str] = &[];

#[tokio::test(start_paused = true)]
async fn the_recorded_cases_of_a_real_mixer_have_the_recorded_outcome() {
    let mut failed = Vec::new();
    let mut passed = 0;
    for case in Case::all() {
        let differences = case.run().await;
        match (differences.is_empty(), DIFFERENT_ON_PURPOSE.contains(&case.id.as_str())) {
            (true, false) | (false, true) => passed += 1,
            (true, true) => failed.push(format!("{}: no longer differs", case.id)),
            (false, false) => failed.push(format!("{}:\n    {}", case.id, differences.join("\n    "))),
        }
    }
    println!("{passed} passed, {} failed", failed.len());
    assert!(failed.is_empty(), "{} of the recorded cases differ:\n{}", failed.len(), failed.join("\n"));
    assert_eq!(passed, 123);
}

#[tokio::test(start_paused = true)]
async fn a_header_value_that_cannot_be_evaluated_is_skipped_and_fails_a_strict_request() {
    let case = Case::all().into_iter().find(|case| case.id == "header-ops-empty-and-missing").unwrap();
    let engine = case.engine().await;
    let snapshot = engine.snapshot().unwrap();
    let caller = Caller::default();
    let request = || Request::new(&snapshot, snapshot.bag(), &caller);
    let directive = request().answer().await.unwrap().directive.unwrap();
    let operations: Vec<_> = directive.request_header_operations.iter().map(|header| &*header.name).collect();
    assert_eq!(operations, ["x-set"]);
    let failure = request().strict().answer().await.unwrap_err().to_string();
    assert!(failure.contains("header x-"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_strict_request_has_its_rules_and_the_outputs_of_named_actions() {
    let case = Case::all().into_iter().find(|case| case.id == "header-ops-two-actions").unwrap();
    let engine = case.engine().await;
    let snapshot = engine.snapshot().unwrap();
    let bag = || snapshot.bag();
    let answer = Request::new(&snapshot, bag(), &Caller::default()).strict().answer().await.unwrap();
    assert_eq!(answer.details.rules.iter().map(|rule| &**rule).collect::<Vec<_>>(), ["r1.rule.istio-system"]);
    let outputs: Vec<_> =
        answer.details.outputs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert!(outputs.contains(&("a1.output.user", "u1")), "{outputs:?}");
    assert!(outputs.contains(&("a2.output.user", "u2")), "{outputs:?}");
    let plain = Request::new(&snapshot, bag(), &Caller::default()).answer().await.unwrap();
    assert_eq!(*plain.details, Default::default());
}
