//! Requests quotas for descriptors.

use std::sync::Arc;

use mixer_adapter_engine::{
    Budget, FailedParts, Mixer, RequestLimits, ShadowCall, Snapshot,
    decision_log::LoggedCall,
    dispatch::{Allocation, AllocationMode, Caller, DispatchError, QuotaRequest, Request, TakenAmount},
};

use super::{descriptor::entry, limits::limit_override};
use crate::{
    attributes::{AttributeError, descriptor_attributes},
    proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor,
};

/// The entry of a descriptor that names a quota in place of the domain.
const QUOTA: &str = "quota";

/// A rate limit that could not be determined.
#[derive(Debug, thiserror::Error)]
pub(super) enum RateLimitError {
    #[error("there is no configuration yet")]
    NoConfiguration,
    #[error(transparent)]
    Attributes(#[from] AttributeError),
    #[error(transparent)]
    Quota(#[from] DispatchError),
}

/// The quota calls for the descriptors of a domain, which are made at the same time.
pub(super) struct QuotaCalls<'c> {
    mixer: &'c Mixer,
    snapshot: &'c Arc<Snapshot>,
    domain: &'c str,
    caller: &'c Caller,
    logged: Option<&'c LoggedCall<'c>>,
    /// The limits of each descriptor: an equal part of the call's limits.
    limits: RequestLimits,
}

/// The origin of the result of a descriptor, or of all descriptors.
#[derive(Debug, Default)]
pub(super) struct LimitOrigin {
    /// The namespace whose rules apply to the last descriptor.
    pub(super) tenant: String,
    /// The parts that failed.
    pub(super) failed: FailedParts,
}

impl<'c> QuotaCalls<'c> {
    pub(super) fn new(
        mixer: &'c Mixer,
        snapshot: &'c Arc<Snapshot>,
        domain: &'c str,
        caller: &'c Caller,
        logged: Option<&'c LoggedCall<'c>>,
        descriptors: usize,
    ) -> Self {
        let (limits, parts) = (*mixer.limits(), descriptors.max(1));
        let limits = limits.instances(limits.instances / parts).expanded_size(limits.expanded_size / parts);
        Self { mixer, snapshot, domain, caller, logged, limits }
    }

    /// Requests an amount for a descriptor; a negative one is given back. Sets its origin. `taken` is called with the tenant and each amount
    /// to give back if the request is refused or fails.
    pub(super) async fn allocate(
        &self,
        descriptor: &RateLimitDescriptor,
        amount: i64,
        past_limit: bool,
        dedup_id: &str,
        origin: &mut LimitOrigin,
        taken: impl Fn(&str, TakenAmount),
    ) -> Result<Allocation, RateLimitError> {
        let shadow = ShadowCall::new(self.mixer, self.snapshot);
        let mut request = self.request(descriptor, shadow.as_ref())?;
        origin.tenant = request.tenant().to_owned();
        let quota = self.quota(descriptor, amount, dedup_id);
        let limit = descriptor.limit.as_ref().and_then(limit_override);
        let mode = AllocationMode { report_limit: true, past_limit, limit };
        let allocation = request.allocate(quota, mode, |amount| taken(&origin.tenant, amount)).await;
        if let Some(mut shadow) = shadow {
            let granted = allocation.as_ref().ok().map(|allocation| allocation.answer.granted);
            shadow.add_quota(quota, mode, granted, &mut request);
            shadow.evaluate(&mut request, self.caller, self.logged);
        }
        self.mixer.counts().request(request.counts());
        origin.failed = request.take_failed();
        Ok(allocation?)
    }

    /// Creates a request with the attributes of a descriptor.
    fn request(
        &self,
        descriptor: &RateLimitDescriptor,
        shadow: Option<&ShadowCall<'_>>,
    ) -> Result<Request<'c>, RateLimitError> {
        let namespace = self.domain.split_once('/').map(|(namespace, _)| namespace);
        let bag = self.snapshot.bag_of(shadow.is_some_and(ShadowCall::needs_all_attributes));
        let bag = descriptor_attributes(self.domain, namespace, descriptor, bag)?;
        let budget = Budget::new(&self.limits, self.caller);
        Ok(Request::new(self.snapshot, bag, self.caller).with_budget(budget).strict())
    }

    fn quota<'d>(
        &'d self,
        descriptor: &'d RateLimitDescriptor,
        amount: i64,
        dedup_id: &'d str,
    ) -> QuotaRequest<'d> {
        let domain = self.domain.split_once('/').map_or(self.domain, |(_, domain)| domain);
        let name = entry(descriptor, QUOTA).unwrap_or(domain);
        QuotaRequest { name, dedup_id, amount, best_effort: false }
    }
}
