//! Handlers and instances of what is compiled in: `compiledAdapter`, `compiledTemplate`, and the kinds that are named after
//! adapters and templates.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;

use support::{Ran, run};

/// What a request is answered by that configuration, and why.
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
