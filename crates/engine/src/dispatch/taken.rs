//! Granted amounts of quotas that are all or nothing. They are given back if the request is refused.

use std::sync::Arc;

use mixer_adapter_core::{
    framework::dynamic::DynamicTemplate,
    proto::istio::mixer::adapter::model::v1beta1::quota_result::{self, Limit},
    template::Response,
};
use mixer_adapter_host::handler::{BuiltInstance, Caller};
use tonic::Status;

use super::{AllocationMode, QuotaRequest, direct_response::undecodable, evaluator::PlannedCall};
use crate::{
    handler::{QuotaParams, RuntimeHandler},
    resource_counts::InstanceCounts,
};

/// An amount that a handler has granted, with the call that gives it back. It does not depend on the snapshot.
#[derive(Debug)]
pub struct TakenAmount {
    handler: Arc<RuntimeHandler>,
    template: Arc<DynamicTemplate>,
    instance: Arc<str>,
    built: BuiltInstance,
    /// The name of the quota in the request.
    quota: Box<str>,
    mode: AllocationMode,
    amount: i64,
    counts: Arc<InstanceCounts>,
}

/// The amount that a handler has taken back.
#[derive(Clone, Debug, PartialEq)]
pub struct ReturnedAmount {
    /// The amount, at most the granted one.
    pub amount: i64,
    /// The state of the limit, if the adapter reports it.
    pub limit: Option<Limit>,
}

impl TakenAmount {
    /// Creates an amount from the call that granted it, whose instance it takes.
    pub(super) fn new(planned: &mut PlannedCall<'_>, params: QuotaParams<'_>, amount: i64) -> Self {
        let instance = &planned.entry.instance;
        Self {
            handler: planned.destination.handler.clone(),
            template: planned.destination.template.clone(),
            instance: instance.name.clone(),
            built: std::mem::replace(&mut planned.instance, BuiltInstance::Encoded(Vec::new())),
            quota: params.request.name.into(),
            mode: AllocationMode {
                report_limit: params.mode.report_limit,
                past_limit: false,
                limit: params.mode.limit.and_then(|limit| instance.quota.bounded(limit)),
            },
            amount,
            counts: planned.entry.counts.clone(),
        }
    }

    /// The full name of the handler.
    pub fn handler(&self) -> &Arc<str> {
        &self.handler.name
    }

    /// The full name of the instance.
    pub fn instance(&self) -> &Arc<str> {
        &self.instance
    }

    /// The amount.
    pub fn amount(&self) -> i64 {
        self.amount
    }

    /// The size in memory in bytes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.built.size() + self.quota.len()
    }

    /// Gives the amount back in a separate call, whose id for the adapter is `dedup_id`.
    ///
    /// # Errors
    /// The handler failed, and may or may not have taken the amount back.
    pub async fn give_back(&self, dedup_id: &str, caller: &Caller) -> Result<ReturnedAmount, Status> {
        let (name, amount) = (&*self.quota, -self.amount);
        let request = QuotaRequest { name, dedup_id, amount, best_effort: false };
        let params = QuotaParams { request, mode: self.mode, instance: &self.instance };
        let instances = &mut [self.built.clone()];
        let (answer, _) =
            self.handler.call(&self.template, instances, &[&self.instance], Some(params), caller).await;
        let result = decode(answer?, &self.instance)?;
        // Without an amount in the answer, nothing counts as taken back.
        let amount = result.granted_amount.clamp(0, self.amount);
        self.counts.quota.add(-self.amount, amount, result.limit.as_ref());
        Ok(ReturnedAmount { amount, limit: result.limit })
    }
}

/// Returns the grant for an instance from an adapter's answer.
///
/// # Errors
/// The answer is invalid, or for another instance.
pub(super) fn decode(answer: Response, instance: &str) -> Result<quota_result::Result, Status> {
    let mut result = answer.into_quota().map_err(undecodable)?;
    result.quotas.remove(instance).ok_or_else(|| {
        let answered: Vec<&String> = result.quotas.keys().collect();
        Status::internal(format!("no grant for `{instance}` in the answer, only for {answered:?}"))
    })
}
