//! `envoy.service.ratelimit.v3.RateLimitService`: requests quotas for descriptors (docs/envoy/rate-limits.md).

pub(crate) mod descriptor;
mod limits;
mod quota;
mod taken;

use futures_util::future::join_all;
use mixer_adapter_core::framework::{digest::Digest, log_limit::warn_limited, log_text::log_text};
use mixer_adapter_engine::{
    QuotaMode, RequestLimit,
    decision_log::{Api, LoggedCall, LoggedDecision},
    dispatch::{Caller, DispatchError},
    proto::istio::mixer::v1::HeaderOperation,
};
use parking_lot::Mutex;
use prost::Message as _;
use tonic::Status;

pub(crate) use self::taken::GiveBacks;

use self::{
    descriptor::{DescriptorResult, Verdict, amount, decision_id, is_done},
    quota::{LimitOrigin, QuotaCalls, RateLimitError},
    taken::{Hit, TakenHits},
};
use crate::{
    RateLimitAnswer, Services,
    headers::header_value,
    metadata::quota_metadata,
    outcome::RateLimitOutcome,
    proto::envoy::{
        config::core::v3::HeaderValue,
        service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code},
    },
};

impl Services {
    /// Requests the quotas of all descriptors.
    ///
    /// # Errors
    /// UNAVAILABLE if a quota could not be requested: a response without a decision would let the request pass.
    pub async fn should_rate_limit(
        &self,
        request: RateLimitRequest,
        caller: Caller,
    ) -> Result<RateLimitAnswer, Status> {
        let known_id = decision_id(&request).map(str::to_owned);
        self.missing.note_rate_limit(known_id.is_some());
        // A check with this id has set the header already.
        let header = self.options.decision_header.as_ref().filter(|_| known_id.is_none());
        let id = known_id.unwrap_or_else(|| self.ids.next());
        let mut origin = LimitOrigin::default();
        let logged = self.mixer.decision_log().begin(Api::Envoy, Some(&id));
        let answer = self.limit(&request, &caller, logged.as_ref(), &mut origin).await;
        let outcome = answer.as_deref().map_or(RateLimitOutcome::Failed, outcome);
        if let Some(logged) = logged {
            let error = answer.as_ref().err().map(ToString::to_string);
            let status = error.as_deref().map(|error| (tonic::Code::Unavailable.into(), error));
            let verdict = RateLimitOutcome::NAMES[outcome as usize];
            let (quota, failed) = (&request.domain, &origin.failed);
            let quota = LoggedDecision::Quota { verdict, quota, amount: None, granted: None, failed };
            logged.log(quota, status, caller.peer_name(), None);
        }
        self.counters.rate_limit(outcome, &origin.tenant);
        let (domain, decision_id) = (&request.domain, &id);
        let mut results = answer.map_err(|error| {
            if let RateLimitError::Quota(DispatchError::Limit(error)) = &error {
                self.mixer.counts().over_limit(error.limit);
            }
            warn_limited!(
                decision_id,
                peer = log_text(caller.peer_name()),
                domain = log_text(domain),
                error = log_text(&error),
                "a rate limit could not be determined"
            );
            Status::unavailable(error.to_string())
        })?;
        let outcome_name = RateLimitOutcome::NAMES[outcome as usize];
        tracing::debug!(decision_id, domain, outcome = outcome_name, "a rate limit was determined");
        let is_over = outcome == RateLimitOutcome::OverLimit;
        let overall = if is_over { Code::OverLimit } else { Code::Ok };
        let headers: Vec<HeaderValue> =
            header.map(|name| header_value(name.as_str().to_owned(), &id)).into_iter().collect();
        let response = results.iter_mut().find_map(|result| result.response.take()).unwrap_or_default();
        let added = response.response_header_operations.into_iter();
        let added = added.map(|HeaderOperation { name, value, .. }| header_value(name, &value));
        Ok(RateLimitAnswer {
            overall_code: overall.into(),
            response_headers_to_add: headers.iter().cloned().chain(added).collect(),
            request_headers_to_add: headers,
            raw_body: response.direct_response_body.into_bytes(),
            dynamic_metadata: quota_metadata(&id, outcome, &results),
            statuses: results.into_iter().map(|result| result.status).collect(),
        })
    }

    /// Requests the quotas of all descriptors at the same time, returns the results in their order, and sets their origin.
    async fn limit(
        &self,
        request: &RateLimitRequest,
        caller: &Caller,
        logged: Option<&LoggedCall<'_>>,
        origin: &mut LimitOrigin,
    ) -> Result<Vec<DescriptorResult>, RateLimitError> {
        let snapshot =
            self.configuration.snapshot(caller.deadline).await.ok_or(RateLimitError::NoConfiguration)?;
        let limits = self.mixer.limits();
        RequestLimit::Quotas
            .check(request.descriptors.len(), limits.quotas_per_check)
            .map_err(DispatchError::from)?;
        let request_id = caller.request_id.as_deref();
        let request_id = request_id.filter(|id| self.options.trust_request_id && !id.is_empty());
        let descriptors = request.descriptors.len();
        let calls = QuotaCalls::new(&self.mixer, &snapshot, &request.domain, caller, logged, descriptors);
        // Taken hits are given back when this is dropped; an error does not wait for it.
        let taken = Mutex::new(TakenHits::new(self, &request.domain, caller));
        let request_quota = |index: usize| {
            let descriptor = &request.descriptors[index];
            let (calls, taken) = (&calls, &taken);
            let amount = amount(descriptor, request.hits_addend);
            let is_done = is_done(descriptor);
            let dedup_id = request_id.map_or_else(|| self.ids.next(), |id| repeated_id(id, request, index));
            async move {
                let mut origin = LimitOrigin::default();
                let allocation = calls.allocate(
                    descriptor,
                    amount,
                    is_done,
                    &dedup_id,
                    &mut origin,
                    move |tenant: &str, amount| {
                        // Hits with a trusted request id stay counted: a repeated call is not counted again, and would be free.
                        if request_id.is_none() {
                            taken.lock().add(index, tenant, amount);
                        }
                    },
                );
                let result = allocation.await.map(|allocation| {
                    self.mixer.counts().quota(allocation.answer.granted, amount);
                    DescriptorResult::new(allocation, amount, is_done)
                });
                (result, origin)
            }
        };
        let requested = match descriptors {
            // Most requests have one, which needs no set of futures.
            1 => vec![request_quota(0).await],
            _ => join_all((0..descriptors).map(request_quota)).await,
        };
        let mut results = Vec::with_capacity(descriptors);
        for (result, of_descriptor) in requested {
            origin.tenant = of_descriptor.tenant;
            origin.failed.append(&of_descriptor.failed);
            results.push(result?);
        }
        let taken = taken.into_inner();
        if results.iter().any(DescriptorResult::is_refused) {
            for (Hit { index, amount }, limit) in taken.give_back().await {
                results[index].set_limit(&amount, limit);
            }
        } else {
            taken.commit();
        }
        Ok(results)
    }
}

/// Returns the id of a descriptor for deduplication by adapters; it is the same in repeated calls of a request.
fn repeated_id(request_id: &str, request: &RateLimitRequest, index: usize) -> String {
    let descriptor = &request.descriptors[index];
    let equal = request.descriptors[..index].iter().filter(|earlier| *earlier == descriptor).count();
    let parts =
        [request_id.as_bytes(), request.domain.as_bytes(), &descriptor.encode_to_vec(), &equal.to_le_bytes()];
    Digest::of(parts).to_string()
}

/// Returns the outcome of a request. It is refused if any descriptor is.
fn outcome(results: &[DescriptorResult]) -> RateLimitOutcome {
    let over = results.iter().filter_map(|result| match result.verdict {
        Verdict::Over(mode) => Some(mode),
        Verdict::Within | Verdict::Unmatched => None,
    });
    match over.min() {
        Some(QuotaMode::Enforce) => RateLimitOutcome::OverLimit,
        Some(QuotaMode::Soft) => RateLimitOutcome::Soft,
        Some(QuotaMode::Shadow) => RateLimitOutcome::Shadow,
        None if results.iter().all(|result| result.verdict == Verdict::Unmatched) => {
            RateLimitOutcome::Unmatched
        }
        None => RateLimitOutcome::Ok,
    }
}
