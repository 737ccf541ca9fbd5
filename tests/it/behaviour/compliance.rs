//! The compliance suite reports the broken rules of an adapter, and none for a correct adapter.

use std::time::Duration;

use mixer_adapter::testing::Compliance;
use test_adapters::{Blocker, Bystander, Careless, Probe, Recorded, ledger};

fn careless(flaw: &str) -> Compliance<Careless> {
    Compliance::new().config(&format!("flaw: {flaw:?}"))
}

/// The broken rules with the reasons.
fn broken(suite: &Compliance<Careless>) -> Vec<(&'static str, String)> {
    suite.violations().into_iter().map(|violation| (violation.rule, violation.reason)).collect()
}

#[test]
fn adapters_without_flaws_keep_the_contract() {
    Compliance::<Careless>::new().refuses("size", "size: 10").refuses("size", r#"{"size": "ten"}"#).run();
    Compliance::<Bystander>::new().run();
    Compliance::<Recorded<7>>::new().config("limit: 5").refuses("limit", "limit: 0").run();
    Compliance::<Probe>::new().config("ledger: compliance").refuses("fault", "{ledger: x, fault: y}").run();
}

#[test]
fn an_adapter_that_blocks_keeps_the_contract() {
    ledger("compliance of the blocker").open_gate();
    Compliance::<Blocker>::new().config("ledger: compliance of the blocker").run();
}

#[test]
fn a_panic_on_an_instance_without_its_value_is_found() {
    let [(rule, reason)] = &broken(&careless("unwraps"))[..] else { panic!("one rule is broken") };
    assert_eq!(*rule, "every-instance-is-answered");
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
    let suite = careless("hangs").patience(Duration::from_millis(200));
    let [(rule, reason)] = &broken(&suite)[..] else { panic!("one rule is broken") };
    assert_eq!(*rule, "every-instance-is-answered");
    assert!(reason.starts_with("`listentry` does not return in time for "), "{reason}");
}

#[test]
fn a_grant_of_part_where_all_or_nothing_is_asked_for_is_found() {
    let [(rule, reason)] = &broken(&careless("grants what it has"))[..] else { panic!("one rule is broken") };
    assert_eq!(*rule, "quota-grants");
    assert!(reason.ends_with("for an amount of 2, best effort: false"), "{reason}");
}

#[test]
fn a_handler_that_never_closes_is_found() {
    let suite = careless("never closes").patience(Duration::from_millis(200));
    let rules = broken(&suite);
    let handlers_close = rules.iter().find(|(rule, _)| *rule == "handlers-close").unwrap();
    assert_eq!(handlers_close.1, "1 handlers are not closed after 200ms");
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
#[should_panic = "adapter `careless` breaks the contract in docs/adapter-contract.md:\n  quota-grants: "]
fn a_broken_rule_fails_the_test() {
    careless("grants what it has").run();
}
