use std::{marker::PhantomData, pin::Pin, time::Duration};

use tokio::time::Instant;
use tonic::Status;

use super::{Answer, Attributes, FakeMixer, answer::grant, call::recorded};
use crate::{
    answer::Verdict,
    service::mixer::{check_request, trace_check},
};
use mixer_adapter_core::adapter::Grant;
use mixer_adapter_engine::{
    dictionary::WORDS,
    proto::istio::mixer::v1::{CheckRequest, CheckResponse, check_request::QuotaParams},
    trace::Trace,
};
use mixer_adapter_host::handler::Caller;

/// A Check or a quota request; awaiting it sends it.
#[derive(Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct RequestBuilder<'m, R> {
    mixer: &'m FakeMixer,
    request: CheckRequest,
    within: Option<Duration>,
    answer: PhantomData<fn() -> R>,
}

type Sent<'m, R> = Pin<Box<dyn Future<Output = Answer<R>> + Send + 'm>>;

impl<'m, R> RequestBuilder<'m, R> {
    pub(super) fn new(mixer: &'m FakeMixer, attributes: Attributes, dedup_id: String) -> Self {
        let request = check_request(&attributes.into_written(), WORDS.len());
        let request = CheckRequest { deduplication_id: dedup_id, ..request };
        Self { mixer, request, within: None, answer: PhantomData }
    }

    /// Sets the deadline of the request.
    pub fn within(mut self, timeout: Duration) -> Self {
        self.within = Some(timeout);
        self
    }

    /// Sets the deduplication id, by which repeated requests count once. By default each request has another id.
    pub fn dedup_id(mut self, id: impl Into<String>) -> Self {
        self.request.deduplication_id = id.into();
        self
    }

    async fn send(self) -> Answer<CheckResponse> {
        let deadline = self.within.and_then(|within| Instant::now().checked_add(within));
        let caller = Caller { deadline, ..Caller::default() };
        let ((result, trace), calls) =
            recorded(trace_check(&self.mixer.mixer, self.request, caller, Trace::default())).await;
        Answer { result, calls, trace }
    }
}

impl RequestBuilder<'_, Grant> {
    pub(super) fn quota(mut self, name: &str, amount: i64) -> Self {
        self.request.quotas = [(name.to_owned(), QuotaParams { amount, best_effort: false })].into();
        self
    }

    /// Accepts a part of the amount.
    pub fn best_effort(mut self) -> Self {
        self.request.quotas.values_mut().for_each(|params| params.best_effort = true);
        self
    }
}

impl<'m> IntoFuture for RequestBuilder<'m, Verdict> {
    type Output = Answer<Verdict>;
    type IntoFuture = Sent<'m, Verdict>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(
            async move { self.send().await.map(|response| response.precondition.unwrap_or_default().into()) },
        )
    }
}

impl<'m> IntoFuture for RequestBuilder<'m, Grant> {
    type Output = Answer<Grant>;
    type IntoFuture = Sent<'m, Grant>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Answer { result, calls, trace } = self.send().await;
            Answer { result: result.and_then(only_grant), calls, trace }
        })
    }
}

/// Returns the only quota of an answer. A denial is an error, because it has no quotas.
fn only_grant(mut response: CheckResponse) -> Result<Grant, Status> {
    let status = response.precondition.unwrap_or_default().status.unwrap_or_default();
    if status.code != 0 {
        let denied = format!("the check was denied before the quota request: {}", status.message);
        return Err(Status::new(status.code.into(), denied));
    }
    match response.quotas.pop_first() {
        Some((_, quota)) => Ok(grant(quota.granted_amount, quota.valid_duration)),
        None => Err(Status::internal("the answer has no quota")),
    }
}
