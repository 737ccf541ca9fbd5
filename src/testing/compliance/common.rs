//! The rules that apply to any adapter, in this process or behind a server.

use std::{fmt, time::Duration};

use anyhow::{anyhow, bail};
use prost::{Message as _, Name as _, bytes::Bytes};
use prost_reflect::DynamicMessage;
use serde_json::Value as Json;
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::{
    instances,
    run::Outcome,
    survey::{Case, Survey},
};
use crate::service::session_config;
use mixer_adapter_core::{
    framework::{dynamic::DynamicTemplate, json::JsonError, status::status_name},
    proto::{
        Any, CheckResult, QuotaRequest, QuotaResult,
        istio::{
            mixer::adapter::model::v1beta1::quota_request::QuotaParams, policy::v1beta1::DirectHttpResponse,
        },
    },
    template::Variety,
};

/// Options of the suite.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The configuration in YAML.
    pub(crate) config: Option<String>,
    /// Rejected configurations, by the field that is at fault.
    pub(crate) refused: Vec<(String, String)>,
    /// The full name of all instances.
    pub(crate) instance: String,
    /// Instances in YAML that are answered, by template.
    pub(crate) examples: Vec<(String, String)>,
    /// The names of rules that are not tested.
    pub(crate) excepted: Vec<String>,
    /// The limit for a call.
    pub(crate) patience: Duration,
    /// The limit for the suite.
    pub(crate) budget: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config: None,
            refused: Vec::new(),
            instance: "example.instance.istio-system".to_owned(),
            examples: Vec::new(),
            excepted: Vec::new(),
            patience: Duration::from_secs(10),
            budget: Duration::from_secs(120),
        }
    }
}

/// The adapter under test.
pub(crate) trait Subject {
    fn options(&self) -> &Options;

    fn templates(&self) -> &[DynamicTemplate];

    /// Encodes a configuration in YAML as the message that calls carry.
    fn read(&self, text: &str) -> Result<Any, JsonError>;

    /// Encodes the configuration of the suite.
    fn config(&self) -> Result<Option<Any>, JsonError> {
        self.options().config.as_deref().map(|text| self.read(text)).transpose()
    }

    async fn create_session(&self, config: Option<&Any>) -> Result<String, Failure>;

    async fn close_session(&self, id: &str) -> Result<(), Failure>;

    /// Sends a request and waits for its answer within the suite's patience.
    async fn send(&self, template: &DynamicTemplate, request: Bytes) -> Result<Answer, Failure>;

    /// Sends each of the requests repeatedly, but only once if it fails. After the end it sends no further requests than the first
    /// ones, and none after a call that does not return.
    async fn send_all(&self, template: &DynamicTemplate, requests: Vec<Bytes>, times: Repeats) -> Vec<Asked>;

    /// Starts many calls at once and cancels each when it is suspended for the `at`th time. Returns the number of calls that were.
    async fn cancel(&self, template: &DynamicTemplate, request: Bytes, at: usize) -> usize;
}

/// The answers to a request, with the times at which they were received.
pub(crate) struct Asked {
    pub(crate) answers: Vec<(Result<Answer, Failure>, Instant)>,
    /// The number of awaits at which calls can be cancelled.
    pub(crate) awaits: usize,
    /// The longest time between two awaits, if it is known.
    pub(crate) longest: Duration,
}

/// How often a request is sent: only once after the end.
#[derive(Clone, Copy)]
pub(crate) struct Repeats {
    pub(crate) count: usize,
    pub(crate) end: Instant,
}

impl Repeats {
    /// Returns whether no request is sent after this number of requests.
    pub(crate) fn end_after(self, requests: usize) -> bool {
        requests >= FIRST && Instant::now() >= self.end
    }
}

/// Calls repeatedly, but not again after a failure. Returns the answers with the times at which they were received.
pub(crate) async fn repeated<T, E, F: Future<Output = Result<T, E>>>(
    repeats: Repeats,
    call: impl Fn() -> F,
) -> Vec<(Result<T, E>, Instant)> {
    let mut answers = Vec::new();
    while answers.len() < repeats.count && (answers.is_empty() || Instant::now() < repeats.end) {
        let answer = call().await;
        let is_failed = answer.is_err();
        answers.push((answer, Instant::now()));
        if is_failed {
            break;
        }
    }
    answers
}

/// The number of requests that are sent in any case.
const FIRST: usize = 3;

/// A call without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) code: Code,
    pub(crate) message: String,
    /// The faulty fields of a configuration; `None` if only the message may name them.
    pub(crate) fields: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    Failed,
    /// The configuration was refused.
    Refused,
    Panicked,
    /// There is no answer in time.
    Silent,
    /// There is no answer in time, and the thread of the call does nothing else.
    Blocked,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, code: Code, message: impl Into<String>) -> Self {
        Self { kind, code, message: message.into(), fields: Some(Vec::new()) }
    }

    /// Describes it as a predicate.
    pub(crate) fn described(&self) -> String {
        match self.kind {
            FailureKind::Panicked => format!("panics ({})", self.message),
            FailureKind::Silent | FailureKind::Blocked => "does not return in time".to_owned(),
            FailureKind::Failed | FailureKind::Refused => {
                format!("fails with {:?} ({})", self.code, self.message)
            }
        }
    }

    /// Whether it is a defect of the adapter, not of the instance.
    pub(crate) fn is_defect(&self) -> bool {
        matches!(self.kind, FailureKind::Panicked | FailureKind::Silent)
            || matches!(self.code, Code::Internal | Code::Unknown)
    }
}

/// The parts of an answer that rules are about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) check: Option<CheckResult>,
    pub(crate) quota: Option<QuotaResult>,
    /// The output of a check with output.
    output: Option<Json>,
}

impl Answer {
    /// Decodes the response of a template.
    pub(crate) fn decode(template: &DynamicTemplate, response: &[u8]) -> Result<Self, Failure> {
        let message = template.response_message();
        let decoded = DynamicMessage::decode(message.clone(), response).and_then(|response| {
            let mut answer = Self::default();
            match template.variety() {
                Variety::Check => answer.check = Some(response.transcode_to()?),
                Variety::Quota => answer.quota = Some(response.transcode_to()?),
                Variety::CheckWithOutput => {
                    let result = response.get_field_by_name("result");
                    let result = result.as_ref().and_then(|result| result.as_message());
                    answer.check = result.map(|result| result.transcode_to()).transpose()?;
                    let output = response.get_field_by_name("output");
                    answer.output = output.and_then(|output| serde_json::to_value(output.as_message()?).ok());
                }
                Variety::Report | Variety::AttributeGenerator => {}
            }
            Ok(answer)
        });
        decoded.map_err(|error| {
            let message = format!("the answer is not a valid {}: {error}", message.full_name());
            Failure::new(FailureKind::Failed, Code::Internal, message)
        })
    }

    /// The status code of a check.
    fn code(&self) -> Option<i32> {
        Some(self.check.as_ref()?.status.as_ref().map_or(0, |status| status.code))
    }

    /// Whether a Mixer reads it as "no opinion" (docs/behaviour/adapter-calls.md#validity-of-a-check).
    fn is_no_opinion(&self) -> bool {
        self.check.as_ref().is_some_and(|check| {
            let duration = check.valid_duration.unwrap_or_default();
            self.code() == Some(0)
                && check.valid_use_count == 0
                && (duration.seconds, duration.nanos) == (0, 0)
        })
    }

    /// Describes how `other` differs, which was received within `elapsed` by the `uses`th call for the same instance, although this
    /// answer was valid for that.
    pub(super) fn difference(&self, other: &Self, elapsed: Duration, uses: i32) -> Option<String> {
        let check = self.check.as_ref()?;
        let valid = Duration::try_from(check.valid_duration?).ok()?;
        if elapsed >= valid || check.valid_use_count < uses {
            return None;
        }
        let mut parts = self.parts()?.into_iter().zip(other.parts()?);
        let (first, second) = parts.find(|(first, second)| first != second)?;
        let uses = check.valid_use_count;
        Some(format!(
            "answers {first}, valid for {valid:?} and {uses} uses, and {elapsed:.0?} later {second}"
        ))
    }

    /// Describes the parts of a check that equal instances have in common.
    fn parts(&self) -> Option<[String; 4]> {
        let status = self.check.as_ref()?.status.clone().unwrap_or_default();
        let mut details = status.details.iter();
        let response = details.find(|detail| detail.message_name() == DirectHttpResponse::full_name());
        let response = response.and_then(|detail| DirectHttpResponse::decode(detail.value.clone()).ok());
        Some([
            status_name(status.code).into_owned(),
            format!("the message {:?}", status.message),
            format!("the direct response {response:?}"),
            format!("the output {}", self.output.as_ref().unwrap_or(&Json::Null)),
        ])
    }

    /// Describes a grant that the request does not allow.
    fn wrong_grant(&self, amount: i64, best_effort: bool) -> Option<String> {
        let quotas = self.quota.iter().flat_map(|quota| quota.quotas.values());
        let granted = quotas.map(|result| result.granted_amount);
        granted.into_iter().find_map(|granted| match granted {
            ..=-1 => Some(format!("grants the negative amount {granted}")),
            1.. if !best_effort && granted < amount => Some(format!("grants only {granted}")),
            _ => None,
        })
    }
}

/// The `adapter_config` of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum With<'a> {
    Config(Option<&'a Any>),
    Session(&'a str),
}

/// The amount of a quota call, and whether it is best effort.
pub(crate) type Amount = (i64, bool);

/// Makes a request with an instance.
pub(crate) fn request(
    options: &Options,
    template: &DynamicTemplate,
    with: With<'_>,
    instance: DynamicMessage,
    (amount, best_effort): Amount,
) -> Bytes {
    let params = QuotaParams { amount, best_effort, ..QuotaParams::default() };
    let quotas = [(options.instance.clone(), params)].into();
    let quota = (template.variety() == Variety::Quota).then_some(QuotaRequest { quotas });
    let config = match with {
        With::Config(config) => config.cloned(),
        With::Session(id) => Some(session_config(id.to_owned())),
    };
    template.request(vec![instance], config.as_ref(), quota.as_ref()).with_dedup_id("1")
}

/// Calls with an instance that has only a name.
pub(crate) async fn call<S: Subject>(
    subject: &S,
    template: &DynamicTemplate,
    with: With<'_>,
) -> Result<Answer, Failure> {
    let options = subject.options();
    let instance = instances::empty(template.instance(), &options.instance);
    subject.send(template, request(options, template, with, instance, (1, true))).await
}

/// Reads YAML or JSON.
pub(crate) fn read_yaml(text: &str) -> Result<Json, JsonError> {
    serde_saphyr::from_str(text).map_err(|error| JsonError::whole(error.to_string()))
}

pub(crate) async fn refusals_name_the_field<S: Subject>(subject: &S) -> Outcome {
    for (field, text) in &subject.options().refused {
        let config = match subject.read(text) {
            Ok(config) => config,
            Err(error) if error.field == *field => continue,
            Err(error) => {
                bail!("{text} is rejected because of `{}`, not of `{field}`", error.field);
            }
        };
        refused_for_field(subject.create_session(Some(&config)).await.err(), field, text)?;
        for template in subject.templates() {
            let answer = call(subject, template, With::Config(Some(&config))).await;
            refused_for_field(answer.err(), field, text)?;
        }
    }
    Ok(())
}

fn refused_for_field(failure: Option<Failure>, field: &str, text: &str) -> Outcome {
    let Some(failure) = failure else { bail!("{text} is not rejected") };
    if failure.kind != FailureKind::Refused {
        bail!("{text} is rejected, but not by the adapter: {failure}");
    }
    if failure.code != Code::InvalidArgument {
        bail!("{text} is rejected with {:?}, not with InvalidArgument: {failure}", failure.code);
    }
    match &failure.fields {
        Some(fields) if fields.iter().any(|named| named == field) => Ok(()),
        Some(fields) => bail!("{text} is rejected because of {fields:?}, not of `{field}`: {failure}"),
        None if failure.message.contains(field) => Ok(()),
        None => bail!("{text} is rejected without naming `{field}`: {failure}"),
    }
}

pub(crate) async fn unknown_session<S: Subject>(subject: &S) -> Outcome {
    let unknown = "0123456789abcdef0123456789abcdef";
    for template in subject.templates() {
        match call(subject, template, With::Session(unknown)).await {
            Err(failure) if failure.code == Code::NotFound => {}
            Err(failure) => bail!("`{}` {} for an unknown session", template.name(), failure.described()),
            Ok(_) => bail!("`{}` answers a call with an unknown session", template.name()),
        }
    }
    match subject.close_session(unknown).await {
        Err(failure) if failure.code == Code::NotFound => Ok(()),
        Err(failure) => bail!("closing an unknown session {}", failure.described()),
        Ok(()) => bail!("an unknown session is closed without an error"),
    }
}

/// The error of an instance must reject the instance and not be a defect, and there must be instances without one.
pub(crate) fn every_instance_is_answered(surveys: &[Survey]) -> Outcome {
    for survey in surveys {
        let name = survey.template.name();
        for (case, failure) in survey.failures() {
            if case.amount.is_none() && failure.is_defect() {
                bail!("`{name}` {} for {case}", failure.described());
            }
        }
        if let (None, Some((_, last))) = (survey.answered().next(), survey.failures().last()) {
            let tried = survey.cases.len();
            bail!("`{name}`: 0 of {tried} instances were answered; last error: {:?} ({last})", last.code);
        }
    }
    Ok(())
}

pub(crate) fn denials_are_answers(surveys: &[Survey]) -> Outcome {
    for Survey { template, cases } in surveys {
        if matches!(template.variety(), Variety::Report | Variety::AttributeGenerator) {
            continue;
        }
        let denial = cases.iter().find_map(|case| {
            let failure = case.outcome.as_ref().err()?;
            let is_denial = matches!(
                failure.code,
                Code::PermissionDenied
                    | Code::Unauthenticated
                    | Code::NotFound
                    | Code::AlreadyExists
                    | Code::ResourceExhausted
            );
            (failure.kind == FailureKind::Failed && is_denial).then_some((case, failure))
        });
        if let Some((case, failure)) = denial {
            bail!("`{}` {} for {case}", template.name(), failure.described());
        }
    }
    Ok(())
}

/// Compares the answers to equal instances, on a second subject as well: an answer may change once, for another reason than the call.
pub(crate) async fn answers_hold(
    surveys: &[Survey],
    again: impl Future<Output = anyhow::Result<Vec<Survey>>>,
) -> Outcome {
    let Some(_) = surveys.iter().find_map(Survey::change) else { return Ok(()) };
    match again.await?.iter().find_map(Survey::change) {
        None => Ok(()),
        Some(change) => Err(anyhow!(change)),
    }
}

pub(crate) fn checks_have_an_opinion(surveys: &[Survey]) -> Outcome {
    for survey in surveys {
        let answers: Vec<&Answer> = survey.answered().map(|(_, answer)| answer).collect();
        if !answers.is_empty() && answers.iter().all(|answer| answer.is_no_opinion()) {
            bail!(
                "`{}` answers all {} instances with no opinion, which a Mixer reads as allowed for one minute and 10000 uses",
                survey.template.name(),
                answers.len()
            );
        }
    }
    Ok(())
}

pub(crate) fn quota_grants(surveys: &[Survey]) -> Outcome {
    for case in surveys.iter().flat_map(|survey| &survey.cases) {
        let Some((amount, best_effort)) = case.amount else { continue };
        let wrong = match &case.outcome {
            Ok(answer) => answer.wrong_grant(amount, best_effort),
            Err(failure) => failure.is_defect().then(|| failure.described()),
        };
        if let Some(wrong) = wrong {
            bail!("{wrong} for an amount of {amount}, best effort: {best_effort}");
        }
    }
    Ok(())
}

/// The maximum number of awaits at which calls are cancelled.
pub(crate) const MAX_AWAITS: usize = 8;

pub(crate) async fn cancelled_calls_leave_nothing<S: Subject>(subject: &S, surveys: &[Survey]) -> Outcome {
    for survey in surveys {
        let Some(case) = survey.most_suspended() else { continue };
        for at in 1..=case.awaits.min(MAX_AWAITS) {
            let cancelled = subject.cancel(&survey.template, case.request.clone(), at).await;
            if cancelled == 0 {
                break;
            }
            still_answers(subject, &survey.template, case).await.map_err(|error| {
                let name = survey.template.name();
                anyhow!("after {cancelled} calls that were cancelled at await {at}, `{name}` {error}")
            })?;
        }
    }
    Ok(())
}

/// Expects the code of the answer that the instance of a case had, within the suite's patience.
pub(crate) async fn still_answers<S: Subject>(
    subject: &S,
    template: &DynamicTemplate,
    case: &Case,
) -> Outcome {
    let start = Instant::now();
    loop {
        let error = match (subject.send(template, case.request.clone()).await, &case.outcome) {
            (Ok(answer), Ok(before)) if before.code() != answer.code() => {
                match before.difference(&answer, Duration::ZERO, 1) {
                    None => return Ok(()),
                    Some(difference) => difference,
                }
            }
            (Ok(_), _) => return Ok(()),
            (Err(failure), _) => failure.described(),
        };
        // A task may release the resources of a cancelled call.
        if start.elapsed() >= subject.options().patience {
            bail!("{error} for {case}");
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use mixer_adapter_core::Check;
    use serde_json::json;

    use super::*;

    #[test]
    fn outputs_are_compared_while_the_check_is_valid() {
        let difference = |check: Check| {
            let answer = |cost| Answer {
                check: Some(check.clone().into()),
                output: Some(json!({ "cost": cost })),
                ..Answer::default()
            };
            answer(1).difference(&answer(2), Duration::ZERO, 2)
        };
        let valid = "valid for 5s and 1000 uses, and 0ns later the output";
        let expected = format!(r#"answers the output {{"cost":1}}, {valid} {{"cost":2}}"#);
        assert_eq!(difference(Check::allow()), Some(expected));
        assert_eq!(difference(Check::allow().no_cache()), None);
    }
}
