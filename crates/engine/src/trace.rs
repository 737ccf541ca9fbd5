//! Traces of requests, which explain their answers.

use std::{borrow::Cow, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use tonic::Status;

use mixer_adapter_core::{framework::status::status_name, value::Value};

/// The steps of a request in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trace {
    /// The namespace whose rules apply, in addition to the default one.
    pub namespace: String,
    /// The steps of all phases.
    pub steps: Vec<Step>,
    /// Number of further steps, which exceeded the limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
    /// The full names of the rules that decided: whose adapters denied the request, or else all that apply.
    #[serde(skip)]
    pub rules: Vec<std::sync::Arc<str>>,
    /// The bytes that further steps may take; `None` without limit.
    #[serde(skip)]
    room: Option<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// Attribute generation.
    Generate,
    /// Check.
    Check,
    /// Header operations.
    Headers,
    /// Quota allocation.
    Quota,
    /// Report.
    Report,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A step of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// The following steps belong to one request of a batch.
    Request {
        /// The position in the batch, from 1.
        number: usize,
        /// The namespace whose rules apply, in addition to the default one.
        namespace: String,
    },
    /// The request has an attribute that no attribute manifest declares, so that no rule reads it.
    UndeclaredAttribute {
        /// The attribute.
        attribute: String,
        /// The declared attribute with the most similar name.
        #[serde(skip_serializing_if = "Option::is_none")]
        similar: Option<String>,
    },
    /// The request has a quota that no rule has.
    UnknownQuota {
        /// The quota.
        quota: String,
        /// The applicable quota with the most similar name.
        #[serde(skip_serializing_if = "Option::is_none")]
        similar: Option<String>,
        /// Whether it is granted, as by Mixer.
        granted: bool,
    },
    /// The condition of a rule was evaluated.
    Rule {
        /// The phase.
        phase: Phase,
        /// The rule's full name.
        rule: String,
        /// The condition, or an empty text.
        condition: String,
        /// Whether it matched.
        matched: bool,
        /// The evaluation error, which counts as no match.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Where the rule is written: a file and a line, or the address of a server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<String>,
        /// The values of the parts of the condition.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        parts: Vec<Subexpression>,
    },
    /// A rule does not apply to the request, because it is of another namespace.
    OtherNamespace {
        /// The rule's full name.
        rule: String,
        /// Where the rule is written.
        place: String,
    },
    /// An instance was built, or could not be built.
    Instance {
        /// The instance's full name.
        instance: String,
        /// The values of the strings in its params.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        params: Vec<Param>,
        /// The instance.
        #[serde(skip_serializing_if = "Option::is_none")]
        built: Option<serde_json::Value>,
        /// The error.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// An adapter was called. Without answer and error, the call was skipped.
    Call {
        /// The handler's full name.
        handler: String,
        /// The template.
        template: String,
        /// The instances sent.
        instances: Vec<String>,
        /// The response.
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<serde_json::Value>,
        /// The error.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// The duration in microseconds.
        micros: u64,
    },
    /// An attribute was generated.
    Generated {
        /// The attribute.
        attribute: String,
        /// The value; `None` if the attribute was already present.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// A header operation was applied or skipped.
    Header {
        /// The rule.
        rule: String,
        /// The header.
        header: String,
        /// The effect, or the reason for skipping it.
        outcome: String,
    },
    /// The response to a denied request was given the form of the rule.
    Denial {
        /// The rule.
        rule: String,
        /// The response, or why it has not that form.
        outcome: String,
    },
    /// The results were merged.
    Merged {
        /// The merged status.
        outcome: String,
    },
}

/// The value of a part of a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Subexpression {
    /// The source.
    pub text: String,
    /// The value with its type, such as `"text" (STRING)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl fmt::Display for Subexpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.value, &self.error) {
            (Some(value), _) => write!(f, "{} = {value}", self.text),
            (None, error) => write!(f, "{}: {}", self.text, error.as_deref().unwrap_or_default()),
        }
    }
}

/// The value of a string in the params of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Param {
    /// The path of the field, such as `dimensions["code"]`.
    pub field: String,
    /// The source.
    pub text: String,
    /// Whether it is a literal, the text between quotes. Otherwise it is an expression.
    #[serde(default, rename = "literal", skip_serializing_if = "std::ops::Not::not")]
    pub is_literal: bool,
    /// The value with its type, such as `"text" (STRING)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = if self.is_literal { "literal" } else { "expression" };
        write!(f, "{}: {rule} {} -> ", self.field, self.text)?;
        match (&self.value, &self.error) {
            (Some(value), _) => f.write_str(value),
            (None, error) => write!(f, "error: {}", error.as_deref().unwrap_or_default()),
        }
    }
}

impl Trace {
    /// Creates a trace whose steps take at most `max_bytes` as JSON. Further steps are counted.
    pub fn with_limit(max_bytes: usize) -> Self {
        Self { room: Some(max_bytes), ..Self::default() }
    }

    /// Adds a step, unless the limit was exceeded before.
    pub fn add(&mut self, step: impl FnOnce() -> Step) {
        let Some(room) = self.room else { return self.steps.push(step()) };
        if room > 0 {
            let step = step();
            if let Some(rest) = room.checked_sub(json_size(&step)) {
                self.room = Some(rest);
                return self.steps.push(step);
            }
        }
        self.omitted += 1;
        self.room = Some(0);
    }
}

/// The number of rules without an effect that a brief text shows.
const FEW: usize = 10;

impl Trace {
    /// Returns the steps that decided: without the rules that did not match or are of other namespaces if there are many, and then also
    /// without the parts of conditions and instances.
    pub fn brief(&self) -> String {
        let idle = self.steps.iter().filter(|step| step.is_idle()).count();
        if idle <= FEW {
            return self.to_string();
        }
        let steps = self.steps.iter().filter(|step| !step.is_idle()).map(|step| match step.clone() {
            Step::Rule { phase, rule, condition, matched, error, place, .. } => {
                Step::Rule { phase, rule, condition, matched, error, place, parts: Vec::new() }
            }
            Step::Instance { instance, built, error, .. } => {
                Step::Instance { instance, params: Vec::new(), built, error }
            }
            other => other,
        });
        let brief = Self { steps: steps.collect(), room: None, ..self.clone() };
        format!("{brief}{idle} rules do not match or are of other namespaces: --all shows them\n")
    }
}

impl Step {
    /// Returns whether it is a rule without an effect.
    fn is_idle(&self) -> bool {
        matches!(self, Self::OtherNamespace { .. } | Self::Rule { matched: false, error: None, .. })
    }

    /// A call that is skipped.
    pub(crate) fn skipped_call(handler: &str, template: &str, instance: &str) -> Self {
        Self::Call {
            handler: handler.to_owned(),
            template: template.to_owned(),
            instances: vec![instance.to_owned()],
            answer: None,
            error: None,
            micros: 0,
        }
    }

    /// A call with its answer or error.
    pub(crate) fn call(
        handler: &str,
        template: &str,
        instances: Vec<String>,
        outcome: Result<serde_json::Value, &Status>,
        took: Duration,
    ) -> Self {
        Self::Call {
            handler: handler.to_owned(),
            template: template.to_owned(),
            instances,
            error: outcome.as_ref().err().map(|status| status_text(status)),
            answer: outcome.ok(),
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// Returns the length of a step as JSON.
fn json_size(step: &Step) -> usize {
    // A step that cannot be encoded has no room anywhere.
    serde_json::to_vec(step).map_or(usize::MAX, |json| json.len())
}

/// The maximum length of a value in a trace in bytes: every rule may read a value of megabytes.
const MAX_VALUE: usize = 4 << 10;

/// Truncates a text to the maximum length.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_VALUE {
        return Cow::Borrowed(text);
    }
    let start = &text[..text.floor_char_boundary(MAX_VALUE)];
    Cow::Owned(format!("{start}... ({} bytes)", text.len()))
}

/// Formats a value with its type; strings are quoted.
pub(crate) fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{:?} (STRING)", cut(text)),
        other => format!("{} ({})", cut(&other.to_string()), other.value_type()),
    }
}

fn fmt_similar(similar: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match similar {
        Some(similar) => writeln!(f, "; did you mean {similar}?"),
        None => writeln!(f),
    }
}

/// Formats a status as in traces and in messages of failures.
pub(crate) fn status_text(status: &Status) -> String {
    format!("{}: {}", status_name(status.code() as i32), status.message())
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !matches!(self.steps.first(), Some(Step::Request { .. })) {
            writeln!(f, "namespace {:?}", self.namespace)?;
        }
        self.steps.iter().try_for_each(|step| step.fmt(f))?;
        match self.omitted {
            0 => Ok(()),
            omitted => writeln!(f, "{omitted} more steps are omitted: the explanation would be too large"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Request { number, namespace } => writeln!(f, "request {number}, namespace {namespace:?}"),
            Step::UndeclaredAttribute { attribute, similar } => {
                write!(f, "attribute {attribute} is not declared, and no rule reads it")?;
                fmt_similar(similar.as_deref(), f)
            }
            Step::UnknownQuota { quota, similar, granted } => {
                let effect = if *granted { "granted in full, as by Mixer" } else { "nothing is granted" };
                write!(f, "quota {quota}: no rule has a quota of this name: {effect}")?;
                fmt_similar(similar.as_deref(), f)
            }
            Step::OtherNamespace { rule, place } => {
                writeln!(f, "rule {rule} ({place}) is not of this namespace, and does not apply")
            }
            Step::Rule { phase, rule, condition, matched, error, place, parts } => {
                let outcome = match error {
                    Some(error) => format!("error: {error}"),
                    None if *matched => "matched".to_owned(),
                    None => "did not match".to_owned(),
                };
                let condition = if condition.is_empty() { "(always)" } else { condition };
                writeln!(f, "{phase}: rule {rule}: {condition} -> {outcome}")?;
                if let Some(place) = place {
                    writeln!(f, "  in {place}")?;
                }
                parts.iter().try_for_each(|part| writeln!(f, "  {part}"))
            }
            Step::Instance { instance, params, built, error } => {
                match built {
                    Some(built) => writeln!(f, "  instance {instance}: {built}")?,
                    None => {
                        let error = error.as_deref().unwrap_or_default();
                        writeln!(f, "  instance {instance}: NOT BUILT: {error}")?;
                    }
                }
                params.iter().try_for_each(|param| writeln!(f, "    {param}"))
            }
            Step::Call { handler, template, instances, answer: None, error: None, .. } => {
                writeln!(f, "  call {handler} ({template}: {}) NOT MADE", instances.join(", "))
            }
            Step::Call { handler, template, instances, answer, error, micros } => {
                let instances = instances.join(", ");
                let outcome = match (answer, error) {
                    (Some(answer), _) => answer.to_string(),
                    (None, error) => format!("ERROR: {}", error.as_deref().unwrap_or_default()),
                };
                writeln!(f, "  call {handler} ({template}: {instances}) in {micros} µs -> {outcome}")
            }
            Step::Generated { attribute, value: Some(value) } => {
                writeln!(f, "  attribute {attribute} = {value}")
            }
            Step::Generated { attribute, value: None } => {
                writeln!(f, "  attribute {attribute} was there already")
            }
            Step::Header { rule, header, outcome } => writeln!(f, "  header {header} by {rule}: {outcome}"),
            Step::Denial { rule, outcome } => writeln!(f, "  response by {rule}: {outcome}"),
            Step::Merged { outcome } => writeln!(f, "merged: {outcome}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn merged(outcome: &str) -> Step {
        Step::Merged { outcome: outcome.to_owned() }
    }

    #[test]
    fn a_trace_that_has_no_room_for_a_step_makes_no_further_ones() {
        let size = json_size(&merged("one"));
        let mut trace = Trace::with_limit(2 * size + 1);
        trace.add(|| merged("one"));
        trace.add(|| merged("two or more"));
        trace.add(|| unreachable!("the trace is full"));
        assert_eq!((trace.steps.clone(), trace.omitted), (vec![merged("one")], 2));
        assert!(
            trace.to_string().ends_with("2 more steps are omitted: the explanation would be too large\n")
        );
        let json = serde_json::to_value(&trace).unwrap();
        assert_eq!(json["omitted"], 2);
    }

    #[test]
    fn a_brief_text_has_what_decided_and_counts_many_rules_that_did_not() {
        let rule = |matched, error: Option<&str>| Step::Rule {
            phase: Phase::Check,
            rule: "r".to_owned(),
            condition: "a == b".to_owned(),
            matched,
            error: error.map(str::to_owned),
            place: None,
            parts: vec![Subexpression { text: "a".to_owned(), value: Some("1".to_owned()), error: None }],
        };
        let steps = vec![rule(true, None), rule(false, Some("no a")), merged("denied")];
        let mut trace = Trace { steps, ..Trace::default() };
        trace.steps.extend(std::iter::repeat_n(rule(false, None), FEW));
        assert_eq!(trace.brief(), trace.to_string());
        trace.steps.push(rule(false, None));
        let expected = "namespace \"\"\ncheck: rule r: a == b -> matched\ncheck: rule r: a == b -> error: no a\n\
            merged: denied\n11 rules do not match or are of other namespaces: --all shows them\n";
        assert_eq!(trace.brief(), expected);
    }

    #[test]
    fn a_trace_without_limit_has_all_steps() {
        let mut trace = Trace::default();
        (0..1000).for_each(|_| trace.add(|| merged(&"x".repeat(1000))));
        assert_eq!((trace.steps.len(), trace.omitted), (1000, 0));
        assert!(serde_json::to_value(&trace).unwrap().get("omitted").is_none());
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(cut(&"x".repeat(MAX_VALUE)), "x".repeat(MAX_VALUE));
        let long = "é".repeat(MAX_VALUE);
        let value = value_text(&Value::String(format!("x{long}")));
        assert_eq!(value, format!("\"x{}... (8193 bytes)\" (STRING)", "é".repeat(MAX_VALUE / 2 - 1)));
    }
}
