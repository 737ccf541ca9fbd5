//! `envoy.service.auth.v3.Authorization`: decides on requests and connections.

use std::time::Instant;

use mixer_adapter_core::framework::log_limit::LogLimit;
use mixer_adapter_engine::{
    Budget, CheckOutcome,
    dispatch::{CacheUse, Caller, Request},
};
use tonic::Status;

use crate::{
    Services,
    attributes::check_attributes,
    decision::{Client, Decision},
    metadata::decision_metadata,
    proto::envoy::service::auth::v3::{CheckRequest, CheckResponse},
};

impl Services {
    /// Decides on a request or a connection.
    ///
    /// # Errors
    /// UNAVAILABLE if it could not be checked, unless [`FailureAnswer`](crate::FailureAnswer) is another one.
    pub async fn check(&self, request: CheckRequest, caller: Caller) -> Result<CheckResponse, Status> {
        let start = Instant::now();
        let mut cache = None;
        let decision = self.decide(&request, &caller, &mut cache).await;
        let outcome = match &decision {
            Decision::Allow(_) => CheckOutcome::Allowed,
            Decision::Deny(..) => CheckOutcome::Denied,
            Decision::Fail(reason) => {
                static LIMIT: LogLimit = LogLimit::new();
                if let Some(suppressed) = LIMIT.admit() {
                    let peer = caller.peer_name();
                    tracing::warn!(%peer, error = reason, suppressed, "a request could not be checked");
                }
                CheckOutcome::Failed
            }
        };
        self.mixer.counts().check(outcome, start.elapsed());
        let source = request.attributes.as_ref().and_then(|context| context.source.as_ref());
        let principal = source.map_or("", |source| &source.principal);
        let principal = principal.strip_prefix("spiffe://").unwrap_or(principal);
        let metadata =
            decision_metadata(&self.ids.next(), outcome, decision.denial(), principal, cache.as_ref());
        decision.into_response(self.options.failure_answer, metadata)
    }

    /// Decides, and sets how the cache was used.
    async fn decide(
        &self,
        request: &CheckRequest,
        caller: &Caller,
        cache: &mut Option<CacheUse>,
    ) -> Decision {
        let Some(context) = &request.attributes else {
            return Decision::Fail("the check has no attributes".to_owned());
        };
        let Some(snapshot) = self.configuration.snapshot(caller.deadline).await else {
            return Decision::Fail("there is no configuration yet".to_owned());
        };
        let bag = match check_attributes(context, snapshot.vocabulary(), &self.options.mapping) {
            Ok(bag) => bag,
            Err(error) => return Decision::Fail(error.to_string()),
        };
        let budget = Budget::new(self.mixer.limits());
        let mut request = Request::new(&snapshot, bag, caller.clone(), false).with_budget(budget).strict();
        let answer = request.answer().await;
        self.mixer.counts().condition_errors(request.condition_errors());
        *cache = request.cache_use().cloned();
        self.missing.note_check(context, |name| {
            let declared = request.vocabulary().find(name);
            declared.is_some_and(|declared| request.references().includes(declared.slot))
        });
        match answer {
            Ok(answer) => {
                let http = context.request.as_ref().and_then(|request| request.http.as_ref());
                Decision::new(answer, Client::new(http))
            }
            Err(error) => Decision::Fail(error.to_string()),
        }
    }
}
