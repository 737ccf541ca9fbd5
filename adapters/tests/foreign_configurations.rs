//! Configurations that others send do not reset the state of handlers in use.
#![allow(clippy::unwrap_used)]

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

#[tokio::test]
async fn an_exhausted_quota_stays_exhausted_after_12_000_foreign_configurations() {
    let runtime = Handle::current();
    let adapters = Adapters::builder(runtime.clone()).add::<MemQuota>().build().unwrap();
    let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime));
    assert_eq!(granted(&host, config(0)).await, 10);
    assert_eq!(granted(&host, config(0)).await, 0);
    for number in 1..=12_000 {
        assert_eq!(granted(&host, config(number)).await, 10);
    }
    let evicted: u64 = host.handlers().evicted_counts().map(|(_, count)| count).sum();
    assert!(evicted >= 2_001, "{evicted} handlers of {} were evicted", MemQuota::NAME);
    assert_eq!(granted(&host, config(0)).await, 0);
}
