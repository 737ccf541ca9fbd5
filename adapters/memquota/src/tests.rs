#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use mixer_adapter_core::{
    adapter::{Access, ConfigErrors, InferredType, InferredTypes},
    prost_types,
};
use test_quota::{QuotaConfig, Subject};

use super::*;

fn params(quotas: &[QuotaConfig], deduplication: Duration) -> Params {
    let proto = |duration: Duration| prost_types::Duration::try_from(duration).ok();
    let quotas = quotas.iter().map(|quota| params::Quota {
        name: quota.name.to_owned(),
        max_amount: quota.max_amount,
        valid_duration: proto(quota.valid),
        ..Default::default()
    });
    Params { quotas: quotas.collect(), min_deduplication_duration: proto(deduplication) }
}

/// Handlers with a clock.
struct Memory;

impl Subject for Memory {
    type Handler = (MemQuota, AtomicU64);
    const ALLOCATION: Duration = Duration::ZERO;
    const CASES: u32 = 256;

    fn start() -> Option<Self> {
        Some(Self)
    }

    async fn open(&self, quotas: &[QuotaConfig], deduplication: Duration) -> Self::Handler {
        let settings = Faults::parse(params(quotas, deduplication)).unwrap();
        (MemQuota::open(settings, Context::detached(())).await.unwrap(), AtomicU64::new(0))
    }

    fn set_time(&self, (_, clock): &Self::Handler, now: Duration) {
        clock.store(now.as_millis() as u64, SeqCst);
    }

    async fn answer(
        (handler, clock): &Self::Handler,
        instance: &quota::InstanceMsg,
        request: &QuotaRequest,
    ) -> Result<Grant, AdapterError> {
        handler.answer(instance, request, Duration::from_millis(clock.load(SeqCst)))
    }

    fn validate(quota: QuotaConfig, types: Vec<InferredType>) -> Result<(), ConfigErrors> {
        let (types, access) = (InferredTypes::new(types), Access::unrestricted());
        let params = params(&[quota], Duration::from_secs(1));
        Faults::new(&types, &access).settings::<MemQuotaSettings>(params).map(drop)
    }
}

test_quota::behaviours!(Memory);

#[tokio::test]
async fn an_opened_handler_serves_calls() {
    let quota = QuotaConfig { name: "q", max_amount: 2, valid: Duration::from_secs(60) };
    let params = params(&[quota], Duration::from_secs(1));
    let handler: MemQuota = Context::detached(()).open_handler(params).await.unwrap();
    let instance = quota::InstanceMsg { name: "q.instance.ns".to_owned(), ..Default::default() };
    let grant = handler.handle(Call::for_quota(instance, QuotaRequest::new(2))).await.unwrap();
    assert_eq!(grant, Grant::amount(2).valid_for(Duration::from_secs(60)));
    handler.close().await;
}
