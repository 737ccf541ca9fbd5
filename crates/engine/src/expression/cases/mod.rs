//! Runs files of recorded expression cases and reports the differences.
//!
//! A file has one JSON object a line: an expression, the declared attributes, a bag and Mixer's outcome. Value, type,
//! phase and kind of an error, and referenced attributes must be equal; error texts may differ.
//!
//! In a few recorded cases Mixer crashed, exceeded a fixed limit, or returned a value that is not of the expression's
//! type, which this engine must not. Such a case passes with a safe outcome: `runtime_type_mismatch` if the request has a
//! value of the wrong type, `attribute_missing` if all operands of a `|` are missing, otherwise a value of the
//! expression's type. [`Report::safer`] counts them.

mod record;

use std::fmt::{self, Display};

use record::{Case, Outcome, RecordError};
use serde::Serialize;

use super::{CompileError, EvalError, Expression, Language};
use crate::attribute::{AttributeValue, Reads, Reference, Vocabulary};
use mixer_adapter_core::value::ValueType;

/// The results of a file of cases. [`Display`] lists the differences and ends with `N passed, M failed`.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Number of cases with the recorded or a safe outcome.
    pub passed: usize,
    /// Number of passed cases with a safe outcome in place of the recorded one.
    pub safer: usize,
    /// The ids of cases that need further functions or were not recorded in this language.
    pub skipped: Vec<String>,
    /// The cases with another outcome.
    pub failures: Vec<Difference>,
}

/// A case whose outcome differs from the recorded one.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The id of the case.
    pub id: String,
    /// The expression.
    pub expression: String,
    /// The differences.
    pub reasons: Vec<String>,
}

/// A line that is not a case.
#[derive(Debug, thiserror::Error)]
#[error("line {line} is not a case: {source}")]
pub struct CaseError {
    line: usize,
    source: RecordError,
}

/// Runs all cases of a file in a language; empty lines are skipped.
///
/// For errors in CEL and COMPAT only the phase is compared: their records distinguish few kinds. `on_line` gets the index of each line before its case is run.
///
/// # Errors
/// A line is not a case.
pub fn run(file: &str, language: Language, mut on_line: impl FnMut(usize)) -> Result<Report, CaseError> {
    let mut report = Report::default();
    for (index, line) in file.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        on_line(index);
        let line_number = index + 1;
        let case: Case = serde_json::from_str(line)
            .map_err(|error| CaseError { line: line_number, source: error.into() })?;
        let recorded = match case.expected(language) {
            Some(recorded) if case.needs_functions.is_none() => recorded,
            _ => {
                report.skipped.push(case.id);
                continue;
            }
        };
        let compared = compare(&case, &recorded, language);
        let (reasons, safer) = compared.map_err(|source| CaseError { line: line_number, source })?;
        if reasons.is_empty() {
            report.passed += 1;
            report.safer += usize::from(safer);
        } else {
            report.failures.push(Difference { id: case.id, expression: case.expr, reasons });
        }
    }
    Ok(report)
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        if !self.skipped.is_empty() {
            writeln!(
                f,
                "skipped because they need functions of their own or were not recorded: {}",
                self.skipped.join(", ")
            )?;
        }
        if self.safer > 0 {
            writeln!(f, "{} of them have a safe outcome where Mixer crashed or failed", self.safer)?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failures.len())
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.expression)?;
        self.reasons.iter().try_for_each(|reason| write!(f, "\n    {reason}"))
    }
}

/// The outcome in this engine.
enum Actual {
    Value(AttributeValue),
    CompileError(CompileError),
    EvalError(EvalError),
}

/// The accepted outcomes.
enum Expected {
    Value(AttributeValue),
    Error {
        phase: String,
        kind: Option<String>,
    },
    /// Any value of this type.
    AnyValue,
}

/// Returns the differences, and whether the case requires a safe outcome in place of the recorded one.
fn compare(case: &Case, recorded: &Outcome, language: Language) -> Result<(Vec<String>, bool), RecordError> {
    let vocabulary = case.vocabulary()?;
    let bag = case.bag(vocabulary.clone())?;
    let mut reads = Reads::default();
    let mut reasons = Vec::new();
    let (actual, value_type) = match Expression::compile_in(language, &case.expr, &vocabulary) {
        Err(error) => (Actual::CompileError(error), None),
        Ok(expression) => {
            let actual = match expression.eval(&bag, &mut reads) {
                Ok(value) => Actual::Value(value.into()),
                Err(error) => Actual::EvalError(error),
            };
            (actual, Some(expression.value_type()))
        }
    };
    let recorded_type = recorded.value_type()?;
    let (mut expected, safer) = accepted(recorded, recorded_type)?;
    if language != Language::Cexl
        && let Expected::Error { kind, .. } = &mut expected
    {
        *kind = None;
    }
    if !expected.matches(&actual) {
        reasons.push(format!("expected {expected}, got {actual}"));
    }
    if let (Some(expected), Some(actual)) = (recorded_type, value_type)
        && expected != actual
    {
        reasons.push(format!("expected type {expected}, got {actual}"));
    }
    for (name, expected, mut actual) in [
        ("referenced", &recorded.referenced, all_references(&reads, &vocabulary)),
        ("referenced on the wire", &recorded.referenced_wire, wire_references(&reads, &vocabulary)),
    ] {
        let Some(mut expected) = expected.clone() else { continue };
        expected.sort();
        actual.sort();
        if expected != actual {
            reasons.push(format!("expected {name} {expected:?}, got {actual:?}"));
        }
    }
    Ok((reasons, safer))
}

fn accepted(recorded: &Outcome, value_type: Option<ValueType>) -> Result<(Expected, bool), RecordError> {
    if let Some(error) = &recorded.error {
        return Ok(match (error.kind.as_str(), error.message.as_str()) {
            ("panic", message) if !message.contains("index out of range") => {
                (Expected::error("eval", "runtime_type_mismatch"), true)
            }
            ("interpreter_limit", "stack underflow") => (Expected::error("eval", "attribute_missing"), true),
            ("panic" | "interpreter_limit", _) => (Expected::AnyValue, true),
            (kind, _) => (Expected::error(&error.phase, kind), false),
        });
    }
    match (recorded.value()?, value_type) {
        (Some(value), Some(value_type)) if !is_value_of(&value, value_type) => {
            Ok((Expected::error("eval", "runtime_type_mismatch"), true))
        }
        (Some(value), _) => Ok((Expected::Value(value), false)),
        (None, _) => Err(RecordError::NoOutcome),
    }
}

fn is_value_of(value: &AttributeValue, value_type: ValueType) -> bool {
    match value {
        AttributeValue::String(_) => matches!(
            value_type,
            ValueType::String | ValueType::EmailAddress | ValueType::Uri | ValueType::DnsName
        ),
        AttributeValue::Bytes(_) => value_type == ValueType::IpAddress,
        other => other.kind() == value_type.as_str_name(),
    }
}

impl Expected {
    fn error(phase: &str, kind: &str) -> Self {
        Self::Error { phase: phase.to_owned(), kind: Some(kind.to_owned()) }
    }

    fn matches(&self, actual: &Actual) -> bool {
        match (self, actual) {
            (
                Expected::Value(AttributeValue::Double(expected)),
                Actual::Value(AttributeValue::Double(actual)),
            ) => expected.to_bits() == actual.to_bits(),
            (Expected::Value(expected), Actual::Value(actual)) => expected == actual,
            (Expected::AnyValue, Actual::Value(_)) => true,
            (Expected::Error { phase, kind }, Actual::CompileError(error)) => {
                phase == "compile" && kind.as_ref().is_none_or(|kind| kind == error.kind().as_str())
            }
            (Expected::Error { phase, kind }, Actual::EvalError(error)) => {
                phase == "eval" && kind.as_ref().is_none_or(|kind| kind == error.kind().as_str())
            }
            _ => false,
        }
    }
}

impl Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Value(value) => write!(f, "{value:?}"),
            Expected::AnyValue => f.write_str("a value"),
            Expected::Error { phase, kind: Some(kind) } => write!(f, "the {phase} error {kind}"),
            Expected::Error { phase, kind: None } => write!(f, "an error of the phase {phase}"),
        }
    }
}

impl Display for Actual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actual::Value(value) => write!(f, "{value:?}"),
            Actual::CompileError(error) => write!(f, "the compile error {}: {error}", error.kind().as_str()),
            Actual::EvalError(error) => write!(f, "the eval error {}: {error}", error.kind().as_str()),
        }
    }
}

/// `name`, `-name` where it was missing, and the same with `[key]`.
fn all_references(reads: &Reads, vocabulary: &Vocabulary) -> Vec<String> {
    let all = reads.all(vocabulary);
    all.map(|read| format!("{}{}", if read.present { "" } else { "-" }, target(&read))).collect()
}

/// `name=EXACT`, `name[key]=ABSENCE`
fn wire_references(reads: &Reads, vocabulary: &Vocabulary) -> Vec<String> {
    let referenced = reads.referenced(vocabulary);
    referenced
        .map(|read| format!("{}={}", target(&read), if read.present { "EXACT" } else { "ABSENCE" }))
        .collect()
}

fn target(reference: &Reference<'_>) -> String {
    match reference.key {
        Some(key) => format!("{}[{key}]", reference.name),
        None => reference.name.to_owned(),
    }
}
