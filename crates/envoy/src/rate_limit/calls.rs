//! Requests quotas for descriptors.

use mixer_adapter_engine::{
    Budget, Mixer, Snapshot,
    dispatch::{Allocation, AllocationMode, Caller, DispatchError, QuotaRequest, Request},
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

/// The quota calls for the descriptors of a domain, which share a budget.
pub(super) struct QuotaCalls<'c> {
    mixer: &'c Mixer,
    snapshot: &'c Snapshot,
    domain: &'c str,
    caller: &'c Caller,
    budget: Budget,
    /// The namespace whose rules apply to the last descriptor.
    tenant: &'c mut String,
}

impl<'c> QuotaCalls<'c> {
    pub(super) fn new(
        mixer: &'c Mixer,
        snapshot: &'c Snapshot,
        domain: &'c str,
        caller: &'c Caller,
        tenant: &'c mut String,
    ) -> Self {
        Self { mixer, snapshot, domain, caller, budget: Budget::new(mixer.limits()), tenant }
    }

    pub(super) fn tenant(&self) -> &str {
        self.tenant
    }

    /// Requests an amount for a descriptor; a negative one is given back.
    pub(super) async fn allocate(
        &mut self,
        descriptor: &RateLimitDescriptor,
        amount: i64,
        past_limit: bool,
        dedup_id: &str,
    ) -> Result<Allocation, RateLimitError> {
        let (namespace, domain) = match self.domain.split_once('/') {
            Some((namespace, domain)) => (Some(namespace), domain),
            None => (None, self.domain),
        };
        let bag = descriptor_attributes(self.domain, namespace, descriptor, self.snapshot.vocabulary())?;
        let mut quota =
            Request::new(self.snapshot, bag, self.caller.clone(), false).with_budget(self.budget).strict();
        self.tenant.clear();
        self.tenant.push_str(quota.tenant());
        let limit = descriptor.limit.as_ref().and_then(limit_override);
        let name = entry(descriptor, QUOTA).unwrap_or(domain);
        let allocation = quota
            .allocate(
                QuotaRequest { name, dedup_id, amount, best_effort: false },
                AllocationMode { report_limit: true, past_limit, limit },
            )
            .await;
        self.mixer.counts().condition_errors(quota.condition_errors());
        self.mixer.counts().unknown_quotas(quota.unknown_quotas());
        self.budget = quota.budget();
        Ok(allocation?)
    }
}
