//! Evaluations in the shadow change no answer, whatever they do, and each difference is counted and logged.

use std::{
    io,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::Duration,
};

use mixer_adapter::{
    service::{Server, ServerOptions, Workers},
    tonic::Code,
};
use mixer_adapter_config::{ConfigSet, parse};
use mixer_adapter_engine::{
    CacheLimits, Mixer, RequestLimits, Shadow, ShadowCall, ShadowKind, ShadowOptions,
    build::{BuildOptions, Connector, SnapshotBuilder},
    decision_log::DecisionLog,
    proto::istio::mixer::v1::{CheckRequest, CheckResponse, CompressedAttributes},
    remote,
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use serde_json::Value as Json;
use test_adapters::{Ledger, Probe, ledger};
use tokio::runtime::Handle;

use crate::support::{Client, Serving, until};

/// The handler `live` executes the path.
const LIVE: &str = "
kind: handler
metadata: {name: live}
spec: {compiledAdapter: probe, params: {ledger: NAME live}}
---
kind: instance
metadata: {name: path}
spec: {compiledTemplate: listentry, params: {value: request.path}}
---
kind: rule
metadata: {name: decides}
spec: {actions: [{name: first, handler: live, instances: [path]}]}
---
";

/// The handler `trial` executes the host.
const TRIAL: &str = "
kind: handler
metadata: {name: trial}
spec: {compiledAdapter: probe, params: {ledger: NAME trial}}
---
kind: instance
metadata: {name: host}
spec: {compiledTemplate: listentry, params: {value: request.host}}
---
kind: rule
metadata: {name: stricter, annotations: {ANNOTATIONS}}
spec: {actions: [{name: second, handler: trial, instances: [host]}]}
";

const RULE: &str = "stricter.rule.istio-system";

/// An output of the decision log that a test reads.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server whose rule `stricter` is in the shadow.
struct Subject {
    serving: Serving,
    client: Client,
    host: Arc<Host>,
    mixer: Arc<Mixer>,
    log: Output,
    live: Arc<Ledger>,
    trial: Arc<Ledger>,
}

impl Subject {
    async fn start(name: &str, shadow: ShadowOptions, options: BuildOptions) -> Self {
        let config = format!("{LIVE}{}", annotated("mixer-adapter/mode: shadow"));
        Self::with(name, &config, None, shadow, options, RequestLimits::default()).await
    }

    /// Serves a configuration, with a second one in the shadow.
    async fn with(
        name: &str,
        config: &str,
        second: Option<&str>,
        shadow: ShadowOptions,
        options: BuildOptions,
        limits: RequestLimits,
    ) -> Self {
        let adapters = Adapters::builder(Handle::current()).add::<Probe>().build().unwrap();
        let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(Handle::current())));
        let engine = second.map(|_| Arc::new(Mixer::new()));
        if let (Some(engine), Some(second)) = (&engine, second) {
            apply(engine, &host, &second.replace("NAME", name), options.clone().is_shadow(true)).await;
        }
        let log = Output::default();
        let decisions = DecisionLog::default().with_output(log.clone(), 1.0).unwrap();
        let mixer = Mixer::new().with_limits(limits).with_decision_log(decisions);
        let mixer = Arc::new(mixer.with_shadow(Shadow::new(shadow), engine));
        apply(&mixer, &host, &config.replace("NAME", name), options).await;
        let server = Server::new(host.clone(), ServerOptions::default()).mixer(mixer.clone());
        let serving = Serving::server(&Workers::here(), host.clone(), server).await;
        let client = serving.connect().await;
        let [live, trial] = ["live", "trial"].map(|of| ledger(&format!("{name} {of}")));
        Self { serving, client, host, mixer, log, live, trial }
    }

    /// Checks a request that executes `path` and, in the shadow, `host`.
    async fn check(&self, path: &str, host: &str) -> Code {
        let words = ["request.path", path, "request.host", host].map(str::to_owned).to_vec();
        let strings = [(-1, -2), (-3, -4)].into();
        let attributes = Some(CompressedAttributes { words, strings, ..CompressedAttributes::default() });
        let request = CheckRequest { attributes, ..CheckRequest::default() };
        let answer = self.client.call::<CheckResponse>("/istio.mixer.v1.Mixer/Check", &request).await;
        match answer {
            Ok(answer) => Code::from(answer.precondition.unwrap().status.unwrap().code),
            Err(error) => error.code,
        }
    }

    /// The numbers of evaluations: the same, would allow, would deny, another status, failed, dropped.
    fn results(&self, kind: ShadowKind) -> [u64; 6] {
        self.mixer.shadow().counts(kind).results().map(|(_, count)| count)
    }

    async fn until_results(&self, kind: ShadowKind, expected: [u64; 6]) {
        let sum = |results: [u64; 6]| results.iter().sum::<u64>();
        until("the calls are evaluated", || sum(self.results(kind)) >= sum(expected)).await;
        assert_eq!(self.results(kind), expected);
    }

    /// The lines of the decision log about the shadow.
    fn logged(&self) -> Vec<Json> {
        assert!(self.mixer.decision_log().flush(Duration::from_secs(10)));
        let text = String::from_utf8(self.log.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
        lines.filter(|line| line["kind"] == "shadow").collect()
    }
}

fn annotated(annotations: &str) -> String {
    TRIAL.replace("ANNOTATIONS", annotations)
}

/// Replaces the configuration, as a controller does.
async fn apply(mixer: &Mixer, host: &Arc<Host>, config: &str, options: BuildOptions) {
    let connector =
        Connector { host: host.clone(), remote: remote::Options::default(), closing: host.closing().clone() };
    let parsed = parse(config, "config.yaml", "istio-system");
    let (set, faults) = ConfigSet::of(parsed.resources);
    let former = mixer.snapshot();
    let builder = SnapshotBuilder::after(former.as_deref(), &set, faults, host);
    let built = builder.build(former.as_deref(), &connector, &options).await;
    mixer.replace(
        built.map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap().0,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_in_the_shadow_changes_no_answer_and_each_difference_is_counted_and_logged() {
    let subject = Subject::start("shadow rule", ShadowOptions::default(), BuildOptions::default()).await;
    for (path, host, code) in [
        ("allow", "allow", Code::Ok),
        ("allow", "deny", Code::Ok),
        ("allow", "fail", Code::Ok),
        ("deny", "allow", Code::PermissionDenied),
        ("deny", "deny", Code::PermissionDenied),
        ("fail", "deny", Code::Internal),
    ] {
        assert_eq!(subject.check(path, host).await, code, "{path} {host}");
    }
    subject.until_results(ShadowKind::Rules, [4, 0, 1, 0, 1, 0]).await;
    assert_eq!(subject.mixer.shadow().counts(ShadowKind::Rules).rules(), [(RULE.into(), [0, 1, 0, 1])]);
    let series = |difference: &str| {
        format!(
            "mixer_adapter_shadow_rule_differences_total{{shadow=\"rules\",rule=\"{RULE}\",difference=\"{difference}\"}}"
        )
    };
    assert_eq!(subject.serving.metric(&series("would_deny")).await, 1.0);
    assert_eq!(subject.serving.metric(&series("failed")).await, 1.0);
    let mut lines = subject.logged();
    lines.sort_by_key(|line| line["verdict"].to_string());
    let [failed, denied] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&failed["verdict"], &denied["verdict"]), (&"failed".into(), &"would_deny".into()));
    assert_eq!((&denied["shadow"], &denied["live"]), (&"rules".into(), &"allowed".into()));
    assert_eq!(denied["code"], "PERMISSION_DENIED");
    assert_eq!(denied["attributes"], serde_json::json!({ "request.host": "deny", "request.path": "allow" }));
    assert_eq!(denied["rules"], serde_json::json!([RULE]));
    assert_eq!(failed["failed"][0]["cause"], "UNAVAILABLE");
    let snapshot = subject.mixer.snapshot().unwrap();
    let counted: Vec<_> = snapshot.resource_counts().rules.all().into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(
        counted,
        [Arc::<str>::from("decides.rule.istio-system")],
        "rules in the shadow have other counters"
    );
    let status: Json = serde_json::from_str(&subject.serving.get("/status").await.1).unwrap();
    assert_eq!(status["shadow"][0]["results"]["would_deny"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_shadow_delays_no_answer_and_what_waits_is_limited_and_counted() {
    let options = ShadowOptions::default().evaluations(2).bytes(20_000).timeout(Duration::from_secs(600));
    let subject = Subject::start("slow shadow", options, BuildOptions::default()).await;
    for _ in 0..20 {
        // The shadow waits for the gate.
        assert_eq!(subject.check("allow", "wait").await, Code::Ok);
    }
    let dropped = subject.results(ShadowKind::Rules)[5];
    assert!((1..18).contains(&dropped), "{dropped}");
    until("two calls are evaluated", || subject.trial.entered() == 2).await;
    subject.trial.open_gate();
    subject.until_results(ShadowKind::Rules, [20 - dropped, 0, 0, 0, 0, dropped]).await;
    assert_eq!(subject.check("allow", "deny").await, Code::Ok);
    subject.until_results(ShadowKind::Rules, [20 - dropped, 0, 1, 0, 0, dropped]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_that_does_not_answer_is_given_up_and_counted_for_its_rule() {
    let options = ShadowOptions::default().timeout(Duration::from_millis(200));
    let subject = Subject::start("hanging shadow", options, BuildOptions::default()).await;
    assert_eq!(subject.check("allow", "hang").await, Code::Ok);
    subject.until_results(ShadowKind::Rules, [0, 0, 0, 0, 1, 0]).await;
    assert_eq!(subject.mixer.shadow().counts(ShadowKind::Rules).rules(), [(RULE.into(), [0, 0, 0, 1])]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_answers_are_evaluated_in_the_shadow_each_time_and_nothing_of_it_is_cached() {
    let options = BuildOptions::default().check_cache(CacheLimits::new(100, 1 << 20));
    let subject = Subject::start("shadow cache", ShadowOptions::default(), options).await;
    for _ in 0..5 {
        assert_eq!(subject.check("allow", "deny").await, Code::Ok);
    }
    subject.until_results(ShadowKind::Rules, [0, 0, 5, 0, 0, 0]).await;
    assert_eq!((subject.live.entered(), subject.trial.entered()), (1, 5));
    let snapshot = subject.mixer.snapshot().unwrap();
    let counts = snapshot.cache_counts().requests.each_ref().map(|count| count.load(Relaxed));
    assert_eq!(counts, [4, 1, 0, 0, 0]);
    assert_eq!(snapshot.cache_size().answers, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sample_of_calls_is_evaluated() {
    let options = ShadowOptions::default().sample(0.25);
    let subject = Subject::start("shadow sample", options, BuildOptions::default()).await;
    for _ in 0..40 {
        subject.check("allow", "allow").await;
    }
    let evaluated = || subject.results(ShadowKind::Rules).iter().sum::<u64>();
    until("a share is evaluated", || evaluated() >= 8).await;
    assert!(evaluated() <= 14, "{}", evaluated());
    let snapshot = subject.mixer.snapshot().unwrap();
    let begun = (0..40).filter(|_| ShadowCall::new(&subject.mixer, &snapshot).is_some()).count();
    assert!((8..=12).contains(&begun), "{begun}: other calls do nothing for the shadow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evaluation_has_the_limits_of_calls() {
    let rule = annotated("mixer-adapter/mode: shadow").replace("[host]", "[host, path]");
    let subject = Subject::with(
        "limited shadow",
        &format!("{LIVE}{rule}"),
        None,
        ShadowOptions::default(),
        BuildOptions::default(),
        RequestLimits::default().instances(1),
    )
    .await;
    assert_eq!(subject.check("allow", "allow").await, Code::Ok);
    subject.until_results(ShadowKind::Rules, [0, 0, 0, 0, 1, 0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_counts_quotas_in_the_shadow_apart_and_is_shared_for_checks() {
    let quota = "
---
kind: instance
metadata: {name: amount}
spec: {compiledTemplate: quota, params: {dimensions: {}}}
---
kind: rule
metadata: {name: limits}
spec: {actions: [{handler: live, instances: [amount]}]}
";
    let shadow = annotated("mixer-adapter/mode: shadow").replace("handler: trial", "handler: live");
    let shadowed_quota = shadow.replace("[host]", "[host, amount]");
    for (name, config, opened) in [
        ("shared handler", format!("{LIVE}{shadow}"), 1),
        ("handler apart", format!("{LIVE}{shadowed_quota}{quota}"), 2),
    ] {
        let shadow = ShadowOptions::default();
        let subject =
            Subject::with(name, &config, None, shadow, BuildOptions::default(), RequestLimits::default())
                .await;
        assert_eq!(subject.live.opened(), opened, "{name}");
        let config = format!("{LIVE}{shadowed_quota}{quota}").replace("NAME", name);
        apply(&subject.mixer, &subject.host, &config, BuildOptions::default()).await;
        assert_eq!(subject.live.opened(), 2, "{name}, with the quota");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_configuration_is_compared_with_each_answer() {
    let second = annotated("");
    let subject = Subject::with(
        "second shadow",
        LIVE,
        Some(&second),
        ShadowOptions::default(),
        BuildOptions::default(),
        RequestLimits::default(),
    )
    .await;
    for (path, host, code) in [
        ("allow", "allow", Code::Ok),
        ("allow", "deny", Code::Ok),
        ("deny", "allow", Code::PermissionDenied),
        ("deny", "deny", Code::PermissionDenied),
        ("deny", "fail", Code::PermissionDenied),
    ] {
        assert_eq!(subject.check(path, host).await, code, "{path} {host}");
    }
    subject.until_results(ShadowKind::Configuration, [2, 1, 1, 0, 1, 0]).await;
    let rules = subject.mixer.shadow().counts(ShadowKind::Configuration).rules();
    assert_eq!(rules, [("decides.rule.istio-system".into(), [1, 0, 0, 0]), (RULE.into(), [0, 1, 0, 1])]);
    let mut allowed = subject.logged();
    allowed.retain(|line| line["verdict"] == "would_allow");
    assert_eq!((&allowed[0]["shadow"], &allowed[0]["live"]), (&"configuration".into(), &"denied".into()));
}

#[tokio::test]
async fn single_actions_are_in_the_shadow_and_annotations_without_effect_are_errors() {
    let adapters = Adapters::builder(Handle::current()).add::<Probe>().build().unwrap();
    let host = Host::new(adapters, TableLimits::default(), Closing::on(Handle::current()));
    let errors = |annotations: &str| {
        let config = format!("{LIVE}{}", annotated(annotations));
        let (set, faults) = ConfigSet::of(parse(&config, "config.yaml", "istio-system").resources);
        let faults = SnapshotBuilder::new(&set, faults, &host).faults(&Default::default());
        faults.iter().filter(|fault| fault.is_error()).map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    for valid in ["mixer-adapter/mode: enforce", "mixer-adapter/shadow-actions: second"] {
        assert_eq!(errors(valid), "");
    }
    for (invalid, error) in [
        ("mixer-adapter/mode: dry", "the value is not valid; write enforce or shadow"),
        ("mixer-adapter/shadow-actions: third", "no action of the rule has the name \"third\""),
        ("mixer-adapter/shadow-actions: ' '", "write the names of actions, separated by commas"),
        ("mixer-adapter/shadow: all", "unknown annotation of rules"),
    ] {
        assert!(errors(invalid).contains(error), "{invalid}: {}", errors(invalid));
    }
}
