//! Why a request got the answer it got.

use std::time::Duration;

use serde::Serialize;

/// Everything the engine did for one request, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trace {
    /// The namespace whose rules apply, beside the default one.
    pub namespace: String,
    /// What was done in each phase.
    pub steps: Vec<Step>,
}

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// A rule's condition was looked at.
    Rule {
        /// The phase: generate, check, quota, report.
        phase: &'static str,
        /// The rule's full name.
        rule: String,
        /// The condition; empty where there is none.
        condition: String,
        /// Whether it matched.
        matched: bool,
        /// Why it could not be evaluated, which counts as no match.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// An instance was built, or could not be.
    Instance {
        /// The instance's full name.
        instance: String,
        /// What an adapter gets.
        #[serde(skip_serializing_if = "Option::is_none")]
        built: Option<serde_json::Value>,
        /// Why it could not be built.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// An adapter was called.
    Call {
        /// The handler's full name.
        handler: String,
        /// The template.
        template: String,
        /// The instances sent.
        instances: Vec<String>,
        /// What it answered.
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<serde_json::Value>,
        /// Or why there is no answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// How long it took, in microseconds.
        micros: u64,
    },
    /// An attribute was generated.
    Generated {
        /// The attribute.
        attribute: String,
        /// Its value; absent where the attribute was there already.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// A header operation was made, or left out.
    Header {
        /// The rule.
        rule: String,
        /// The header.
        header: String,
        /// What was done or why nothing was.
        outcome: String,
    },
    /// The answers were merged.
    Merged {
        /// The outcome in words.
        outcome: String,
    },
}

impl Trace {
    pub(crate) fn call(
        &mut self,
        handler: &str,
        template: &str,
        instances: Vec<String>,
        outcome: Result<serde_json::Value, String>,
        took: Duration,
    ) {
        let (answer, error) = match outcome {
            Ok(answer) => (Some(answer), None),
            Err(error) => (None, Some(error)),
        };
        self.steps.push(Step::Call {
            handler: handler.to_owned(),
            template: template.to_owned(),
            instances,
            answer,
            error,
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        });
    }
}

impl std::fmt::Display for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "namespace {:?}", self.namespace)?;
        self.steps.iter().try_for_each(|step| step.fmt(f))
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Rule { phase, rule, condition, matched, error } => {
                let outcome = match error {
                    Some(error) => format!("error: {error}"),
                    None if *matched => "matched".to_owned(),
                    None => "did not match".to_owned(),
                };
                let condition = if condition.is_empty() { "(always)" } else { condition };
                writeln!(f, "{phase}: rule {rule}: {condition} -> {outcome}")
            }
            Step::Instance { instance, built: Some(built), .. } => {
                writeln!(f, "  instance {instance}: {built}")
            }
            Step::Instance { instance, error, .. } => {
                writeln!(f, "  instance {instance}: NOT BUILT: {}", error.as_deref().unwrap_or_default())
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
            Step::Merged { outcome } => writeln!(f, "merged: {outcome}"),
        }
    }
}
