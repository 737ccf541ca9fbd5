//! Handlers and instances of what is compiled in: `compiledAdapter`, `compiledTemplate`, and the kinds that are named after
//! adapters and templates.

use std::fs;

use crate::support::{Ran, run};

/// The answer to a request with that configuration, with its explanation.
fn explain(config: &str, arguments: &[&str]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.yaml"), config).unwrap();
    let config = directory.path().to_str().unwrap();
    run(&[&["explain", "--config", config, "-a", "request.path=/admin"], arguments].concat())
}

const CHECK_PATH: &str = "\
kind: instance
metadata: {name: path, namespace: shop}
spec: {compiledTemplate: listentry, params: {value: request.path}}
---
kind: rule
metadata: {name: check, namespace: shop}
spec: {actions: [{handler: HANDLER, instances: [path]}]}
---
";

/// A rule of the namespace `shop` that sends the path to that handler.
fn check_path(handler: &str) -> String {
    CHECK_PATH.replace("HANDLER", handler)
}

const IN_SHOP: [&str; 2] = ["-a", "destination.namespace=shop"];

#[test]
fn denials_of_compiled_handlers_are_named_without_their_kind_and_those_of_legacy_kinds_with_it() {
    let compiled = "\
kind: handler
metadata: {name: h, namespace: shop}
spec: {compiledAdapter: listchecker, params: {overrides: [/admin], blacklist: true}}
";
    let ran = explain(&(check_path("h") + compiled), &IN_SHOP);
    assert!(ran.stdout.starts_with("denied: PERMISSION_DENIED: h.shop:/admin is blacklisted\n"), "{ran:?}");
    let legacy = "\
kind: listchecker
metadata: {name: h, namespace: shop}
spec: {overrides: [/admin], blacklist: true}
";
    let ran = explain(&(check_path("h.listchecker") + legacy), &IN_SHOP);
    let denied = "denied: PERMISSION_DENIED: h.listchecker.shop:/admin is blacklisted\n";
    assert!(ran.stdout.starts_with(denied), "{ran:?}");
}

#[test]
fn a_header_value_that_is_no_string_drops_the_header_operations_of_its_rule() {
    let rule = "\
kind: handler
metadata: {name: h, namespace: shop}
spec: {compiledAdapter: noop, params: {}}
---
kind: rule
metadata: {name: operate, namespace: shop}
spec:
  actions: [{handler: h, instances: [path]}]
  requestHeaderOperations: [{name: x-uri, values: ['uri(\"/\")']}, {name: x-text, values: ['\"z\"']}]
---
";
    let config = rule.to_owned() + &check_path("h");
    let ran = explain(&config, &IN_SHOP);
    let fault = "operate.rule.shop: spec.request_header_operations[0].values[0]: the expression is of type URI; a header's value is STRING";
    assert!(ran.code == 1 && ran.stderr.contains(fault), "{ran:?}");
    let ran = explain(&config, &[&IN_SHOP[..], &["--lenient"]].concat());
    assert!(
        ran.code == 0 && ran.stdout.starts_with("allowed\n") && !ran.stdout.contains("header"),
        "{ran:?}"
    );
}

/// A quota in a rule that matches and in one that does not.
const QUOTA: &str = "\
kind: handler
metadata: {name: limits, namespace: shop}
spec: {compiledAdapter: memquota, params: {quotas: [{name: requests, maxAmount: 5}]}}
---
kind: instance
metadata: {name: requests, namespace: shop}
spec: {compiledTemplate: quota, params: {dimensions: {source: source.name}}}
---
kind: rule
metadata: {name: always, namespace: shop}
spec: {actions: [{handler: limits, instances: [requests]}]}
---
kind: rule
metadata: {name: never, namespace: shop}
spec: {match: 'false', actions: [{handler: limits, instances: [requests]}]}
";

#[test]
fn nothing_is_granted_where_an_instance_cannot_be_built() {
    let quota = ["--quota", "requests", "--amount", "7"];
    let ran = explain(QUOTA, &[&IN_SHOP[..], &quota].concat());
    assert!(ran.stdout.contains("quota requests: granted 0 of 7"), "{ran:?}");
    let ran = explain(QUOTA, &[&IN_SHOP[..], &["-a", "source.name=x"], &quota].concat());
    assert!(ran.stdout.contains("quota requests: granted 7 of 7"), "{ran:?}");
}

#[test]
fn faulty_params_of_a_compiled_handler_are_refused_and_leniently_used_as_far_as_they_could_be_read() {
    let handler = |adapter: &str, params: &str| {
        let spec = format!("{{compiledAdapter: {adapter}, params: {params}}}");
        check_path("h") + "kind: handler\nmetadata: {name: h, namespace: shop}\nspec: " + &spec
    };
    let cases = [
        (
            handler("listchecker", "{overrides: [/admin], blacklist: true, nosuch: 1}"),
            "PERMISSION_DENIED: h.shop:/admin is blacklisted",
            "spec.params.nosuch: no such field; ",
            "with --lenient the handler has what could be read of overrides, blacklist, and the defaults of all other fields",
        ),
        (
            handler("listchecker", "{overrides: [5]}"),
            "PERMISSION_DENIED: h.shop:/admin is not whitelisted",
            "spec.params.overrides[0]: expected text in quotes, not 5",
            "with --lenient the handler has the defaults of all its fields",
        ),
        (
            handler("denier", "{nosuch: 1}"),
            "FAILED_PRECONDITION: h.shop:",
            "spec.params.nosuch: no such field",
            "with --lenient the handler has the defaults of all its fields",
        ),
    ];
    for (config, denial, fault, consequence) in cases {
        let strict = explain(&config, &IN_SHOP);
        assert!(strict.code == 1 && strict.stderr.contains(fault), "{strict:?}");
        assert!(strict.stderr.contains(consequence), "{strict:?}");
        let lenient = explain(&config, &[&IN_SHOP[..], &["--lenient"]].concat());
        assert!(lenient.stdout.starts_with(&format!("denied: {denial}")), "{lenient:?}");
        assert!(lenient.stderr.contains(fault), "{lenient:?}");
        let closed =
            explain(&config, &[&IN_SHOP[..], &["--lenient", "--on-config-error", "closed"]].concat());
        assert!(closed.stdout.starts_with("denied: "), "{closed:?}");
    }
}

#[test]
fn leniently_a_handler_that_its_adapter_refuses_is_skipped_and_what_it_would_deny_is_allowed() {
    let list = check_path("h")
        + "kind: handler\nmetadata: {name: h, namespace: shop}\n\
           spec: {compiledAdapter: listchecker, params: {entryType: REGEX, overrides: ['(']}}\n";
    let quota = QUOTA.replace("quotas: [{name: requests, maxAmount: 5}]", "");
    let asked = ["-a", "source.name=x", "--quota", "requests", "--amount", "7"];
    for (config, arguments, fault, outcome) in [
        (list, &[][..], "h.handler.shop: spec.params.overrides[0]: ", "allowed\n"),
        (
            quota,
            &asked[..],
            "limits.handler.shop: spec.params.quotas: no entry",
            "quota requests: granted 7 of 7",
        ),
    ] {
        let strict = explain(&config, &[&IN_SHOP[..], arguments].concat());
        assert!(strict.code == 1 && strict.stderr.contains(fault), "{strict:?}");
        let lenient = explain(&config, &[&IN_SHOP[..], arguments, &["--lenient"]].concat());
        assert!(lenient.stdout.contains(outcome) && lenient.stderr.contains(fault), "{lenient:?}");
    }
}

/// With 3, 5, 6 or 7 destinations in the default namespace, Mixer 1.3.8 answers by the rules of another namespace: lists that it makes
/// for each namespace share their memory.
#[test]
fn the_rules_of_a_namespace_answer_for_no_other() {
    for destinations in [3, 5, 6, 7] {
        let mut config =
            "kind: handler\nmetadata: {name: noop}\nspec: {compiledAdapter: noop, params: {}}\n---\n\
             kind: instance\nmetadata: {name: all}\nspec: {compiledTemplate: checknothing, params: {}}\n---\n"
                .to_owned();
        for index in 0..destinations {
            config += &format!(
                "kind: handler\nmetadata: {{name: noop-{index}}}\nspec: {{compiledAdapter: noop, params: {{}}}}\n---\n\
                 kind: rule\nmetadata: {{name: rule-{index}}}\nspec: {{actions: [{{handler: noop-{index}, instances: [all]}}]}}\n---\n"
            );
        }
        for namespace in ["a", "b", "c"] {
            config += &format!(
                "kind: handler\nmetadata: {{name: deny, namespace: {namespace}}}\n\
                 spec: {{compiledAdapter: denier, params: {{status: {{code: 7, message: 'by {namespace}'}}}}}}\n---\n\
                 kind: rule\nmetadata: {{name: rule, namespace: {namespace}}}\n\
                 spec: {{actions: [{{handler: deny, instances: [all.istio-system]}}]}}\n---\n"
            );
        }
        for namespace in ["a", "b", "c"] {
            let ran = explain(&config, &["-a", &format!("destination.namespace={namespace}")]);
            let denied = format!("denied: PERMISSION_DENIED: deny.{namespace}:by {namespace}\n");
            assert!(ran.stdout.starts_with(&denied), "{destinations} destinations: {ran:?}");
        }
    }
}

#[test]
fn the_explanation_shows_the_expression_in_quotes_and_its_value() {
    let config = check_path("h").replace("request.path}", "'\"user-\" + request.path + \"-bad\"'}")
        + "kind: handler\nmetadata: {name: h, namespace: shop}\n\
           spec: {compiledAdapter: listchecker, params: {overrides: [user-/admin-bad], blacklist: true}}\n";
    let ran = explain(&config, &IN_SHOP);
    assert!(
        ran.stdout.starts_with("denied: PERMISSION_DENIED: h.shop:user-/admin-bad is blacklisted\n"),
        "{ran:?}"
    );
    let param = r#"    value: expression "user-" + request.path + "-bad" -> "user-/admin-bad" (STRING)"#;
    assert!(ran.stdout.contains(param), "{ran:?}");
}
