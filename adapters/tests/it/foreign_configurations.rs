//! Configurations that others send do not reset the state of handlers in use.

use std::time::Duration;

use mixer_adapter::{
    Adapter,
    adapter::Config,
    prost::Message as _,
    proto::{Any, QuotaResult},
    template::{Quota, Template as _, quota},
};
use mixer_adapter_core::proto::istio::mixer::adapter::model::v1beta1::{
    QuotaRequest, quota_request::QuotaParams,
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Caller, Closing, TableLimits},
};
use mixer_adapters::memquota::{MemQuota, Params, params};
use tokio::runtime::Handle;

const INSTANCE: &str = "requestcount.instance.istio-system";

/// A quota of ten in an hour, distinguished by the limit of another instance.
fn config(number: i64) -> Any {
    let limit = |name: &str, max_amount| params::Quota {
        name: name.to_owned(),
        max_amount,
        valid_duration: Some(Duration::from_secs(3600).try_into().unwrap()),
        ..params::Quota::default()
    };
    let config = Params { quotas: vec![limit(INSTANCE, 10), limit("other", number)], ..Params::default() };
    Any { type_url: format!("type.googleapis.com/{}", Params::NAME), value: config.encode_to_vec().into() }
}

/// The amount granted of ten.
async fn granted(host: &Host, config: Any) -> i64 {
    let quota = QuotaParams { amount: 10, best_effort: true, ..QuotaParams::default() };
    let request = quota::HandleQuotaRequest {
        instance: Some(quota::InstanceMsg { name: INSTANCE.to_owned(), ..Default::default() }),
        adapter_config: Some(config),
        quota_request: Some(QuotaRequest { quotas: [(INSTANCE.to_owned(), quota)].into() }),
        ..Default::default()
    };
    let answer = host.call(Quota::METHOD, request.encode_to_vec().into(), Caller::default()).await;
    let answer = QuotaResult::decode(answer.unwrap().unwrap().slice(5..)).unwrap();
    answer.quotas[INSTANCE].granted_amount
}

fn host(limits: TableLimits) -> Host {
    let runtime = Handle::current();
    let adapters = Adapters::builder(runtime.clone()).add::<MemQuota>().build().unwrap();
    Host::new(adapters, limits, Closing::on(runtime))
}

/// Limits with which every call opens a handler, which is closed after it.
fn uncached() -> TableLimits {
    TableLimits::default().cached_handlers(0)
}

#[tokio::test]
async fn an_exhausted_quota_stays_exhausted_after_12_000_foreign_configurations() {
    let host = host(TableLimits::default());
    assert_eq!(granted(&host, config(0)).await, 10);
    assert_eq!(granted(&host, config(0)).await, 0);
    for number in 1..=12_000 {
        assert_eq!(granted(&host, config(number)).await, 10);
    }
    let evicted: u64 = host.handlers().evicted_counts().map(|(_, count)| count).sum();
    assert!(evicted >= 2_001, "{evicted} handlers of {} were evicted", MemQuota::NAME);
    assert_eq!(granted(&host, config(0)).await, 0);
}

#[tokio::test]
async fn an_exhausted_quota_outlives_its_handler_and_12_000_others() {
    let host = host(uncached());
    for number in 0..=12_000 {
        assert_eq!(granted(&host, config(number)).await, 10);
    }
    assert_eq!(granted(&host, config(0)).await, 0);
    assert_eq!(host.handlers().states().evicted(), 0);
}

#[tokio::test]
async fn a_changed_configuration_starts_anew() {
    let host = host(uncached());
    for (number, expected) in [(0, 10), (0, 0), (1, 10), (1, 0), (0, 0)] {
        assert_eq!(granted(&host, config(number)).await, expected, "{number}");
    }
}

#[tokio::test]
async fn the_state_of_closed_handlers_is_limited_in_time_and_bytes() {
    for (limits, evicted) in
        [(uncached().state_retention(Duration::ZERO), 0), (uncached().state_bytes(1_000), 2)]
    {
        let host = host(limits);
        for _ in 0..2 {
            assert_eq!(granted(&host, config(0)).await, 10);
            // Handlers are closed in the background.
            while !host.handlers().states().entries().is_empty() {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(host.handlers().states().evicted(), evicted);
    }
}
