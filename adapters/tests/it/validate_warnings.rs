//! Warnings of `validate` about checks that never match, or that a client avoids: each has its place and what to write.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mixer_adapter::template::{ListEntry, Template as _};

use crate::support::run;

/// The warnings about a configuration, each with its help in the same line.
fn warnings(text: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("c.yaml"), text).unwrap();
    let ran = run(&["validate", "--json", directory.path().to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let faults = ran.json()["faults"].as_array().unwrap().clone();
    let text = |fault: &serde_json::Value, name: &str| fault[name].as_str().unwrap_or_default().to_owned();
    let line = |fault| {
        let resource = text(fault, "resource");
        let name = resource.split('.').next().unwrap();
        format!("{name} {}: {}; {}", text(fault, "field"), text(fault, "message"), text(fault, "help"))
    };
    faults.iter().map(line).collect()
}

/// A rule that denies what its condition matches.
fn deny(condition: &str) -> String {
    format!(
        "kind: handler\nmetadata: {{name: deny}}\nspec: {{compiledAdapter: denier}}\n---\nkind: instance\nmetadata: {{name: all}}\n\
         spec: {{compiledTemplate: checknothing, params: {{}}}}\n---\nkind: rule\nmetadata: {{name: close}}\nspec:\n  \
         match: '{condition}'\n  actions: [{{handler: deny, instances: [all]}}]\n"
    )
}

/// A rule that looks a value up in a list.
fn list(params: &str, value: &str) -> String {
    format!(
        "kind: handler\nmetadata: {{name: list}}\nspec: {{compiledAdapter: listchecker, params: {params}}}\n---\nkind: instance\n\
         metadata: {{name: entry}}\nspec: {{compiledTemplate: listentry, params: {{value: '{value}'}}}}\n---\nkind: rule\n\
         metadata: {{name: look}}\nspec: {{actions: [{{handler: list, instances: [entry]}}]}}\n"
    )
}

/// A rule that limits by a quota with the dimension `user`.
fn limit(params: &str) -> String {
    format!(
        "kind: handler\nmetadata: {{name: limits}}\nspec: {{compiledAdapter: memquota, params: {{quotas: [{params}]}}}}\n---\n\
         kind: instance\nmetadata: {{name: q}}\nspec: {{compiledTemplate: quota, params: {{dimensions: {{user: request.useragent | \"\"}}}}}}\n\
         ---\nkind: rule\nmetadata: {{name: limit}}\nspec: {{actions: [{{handler: limits, instances: [q]}}]}}\n"
    )
}

/// Expects one warning that begins and ends with these texts; none, if they are empty.
fn expect(text: &str, (start, end): (&str, &str)) {
    let found = warnings(text);
    match &found[..] {
        [] if start.is_empty() => {}
        [one] if !start.is_empty() && one.starts_with(start) && one.ends_with(end) => {}
        _ => panic!("{text}\n{found:?} is not {start:?} ... {end:?}"),
    }
}

/// A rule whose header operation reads the output of an instance of `checkproducer`, with these instances in its action.
fn with_output(instances: &str) -> String {
    let proto = "../build/tests/data/templates/checkproducer.proto";
    let own = mixer_adapter_build::Template::open(proto).unwrap().descriptor_set();
    let templates = [("checkproducer", &own[..]), ("listentry", ListEntry::DESCRIPTOR)].map(|(name, set)| {
        let set = STANDARD.encode(set);
        format!("kind: template\nmetadata: {{name: {name}}}\nspec: {{descriptor: {set}}}\n---\n")
    });
    let rules = format!(
        "kind: adapter\nmetadata: {{name: away}}\nspec: {{templates: [checkproducer, listentry]}}\n---\n\
         kind: handler\nmetadata: {{name: h}}\nspec: {{adapter: away, connection: {{address: '127.0.0.1:1'}}}}\n---\n\
         kind: instance\nmetadata: {{name: made}}\nspec: {{template: checkproducer, params: {{stringPrimitive: request.path}}}}\n---\n\
         kind: rule\nmetadata: {{name: r}}\nspec:\n  actions: [{{name: a, handler: h, instances: [{instances}]}}]\n  \
         requestHeaderOperations: [{{name: x-made, values: [a.output.stringPrimitive]}}]\n"
    );
    let others = [("listed", "listentry", "value"), ("other", "checkproducer", "stringPrimitive")]
        .into_iter()
        .filter(|(name, ..)| instances.contains(name))
        .map(|(name, template, field)| {
            let params = format!("{{{field}: request.method}}");
            format!("---\nkind: instance\nmetadata: {{name: {name}}}\nspec: {{template: {template}, params: {params}}}\n")
        });
    templates.concat() + &rules + &others.collect::<String>()
}

#[test]
fn only_outputs_of_the_first_instance_of_an_action_are_visible_in_mixer() {
    let warning =
        ("r spec.actions[0].instances[1]: Mixer has the outputs of the first instance of an action only", "");
    for (instances, expected) in
        [("made", NONE), ("made, listed", NONE), ("made, other", NONE), ("listed, made", warning)]
    {
        expect(&with_output(instances), expected);
    }
}

const NONE: (&str, &str) = ("", "");

#[test]
fn a_path_that_is_compared_with_its_query_is_warned_about_and_a_fallback_is_not() {
    let with_query = ("close spec.match: request.path includes the query", "for `request.path`");
    for condition in [
        r#"request.path == "/admin""#,
        r#""/admin" != (request.path | "/")"#,
        r#"match(request.path, "*.php")"#,
        r#"request.path.endsWith(".php")"#,
        r#""^/admin$".matches(request.path)"#,
    ] {
        expect(&deny(condition), with_query);
    }
    for condition in [
        r#"(request.url_path | request.path | "/") == "/admin""#,
        r#"match(request.path, "/admin*")"#,
        r#"request.path.startsWith("/admin")"#,
        r#""^/admin".matches(request.path)"#,
    ] {
        expect(&deny(condition), NONE);
    }
    let value = ("entry spec.params.value: request.path includes the query", r#"| request.path | "/"`"#);
    expect(&list("{overrides: [/admin], blacklist: true}", "request.path"), value);
    expect(&list("{entryType: REGEX, overrides: [^/admin$]}", r#"request.path | "/""#), value);
    expect(&list("{entryType: REGEX, overrides: [^/admin]}", "request.path"), NONE);
    expect(&list("{overrides: [/admin]}", r#"request.url_path | request.path | "/""#), NONE);
}

#[test]
fn a_comparison_that_never_holds_is_warned_about() {
    for (condition, end) in [
        (r#"request.headers["User-Agent"] != "curl""#, r#"write "user-agent""#),
        (r#"(request.method | "") == "get""#, r#"write "GET""#),
        (r#"request.scheme == "HTTPS""#, r#"write "https""#),
    ] {
        expect(&deny(condition), ("close spec.match: ", end));
    }
    for condition in [
        r#"request.headers["user-agent"] != "curl""#,
        r#"request.method == "GET" || request.method == "purge""#,
        r#"request.scheme == "https""#,
    ] {
        expect(&deny(condition), NONE);
    }
}

#[test]
fn a_value_that_a_client_can_write_otherwise_is_warned_about_where_it_must_be_equal() {
    let parameter = ("close spec.match: a request with `%61` for `a`", "deny all others");
    let values = ("close spec.match: a request with the parameter twice", "deny all others");
    let header = ("close spec.match: a request with the header twice", "deny all others");
    for (condition, expected) in [
        (r#"request.query_params["user"] == "guest""#, parameter),
        (r#"((request.query_params["user"] | "") != "guest") == false"#, parameter),
        (r#"(queryAll(request.path, "user") | "") == "guest""#, values),
        (r#"query(request.path, "user") == "guest""#, NONE),
        (r#"(request.headers["x-user"] | "") == "guest""#, header),
        (r#"request.query_params["user"] != "guest""#, NONE),
        (r#"(request.headers["x-user"] | "") != "admin""#, NONE),
        (r#"request.headers[":authority"] == "a""#, NONE),
    ] {
        expect(&deny(condition), expected);
    }
    let denied = "{overrides: [guest], blacklist: true}";
    for (value, start) in [
        (r#"request.query_params["user"] | """#, "entry spec.params.value: a request with `%61`"),
        (r#"request.headers["x-user"] | """#, "entry spec.params.value: a request with the header twice"),
    ] {
        expect(&list(denied, value), (start, "list what is allowed, without `blacklist: true`"));
        expect(&list("{overrides: [admin]}", value), NONE);
    }
}

#[test]
fn entries_of_texts_that_look_like_patterns_networks_or_have_blanks_are_warned_about() {
    let (address, name) = (r#"source.ip | ip("0.0.0.0")"#, r#"source.name | """#);
    for (params, value, start, end) in [
        ("{overrides: [/admin*]}", name, "overrides[0]: ", "such a pattern as \"^/admin\"; "),
        ("{overrides: [a, ^/x]}", name, "overrides[1]: ", "such a pattern as \"^/x\"; "),
        ("{overrides: [10.0.0.0/8]}", name, "overrides[0]: ", "write entryType: IP_ADDRESSES; "),
        ("{overrides: [\" a\"]}", name, "overrides[0]: ", "write \"a\" without the blanks; "),
        ("{overrides: [10.0.0.1]}", address, "entry_type: the value of entry.", "entryType: IP_ADDRESSES; "),
    ] {
        expect(&list(params, value), (&format!("list spec.params.{start}"), end));
    }
    for params in ["{overrides: [/admin, a/b, a b]}", "{entryType: REGEX, overrides: [\"^a*\"]}"] {
        expect(&list(params, name), NONE);
    }
    expect(&list("{entryType: IP_ADDRESSES, overrides: [10.0.0.0/8]}", address), NONE);
}

#[test]
fn a_limit_without_a_duration_or_by_a_dimension_that_is_not_there_is_warned_about() {
    let overridden = |dimensions: &str| {
        limit(&format!(
            "{{name: q, maxAmount: 5, validDuration: 60s, overrides: [{{dimensions: {dimensions}, maxAmount: 1, validDuration: 1s}}]}}"
        ))
    };
    expect(&overridden("{user: a}"), NONE);
    let field = "limits spec.params.quotas[0]";
    expect(
        &overridden("{usr: a}"),
        (&format!("{field}.overrides[0].dimensions: never matches: q.instance"), "usr; write user; "),
    );
    expect(&overridden("{plan: a}"), (&format!("{field}.overrides[0].dimensions: "), "which has: user; "));
    expect(&limit("{name: q, maxAmount: 5}"), (&format!("{field}.valid_duration: "), "limit per minute; "));
    expect(&limit("{name: q, maxAmount: 0}"), NONE);
}

#[test]
fn a_rule_that_reads_a_body_without_regard_to_its_end_is_warned_about() {
    let body = ("close : reads request.body", "or read request.body_truncated, too");
    expect(&deny(r#"(request.body | "") == "x""#), body);
    expect(&deny(r#"(request.body | "") == "x" || (request.body_truncated | false)"#), NONE);
    expect(&deny(r#"json(request.body, "a") == "x""#), NONE);
}

#[test]
fn a_file_that_is_not_read_for_the_case_of_its_extension_is_warned_about() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.yaml", "deny.YAML", "notes.txt", "b.Json", "c.test.YML"] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    fs::write(directory.path().join("a.yaml"), deny(r#"request.method == "GET""#)).unwrap();
    let ran = run(&["validate", directory.path().to_str().unwrap()]);
    for (name, right) in [("deny.YAML", "deny.yaml"), ("b.Json", "b.json")] {
        let line = format!(
            "{name}: warning: not read: extensions of files are in lower case; rename it to {right}\n"
        );
        assert!(ran.stdout.contains(&line), "{line} is not in {ran:?}");
    }
    assert!(ran.stdout.ends_with("\n3 resources: 0 errors, 2 warnings\n"), "{ran:?}");
}

#[test]
fn a_list_of_an_adapter_elsewhere_is_warned_about_as_one_of_this_process() {
    let elsewhere = list("{overrides: [/admin*]}", r#"request.url_path | "/""#)
        .replace("compiledAdapter: listchecker", "adapter: listchecker, connection: {address: 127.0.0.1:1}")
        .replace("compiledTemplate: listentry", "template: listentry");
    let text = run(&["manifest", "listchecker"]).stdout + "---\n" + &elsewhere;
    expect(&text, ("list spec.params.overrides[0]: ", "such a pattern as \"^/admin\"; "));
}

#[test]
fn rules_in_the_language_compat_are_warned_about_as_in_mixers_own() {
    let annotated = |condition: &str| {
        deny(condition).replace("{name: close}", "{name: close, annotations: {policy.istio.io/lang: COMPAT}}")
    };
    expect(&annotated(r#"request.method == "get""#), ("close spec.match: ", r#"write "GET""#));
    let parameter = ("close spec.match: a request with `%61`", "deny all others");
    expect(&annotated(r#"request.query_params["user"] == "guest""#), parameter);
}
