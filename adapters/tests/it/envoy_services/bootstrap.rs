//! The bootstrap that `envoy-config` prints.

use serde_json::{Value as Json, json};
use test_pki::{Authority, Files};

use super::{
    mesh::{configured, envoy_config},
    support::{
        envoy::{Envoy, is_there},
        run,
    },
};

/// Rules that read a body, a token, headers, and quotas with entries of several sources.
const CONFIG: &str = r#"
kind: handler
metadata: {name: limits, namespace: istio-system}
spec: {compiledAdapter: memquota, params: {quotas: [{name: per-user, maxAmount: 2}, {name: bytes, maxAmount: 2}]}}
---
kind: instance
metadata: {name: per-user, namespace: istio-system}
spec:
  compiledTemplate: quota
  params: {dimensions: {user: 'ratelimit.descriptor["user"]', path: request.path, who: source.principal | "", name: source.name | ""}}
---
kind: instance
metadata: {name: bytes, namespace: istio-system}
spec: {compiledTemplate: quota, params: {dimensions: {}}}
---
kind: rule
metadata: {name: limits, namespace: istio-system}
spec: {actions: [{handler: limits, instances: [per-user, bytes]}]}
---
kind: handler
metadata: {name: bodies, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: [bad], blacklist: true}}
---
kind: instance
metadata: {name: body, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: request.body | request.auth.principal | ""}}
---
kind: rule
metadata: {name: bodies, namespace: istio-system}
spec: {actions: [{handler: bodies, instances: [body]}]}
---
kind: handler
metadata: {name: log, namespace: istio-system}
spec: {compiledAdapter: stdio}
---
kind: instance
metadata: {name: entry, namespace: istio-system}
spec:
  compiledTemplate: logentry
  params:
    severity: '"info"'
    timestamp: request.time
    variables: {tenant: 'request.headers["x-tenant"] | ""', cache: 'response.headers["x-cache"] | ""'}
---
kind: rule
metadata: {name: log, namespace: istio-system}
spec: {actions: [{handler: log, instances: [entry]}]}
"#;

/// The bootstrap for the configuration, as text and read.
fn bootstrap(flags: &[&str]) -> (String, Json) {
    bootstrap_of(CONFIG, flags)
}

fn bootstrap_of(config: &str, flags: &[&str]) -> (String, Json) {
    let folder = configured(config);
    let common = ["--config", folder.path().to_str().unwrap()];
    let upstream: &[&str] =
        if flags.contains(&"--upstream") { &[] } else { &["--upstream", "127.0.0.1:8080"] };
    let text = envoy_config(&[&common, upstream, flags].concat());
    let read = serde_saphyr::from_str(&text).unwrap();
    (text, read)
}

/// The first network filter of the listener.
fn network_filter(bootstrap: &Json) -> &Json {
    &bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
}

/// An HTTP filter.
fn filter<'b>(bootstrap: &'b Json, name: &str) -> &'b Json {
    let filters = network_filter(bootstrap)["http_filters"].as_array().unwrap();
    let found = filters.iter().find(|filter| filter["name"] == name);
    &found.unwrap_or_else(|| panic!("there is no filter {name}: {bootstrap}"))["typed_config"]
}

#[test]
fn envoy_accepts_every_bootstrap() {
    if !is_there() {
        return;
    }
    let (files, authority) = (Files::new(), Authority::new());
    let certified = authority.issue(&["localhost"]);
    let authorities = files.write("ca.pem", &authority.pem());
    let (chain, key) =
        (files.write("cert.pem", &certified.certificate), files.write("key.pem", &certified.key));
    let token = files.write("token", "t0ken");
    let server = ["--server-ca-file", &authorities, "--envoy-cert-file", &chain, "--envoy-key-file", &key];
    let upstream =
        ["--upstream-ca-file", &authorities, "--upstream-cert-file", &chain, "--upstream-key-file", &key];
    let listener = [
        "--listener-cert-file",
        &chain,
        "--listener-key-file",
        &key,
        "--listener-client-ca-file",
        &authorities,
    ];
    let tls = [&server[..], &upstream, &listener].concat();
    for flags in [
        &[][..],
        &["--address", "one.example.com:9091,[::1]:9092", "--envoy-admin", "127.0.0.1:0"],
        &["--rate-limit", "shop/per-user", "--descriptor", "user=x-user", "--failure-mode-allow"],
        &["--count-response-bytes", "bytes", "--namespace", "shop"],
        &["--server-ca-file", &authorities, "--server-san", "spiffe://cluster.local/ns/a/sa/mixer"],
        &tls,
        &[&server[..], &["--server-token-file", &token]].concat(),
        &["--address", "unix:/run/grpc.sock", "--upstream", "unix:/run/service.sock"],
        &["--allow-underscores"],
        &["--tcp"],
        &[&["--tcp"], &tls[..]].concat(),
    ] {
        let (text, _) = bootstrap(flags);
        assert_eq!(Envoy::validate(&text), None, "{flags:?}: {text}");
    }
}

#[test]
fn a_part_of_a_body_is_decided_on_only_by_a_rule_that_reads_whether_it_is_one() {
    let aware = CONFIG.replace(
        "{value: request.body |",
        "{value: conditional(request.body_truncated, \"\", request.body) |",
    );
    let (text, bootstrap) = bootstrap_of(&aware, &[]);
    let check = filter(&bootstrap, "envoy.filters.http.ext_authz");
    assert_eq!(check["with_request_body"]["allow_partial_message"], true, "{text}");
}

#[test]
fn a_key_of_a_descriptor_that_no_quota_reads_is_an_error_with_a_hint() {
    let folder = configured(CONFIG);
    let flags = ["--upstream", "127.0.0.1:80", "--descriptor", "usre=x-user", "--config"];
    let ran = run(&[&["envoy-config"], &flags[..], &[folder.path().to_str().unwrap()]].concat());
    assert_eq!(ran.code, 2, "{ran:?}");
    let expected = "--descriptor usre: no quota of the configuration reads this key; did you mean user?";
    assert!(ran.stderr.contains(expected), "{ran:?}");
}

#[test]
fn the_quotas_of_a_filter_are_of_one_namespace_whose_rules_apply() {
    for quotas in ["shop/per-user,shop/bytes", "shop/per-user,bytes", "bytes,shop/per-user"] {
        let (text, bootstrap) = bootstrap(&["--rate-limit", quotas]);
        let limit = filter(&bootstrap, "envoy.filters.http.ratelimit");
        assert_eq!(limit["domain"], "shop/mixer-adapter", "{quotas}: {text}");
        assert_eq!(limit["rate_limits"].as_array().map(Vec::len), Some(2), "{quotas}: {text}");
    }
    let (_, alone) = bootstrap(&["--rate-limit", "shop/bytes", "--count-response-bytes", "bytes"]);
    let limit = filter(&alone, "envoy.filters.http.ratelimit");
    assert_eq!(limit["domain"], "shop/bytes");
    assert_eq!(limit["rate_limits"].as_array().map(Vec::len), Some(2), "the start and the end");

    let of_shop =
        CONFIG.replace("{name: limits, namespace: istio-system}", "{name: limits, namespace: shop}");
    let of_shop =
        of_shop.replace("[per-user, bytes]", "[per-user.instance.istio-system, bytes.instance.istio-system]");
    let folder = configured(&of_shop);
    let common = ["envoy-config", "--upstream", "127.0.0.1:80", "--config", folder.path().to_str().unwrap()];
    for (flags, error) in [
        (
            &["--rate-limit", "shop/bytes,other/bytes"][..],
            "--rate-limit other/bytes: the rate limits of one filter are of",
        ),
        (&["--rate-limit", "shop/bytes", "--namespace", "other"], "one namespace, here other"),
        (&["--body-bytes", "2Mi"], "must be from 1 to 1Mi"),
        (
            &["--rate-limit", "bytes"],
            "--rate-limit bytes: no rule that applies requests this quota; did you mean shop/bytes?",
        ),
        (
            &["--count-response-bytes", "other/bytes"],
            "--count-response-bytes other/bytes: no rule that applies requests this quota; did you mean shop/bytes?",
        ),
    ] {
        let ran = run(&[&common, flags].concat());
        assert!(ran.code == 2 && ran.stderr.contains(error), "{flags:?}: {ran:?}");
    }
    assert_eq!(run(&[&common[..], &["--rate-limit", "shop/bytes"]].concat()).code, 0);
}

#[test]
fn a_bootstrap_has_what_the_rules_read() {
    let (text, bootstrap) = bootstrap(&["--descriptor", "user=x-user"]);
    let check = filter(&bootstrap, "envoy.filters.http.ext_authz");
    assert_eq!(
        check["with_request_body"],
        json!({"max_request_bytes": 8192, "allow_partial_message": false})
    );
    assert!(text.contains("more than 8192 bytes get 413"), "{text}");
    let (_, larger) = self::bootstrap(&["--descriptor", "user=x-user", "--body-bytes", "64Ki"]);
    let body = &filter(&larger, "envoy.filters.http.ext_authz")["with_request_body"];
    assert_eq!(body["max_request_bytes"], 65536);
    assert!(text.contains("put the filter envoy.filters.http.jwt_authn before this one"), "{text}");
    let log = &network_filter(&bootstrap)["access_log"][0]["typed_config"];
    assert_eq!(log["additional_request_headers_to_log"], json!(["content-type", "x-tenant"]));
    assert_eq!(log["additional_response_headers_to_log"], json!(["grpc-status", "grpc-message", "x-cache"]));

    let peers = json!(["downstream_peer", "upstream_peer"]);
    assert_eq!(log["common_config"]["filter_state_objects_to_log"], peers);

    let limit = filter(&bootstrap, "envoy.filters.http.ratelimit");
    assert_eq!(limit["domain"], "mixer-adapter");
    let request_id = json!([
        {"key": "x-envoy-upstream-rq-per-try-timeout-ms", "value": "2500"},
        {"key": "x-request-id", "value": "%REQ(x-request-id)%"},
    ]);
    assert_eq!(limit["rate_limit_service"]["grpc_service"]["initial_metadata"], request_id);
    let metadata = |key: &str, field: &str| {
        let path = json!([{"key": "mixer_adapter"}, {"key": field}]);
        let metadata_key = json!({"key": "envoy.filters.http.ext_authz", "path": path});
        json!({"metadata": {"descriptor_key": key, "skip_if_absent": true, "metadata_key": metadata_key}})
    };
    let quota = |name: &str| json!({"generic_key": {"descriptor_key": "quota", "descriptor_value": name}});
    let header =
        |key: &str, name: &str| json!({"request_headers": {"descriptor_key": key, "header_name": name}});
    let path = json!({"request_headers": {"descriptor_key": "request.path", "header_name": ":path", "skip_if_absent": true}});
    let id = || metadata("decision_id", "decision_id");
    assert_eq!(
        limit["rate_limits"],
        json!([
            {"actions": [quota("bytes"), id()]},
            {"actions": [
                quota("per-user"),
                header("user", "x-user"),
                path,
                metadata("source.principal", "source_principal"),
                id(),
            ]},
        ])
    );
    assert!(
        text.contains("# Rate limits do not know source.name; --descriptor source.name=HEADER"),
        "{text}"
    );
}

#[test]
fn bytes_of_responses_are_counted_at_the_end_and_only_looked_at_before() {
    let (_, bootstrap) = bootstrap(&["--count-response-bytes", "bytes", "--rate-limit", "bytes"]);
    let limit = filter(&bootstrap, "envoy.filters.http.ratelimit");
    assert_eq!(limit["domain"], "bytes");
    let limits = limit["rate_limits"].as_array().unwrap();
    let [start, end] = &limits[..] else { panic!("{limits:?}") };
    assert_eq!((&start["hits_addend"], &start["apply_on_stream_done"]), (&json!({"number": 0}), &Json::Null));
    assert_eq!(
        (&end["hits_addend"], &end["apply_on_stream_done"]),
        (&json!({"format": "%BYTES_SENT%"}), &json!(true))
    );
    let done = json!({"generic_key": {"descriptor_key": "phase", "descriptor_value": "done"}});
    assert_eq!(end["actions"].as_array().unwrap().last(), Some(&done));
}

#[test]
fn the_comments_name_what_passes_if_something_fails() {
    for (flags, passing) in [
        (&[][..], &[][..]),
        (&["--on-adapter-error", "open"], &["an adapter fails"]),
        (
            &["--on-match-error", "open", "--on-timeout", "closed"],
            &["the condition of a rule cannot be evaluated"],
        ),
        (
            &["--failure-mode-allow", "--on-adapter-error", "closed"],
            &[
                "no server answers, or that could not be checked",
                "rate could not be determined",
                "the condition of a rule cannot be evaluated",
                "does not answer in time",
            ],
        ),
    ] {
        let (text, bootstrap) = bootstrap(flags);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(": PASSES")).collect();
        assert_eq!(lines.len(), passing.len(), "{flags:?}: {text}");
        assert!(
            lines.iter().zip(passing).all(|(line, passing)| line.contains(passing)),
            "{flags:?}: {lines:?}"
        );
        let open = flags.contains(&"--failure-mode-allow");
        assert_eq!(filter(&bootstrap, "envoy.filters.http.ext_authz")["failure_mode_allow"], open);
        assert_eq!(filter(&bootstrap, "envoy.filters.http.ratelimit")["failure_mode_deny"], !open);
    }
}

#[test]
fn an_upstream_is_required_and_faults_of_the_configuration_are_shown() {
    let ran = run(&["envoy-config"]);
    assert!(ran.code == 2 && ran.stderr.contains("--upstream"), "{ran:?}");
    let folder = configured("kind: rule\nmetadata: {name: a}\nspec: {mach: x}\n");
    let ran = run(&["envoy-config", "--upstream", "a:1", "--config", folder.path().to_str().unwrap()]);
    assert!(ran.code == 1 && ran.stdout.is_empty() && ran.stderr.contains("a.rule.istio-system"), "{ran:?}");
    let ran = run(&["envoy-config", "--upstream", "a:1", "--tcp", "--rate-limit", "x"]);
    assert!(ran.code == 2 && ran.stderr.contains("cannot be used with"), "{ran:?}");
}
