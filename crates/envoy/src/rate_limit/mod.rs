//! `envoy.service.ratelimit.v3.RateLimitService`: requests quotas for descriptors (docs/envoy.md#rate-limits).

mod descriptor;
mod limits;

use mixer_adapter_core::framework::{digest::Digest, log_limit::LogLimit, log_text::log_text};
use mixer_adapter_engine::{
    Budget, Limit, QuotaMode, Snapshot,
    dispatch::{Allocation, AllocationMode, Caller, DispatchError, QuotaRequest, Request},
};
use prost::Message as _;
use tonic::Status;

pub(crate) use self::descriptor::{DescriptorResult, Verdict};

use self::{
    descriptor::{amount, decision_id, entry, is_done},
    limits::limit_override,
};
use crate::{
    Services,
    attributes::{AttributeError, descriptor_attributes},
    counters::RateLimitOutcome,
    headers::header_value,
    metadata::quota_metadata,
    proto::envoy::{
        config::core::v3::HeaderValue,
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
    },
};

/// The entry of a descriptor that names a quota in place of the domain.
const QUOTA: &str = "quota";

/// A rate limit that could not be determined.
#[derive(Debug, thiserror::Error)]
enum RateLimitError {
    #[error("there is no configuration yet")]
    NoConfiguration,
    #[error(transparent)]
    Attributes(#[from] AttributeError),
    #[error(transparent)]
    Quota(#[from] DispatchError),
}

/// A call of the service.
struct RateLimitCall<'c> {
    snapshot: &'c Snapshot,
    request: &'c RateLimitRequest,
    caller: &'c Caller,
    /// The header `x-request-id` if it is trusted.
    request_id: Option<&'c str>,
    /// The namespace whose rules apply to the last descriptor.
    tenant: &'c mut String,
    budget: Budget,
}

impl Services {
    /// Requests the quotas of all descriptors.
    ///
    /// # Errors
    /// UNAVAILABLE if one of them could not be requested: a response without a decision would let the request pass.
    pub async fn should_rate_limit(
        &self,
        request: RateLimitRequest,
        caller: Caller,
    ) -> Result<RateLimitResponse, Status> {
        let known_id = decision_id(&request).map(str::to_owned);
        self.missing.note_rate_limit(known_id.is_some());
        // A check with this id has set the header already.
        let header = self.options.decision_header.as_ref().filter(|_| known_id.is_none());
        let id = known_id.unwrap_or_else(|| self.ids.next());
        let mut tenant = String::new();
        let answer = self.limit(&request, &caller, &mut tenant).await;
        let outcome = answer.as_deref().map_or(RateLimitOutcome::Failed, outcome);
        self.counters.rate_limit(outcome, &tenant);
        let (domain, decision_id) = (&request.domain, &id);
        let results = answer.map_err(|error| {
            if let RateLimitError::Quota(DispatchError::Limit(error)) = &error {
                self.mixer.counts().over_limit(error.limit);
            }
            static LIMIT: LogLimit = LogLimit::new();
            if let Some(suppressed) = LIMIT.admit() {
                let (peer, domain) = (log_text(caller.peer_name()), log_text(domain));
                let error = log_text(&error);
                tracing::warn!(
                    decision_id,
                    peer,
                    domain,
                    error,
                    suppressed,
                    "a rate limit could not be determined"
                );
            }
            Status::unavailable(error.to_string())
        })?;
        let outcome_name = RateLimitOutcome::NAMES[outcome as usize];
        tracing::debug!(decision_id, domain, outcome = outcome_name, "a rate limit was determined");
        let overall = match outcome {
            RateLimitOutcome::OverLimit => Code::OverLimit,
            _ => Code::Ok,
        };
        let headers: Vec<HeaderValue> =
            header.map(|name| header_value(name.as_str().to_owned(), &id)).into_iter().collect();
        Ok(RateLimitResponse {
            overall_code: overall.into(),
            response_headers_to_add: headers.clone(),
            request_headers_to_add: headers,
            dynamic_metadata: Some(quota_metadata(&id, outcome, &results)),
            statuses: results.into_iter().map(|result| result.status).collect(),
            ..RateLimitResponse::default()
        })
    }

    /// Returns the results of the descriptors in their order, and sets the tenant.
    async fn limit(
        &self,
        request: &RateLimitRequest,
        caller: &Caller,
        tenant: &mut String,
    ) -> Result<Vec<DescriptorResult>, RateLimitError> {
        let snapshot =
            self.configuration.snapshot(caller.deadline).await.ok_or(RateLimitError::NoConfiguration)?;
        let limits = self.mixer.limits();
        Limit::Quotas
            .check(request.descriptors.len(), limits.quotas_per_check)
            .map_err(DispatchError::from)?;
        let request_id = caller.request_id.as_deref();
        let request_id = request_id.filter(|id| self.options.trust_request_id && !id.is_empty());
        let budget = Budget::new(limits);
        let mut call = RateLimitCall { snapshot: &snapshot, request, caller, request_id, tenant, budget };
        let mut results = Vec::with_capacity(request.descriptors.len());
        for index in 0..request.descriptors.len() {
            match self.take(&mut call, index).await {
                Ok(result) => results.push(result),
                Err(error) => {
                    self.give_back(&mut call, &mut results).await;
                    return Err(error);
                }
            }
        }
        if results.iter().any(DescriptorResult::is_refused) {
            self.give_back(&mut call, &mut results).await;
        }
        Ok(results)
    }

    /// Requests the hits of a descriptor.
    async fn take(
        &self,
        call: &mut RateLimitCall<'_>,
        index: usize,
    ) -> Result<DescriptorResult, RateLimitError> {
        let descriptor = &call.request.descriptors[index];
        let amount = amount(descriptor, call.request.hits_addend);
        let is_done = is_done(descriptor);
        let dedup_id = self.dedup_id(call, index);
        let allocation = self.allocate(call, descriptor, amount, is_done, &dedup_id).await?;
        self.mixer.counts().quota(allocation.answer.granted, amount);
        Ok(DescriptorResult::new(allocation, amount, is_done))
    }

    /// Gives back the hits of quotas that are all or nothing. Those of a trusted request id stay counted: a repeated call is not counted
    /// again, and would be free.
    async fn give_back(&self, call: &mut RateLimitCall<'_>, results: &mut [DescriptorResult]) {
        if call.request_id.is_some() {
            return;
        }
        for (index, result) in results.iter_mut().enumerate() {
            let amount = result.to_give_back();
            if amount == 0 {
                continue;
            }
            let descriptor = &call.request.descriptors[index];
            let dedup_id = self.ids.next();
            match self.allocate(call, descriptor, -amount, false, &dedup_id).await {
                Ok(allocation) => result.given_back(&allocation),
                Err(error) => {
                    static LIMIT: LogLimit = LogLimit::new();
                    if let Some(suppressed) = LIMIT.admit() {
                        let (domain, error) = (log_text(&call.request.domain), log_text(error));
                        tracing::warn!(domain, error, suppressed, "hits could not be given back");
                    }
                }
            }
        }
    }

    async fn allocate(
        &self,
        call: &mut RateLimitCall<'_>,
        descriptor: &RateLimitDescriptor,
        amount: i64,
        past_limit: bool,
        dedup_id: &str,
    ) -> Result<Allocation, RateLimitError> {
        let (namespace, domain) = match call.request.domain.split_once('/') {
            Some((namespace, domain)) => (Some(namespace), domain),
            None => (None, call.request.domain.as_str()),
        };
        let vocabulary = call.snapshot.vocabulary();
        let bag = descriptor_attributes(&call.request.domain, namespace, descriptor, vocabulary)?;
        let mut quota =
            Request::new(call.snapshot, bag, call.caller.clone(), false).with_budget(call.budget).strict();
        call.tenant.clear();
        call.tenant.push_str(quota.tenant());
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
        call.budget = quota.budget();
        Ok(allocation?)
    }

    /// Returns the id by which adapters recognize a repeated call: of the request and the descriptor, or else one of its own.
    fn dedup_id(&self, call: &RateLimitCall<'_>, index: usize) -> String {
        let Some(request_id) = call.request_id else { return self.ids.next() };
        let (earlier, rest) = call.request.descriptors.split_at(index);
        let Some(descriptor) = rest.first() else { return self.ids.next() };
        let equal = earlier.iter().filter(|earlier| *earlier == descriptor).count();
        let parts = [
            request_id.as_bytes(),
            call.request.domain.as_bytes(),
            &descriptor.encode_to_vec(),
            &equal.to_le_bytes(),
        ];
        Digest::of(parts).to_string()
    }
}

/// Returns the outcome of a request, which is refused if one of its descriptors is.
fn outcome(results: &[DescriptorResult]) -> RateLimitOutcome {
    let is_over = |mode| results.iter().any(|result| result.verdict == Verdict::Over(mode));
    if is_over(QuotaMode::Enforce) {
        RateLimitOutcome::OverLimit
    } else if is_over(QuotaMode::Soft) {
        RateLimitOutcome::Soft
    } else if is_over(QuotaMode::Shadow) {
        RateLimitOutcome::Shadow
    } else if results.iter().all(|result| result.verdict == Verdict::Unmatched) {
        RateLimitOutcome::Unmatched
    } else {
        RateLimitOutcome::Ok
    }
}
