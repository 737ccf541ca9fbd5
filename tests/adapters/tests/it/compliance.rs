//! The compliance suite reports the broken rules of an adapter, and none for a correct adapter.

use std::time::Duration;

use mixer_adapter::testing::Compliance;
use test_adapters::{Blocker, Bystander, Careless, Probe, Recorded, ledger};

fn careless(flaw: &str) -> Compliance<Careless> {
    Compliance::new().config(&format!("flaw: {flaw:?}"))
}

// Several in one module.
mixer_adapter::testing::compliance!(Bystander);
mixer_adapter::testing::compliance!(
    keeps_it_with_a_limit = Recorded,
    config("limit: 5"),
    refuses("limit", "limit: 0")
);

/// The broken rules with the reasons.
fn broken(suite: &Compliance<Careless>) -> Vec<(&'static str, String)> {
    suite.violations().into_iter().map(|violation| (violation.rule, violation.reason)).collect()
}

#[test]
fn adapters_without_flaws_keep_the_contract() {
    Compliance::<Careless>::new().refuses("size", "size: 10").refuses("size", r#"{"size": "ten"}"#).run();
    Compliance::<Probe>::new().config("ledger: compliance").refuses("fault", "{ledger: x, fault: y}").run();
    Compliance::<Careless>::new().config("denied: bob").run();
}

#[test]
fn checks_that_must_not_be_cached_may_change() {
    careless("alternates without a promise").run();
}

#[test]
fn an_excepted_rule_may_be_broken() {
    careless("alternates").except("answers-hold").run();
}

#[test]
#[should_panic = "`answers-old` is not a rule of the contract"]
fn an_exception_from_an_unknown_rule_is_a_mistake() {
    let _ = careless("").except("answers-old");
}

#[test]
fn an_adapter_that_answers_only_an_example_keeps_the_contract() {
    let suite = careless("answers only its example");
    let [(rule, reason)] = &broken(&suite)[..] else { panic!("one rule is broken") };
    assert_eq!(*rule, "every-instance-is-answered");
    assert!(reason.starts_with("`listentry`: 0 of "), "{reason}");
    suite.example("listentry", "value: the example").run();
}

#[test]
fn an_adapter_that_blocks_keeps_the_contract() {
    ledger("compliance of the blocker").open_gate();
    Compliance::<Blocker>::new().config("ledger: compliance of the blocker").run();
}

#[test]
fn a_panic_on_an_instance_without_its_value_is_found() {
    // The texts of its panics, with backtraces, may be more memory than handlers release.
    let broken = broken(&careless("unwraps"));
    let found = broken.iter().find(|(rule, _)| *rule == "every-instance-is-answered");
    let (_, reason) = found.unwrap_or_else(|| panic!("{broken:?}"));
    assert!(reason.starts_with("`listentry` panics (no value) for "), "{reason}");
}

#[test]
fn a_panic_on_an_odd_value_is_found() {
    let [(rule, reason)] = &broken(&careless("slices"))[..] else { panic!("one rule is broken") };
    assert_eq!(*rule, "every-instance-is-answered");
    assert!(reason.contains("no IPv4 address"), "{reason}");
}

#[test]
fn an_internal_error_for_an_instance_is_found() {
    let [(rule, reason)] = &broken(&careless("fails"))[..] else { panic!("one rule is broken") };
    assert_eq!(*rule, "every-instance-is-answered");
    assert!(
        reason.starts_with("`listentry` fails with Internal (adapter `careless`: no value) for "),
        "{reason}"
    );
}

#[test]
fn a_call_that_never_returns_is_found() {
    let suite = Compliance::new().config("{flaw: hangs, denied: bob}").patience(Duration::from_secs(2));
    let reason = only(&suite, "every-instance-is-answered");
    assert!(
        reason.starts_with("`listentry` does not return in time for ") && reason.contains("\"bob\""),
        "{reason}"
    );
}

/// Expects that one rule is broken, and returns the reason.
fn only(suite: &Compliance<Careless>, rule: &str) -> String {
    let broken = broken(suite);
    assert!(matches!(&broken[..], [(broken, _)] if *broken == rule), "{broken:?}");
    broken.into_iter().map(|(_, reason)| reason).collect()
}

#[test]
fn an_adapter_that_fails_every_instance_is_found() {
    let reason = only(&careless("rejects"), "every-instance-is-answered");
    // 12 kinds of values, each with 6 contents, two empty instances, and the word of the configuration.
    let expected = "`listentry`: 0 of 75 instances were answered; last error: InvalidArgument (adapter `careless`: no header)";
    assert_eq!(reason, expected);
}

#[test]
fn a_denial_as_an_error_is_found_for_what_the_configuration_names() {
    let suite = Compliance::new().config("{flaw: denies by an error, denied: bob}");
    let reason = only(&suite, "denials-are-answers");
    let expected = "`listentry` fails with PermissionDenied (adapter `careless`: not on the list) for ";
    assert!(reason.starts_with(expected) && reason.contains("\"bob\""), "{reason}");
}

#[test]
fn a_refused_quota_as_an_error_is_found() {
    let reason = only(&careless("refuses quota by an error"), "denials-are-answers");
    assert!(
        reason.starts_with("`quota` fails with ResourceExhausted (adapter `careless`: too much)"),
        "{reason}"
    );
}

#[test]
fn a_call_that_blocks_its_thread_is_found() {
    let reason = only(&careless("blocks"), "threads-are-not-blocked");
    assert!(reason.starts_with("`listentry` blocks its thread for 1"), "{reason}");
}

#[test]
fn a_call_that_blocks_its_thread_for_longer_than_the_patience_is_found() {
    let suite = careless("blocks forever").patience(Duration::from_secs(2));
    let reason = only(&suite, "threads-are-not-blocked");
    assert!(reason.starts_with("`listentry` blocks its thread for more than 2s for {"), "{reason}");
}

#[test]
fn a_task_in_the_background_that_blocks_its_thread_is_found() {
    let reason = only(&careless("blocks in the background"), "threads-are-not-blocked");
    assert!(reason.starts_with("tasks in the background block the thread for "), "{reason}");
}

#[test]
fn closing_that_blocks_its_thread_is_found() {
    let reason = only(&careless("blocks closing"), "threads-are-not-blocked");
    assert!(reason.starts_with("`close` blocks its thread for 1"), "{reason}");
}

#[test]
fn different_answers_to_the_same_instance_are_found() {
    let reason = only(&careless("alternates"), "answers-hold");
    assert!(reason.starts_with("`listentry` answers OK, valid for 5s and 1000 uses, and "), "{reason}");
    assert!(reason.contains(" later NOT_FOUND for {"), "{reason}");
    only(&careless("denies the tenth call"), "answers-hold");
    for (flaw, part) in [("counts in its message", "message"), ("counts in its response", "direct response")]
    {
        let reason = only(&careless(flaw), "answers-hold");
        assert!(reason.starts_with(&format!("`listentry` answers the {part} ")), "{reason}");
    }
}

#[test]
fn checks_that_never_have_an_opinion_are_found() {
    let reason = only(&careless("has no opinion"), "checks-have-an-opinion");
    assert!(reason.starts_with("`listentry` answers all 75 instances with no opinion"), "{reason}");
}

#[test]
fn a_permit_that_a_cancelled_call_loses_is_found() {
    for (flaw, at, symptom) in [
        ("loses permits", 1, "does not return in time"),
        (
            "loses permits later",
            2,
            "answers OK, valid for 5s and 1000 uses, and 0ns later RESOURCE_EXHAUSTED",
        ),
    ] {
        let suite = careless(flaw).patience(Duration::from_secs(2));
        let broken = broken(&suite);
        let found = broken.iter().find(|(rule, _)| *rule == "cancelled-calls-leave-nothing");
        let (_, reason) = found.unwrap_or_else(|| panic!("{flaw}: {broken:?}"));
        let expected = format!("calls that were cancelled at await {at}, `listentry` {symptom} for ");
        assert!(reason.contains(&expected), "{reason}");
    }
}

#[test]
fn tasks_threads_files_and_memory_that_handlers_leave_are_found() {
    for (flaw, resource) in [
        ("leaks tasks", "tasks"),
        ("leaks threads", "threads"),
        ("leaks files", "open files"),
        ("leaks memory", "KiB of resident memory"),
    ] {
        // A measurement waits for what ends soon, at most this long.
        let suite = careless(flaw).patience(Duration::from_secs(1));
        let reason = only(&suite, "handlers-release-everything");
        assert!(reason.contains(resource) && reason.ends_with(" behind"), "{flaw}: {reason}");
    }
}

#[test]
fn the_budget_limits_the_suite() {
    let reason = only(&careless("").budget(Duration::ZERO), "descriptors");
    let expected = "is not tested within the budget of 0ns, nor are the rules after it; see `budget(..)`";
    assert_eq!(reason, expected);
}

#[test]
fn a_grant_of_part_where_all_or_nothing_is_asked_for_is_found() {
    let [(rule, reason)] = &broken(&careless("grants what it has"))[..] else { panic!("one rule is broken") };
    assert_eq!(*rule, "quota-grants");
    assert!(reason.ends_with("for an amount of 2, best effort: false"), "{reason}");
}

#[test]
fn a_handler_that_never_closes_is_found() {
    let suite = careless("never closes").patience(Duration::from_secs(1));
    let rules = broken(&suite);
    let handlers_close = rules.iter().find(|(rule, _)| *rule == "handlers-close").unwrap();
    assert_eq!(handlers_close.1, "1 handlers are not closed after 1s");
}

#[test]
fn a_panic_while_closing_is_found() {
    let rules = broken(&careless("panics closing"));
    let handlers_close = rules.iter().find(|(rule, _)| *rule == "handlers-close").unwrap();
    assert_eq!(handlers_close.1, "1 panics while handlers closed");
}

#[test]
fn a_refusal_that_names_another_field_or_none_is_found() {
    for (suite, expected) in [
        (careless("").refuses("size", "size: 9"), "size: 9 is not rejected"),
        (
            careless("").refuses("flaw", "size: 10"),
            "size: 10 is rejected because of [\"size\"], not of `flaw`: adapter `careless` refuses its configuration: size: must \
             be below 10",
        ),
        // Refused while opening, without a field.
        (
            careless("").refuses("size", "size: 20"),
            "size: 20 is rejected because of [], not of `size`: adapter `careless` refuses its configuration: too large",
        ),
        (
            careless("").refuses("size", "colour: red"),
            "colour: red is rejected because of `colour`, not of `size`",
        ),
    ] {
        assert_eq!(broken(&suite), [("refusals-name-the-field", expected.to_owned())]);
    }
}

#[test]
fn an_example_configuration_that_is_refused_is_found() {
    let expected = "size: 11 is rejected: adapter `careless` refuses its configuration: size: must be below 10; set \
                    `config(..)` to one that it accepts";
    assert_eq!(
        broken(&Compliance::new().config("size: 11")),
        [("takes-its-configuration", expected.to_owned())]
    );
}

#[test]
#[should_panic = "adapter `careless` breaks the contract in docs/adapter-contract.md:\n  quota-grants: fails with Internal (adapter \
                  `careless` granted 1 of 2 although the request is not best effort: grant all or nothing) for an amount of 2, best effort: false\n    \
                  repair: without best effort grant the whole amount or `Grant::nothing()`"]
fn a_broken_rule_fails_the_test_with_its_reason_and_its_repair() {
    careless("grants what it has").run();
}
