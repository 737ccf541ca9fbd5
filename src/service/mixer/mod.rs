//! The Mixer API, `istio.mixer.v1.Mixer`: Check and Report of a proxy (docs/behaviour/dispatch.md#phases-of-a-request and
//! docs/behaviour/mixer-api.md).

mod attributes;
mod compress;
mod pace;
mod references;

pub(crate) use compress::{check_request, report_request};

use std::{mem, sync::Arc, time::Instant};

use http::{HeaderName, HeaderValue};
use tonic::{Code, Status, metadata::MetadataMap};

use super::{
    limits::{admit_check, admit_report},
    rpc::{Rpc, WithMetadata, limited_rpc},
};
use attributes::{Decoder, DeltaError, update};
use mixer_adapter_core::{
    framework::{log_limit::FailureLogLimit, log_text::log_text},
    proto,
};
use mixer_adapter_engine::{
    Budget, CheckOutcome, FailedParts, LimitError, Mixer, QUOTA_OUTCOMES, RequestLimits, ShadowCall,
    Snapshot,
    attribute::Bag,
    decision_log::{Api, LoggedAttributes, LoggedCall, LoggedDecision},
    dictionary::WORDS,
    dispatch::{AllocationMode, AnswerDetails, DispatchError, QuotaRequest, Report, Request},
    proto::istio::mixer::v1::{
        CheckRequest, CheckResponse, CompressedAttributes, ReferencedAttributes, ReportRequest,
        ReportResponse,
        check_response::{PreconditionResult, QuotaResult},
        report_request::RepeatedAttributesSemantics,
    },
    quota_outcome,
    trace::{Step, Trace},
};
use mixer_adapter_host::handler::{Caller, FailedCall, grpc_error, log_failure};
use pace::Pace;

pub(super) const SERVICE: &str = "istio.mixer.v1.Mixer";

pub(super) fn methods(mixer: &Arc<Mixer>) -> [(&'static str, Rpc); 2] {
    [
        ("/istio.mixer.v1.Mixer/Check", limited_rpc(mixer, admission(admit_check), decide)),
        ("/istio.mixer.v1.Mixer/Report", limited_rpc(mixer, admission(admit_report), record)),
    ]
}

/// Checks an encoded request against limits.
type Admit = fn(&RequestLimits, &[u8]) -> Result<(), LimitError>;

/// Returns a check of encoded requests against the limits of an engine, which counts those beyond them.
pub(super) fn admission(admit: Admit) -> impl Fn(&Mixer, &[u8]) -> Result<(), Status> {
    move |mixer, request| admit(mixer.limits(), request).map_err(|error| over_limit(mixer, error))
}

/// Counts a call that exceeds a limit.
fn over_limit(mixer: &Mixer, error: LimitError) -> Status {
    mixer.counts().over_limit(error.limit);
    Status::resource_exhausted(error.to_string())
}

/// Converts an error of the engine; failures have the code `code`.
fn status(mixer: &Mixer, code: Code, error: DispatchError) -> Status {
    let message = error.to_string();
    match error {
        DispatchError::Limit(error) => over_limit(mixer, error),
        DispatchError::Failed { details, .. } => {
            grpc_error(proto::Status { code: code as i32, message, details })
        }
    }
}

/// The answer before the first configuration, without which no request can be allowed.
fn not_configured() -> Status {
    Status::unavailable("there is no configuration yet")
}

/// Returns the number of dictionary words of the client, which must not exceed the server's.
fn known_words(global_word_count: u32) -> Result<usize, Status> {
    let count = usize::try_from(global_word_count).unwrap_or(usize::MAX);
    if count > WORDS.len() {
        return Err(Status::internal(format!(
            "the caller's global dictionary has {count} words, this one {}: the caller is of a later release",
            WORDS.len()
        )));
    }
    Ok(count)
}

/// Logs a failed check or report, at most ten of each code in ten seconds.
fn log_failed(caller: &Caller, status: &Status, event: &'static str) {
    static LIMIT: FailureLogLimit = FailureLogLimit::new();
    log_failure(&LIMIT, event, caller, (status.code() as i32, &status.message()), FailedCall::default);
}

/// The entry of response metadata with the id of a decision.
const DECISION_ID: HeaderName = HeaderName::from_static("mixer-adapter-decision-id");

/// Answers a Check. If decisions are logged, the metadata of the answer has the id.
async fn decide(
    mixer: Arc<Mixer>,
    asked: Box<CheckRequest>,
    caller: Caller,
) -> Result<WithMetadata<CheckResponse>, Status> {
    let logged = mixer.decision_log().begin(Api::Mixer, None);
    let answer = counted_check(&mixer, &asked, &caller, logged.as_ref(), None).await;
    with_id(answer, logged.as_ref())
}

/// Answers a Report. If decisions are logged, the metadata of the answer has the id.
async fn record(
    mixer: Arc<Mixer>,
    asked: Box<ReportRequest>,
    caller: Caller,
) -> Result<WithMetadata<ReportResponse>, Status> {
    let logged = mixer.decision_log().begin(Api::Mixer, None);
    let answer = counted_report(&mixer, *asked, caller, logged.as_ref(), None).await;
    with_id(answer, logged.as_ref())
}

/// Adds the id of a decision to the metadata of an answer or an error.
fn with_id<M>(answer: Result<M, Status>, logged: Option<&LoggedCall<'_>>) -> Result<WithMetadata<M>, Status> {
    let id = logged.and_then(|logged| HeaderValue::from_str(logged.id()).ok());
    match (answer, id) {
        (Ok(answer), id) => Ok(WithMetadata { answer, metadata: id.map(|id| (DECISION_ID, id)) }),
        (Err(status), None) => Err(status),
        (Err(mut status), Some(id)) => {
            let mut metadata = std::mem::take(status.metadata_mut()).into_headers();
            metadata.insert(DECISION_ID, id);
            *status.metadata_mut() = MetadataMap::from_headers(metadata);
            Err(status)
        }
    }
}

/// Answers a Check.
pub async fn check(mixer: &Mixer, asked: CheckRequest, caller: Caller) -> Result<CheckResponse, Status> {
    counted_check(mixer, &asked, &caller, None, None).await
}

/// Answers a Check, and adds the steps to the answer to a trace.
pub(crate) async fn trace_check(
    mixer: &Mixer,
    asked: CheckRequest,
    caller: Caller,
    mut trace: Trace,
) -> (Result<CheckResponse, Status>, Trace) {
    let answer = counted_check(mixer, &asked, &caller, None, Some(&mut trace)).await;
    (answer, trace)
}

async fn counted_check(
    mixer: &Mixer,
    asked: &CheckRequest,
    caller: &Caller,
    logged: Option<&LoggedCall<'_>>,
    trace: Option<&mut Trace>,
) -> Result<CheckResponse, Status> {
    let start = Instant::now();
    let mut basis = Basis::default();
    let answer = traced_check(mixer, asked, caller, logged, &mut basis, trace).await;
    let code = answer.as_ref().map(|response| Some(response.precondition.as_ref()?.status.as_ref()?.code));
    let outcome = match code {
        Ok(Some(0)) => CheckOutcome::Allowed,
        Ok(_) => CheckOutcome::Denied,
        Err(_) => CheckOutcome::Failed,
    };
    mixer.counts().check(outcome, start.elapsed());
    tracing::debug!(
        outcome = CheckOutcome::NAMES[outcome as usize],
        peer = log_text(caller.peer_name()),
        "a request was checked"
    );
    if let Some(logged) = logged.filter(|logged| logged.is_logged()) {
        log_check(logged, outcome, asked, &answer, caller, &basis);
    }
    answer.inspect_err(|status| log_failed(caller, status, "check failed"))
}

/// The basis of a decision, for the decision log.
#[derive(Default)]
struct Basis {
    details: Arc<AnswerDetails>,
    attributes: Option<LoggedAttributes>,
    failed: FailedParts,
    failed_quotas: FailedParts,
}

/// Logs a check and its quotas.
fn log_check(
    logged: &LoggedCall<'_>,
    outcome: CheckOutcome,
    asked: &CheckRequest,
    answer: &Result<CheckResponse, Status>,
    caller: &Caller,
    basis: &Basis,
) {
    let peer = caller.peer_name();
    let status = match answer {
        Ok(response) => {
            let status = response.precondition.as_ref().and_then(|result| result.status.as_ref());
            status.filter(|status| status.code != 0).map(|status| (status.code, status.message.as_str()))
        }
        Err(status) => Some((status.code() as i32, status.message())),
    };
    let verdict = CheckOutcome::NAMES[outcome as usize];
    let check = LoggedDecision::Check { verdict, rules: &basis.details.rules, failed: &basis.failed };
    logged.log(check, status, &peer, basis.attributes.as_ref());
    for (quota, result) in answer.iter().flat_map(|response| &response.quotas) {
        let amount = asked.quotas.get(quota).map_or(0, |params| params.amount);
        let granted = result.granted_amount;
        let verdict = QUOTA_OUTCOMES[quota_outcome(granted, amount)];
        let (amount, granted, failed) = (Some(amount), Some(granted), &basis.failed_quotas);
        let quota = LoggedDecision::Quota { verdict, quota, amount, granted, failed };
        // The line of the check has the attributes.
        logged.log(quota, None, &peer, None);
    }
}

async fn traced_check(
    mixer: &Mixer,
    asked: &CheckRequest,
    caller: &Caller,
    logged: Option<&LoggedCall<'_>>,
    basis: &mut Basis,
    mut trace: Option<&mut Trace>,
) -> Result<CheckResponse, Status> {
    let known_words = known_words(asked.global_word_count)?;
    let snapshot = mixer.snapshot().ok_or_else(not_configured)?;
    let attributes = asked.attributes.as_ref();
    let decoder = Decoder::new(&snapshot, attributes.map_or(&[][..], |attributes| &attributes.words));
    let is_logged = logged.is_some_and(LoggedCall::is_logged);
    // An explanation is not a request.
    let mut shadow = if trace.is_none() { ShadowCall::new(mixer, &snapshot) } else { None };
    let mut bag = snapshot.bag_of(is_logged || shadow.as_ref().is_some_and(ShadowCall::needs_all_attributes));
    let mut budget = Budget::new(mixer.limits(), caller);
    if let Some(attributes) = attributes {
        decoder.read(attributes, &mut bag, &mut budget).map_err(|error| over_limit(mixer, error))?;
    }
    let request = Request::new(&snapshot, bag, caller).with_budget(budget);
    let mut request = request.with_rules(is_logged || shadow.is_some());
    if let Some(trace) = trace.as_deref_mut() {
        let mut trace = mem::take(trace);
        request.namespace().clone_into(&mut trace.namespace);
        if let Some(attributes) = attributes {
            add_undeclared(&mut trace, &decoder, attributes, &snapshot);
        }
        request = request.with_trace(trace);
    }
    let pace = Pace::new(caller.deadline);
    let answer = answer(mixer, &mut request, asked, known_words, pace, basis, shadow.as_mut()).await;
    basis.failed_quotas = request.take_failed();
    basis.attributes = logged.and_then(|logged| logged.attributes(request.attributes()));
    mixer.counts().request(request.counts());
    if let Some(shadow) = shadow {
        shadow.evaluate(&mut request, caller, logged);
    }
    if let Some(trace) = trace {
        *trace = request.into_trace().unwrap_or_default();
    }
    answer
}

/// Maximum number of undeclared attributes of one request in an explanation.
const MAX_UNDECLARED: usize = 20;

fn add_undeclared(
    trace: &mut Trace,
    decoder: &Decoder<'_>,
    attributes: &CompressedAttributes,
    snapshot: &Snapshot,
) {
    for name in decoder.undeclared(attributes).into_iter().take(MAX_UNDECLARED) {
        trace.add(|| Step::UndeclaredAttribute {
            attribute: name.to_owned(),
            similar: snapshot.vocabulary().similar(name).map(str::to_owned),
        });
    }
}

async fn answer(
    mixer: &Mixer,
    request: &mut Request<'_>,
    asked: &CheckRequest,
    known_words: usize,
    mut pace: Pace,
    basis: &mut Basis,
    mut shadow: Option<&mut ShadowCall<'_>>,
) -> Result<CheckResponse, Status> {
    let answer = request.answer().await;
    basis.failed = request.take_failed();
    if let Some(shadow) = &mut shadow {
        shadow.add_check(&answer, &basis.failed);
    }
    let answer = answer.map_err(|error| status(mixer, Code::Internal, error))?;
    basis.details = answer.details;
    let allowed = answer.status.code == 0;
    let mut response = CheckResponse {
        precondition: Some(PreconditionResult {
            status: Some(answer.status),
            valid_duration: Some(answer.valid_duration),
            valid_use_count: answer.valid_use_count,
            referenced_attributes: Some(referenced(request, known_words)),
            route_directive: answer.directive.map(Arc::unwrap_or_clone),
        }),
        quotas: Default::default(),
    };
    if allowed {
        for (name, params) in &asked.quotas {
            let before = request.budget().bytes();
            let quota = QuotaRequest {
                name,
                dedup_id: &asked.deduplication_id,
                amount: params.amount,
                best_effort: params.best_effort,
            };
            let granted = request.quota(quota).await.map_err(|error| over_limit(mixer, error))?;
            if let Some(shadow) = &mut shadow {
                shadow.add_quota(quota, AllocationMode::default(), Some(granted.granted), request);
            }
            mixer.counts().quota(granted.granted, params.amount);
            let result = QuotaResult {
                valid_duration: Some(granted.valid_duration),
                granted_amount: granted.granted,
                referenced_attributes: Some(referenced(request, known_words)),
                status: None,
            };
            response.quotas.insert(name.clone(), result);
            pace.step(request.budget().bytes() - before).await?;
        }
    }
    Ok(response)
}

fn referenced(request: &Request<'_>, known_words: usize) -> ReferencedAttributes {
    references::encode(&request.references().list(request.vocabulary()), known_words)
}

/// Answers a Report.
pub async fn report(mixer: &Mixer, asked: ReportRequest, caller: Caller) -> Result<ReportResponse, Status> {
    counted_report(mixer, asked, caller, None, None).await
}

/// Answers a Report, and adds the steps to the answer to a trace.
pub(crate) async fn trace_report(
    mixer: &Mixer,
    asked: ReportRequest,
    caller: Caller,
    mut trace: Trace,
) -> (Result<ReportResponse, Status>, Trace) {
    let answer = counted_report(mixer, asked, caller, None, Some(&mut trace)).await;
    (answer, trace)
}

async fn counted_report(
    mixer: &Mixer,
    asked: ReportRequest,
    caller: Caller,
    logged: Option<&LoggedCall<'_>>,
    trace: Option<&mut Trace>,
) -> Result<ReportResponse, Status> {
    let requests = asked.attributes.len();
    let mut failed = FailedParts::default();
    let answer = traced_report(mixer, asked, &caller, &mut failed, trace).await;
    mixer.counts().report(requests, answer.is_ok());
    answer.inspect_err(|status| {
        log_failed(&caller, status, "report failed");
        if let Some(logged) = logged {
            let status = Some((status.code() as i32, status.message()));
            let report = LoggedDecision::Report { requests, failed: &failed };
            logged.log(report, status, caller.peer_name(), None);
        }
    })
}

/// Maximum number of requests of a report that are explained.
const TRACED_REQUESTS: usize = 100;

async fn traced_report(
    mixer: &Mixer,
    asked: ReportRequest,
    caller: &Caller,
    failed: &mut FailedParts,
    mut trace: Option<&mut Trace>,
) -> Result<ReportResponse, Status> {
    known_words(asked.global_word_count)?;
    let snapshot = mixer.snapshot().ok_or_else(not_configured)?;
    let delta = asked.repeated_attributes_semantics() == RepeatedAttributesSemantics::DeltaEncoding;
    let shared = Decoder::new(&snapshot, &asked.default_words);
    let mut report = Report::default();
    let mut budget = Budget::new(mixer.limits(), caller);
    let mut pace = Pace::new(caller.deadline);
    let mut state: Option<Bag> = None;
    for (index, attributes) in asked.attributes.iter().enumerate() {
        let own;
        let decoder = if attributes.words.is_empty() {
            &shared
        } else {
            own = Decoder::new(&snapshot, &attributes.words);
            &own
        };
        let before = budget.bytes();
        match &mut state {
            Some(state) if delta => match update(decoder, attributes, state, &mut budget) {
                Ok(()) => {}
                Err(DeltaError::Limit(error)) => return Err(over_limit(mixer, error)),
                Err(why) => {
                    report.fail(format!("request could not be processed due to invalid attributes: {why}"));
                    continue;
                }
            },
            state => {
                let mut bag = Bag::new(snapshot.vocabulary().clone());
                decoder.read(attributes, &mut bag, &mut budget).map_err(|error| over_limit(mixer, error))?;
                *state = Some(bag);
            }
        }
        let Some(bag) = (if delta { state.clone() } else { state.take() }) else { continue };
        let mut request = Request::new(&snapshot, bag, caller).with_budget(budget);
        if let Some(trace) = trace.as_deref_mut().filter(|_| index < TRACED_REQUESTS) {
            let (number, mut trace) = (index + 1, mem::take(trace));
            trace.add(|| Step::Request { number, namespace: request.namespace().to_owned() });
            add_undeclared(&mut trace, decoder, attributes, &snapshot);
            request = request.with_trace(trace);
        }
        let added = report.add(&mut request).await;
        budget = request.budget();
        mixer.counts().request(request.counts());
        if let (Some(trace), Some(of_request)) = (trace.as_deref_mut(), request.into_trace()) {
            *trace = of_request;
        }
        added.map_err(|error| over_limit(mixer, error))?;
        pace.step(budget.bytes() - before).await?;
    }
    let delivered = report.flush(caller, trace).await;
    failed.append(report.failed_parts());
    delivered.map_err(|error| status(mixer, Code::Unknown, error))?;
    Ok(ReportResponse {})
}
