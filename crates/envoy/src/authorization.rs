//! `envoy.service.auth.v3.Authorization`: decides on requests and connections.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use mixer_adapter_core::framework::{log_limit::warn_limited, log_text::log_text};
use mixer_adapter_engine::{
    Budget, CheckOutcome, FailedParts, ShadowCall,
    decision_log::{Api, LoggedAttributes, LoggedCall, LoggedDecision},
    dispatch::{AnswerDetails, CacheUse, Caller, DispatchError, Request},
};
use tonic::Status;

use crate::{
    AuthorizationAnswer, Services,
    attributes::check_attributes,
    decision::{Client, Decision},
    metadata::decision_metadata,
    proto::envoy::service::auth::v3::{AttributeContext, CheckRequest},
};

/// The origin of a decision.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// The namespace whose rules apply.
    tenant: String,
    details: Arc<AnswerDetails>,
    /// How the cache was used.
    cache: Option<CacheUse>,
    /// The attributes for the decision log.
    attributes: Option<LoggedAttributes>,
    /// The parts that failed.
    failed: FailedParts,
}

impl Services {
    /// Decides on a request or a connection.
    ///
    /// # Errors
    /// UNAVAILABLE if it could not be checked, unless [`FailureAnswer`](crate::FailureAnswer) is another one.
    pub async fn check(
        &self,
        request: &CheckRequest,
        caller: &Caller,
    ) -> Result<AuthorizationAnswer, Status> {
        let (start, decision_id) = (Instant::now(), self.ids.next());
        let mut origin = Origin::default();
        let logged = self.mixer.decision_log().begin(Api::Envoy, Some(&decision_id));
        let decision = self.decide(request, caller, logged.as_ref(), &mut origin).await;
        let outcome = match &decision {
            Decision::Allow(_) => CheckOutcome::Allowed,
            Decision::Deny(..) => CheckOutcome::Denied,
            Decision::Fail(_) => CheckOutcome::Failed,
        };
        log_failures(&decision_id, caller, &decision, &origin.details);
        let outcome_name = CheckOutcome::NAMES[outcome as usize];
        tracing::debug!(decision_id, outcome = outcome_name, rules = ?origin.details.rules, "a request was checked");
        if let Some(logged) = logged {
            let (rules, failed) = (&origin.details.rules, &origin.failed);
            let check = LoggedDecision::Check { verdict: outcome_name, rules, failed };
            logged.log(check, decision.denial(), caller.peer_name(), origin.attributes.as_ref());
        }
        self.mixer.counts().check(outcome, start.elapsed());
        self.counters.tenant(&origin.tenant).checks[outcome as usize].fetch_add(1, Relaxed);
        let source = request.attributes.as_ref().and_then(|context| context.source.as_ref());
        let principal = source.map_or("", |source| &source.principal);
        let principal = principal.strip_prefix("spiffe://").unwrap_or(principal);
        let metadata = decision_metadata(
            &decision_id,
            outcome,
            decision.denial(),
            principal,
            &origin.details,
            origin.cache.as_ref(),
        );
        let header = self.options.decision_header.as_ref().map(|name| (name.as_str(), &*decision_id));
        decision.into_response(self.options.failure_answer, metadata, header)
    }

    /// Decides, and sets the origin of the decision.
    async fn decide(
        &self,
        request: &CheckRequest,
        caller: &Caller,
        logged: Option<&LoggedCall<'_>>,
        origin: &mut Origin,
    ) -> Decision {
        let Some(context) = request.attributes.as_ref().filter(|context| is_described(context)) else {
            return Decision::Fail("the check has no attributes".to_owned());
        };
        let Some(snapshot) = self.configuration.snapshot(caller.deadline).await else {
            return Decision::Fail("there is no configuration yet".to_owned());
        };
        let shadow = ShadowCall::new(&self.mixer, &snapshot);
        let needs_all = shadow.as_ref().is_some_and(ShadowCall::needs_all_attributes);
        let bag = snapshot.bag_of(needs_all || logged.is_some_and(LoggedCall::is_logged));
        let bag = match check_attributes(context, bag, &self.options.mapping) {
            Ok(bag) => bag,
            Err(error) => return Decision::Fail(error.to_string()),
        };
        let budget = Budget::new(self.mixer.limits(), caller);
        let mut request = Request::new(&snapshot, bag, caller).with_budget(budget).strict();
        origin.tenant.push_str(request.tenant());
        let answer = request.answer().await;
        origin.failed = request.take_failed();
        self.mixer.counts().request(request.counts());
        origin.cache = request.cache_use().cloned();
        origin.attributes = logged.and_then(|logged| logged.attributes(request.attributes()));
        self.missing.note_check(context, |attribute| {
            let slot = request.vocabulary().slot(attribute);
            slot.is_some_and(|slot| request.references().includes(slot))
        });
        if let Some(mut shadow) = shadow {
            shadow.add_check(&answer, &origin.failed);
            shadow.evaluate(&mut request, caller, logged);
        }
        match answer {
            Ok(answer) => {
                let http = context.request.as_ref().and_then(|request| request.http.as_ref());
                origin.details = answer.details.clone();
                let key = origin.cache.as_ref().and_then(|used| used.key.as_ref());
                Decision::new(answer, &Client::new(http), key.map(|key| &*key.encoded))
            }
            Err(error) => {
                if let DispatchError::Limit(error) = &error {
                    self.mixer.counts().over_limit(error.limit);
                }
                Decision::Fail(error.to_string())
            }
        }
    }
}

/// Logs why a request could not be checked, or other failures of a denied request.
fn log_failures(decision_id: &str, caller: &Caller, decision: &Decision, details: &AnswerDetails) {
    let (event, error) = match decision {
        Decision::Fail(reason) => ("a request could not be checked", log_text(reason)),
        Decision::Deny(..) if !details.failures.is_empty() => {
            ("a part of the check of a denied request failed", log_text(&details.failures))
        }
        Decision::Allow(_) | Decision::Deny(..) => return,
    };
    warn_limited!(decision_id, peer = log_text(caller.peer_name()), error, "{event}");
}

/// Returns whether a check describes a request, or an end of a connection.
fn is_described(context: &AttributeContext) -> bool {
    let mut peers = [&context.source, &context.destination].into_iter().flatten();
    context.request.as_ref().is_some_and(|request| request.http.is_some())
        || peers.any(|peer| peer.address.is_some() || !peer.principal.is_empty())
}
