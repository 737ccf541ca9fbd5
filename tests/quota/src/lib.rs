//! What every quota adapter does, as tests.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mixer_adapter_core::{
    AdapterError, Code, Grant, QuotaRequest,
    adapter::{ConfigErrors, InferredType, LimitOverride},
    value::{IpAddress, StringMap, Value},
};
use mixer_adapter_templates::quota::InstanceMsg;
use proptest::prelude::*;

/// A quota with a rolling window, or without one.
#[derive(Clone, Copy, Debug)]
pub struct QuotaConfig {
    pub name: &'static str,
    pub max_amount: i64,
    pub valid: Duration,
}

/// An adapter under test, and what its handlers need.
pub trait Subject: Sized + Send + Sync {
    type Handler: Send + Sync + 'static;
    /// How long an allocation is valid.
    const ALLOCATION: Duration;
    /// The number of cases of a property.
    const CASES: u32;

    /// Starts what handlers need; `None` if it cannot be installed.
    fn start() -> Option<Self>;

    fn open(
        &self,
        quotas: &[QuotaConfig],
        deduplication: Duration,
    ) -> impl Future<Output = Self::Handler> + Send;

    /// Sets the time of calls.
    fn set_time(&self, handler: &Self::Handler, now: Duration);

    fn answer(
        handler: &Self::Handler,
        instance: &InstanceMsg,
        request: &QuotaRequest,
    ) -> impl Future<Output = Result<Grant, AdapterError>> + Send;

    /// Validates a configuration with one quota.
    fn validate(quota: QuotaConfig, types: Vec<InferredType>) -> Result<(), ConfigErrors>;
}

/// Defines the tests of a subject.
#[macro_export]
macro_rules! behaviours {
    ($subject:ty: $($test:ident),* $(,)?) => {
        $(#[test]
        fn $test() {
            $crate::run::<$subject, _>($crate::$test::<$subject>);
        })*
    };
    ($subject:ty) => {
        $crate::behaviours!(
            $subject:
            quotas_are_granted_and_released_as_by_the_original,
            a_call_sent_again_counts_once_until_its_answer_is_forgotten,
            calls_without_an_id_count_each,
            best_effort_on_an_exhausted_window_grants_nothing_for_no_time,
            each_combination_of_dimensions_has_an_allowance_of_its_own,
            an_instance_without_an_entry_is_an_error,
            an_instance_without_an_entry_is_refused_where_instances_are_known,
            calls_together_get_no_more_than_there_is,
            a_call_sent_many_times_at_once_counts_once,
            never_more_than_the_limit_is_in_use_whatever_the_order_of_calls,
            no_window_holds_more_than_the_limit,
            a_limit_of_the_caller_replaces_the_configured_one_with_a_counter_for_each_window,
            windows_are_the_same_if_they_are_equal_in_whole_seconds,
            amounts_past_the_limit_never_free_it,
        );
    };
}

/// Runs a test, unless what it needs cannot be installed.
pub fn run<S: Subject, F: AsyncFnOnce(Arc<S>)>(test: F) {
    let Some(subject) = S::start() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test(Arc::new(subject)));
}

const HOUR: u64 = 3600;

fn quota(name: &'static str, max_amount: i64, seconds: u64) -> QuotaConfig {
    QuotaConfig { name, max_amount, valid: Duration::from_secs(seconds) }
}

fn instance(name: &str, dimensions: &[(&str, Value)]) -> InstanceMsg {
    let dimensions = dimensions.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    InstanceMsg { name: name.to_owned(), dimensions }
}

fn args(dedup_id: &str, amount: i64, best_effort: bool) -> QuotaRequest {
    let request = QuotaRequest::new(amount).with_dedup_id(dedup_id);
    if best_effort { request.with_best_effort() } else { request }
}

/// A handler at a time.
struct Opened<S: Subject> {
    subject: Arc<S>,
    handler: Arc<S::Handler>,
}

impl<S: Subject> Opened<S> {
    async fn new(subject: &Arc<S>, quotas: &[QuotaConfig], deduplication: u64) -> Self {
        let handler = subject.open(quotas, Duration::from_secs(deduplication)).await;
        subject.set_time(&handler, Duration::ZERO);
        Self { subject: subject.clone(), handler: Arc::new(handler) }
    }

    async fn answer(
        &self,
        instance: &InstanceMsg,
        request: &QuotaRequest,
        now: Duration,
    ) -> Result<Grant, AdapterError> {
        self.subject.set_time(&self.handler, now);
        S::answer(&self.handler, instance, request).await
    }

    async fn grant(&self, instance: &InstanceMsg, request: &QuotaRequest) -> Grant {
        S::answer(&self.handler, instance, request).await.unwrap()
    }
}

/// memquota_test.go, TestAllocAndRelease. Each row asks with the id `A<id>`, then releases with the id `R<id>`.
pub async fn quotas_are_granted_and_released_as_by_the_original<S: Subject>(subject: Arc<S>) {
    // quota, id, asked, granted, best effort, granted for (s), at (s), to release, released
    #[rustfmt::skip]
    let rows = [
        ("Q1", "0", 2, 2, false, 0, 0, 0, 0),
        ("Q1", "0", 2, 2, false, 0, 0, 0, 0),
        ("Q1", "1", 6, 6, false, 0, 0, 0, 0),
        ("Q1", "2", 2, 2, false, 0, 0, 0, 0),
        ("Q1", "3", 2, 0, false, 0, 0, 0, 0),
        ("Q1", "4", 1, 0, true, 0, 0, 0, 0),
        ("Q1", "5", 0, 0, true, 0, 0, 0, 0),
        ("Q1", "5b", 0, 0, false, 0, 0, 5, 5),
        ("Q1", "5b", 0, 0, false, 0, 0, 5, 5),
        ("Q1", "5c", 0, 0, false, 0, 0, 15, 5),
        ("Q3", "6", 10, 10, false, 60, 1, 0, 0),
        ("Q3", "7", 10, 0, false, 0, 2, 0, 0),
        ("Q3", "8", 10, 0, false, 0, 60, 0, 0),
        ("Q3", "9", 10, 10, false, 60, 61, 0, 0),
        ("Q3", "10", 100, 10, true, 60, 121, 0, 0),
        ("Q3", "11", 100, 0, false, 0, 122, 10, 10),
        ("Q3", "12", 0, 0, false, 0, 123, 1000, 0),
        ("Q3", "12", 0, 0, false, 0, 124, 1000, 0),
    ];
    let dimensions = [
        ("L1", "string".into()),
        ("L2", 2.into()),
        ("L3", 3.0.into()),
        ("L4", true.into()),
        ("L5", std::time::SystemTime::UNIX_EPOCH.into()),
        ("L6", IpAddress { value: vec![0, 1].into() }.into()),
        ("L7", [("Foo", "Bar")].into_iter().collect::<StringMap>().into()),
    ];
    // The handler may have been opened at any moment of a tick.
    for start in [0, 50, 99] {
        let quotas = [quota("Q1", 10, 0), quota("Q2", 10, 1), quota("Q3", 10, 60)];
        let opened = Opened::new(&subject, &quotas, HOUR).await;
        for (name, id, asked, granted, best_effort, valid, seconds, release, released) in rows {
            let now = Duration::from_millis(start) + Duration::from_secs(seconds);
            let instance = instance(name, &dimensions);
            let answer =
                opened.answer(&instance, &args(&format!("A{id}"), asked, best_effort), now).await.unwrap();
            let valid = if name == "Q1" && granted > 0 { S::ALLOCATION } else { Duration::from_secs(valid) };
            assert_eq!(answer, Grant::amount(granted).valid_for(valid), "{name} {id} at {now:?}");
            let release = args(&format!("R{id}"), -release, false);
            let answer = opened.answer(&instance, &release, now).await.unwrap();
            assert_eq!(answer, Grant::amount(released), "{name} R{id} at {now:?}");
        }
    }
}

/// memquota_test.go, TestReaper: the answers of ids 0, 0, 1, then 2 a period later, then 0 another period later.
pub async fn a_call_sent_again_counts_once_until_its_answer_is_forgotten<S: Subject>(subject: Arc<S>) {
    let opened = Opened::new(&subject, &[quota("Q1", 10, 0)], 10).await;
    let granted = [("0", 0, 10), ("0", 0, 10), ("1", 0, 0), ("2", 10, 0), ("0", 20, 0)];
    for (id, seconds, amount) in granted {
        let now = Duration::from_secs(seconds);
        let answer = opened.answer(&instance("Q1", &[]), &args(id, 10, false), now).await;
        assert_eq!(answer.unwrap().granted(), amount, "{id} at {seconds}");
    }
}

pub async fn calls_without_an_id_count_each<S: Subject>(subject: Arc<S>) {
    let opened = Opened::new(&subject, &[quota("q", 3, 60)], 1).await;
    for granted in [1, 1, 1, 0, 0] {
        let grant = opened.grant(&instance("q", &[]), &args("", 1, false)).await;
        assert_eq!(grant.granted(), granted);
    }
}

pub async fn best_effort_on_an_exhausted_window_grants_nothing_for_no_time<S: Subject>(subject: Arc<S>) {
    let opened = Opened::new(&subject, &[quota("q", 3, 60)], 1).await;
    for expected in [Grant::amount(3).valid_for(Duration::from_secs(60)), Grant::nothing()] {
        assert_eq!(opened.grant(&instance("q", &[]), &args("", 5, true)).await, expected);
    }
}

pub async fn each_combination_of_dimensions_has_an_allowance_of_its_own<S: Subject>(subject: Arc<S>) {
    let opened = Opened::new(&subject, &[quota("q", 1, 60)], 1).await;
    for user in ["a", "b"] {
        let instance = instance("q", &[("user", user.into())]);
        for granted in [1, 0] {
            assert_eq!(opened.grant(&instance, &args("", 1, false)).await.granted(), granted, "{user}");
        }
    }
}

pub async fn an_instance_without_an_entry_is_an_error<S: Subject>(subject: Arc<S>) {
    let opened = Opened::new(&subject, &[quota("q", 1, 60)], 1).await;
    for amount in [0, 1, -1] {
        let request = args("", amount, false);
        let asked = opened.answer(&instance("other.instance.ns", &[]), &request, Duration::ZERO).await;
        let error = asked.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.to_string().contains("`other.instance.ns`"), "{error}");
    }
}

/// memquota_test.go, TestBadConfig.
pub async fn an_instance_without_an_entry_is_refused_where_instances_are_known<S: Subject>(_: Arc<S>) {
    let inferred = |instance: &str| InferredType::new(instance, "quota", &b""[..]);
    let validate = |types| S::validate(quota("q", 1, 60), types);
    assert_eq!(validate(Vec::new()), Ok(()));
    assert_eq!(validate(vec![inferred("q.instance.ns")]), Ok(()));
    let violations =
        validate(vec![inferred("q.instance.ns"), inferred("Foo")]).unwrap_err().into_violations();
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].field, "quotas");
    assert!(violations[0].reason.contains("`Foo`"), "{}", violations[0].reason);
}

/// Makes calls in eight tasks, and returns what they were granted. The id of a call is made of its task and number.
async fn together<S: Subject>(
    opened: &Opened<S>,
    calls: usize,
    amount: i64,
    id: fn(usize, usize) -> String,
) -> Vec<i64> {
    let tasks = (0..8).map(|task| {
        let handler = opened.handler.clone();
        tokio::spawn(async move {
            let mut granted = Vec::new();
            for call in 0..calls {
                let request = args(&id(task, call), amount, false);
                granted.push(S::answer(&handler, &instance("q", &[]), &request).await.unwrap().granted());
            }
            granted
        })
    });
    let mut granted = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        granted.extend(task.await.unwrap());
    }
    granted
}

pub async fn calls_together_get_no_more_than_there_is<S: Subject>(subject: Arc<S>) {
    let opened = Opened::new(&subject, &[quota("q", 100, HOUR)], HOUR).await;
    let granted = together(&opened, 50, 1, |task, call| format!("{task}-{call}")).await;
    assert_eq!(granted.iter().sum::<i64>(), 100);
}

pub async fn a_call_sent_many_times_at_once_counts_once<S: Subject>(subject: Arc<S>) {
    let opened = Opened::new(&subject, &[quota("q", 100, 0)], HOUR).await;
    assert_eq!(together(&opened, 20, 5, |_, call| call.to_string()).await, [5; 160]);
    assert_eq!(opened.grant(&instance("q", &[]), &args("", 1, true)).await, Grant::nothing());
}

/// One call of the property test: which of three users, after how many milliseconds, for how much, best effort.
type Call = (usize, u64, i64, bool);

fn calls() -> impl Strategy<Value = Vec<Call>> {
    prop::collection::vec((0..3_usize, 0..700_u64, -6..9_i64, any::<bool>()), 1..200)
}

/// Checks a property of calls, whose test is async.
async fn check<S: Subject>(subject: Arc<S>, test: impl AsyncFn(Arc<S>, Vec<Call>, bool)) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(S::CASES)
    });
    let runtime = tokio::runtime::Handle::current();
    let run = |(calls, window)| {
        runtime.block_on(test(subject.clone(), calls, window));
        Ok(())
    };
    #[expect(clippy::disallowed_methods, reason = "the runtime has several threads")]
    tokio::task::block_in_place(|| runner.run(&(calls(), any::<bool>()), run)).unwrap();
}

/// What the rules say, written down without thought for speed: what was granted in which tick and is not released.
#[derive(Default)]
struct Model {
    granted: BTreeMap<u64, i64>,
}

impl Model {
    const MAX: i64 = 10;

    fn in_use(&self, tick: u64, window: u64) -> i64 {
        self.granted.iter().filter(|(granted, _)| *granted + window > tick).map(|(_, amount)| amount).sum()
    }

    fn call(&mut self, tick: u64, window: u64, amount: i64, best_effort: bool) -> i64 {
        if amount >= 0 {
            let available = Self::MAX - self.in_use(tick, window);
            let granted = if amount <= available || best_effort { amount.min(available) } else { 0 };
            *self.granted.entry(tick).or_default() += granted;
            return granted;
        }
        let mut released = 0;
        for (granted, in_use) in self.granted.iter_mut().rev() {
            if *granted + window > tick {
                let part = (-amount - released).min(*in_use);
                *in_use -= part;
                released += part;
            }
        }
        released
    }
}

/// Both for windows of two seconds (20 ticks) and for what lasts until it is released.
pub async fn never_more_than_the_limit_is_in_use_whatever_the_order_of_calls<S: Subject>(subject: Arc<S>) {
    let test = async |subject: Arc<S>, calls: Vec<Call>, window: bool| {
        let opened = Opened::new(&subject, &[quota("q", Model::MAX, if window { 2 } else { 0 })], 1).await;
        let ticks = if window { 20 } else { u64::MAX / 2 };
        let valid = if window { Duration::from_secs(2) } else { S::ALLOCATION };
        let mut models: [Model; 3] = Default::default();
        let mut now = Duration::ZERO;
        for (user, pause, amount, best_effort) in calls {
            now += Duration::from_millis(pause);
            let tick = now.as_millis() as u64 / 100;
            let instance = instance("q", &[("user", (user as i64).into())]);
            let grant = opened.answer(&instance, &args("", amount, best_effort), now).await.unwrap();
            let model = &mut models[user];
            assert_eq!(grant.granted(), model.call(tick, ticks, amount, best_effort));
            assert!((0..=Model::MAX).contains(&model.in_use(tick, ticks)));
            let expected = if amount > 0 && grant.granted() > 0 { valid } else { Duration::ZERO };
            assert_eq!(grant.valid_duration(), expected);
        }
    };
    check(subject, test).await;
}

/// Without looking inside: in no span of 20 ticks is more granted than the limit, less what was released in it.
pub async fn no_window_holds_more_than_the_limit<S: Subject>(subject: Arc<S>) {
    let test = async |subject: Arc<S>, calls: Vec<Call>, _: bool| {
        let opened = Opened::new(&subject, &[quota("q", Model::MAX, 2)], 1).await;
        let (mut now, mut log) = (Duration::ZERO, Vec::new());
        for (_, pause, amount, best_effort) in calls {
            now += Duration::from_millis(pause);
            let grant =
                opened.answer(&instance("q", &[]), &args("", amount, best_effort), now).await.unwrap();
            let granted = if amount < 0 { -grant.granted() } else { grant.granted() };
            log.push((now.as_millis() as u64 / 100, granted));
            let (tick, _) = log[log.len() - 1];
            let net: i64 = log.iter().filter(|(then, _)| then + 20 > tick).map(|(_, amount)| amount).sum();
            assert!(net <= Model::MAX, "{net} within 20 ticks of {tick}: {log:?}");
        }
        let total: i64 = log.iter().map(|(_, amount)| amount).sum();
        assert!(total >= 0, "more released than granted: {log:?}");
    };
    check(subject, test).await;
}

fn limit(max_amount: i64, seconds: u64) -> LimitOverride {
    LimitOverride { max_amount, window: Duration::from_secs(seconds) }
}

pub async fn a_limit_of_the_caller_replaces_the_configured_one_with_a_counter_for_each_window<S: Subject>(
    subject: Arc<S>,
) {
    let opened = Opened::new(&subject, &[quota("Q", 2, 60)], 1).await;
    let rows = [
        (3, None, (0, 2, 2, 60)),
        (1, None, (1, 2, 1, 60)),
        // The same window has the same counter.
        (3, Some(limit(5, 60)), (3, 5, 1, 60)),
        (2, Some(limit(5, 60)), (0, 5, 1, 60)),
        (1, None, (0, 2, 0, 60)),
        // A lower limit than what is in use.
        (1, Some(limit(1, 60)), (0, 1, 0, 60)),
        // Another window has another counter.
        (3, Some(limit(5, 3600)), (3, 5, 2, 3600)),
        (1, Some(limit(5, 60)), (1, 5, 0, 60)),
        // Without a window it is none.
        (1, Some(limit(1, 0)), (0, 2, 0, 60)),
    ];
    for (amount, limit, expected) in rows {
        let request = QuotaRequest::new(amount).with_report_limit();
        let request = match limit {
            Some(limit) => request.with_limit(limit),
            None => request,
        };
        let grant = opened.grant(&instance("Q", &[]), &request).await;
        let state = grant.limit().unwrap();
        let window = state.window.unwrap().as_secs();
        assert_eq!(
            (grant.granted(), state.max_amount, state.remaining, window),
            expected,
            "{amount} {limit:?}"
        );
    }
}

pub async fn windows_are_the_same_if_they_are_equal_in_whole_seconds<S: Subject>(subject: Arc<S>) {
    let fraction = QuotaConfig { valid: Duration::from_millis(1500), ..quota("Q", 2, 0) };
    for (configured, window, remaining) in [(fraction, 2, 3), (quota("Q", 2, 0), 60, 4)] {
        let opened = Opened::new(&subject, &[configured], 1).await;
        let instance = instance("Q", &[]);
        opened.grant(&instance, &QuotaRequest::new(1)).await;
        let request = QuotaRequest::new(1).with_report_limit().with_limit(limit(5, window));
        let grant = opened.grant(&instance, &request).await;
        assert_eq!(grant.limit().unwrap().remaining, remaining, "{window}");
    }
}

pub async fn amounts_past_the_limit_never_free_it<S: Subject>(subject: Arc<S>) {
    let opened = Opened::new(&subject, &[quota("Q", 2, 60)], 1).await;
    let instance = instance("Q", &[]);
    for _ in 0..3 {
        let request = QuotaRequest::new(i64::MAX).with_past_limit();
        assert_eq!(opened.grant(&instance, &request).await.granted(), i64::MAX);
    }
    assert_eq!(opened.grant(&instance, &QuotaRequest::new(1)).await, Grant::nothing());
}
