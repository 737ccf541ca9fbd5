#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    thread,
};

use mixer_adapter_core::{
    adapter::{Access, Faults, InferredType, InferredTypes, LimitOverride},
    prost_types,
    value::{IpAddress, StringMap, Value},
};
use proptest::prelude::*;

use super::*;

fn quota(name: &str, max_amount: i64, seconds: i64) -> params::Quota {
    let valid_duration = Some(prost_types::Duration { seconds, nanos: 0 });
    params::Quota { name: name.to_owned(), max_amount, valid_duration, ..Default::default() }
}

fn handler(quotas: Vec<params::Quota>, deduplication: i64) -> MemQuota {
    let min_deduplication_duration = Some(prost_types::Duration { seconds: deduplication, nanos: 0 });
    let limits = Faults::parse(Params { quotas, min_deduplication_duration }).unwrap();
    MemQuota::new(limits, &Context::detached(()))
}

fn instance(name: &str, dimensions: &[(&str, Value)]) -> quota::InstanceMsg {
    let dimensions = dimensions.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    quota::InstanceMsg { name: name.to_owned(), dimensions }
}

fn args(dedup_id: &str, amount: i64, best_effort: bool) -> QuotaRequest {
    let request = QuotaRequest::new(amount).with_dedup_id(dedup_id);
    if best_effort { request.with_best_effort() } else { request }
}

/// memquota_test.go, TestAllocAndRelease. Each row asks with the id `A<id>`, then releases with the id `R<id>`.
#[test]
fn quotas_are_granted_and_released_as_by_the_original() {
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
        let handler = handler(vec![quota("Q1", 10, 0), quota("Q2", 10, 1), quota("Q3", 10, 60)], 3600);
        for (name, id, asked, granted, best_effort, valid, seconds, release, released) in rows {
            let now = Duration::from_millis(start) + Duration::from_secs(seconds);
            let instance = instance(name, &dimensions);
            let answer =
                handler.answer(&instance, &args(&format!("A{id}"), asked, best_effort), now).unwrap();
            assert_eq!(
                answer,
                Grant::amount(granted).valid_for(Duration::from_secs(valid)),
                "{name} {id} at {now:?}"
            );
            let answer = handler.answer(&instance, &args(&format!("R{id}"), -release, false), now).unwrap();
            assert_eq!(answer, Grant::amount(released), "{name} R{id} at {now:?}");
        }
    }
}

/// memquota_test.go, TestReaper: the answers of ids 0, 0, 1, then 2 a period later, then 0 another period later.
#[test]
fn a_call_sent_again_counts_once_until_its_answer_is_forgotten() {
    let handler = handler(vec![quota("Q1", 10, 0)], 10);
    let granted = [("0", 0, 10), ("0", 0, 10), ("1", 0, 0), ("2", 10, 0), ("0", 20, 0)];
    for (id, seconds, amount) in granted {
        let answer = handler.answer(&instance("Q1", &[]), &args(id, 10, false), Duration::from_secs(seconds));
        assert_eq!(answer.unwrap().granted(), amount, "{id} at {seconds}");
    }
}

#[test]
fn calls_without_an_id_count_each() {
    let handler = handler(vec![quota("q", 3, 60)], 1);
    let granted: Vec<i64> = (0..5)
        .map(|_| handler.answer(&instance("q", &[]), &args("", 1, false), Duration::ZERO).unwrap().granted())
        .collect();
    assert_eq!(granted, [1, 1, 1, 0, 0]);
}

#[test]
fn best_effort_on_an_exhausted_window_grants_nothing_for_no_time() {
    let handler = handler(vec![quota("q", 3, 60)], 1);
    let ask = |amount| handler.answer(&instance("q", &[]), &args("", amount, true), Duration::ZERO).unwrap();
    assert_eq!(ask(5), Grant::amount(3).valid_for(Duration::from_secs(60)));
    assert_eq!(ask(5), Grant::nothing());
}

#[test]
fn each_combination_of_dimensions_has_an_allowance_of_its_own() {
    let handler = handler(vec![quota("q", 1, 60)], 1);
    for user in ["a", "b"] {
        let instance = instance("q", &[("user", user.into())]);
        let granted =
            [1, 2].map(|_| handler.answer(&instance, &args("", 1, false), Duration::ZERO).unwrap().granted());
        assert_eq!(granted, [1, 0], "{user}");
    }
}

#[test]
fn an_instance_without_an_entry_is_an_error() {
    let handler = handler(vec![quota("q", 1, 60)], 1);
    for amount in [0, 1, -1] {
        let asked =
            handler.answer(&instance("other.instance.ns", &[]), &args("", amount, false), Duration::ZERO);
        let error = asked.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.to_string().contains("`other.instance.ns`"), "{error}");
    }
}

/// memquota_test.go, TestBadConfig.
#[test]
fn an_instance_without_an_entry_is_refused_where_instances_are_known() {
    let inferred = |instance: &str| InferredType::new(instance, "quota", &b""[..]);
    let validate = |types: Vec<InferredType>| {
        let params = Params { quotas: vec![quota("q", 1, 60)], ..Default::default() };
        let (types, access) = (InferredTypes::new(types), Access::unrestricted());
        Faults::new(&types, &access).settings::<Limits>(params).map(drop)
    };
    assert_eq!(validate(Vec::new()), Ok(()));
    assert_eq!(validate(vec![inferred("q.instance.ns")]), Ok(()));
    let violations =
        validate(vec![inferred("q.instance.ns"), inferred("Foo")]).unwrap_err().into_violations();
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].field, "quotas");
    assert!(violations[0].reason.contains("`Foo`"), "{}", violations[0].reason);
}

#[tokio::test]
async fn an_opened_handler_serves_calls() {
    let params = Params { quotas: vec![quota("q", 2, 60)], ..Default::default() };
    let handler: MemQuota = Context::detached(()).open_handler(params).await.unwrap();
    let call = mixer_adapter_core::Call::for_quota(instance("q.instance.ns", &[]), args("id", 2, false));
    let grant = handler.handle(call).await.unwrap();
    assert_eq!(grant, Grant::amount(2).valid_for(Duration::from_secs(60)));
    handler.close().await;
}

#[test]
fn threads_together_get_no_more_than_there_is() {
    let handler = handler(vec![quota("q", 100, 3600)], 3600);
    let granted = AtomicI64::new(0);
    thread::scope(|scope| {
        for worker in 0..8 {
            let (handler, granted) = (&handler, &granted);
            scope.spawn(move || {
                for call in 0..50 {
                    let args = args(&format!("{worker}-{call}"), 1, false);
                    let grant =
                        handler.answer(&instance("q", &[]), &args, Duration::from_millis(call)).unwrap();
                    granted.fetch_add(grant.granted(), Relaxed);
                }
            });
        }
    });
    assert_eq!(granted.into_inner(), 100);
}

#[test]
fn a_call_sent_by_many_threads_counts_once() {
    let handler = handler(vec![quota("q", 100, 0)], 3600);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for call in 0..20 {
                    let args = args(&call.to_string(), 5, false);
                    assert_eq!(
                        handler.answer(&instance("q", &[]), &args, Duration::ZERO).unwrap(),
                        Grant::amount(5)
                    );
                }
            });
        }
    });
    let rest = handler.answer(&instance("q", &[]), &args("", 1, true), Duration::ZERO).unwrap();
    assert_eq!(rest, Grant::nothing());
}

/// One call of the property test: which of three users, after how many milliseconds, for how much, best effort.
type Call = (usize, u64, i64, bool);

fn calls() -> impl Strategy<Value = Vec<Call>> {
    prop::collection::vec((0..3_usize, 0..700_u64, -6..9_i64, any::<bool>()), 1..200)
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

proptest! {
    /// Both for windows of two seconds (20 ticks) and for what lasts until it is released.
    #[test]
    fn never_more_than_the_limit_is_in_use_whatever_the_order_of_calls(calls in calls(), window in any::<bool>()) {
        let handler = handler(vec![quota("q", Model::MAX, if window { 2 } else { 0 })], 1);
        let ticks = if window { 20 } else { u64::MAX / 2 };
        let mut models: [Model; 3] = Default::default();
        let mut now = Duration::ZERO;
        for (user, pause, amount, best_effort) in calls {
            now += Duration::from_millis(pause);
            let tick = now.as_millis() as u64 / 100;
            let instance = instance("q", &[("user", (user as i64).into())]);
            let grant = handler.answer(&instance, &args("", amount, best_effort), now).unwrap();
            let model = &mut models[user];
            prop_assert_eq!(grant.granted(), model.call(tick, ticks, amount, best_effort));
            prop_assert!((0..=Model::MAX).contains(&model.in_use(tick, ticks)));
            let held = if amount > 0 && grant.granted() > 0 && window { 2 } else { 0 };
            prop_assert_eq!(grant.valid_duration(), Duration::from_secs(held));
        }
    }

    /// Without looking inside: in no span of 20 ticks is more granted than the limit, less what was released in it.
    #[test]
    fn no_window_holds_more_than_the_limit(calls in calls()) {
        let handler = handler(vec![quota("q", Model::MAX, 2)], 1);
        let (mut now, mut log) = (Duration::ZERO, Vec::new());
        for (_, pause, amount, best_effort) in calls {
            now += Duration::from_millis(pause);
            let grant = handler.answer(&instance("q", &[]), &args("", amount, best_effort), now).unwrap();
            log.push((now.as_millis() as u64 / 100, if amount < 0 { -grant.granted() } else { grant.granted() }));
            let (tick, _) = log[log.len() - 1];
            let net: i64 = log.iter().filter(|(then, _)| then + 20 > tick).map(|(_, amount)| amount).sum();
            prop_assert!(net <= Model::MAX, "{net} within 20 ticks of {tick}: {log:?}");
        }
        let total: i64 = log.iter().map(|(_, amount)| amount).sum();
        prop_assert!(total >= 0, "more released than granted: {log:?}");
    }
}

fn limit(max_amount: i64, seconds: u64) -> LimitOverride {
    LimitOverride { max_amount, window: Duration::from_secs(seconds) }
}

#[test]
fn a_limit_of_the_caller_replaces_the_configured_one_with_a_counter_for_each_window() {
    let handler = handler(vec![quota("Q", 2, 60)], 1);
    let instance = instance("Q", &[]);
    let grant = |amount: i64, limit: Option<LimitOverride>| {
        let request = QuotaRequest::new(amount).with_report_limit();
        let request = match limit {
            Some(limit) => request.with_limit(limit),
            None => request,
        };
        let grant = handler.answer(&instance, &request, Duration::ZERO).unwrap();
        let state = grant.limit().unwrap();
        (grant.granted(), state.max_amount, state.remaining, state.window.unwrap().as_secs())
    };
    assert_eq!(grant(3, None), (0, 2, 2, 60));
    assert_eq!(grant(1, None), (1, 2, 1, 60));
    // The same window has the same counter.
    assert_eq!(grant(3, Some(limit(5, 60))), (3, 5, 1, 60));
    assert_eq!(grant(2, Some(limit(5, 60))), (0, 5, 1, 60));
    assert_eq!(grant(1, None), (0, 2, 0, 60));
    // A lower limit than what is in use.
    assert_eq!(grant(1, Some(limit(1, 60))), (0, 1, 0, 60));
    // Another window has another counter.
    assert_eq!(grant(3, Some(limit(5, 3600))), (3, 5, 2, 3600));
    assert_eq!(grant(1, Some(limit(5, 60))), (1, 5, 0, 60));
    assert_eq!(grant(1, Some(limit(1, 0))), (0, 2, 0, 60), "without a window it is none");
}

#[test]
fn windows_are_the_same_if_they_are_equal_in_whole_seconds() {
    let mut fraction = quota("Q", 2, 1);
    fraction.valid_duration = Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 });
    for (configured, window, remaining) in [(fraction, 2, 3), (quota("Q", 2, 0), 60, 4)] {
        let handler = handler(vec![configured], 1);
        let instance = instance("Q", &[]);
        handler.answer(&instance, &QuotaRequest::new(1), Duration::ZERO).unwrap();
        let request = QuotaRequest::new(1).with_report_limit().with_limit(limit(5, window));
        let grant = handler.answer(&instance, &request, Duration::ZERO).unwrap();
        assert_eq!(grant.limit().unwrap().remaining, remaining, "{window}");
    }
}

#[test]
fn amounts_past_the_limit_never_free_it() {
    let handler = handler(vec![quota("Q", 2, 60)], 1);
    let instance = instance("Q", &[]);
    for _ in 0..3 {
        let request = QuotaRequest::new(i64::MAX).with_past_limit();
        assert_eq!(handler.answer(&instance, &request, Duration::ZERO).unwrap().granted(), i64::MAX);
    }
    assert_eq!(handler.answer(&instance, &QuotaRequest::new(1), Duration::ZERO).unwrap(), Grant::nothing());
}
