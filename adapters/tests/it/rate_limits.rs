//! Rate limits by memquota, called as Envoy does.

use crate::support::{Server, binary, eventually, run};
use mixer_adapter::tonic::{
    Code::Unavailable,
    Request, Status,
    transport::{Channel, Endpoint},
};
use mixer_adapter_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus},
        rate_limit_service_client::RateLimitServiceClient,
    },
    r#type::v3::RateLimitUnit,
};

/// Two requests a minute for each user, and five for each path.
const LIMITS: &str = r#"
kind: handler
metadata: {name: limits, namespace: istio-system}
spec:
  compiledAdapter: memquota
  params:
    minDeduplicationDuration: 60s
    quotas:
    - {name: per-user, maxAmount: 2, validDuration: 60s}
    - {name: per-path, maxAmount: 5, validDuration: 3600s}
---
kind: instance
metadata: {name: per-user, namespace: istio-system, annotations: {$USER}}
spec: {compiledTemplate: quota, params: {dimensions: {user: 'ratelimit.descriptor["user"]'}}}
---
kind: instance
metadata: {name: per-path, namespace: istio-system, annotations: {$PATH}}
spec: {compiledTemplate: quota, params: {dimensions: {path: 'ratelimit.descriptor["path"]'}}}
---
kind: rule
metadata: {name: per-user, namespace: istio-system}
spec: {match: 'ratelimit.descriptor["user"] != "admin"', actions: [{handler: limits, instances: [per-user]}]}
---
kind: rule
metadata: {name: per-path, namespace: istio-system}
spec: {actions: [{handler: limits, instances: [per-path]}]}
"#;

struct Limits {
    server: Server,
    runtime: tokio::runtime::Runtime,
    client: RateLimitServiceClient<Channel>,
    _config: tempfile::TempDir,
}

impl Limits {
    /// A server with annotations of both quotas.
    fn start(user: &str, path: &str, flags: &[&str]) -> Self {
        Self::with(&LIMITS.replace("$USER", user).replace("$PATH", path), flags)
    }

    fn with(text: &str, flags: &[&str]) -> Self {
        let config = tempfile::tempdir().unwrap();
        std::fs::write(config.path().join("limits.yaml"), text).unwrap();
        let directory = config.path().to_str().unwrap();
        let server = Server::start(&[&["--config", directory], flags].concat());
        server.until("/readyz", "\r\n\r\nready");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
        let client = RateLimitServiceClient::new(runtime.block_on(endpoint.connect()).unwrap());
        Self { server, runtime, client, _config: config }
    }

    /// Limits by default settings.
    fn plain() -> Self {
        Self::start("", "", &[])
    }

    fn try_send(
        &mut self,
        id: &str,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> Result<RateLimitResponse, Status> {
        let domain = "per-user".to_owned();
        let mut request = Request::new(RateLimitRequest { domain, descriptors, hits_addend: 0 });
        if !id.is_empty() {
            request.metadata_mut().insert("x-request-id", id.parse().unwrap());
        }
        Ok(self.runtime.block_on(self.client.should_rate_limit(request))?.into_inner())
    }

    fn send(&mut self, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
        self.try_send("", descriptors).unwrap()
    }

    /// The code for a descriptor, and what remains of its limit.
    fn one(&mut self, descriptor: RateLimitDescriptor) -> (Code, u32) {
        let response = self.send(vec![descriptor]);
        assert_eq!(response.overall_code(), response.statuses[0].code());
        (response.overall_code(), response.statuses[0].limit_remaining)
    }

    fn count(&self, outcome: &str) -> String {
        let page = self.server.get("/metrics");
        let series = format!("mixer_adapter_envoy_rate_limits_total{{outcome=\"{outcome}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&series)).unwrap().to_owned()
    }
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

fn user(name: &str) -> RateLimitDescriptor {
    descriptor(&[("user", name)])
}

fn path(path: &str) -> RateLimitDescriptor {
    descriptor(&[("quota", "per-path"), ("path", path)])
}

fn hits(hits: u64, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor }
}

fn remaining(statuses: &[DescriptorStatus]) -> Vec<u32> {
    statuses.iter().map(|status| status.limit_remaining).collect()
}

/// The texts in the metadata of an answer.
fn metadata(response: &RateLimitResponse, name: &str) -> Option<String> {
    use mixer_adapter::prost_types::value::Kind;
    let own = response.dynamic_metadata.as_ref()?.fields.get("mixer_adapter")?;
    let Some(Kind::StructValue(own)) = &own.kind else { return None };
    match own.fields.get(name)?.kind.as_ref()? {
        Kind::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

#[test]
fn hits_are_taken_looked_at_and_given_back() {
    let mut limits = Limits::plain();
    assert_eq!(limits.one(hits(0, user("a"))), (Code::Ok, 2));
    assert_eq!(limits.one(user("a")), (Code::Ok, 1));
    assert_eq!(limits.one(hits(2, user("a"))), (Code::OverLimit, 1));
    assert_eq!(limits.one(hits(1, user("a"))), (Code::Ok, 0));
    assert_eq!(limits.one(hits(0, user("a"))), (Code::OverLimit, 0));
    let back = RateLimitDescriptor { is_negative_hits: true, ..hits(1, user("a")) };
    assert_eq!(limits.one(back), (Code::Ok, 1));
    assert_eq!(limits.one(hits(0, user("a"))), (Code::Ok, 1));
    assert_eq!(limits.one(hits(u64::MAX, user("a"))), (Code::OverLimit, 1));
    let back = RateLimitDescriptor { is_negative_hits: true, ..hits(u64::MAX, user("a")) };
    assert_eq!(limits.one(back), (Code::Ok, 2), "no more than was taken");
}

#[test]
fn a_status_has_the_limit_and_the_time_until_a_refused_amount_is_available() {
    let mut limits = Limits::plain();
    let response = limits.send(vec![user("a"), hits(6, path("/x"))]);
    assert_eq!(response.overall_code(), Code::OverLimit);
    let [own, refused] = response.statuses.as_slice() else { panic!("{response:?}") };
    let limit = |status: &DescriptorStatus| {
        let limit = status.current_limit.clone().unwrap();
        (limit.requests_per_unit, limit.unit().as_str_name().to_owned(), limit.unit_multiplier)
    };
    assert_eq!(limit(own), (2, "MINUTE".to_owned(), None));
    assert_eq!(limit(refused), (5, "HOUR".to_owned(), None));
    // Windows move in ticks of 100 ms, and times are rounded up to seconds.
    let reset = own.duration_until_reset.unwrap();
    assert!((59..=60).contains(&reset.seconds) && reset.nanos == 0, "{reset:?}");
}

#[test]
fn hits_at_the_end_of_a_request_count_past_the_limit_and_decide_nothing() {
    let mut limits = Limits::plain();
    let done = descriptor(&[("user", "a"), ("phase", "done")]);
    assert_eq!(limits.one(hits(5, done.clone())), (Code::Ok, 0));
    assert_eq!(limits.one(hits(u64::MAX, done.clone())), (Code::Ok, 0));
    assert_eq!(limits.one(hits(u64::MAX, done)), (Code::Ok, 0));
    assert_eq!(limits.one(user("a")), (Code::OverLimit, 0));
    assert_eq!(limits.one(user("b")), (Code::Ok, 1));
}

#[test]
fn a_quota_that_is_all_or_nothing_takes_nothing_if_another_descriptor_is_refused() {
    let all = "mixer-adapter/all-or-nothing: 'true'";
    let mut limits = Limits::start(all, "", &[]);
    let refused = limits.send(vec![user("a"), hits(9, path("/x"))]);
    assert_eq!(refused.overall_code(), Code::OverLimit);
    assert_eq!(refused.statuses[0].code(), Code::Ok);
    assert_eq!(remaining(&refused.statuses), [2, 5], "the state after the hit was given back");
    // The other quota counts what it granted, whatever else is refused.
    let refused = limits.send(vec![path("/x"), hits(9, user("a"))]);
    assert_eq!(remaining(&refused.statuses), [4, 2]);
    assert_eq!(limits.one(hits(0, path("/x"))), (Code::Ok, 4));
    // What has happened is not given back.
    let done = descriptor(&[("user", "a"), ("phase", "done")]);
    limits.send(vec![done, hits(9, path("/x"))]);
    assert_eq!(limits.one(hits(0, user("a"))), (Code::Ok, 1));
    // Nor is anything taken if one of the descriptors fails: it is given back beside the answer.
    limits.try_send("", vec![user("b"), descriptor(&[("source.ip", "nobody")])]).unwrap_err();
    eventually("the amount is given back", || {
        (limits.one(hits(0, user("b"))) == (Code::Ok, 2)).then_some(())
    });
}

#[test]
fn a_repeated_call_counts_once_if_request_ids_are_trusted() {
    for (flags, after) in [(&["--trust-request-id"][..], 1), (&[], 0)] {
        let mut limits = Limits::start("mixer-adapter/all-or-nothing: 'true'", "", flags);
        for _ in 0..2 {
            limits.try_send("id-1", vec![user("a")]).unwrap();
        }
        assert_eq!(limits.one(hits(0, user("a"))).1, after, "{flags:?}");
    }
    let mut limits = Limits::start("mixer-adapter/all-or-nothing: 'true'", "", &["--trust-request-id"]);
    // Equal descriptors of one call, another request, and another phase of the request count by themselves.
    limits.try_send("id-1", vec![path("/x"), path("/x")]).unwrap();
    limits.try_send("id-2", vec![path("/x")]).unwrap();
    let done = descriptor(&[("quota", "per-path"), ("path", "/x"), ("phase", "done")]);
    limits.try_send("id-2", vec![done]).unwrap();
    assert_eq!(limits.one(hits(0, path("/x"))), (Code::Ok, 1));
}

#[test]
fn a_request_that_is_refused_and_repeated_is_counted_once_and_not_free() {
    let mut limits = Limits::start("mixer-adapter/all-or-nothing: 'true'", "", &["--trust-request-id"]);
    for (id, remaining) in [("id-1", 1), ("id-1", 1), ("id-2", 0)] {
        let refused = limits.try_send(id, vec![user("a"), hits(9, path("/x"))]).unwrap();
        assert_eq!(refused.overall_code(), Code::OverLimit);
        let allowed = limits.try_send(id, vec![user("a")]).unwrap();
        assert_eq!((allowed.overall_code(), allowed.statuses[0].limit_remaining), (Code::Ok, remaining));
    }
    assert_eq!(limits.one(user("a")), (Code::OverLimit, 0));
}

#[test]
fn a_limit_of_a_descriptor_applies_up_to_the_rate_that_the_quota_permits() {
    let limited = |amount: u32, unit: RateLimitUnit| RateLimitDescriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit: amount,
            unit: unit.into(),
            unit_multiplier: None,
        }),
        ..hits(0, user("a"))
    };
    let mut limits = Limits::plain();
    assert_eq!(limits.one(limited(100, RateLimitUnit::Minute)), (Code::Ok, 2), "ignored");
    let mut limits = Limits::start("mixer-adapter/max-limit: 10/1m", "", &[]);
    for (amount, unit, applied) in [
        (4, RateLimitUnit::Minute, 4),
        (100, RateLimitUnit::Minute, 10),
        (1000, RateLimitUnit::Hour, 600),
        (7, RateLimitUnit::Unknown, 2),
    ] {
        assert_eq!(limits.one(limited(amount, unit)), (Code::Ok, applied), "{amount} {unit:?}");
    }
}

#[test]
fn past_a_soft_limit_and_past_one_on_trial_requests_pass() {
    for (mode, outcome, field, is_visible) in [
        ("enforce", "over_limit", "over_limit", true),
        ("soft", "soft", "over_soft_limit", true),
        ("shadow", "shadow", "over_shadow_limit", false),
    ] {
        let mut limits = Limits::start(&format!("mixer-adapter/rate-limit-mode: {mode}"), "", &[]);
        let response = limits.send(vec![hits(3, user("a"))]);
        let expected = if mode == "enforce" { Code::OverLimit } else { Code::Ok };
        assert_eq!(response.overall_code(), expected, "{mode}");
        assert_eq!(response.statuses[0].current_limit.is_some(), is_visible, "{mode}");
        assert_eq!(metadata(&response, "outcome").as_deref(), Some(outcome));
        assert_eq!(metadata(&response, field).as_deref(), Some("per-user.instance.istio-system"));
        assert_eq!(limits.count(outcome), "1", "{mode}");
    }
}

#[test]
fn a_rate_without_a_quota_is_ok_and_counted_and_one_that_cannot_be_determined_fails() {
    let mut limits = Limits::plain();
    for unmatched in [descriptor(&[("quota", "unknown")]), user("admin")] {
        let response = limits.send(vec![unmatched]);
        assert_eq!((response.overall_code(), response.statuses.len()), (Code::Ok, 1));
        assert_eq!(response.statuses[0].current_limit, None);
    }
    assert_eq!(limits.count("unmatched"), "2");
    let failed = limits.try_send("", vec![user("a"), descriptor(&[("source.ip", "nobody")])]).unwrap_err();
    assert_eq!(failed.code(), Unavailable);
    assert!(
        failed.message().starts_with("descriptor entry source.ip: \"nobody\" is not a valid"),
        "{failed}"
    );
    let too_many = limits.try_send("", vec![user("a"); 101]).unwrap_err();
    assert!(too_many.message().contains("(max-quotas-per-check)"), "{too_many}");
    assert_eq!(limits.count("failed"), "2");
    assert_eq!(limits.one(hits(0, user("a"))), (Code::Ok, 1), "one descriptor counts without the other");
}

#[test]
fn a_descriptor_that_no_rule_matches_is_ok_whatever_its_hits_and_the_policy() {
    let closed = ["match-error", "adapter-error", "timeout", "config-error"];
    let closed = closed.map(|name| format!("--on-{name}=closed"));
    let mut flags: Vec<&str> = closed.iter().map(String::as_str).collect();
    flags.extend(["--on-unknown-quota", "deny"]);
    let mut limits = Limits::start("", "", &flags);
    for amount in [0, 1, u64::MAX] {
        let response = limits.send(vec![hits(amount, user("admin"))]);
        assert_eq!((response.overall_code(), &response.statuses[0].current_limit), (Code::Ok, &None));
    }
    assert_eq!(limits.count("unmatched"), "3");
}

#[test]
fn rules_of_one_quota_that_do_not_match_do_not_lift_the_limit() {
    let other = "\n---\nkind: rule\nmetadata: {name: other, namespace: istio-system}\n\
                 spec: {match: 'ratelimit.descriptor[\"user\"] == \"b\"', actions: [{handler: limits, instances: [per-user]}]}\n";
    let text = LIMITS.replace("$USER", "").replace("$PATH", "");
    let mut limits = Limits::with(&format!("{text}{other}"), &[]);
    assert_eq!(limits.one(hits(3, user("a"))), (Code::OverLimit, 2));
}

/// Another handler for the user's quota, of one request a minute.
const TIGHT: &str = r#"
---
kind: handler
metadata: {name: tight, namespace: istio-system}
spec: {compiledAdapter: memquota, params: {quotas: [{name: per-user, maxAmount: 1, validDuration: 60s}]}}
---
kind: rule
metadata: {name: tight, namespace: istio-system}
spec: {match: 'ratelimit.descriptor["plan"] == "free"', actions: [{handler: tight, instances: [per-user]}]}
"#;

#[test]
fn a_limit_on_trial_does_not_hide_an_enforced_one_of_the_same_name() {
    // A quota of the same short name in another namespace: both apply to requests of it.
    let shop = r#"
---
kind: handler
metadata: {name: limits, namespace: shop}
spec: {compiledAdapter: memquota, params: {quotas: [{name: per-user, maxAmount: 1, validDuration: 60s}]}}
---
kind: instance
metadata: {name: per-user, namespace: shop, annotations: {mixer-adapter/rate-limit-mode: $MODE}}
spec: {compiledTemplate: quota, params: {dimensions: {user: 'ratelimit.descriptor["user"]'}}}
---
kind: rule
metadata: {name: per-user, namespace: shop}
spec: {actions: [{handler: limits, instances: [per-user]}]}
"#;
    for (mode, other) in [("enforce", "shadow"), ("shadow", "enforce"), ("soft", "enforce")] {
        let text = LIMITS.replace("$USER", &format!("mixer-adapter/rate-limit-mode: {other}"));
        let text = text.replace("$PATH", "") + &shop.replace("$MODE", mode);
        let mut limits = Limits::with(&text, &[]);
        let of_shop = || descriptor(&[("user", "a"), ("destination.namespace", "shop")]);
        limits.send(vec![hits(1, of_shop())]);
        limits.send(vec![hits(1, of_shop())]);
        // Both limits are reached by now.
        let enforced = if mode == "enforce" { "shop" } else { "istio-system" };
        for amount in [1, 0, 3] {
            let response = limits.send(vec![hits(amount, of_shop())]);
            assert_eq!(response.overall_code(), Code::OverLimit, "{mode} and {other}: {amount} hits");
            let name = format!("per-user.instance.{enforced}");
            assert_eq!(metadata(&response, "over_limit"), Some(name), "{mode} and {other}: {amount} hits");
            assert!(response.statuses[0].current_limit.is_some(), "{mode} and {other}: {amount} hits");
        }
    }
}

#[test]
fn each_handler_of_a_quota_that_is_all_or_nothing_gets_back_what_it_granted() {
    let text = LIMITS.replace("$USER", "mixer-adapter/all-or-nothing: 'true'").replace("$PATH", "") + TIGHT;
    let mut limits = Limits::with(&text, &[]);
    let (free, paid) = (
        || descriptor(&[("user", "a"), ("plan", "free")]),
        || descriptor(&[("user", "a"), ("plan", "paid")]),
    );
    // The tighter handler grants nothing of two.
    assert_eq!(limits.one(hits(2, free())), (Code::OverLimit, 1));
    assert_eq!(limits.one(hits(0, paid())), (Code::Ok, 2), "the other one has got its grant back");
    assert_eq!(limits.one(hits(1, free())), (Code::Ok, 0));
    // Both grant the first descriptor, and the second is refused.
    let text = text.replace("maxAmount: 1", "maxAmount: 2");
    let mut limits = Limits::with(&text, &[]);
    let refused = limits.send(vec![hits(2, free()), hits(6, path("/x"))]);
    assert_eq!((refused.overall_code(), remaining(&refused.statuses)[0]), (Code::OverLimit, 2));
    assert_eq!(limits.one(hits(2, free())), (Code::Ok, 0));
}

#[test]
fn hits_that_the_failure_policy_denies_are_over_the_limit_and_so_is_a_look() {
    let lost = LIMITS.replace("$USER", "").replace("$PATH", "");
    let faulty = lost.replacen("ratelimit.descriptor[\"user\"]'}", "ratelimit.descriptor[\"user\"] +'}", 1);
    // A call for a rate limit has no such attribute.
    let unknown_user =
        |part: &str| lost.replacen(part, &part.replace("ratelimit.descriptor[\"user\"]", "source.user"), 1);
    for (what, text, flags, denied) in [
        (
            "a quota that no rule has",
            &lost,
            &["--on-unknown-quota", "deny"][..],
            descriptor(&[("quota", "unknown")]),
        ),
        (
            "a failed condition",
            &unknown_user("match: 'ratelimit.descriptor[\"user\"]"),
            &["--on-match-error", "closed"],
            user("a"),
        ),
        (
            "an instance that cannot be built",
            &unknown_user("user: 'ratelimit.descriptor[\"user\"]"),
            &["--on-adapter-error", "closed"],
            user("a"),
        ),
        ("an instance that was dropped", &faulty, &["--lenient", "--on-config-error", "closed"], user("a")),
    ] {
        let mut limits = Limits::with(text, flags);
        for amount in [1, 0] {
            assert_eq!(limits.one(hits(amount, denied.clone())).0, Code::OverLimit, "{what}: {amount} hits");
        }
        // No decision: the hits have happened, or are given back.
        let mut done = denied.clone();
        done.entries.push(Entry { key: "phase".into(), value: "done".into() });
        let back = RateLimitDescriptor { is_negative_hits: true, ..hits(1, denied) };
        assert_eq!((limits.one(done).0, limits.one(back).0), (Code::Ok, Code::Ok), "{what}");
        assert_eq!(limits.count("over_limit"), "2", "{what}");
    }
}

#[test]
fn explain_shows_why_a_quota_is_granted_in_full() {
    let config = tempfile::tempdir().unwrap();
    let text = LIMITS.replace("$USER", "mixer-adapter/rate-limit-mode: shadow").replace("$PATH", "");
    std::fs::write(config.path().join("limits.yaml"), text).unwrap();
    let explain = |quota: &str, user: &str| {
        let attributes = format!("ratelimit.descriptor=map:user={user}");
        let directory = config.path().to_str().unwrap();
        let ran = run(&["explain", "--config", directory, "--quota", quota, "--attributes", &attributes]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.stdout
    };
    for (quota, user, text) in [
        ("unknown", "a", "quota unknown: no rule has a quota of this name: granted in full, as by Mixer"),
        ("per-user", "admin", "quota per-user: granted 1 of 1: no rule of the quota matches"),
        (
            "per-user",
            "a",
            "quota per-user: granted 1 of 1; behind Envoy, requests past the limit pass (shadow)",
        ),
    ] {
        let explained = explain(quota, user);
        assert!(explained.contains(text), "{text}: {explained}");
    }
}

#[test]
fn annotations_that_would_have_no_effect_are_faults() {
    let text = "\
kind: handler
metadata: {name: limits}
spec: {compiledAdapter: memquota, params: {quotas: [{name: per-user, maxAmount: 2, validDuration: 60s}]}}
---
kind: instance
metadata:
  name: per-user
  annotations:
    mixer-adapter/all-or-nothing: sometimes
    mixer-adapter/mode: shadow
spec: {compiledTemplate: quota, params: {dimensions: {}}}
";
    let output = r#"
config.yaml:1:1: warning: limits.handler.istio-system: no rule uses this handler
  |
1 | kind: handler
  | ^^^^
config.yaml:5:1: warning: per-user.instance.istio-system: no rule uses this instance
  |
5 | kind: instance
  | ^^^^
config.yaml:9:1: error: per-user.instance.istio-system: metadata.annotations["mixer-adapter/all-or-nothing"]: the value is not valid; write "true" or "false"
  |
9 |     mixer-adapter/all-or-nothing: sometimes
  | ^
config.yaml:10:1: error: per-user.instance.istio-system: metadata.annotations["mixer-adapter/mode"]: unknown annotation of quotas; write one of mixer-adapter/rate-limit-mode, mixer-adapter/all-or-nothing, mixer-adapter/max-limit, mixer-adapter/dimensions-in-metadata
   |
10 |     mixer-adapter/mode: shadow
   | ^
2 resources: 2 errors, 2 warnings
"#;
    let config = tempfile::tempdir().unwrap();
    std::fs::write(config.path().join("config.yaml"), text).unwrap();
    let ran = binary().current_dir(config.path()).args(["validate", "config.yaml"]).output().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), output[1..]);
    assert_eq!(ran.status.code(), Some(1));
}
