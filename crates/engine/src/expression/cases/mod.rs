//! Files of expression cases: run them and say what differs.
//!
//! A file has one JSON object a line: an expression, the declared attributes, a bag and what a real Mixer made of it.
//! Value, type, the phase and kind of an error and the referenced attributes have to be the same; texts of errors
//! have not.
//!
//! In a few recorded cases the original crashed, ran into a fixed limit, or passed a value on that is not of the
//! expression's type. This engine must not. Such a case passes when it is answered the safe way: with a
//! `runtime_type_mismatch` where the request sends a wrong type, with `attribute_missing` where everything in a `|` is
//! missing, otherwise with a value of the expression's type. [`Report::safer`] counts them.

mod case;

use std::fmt::{self, Display};

use case::{Case, Outcome};

use super::{CompileError, EvalError, Expression, Language};
use crate::attribute::{AttributeValue, Reads, Reference, Vocabulary};
use mixer_adapter_core::value::ValueType;

/// What came of a file of cases. Its [`Display`] is the whole account; the last line is `N passed, M failed`.
#[derive(Debug, Default)]
pub struct Report {
    /// How many cases came out as recorded, or safer.
    pub passed: usize,
    /// How many of those are answered where the original was not safe to imitate.
    pub safer: usize,
    /// The cases that need functions of their own, or were not recorded in this language, by name.
    pub skipped: Vec<String>,
    /// The cases that did not come out as recorded.
    pub failures: Vec<Difference>,
}

/// A case that came out in another way than recorded.
#[derive(Debug)]
pub struct Difference {
    /// The case.
    pub id: String,
    /// The expression.
    pub expression: String,
    /// What differs, one thing each.
    pub reasons: Vec<String>,
}

/// A line that is no case.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: this is no case: {reason}")]
pub struct BadCase {
    line: usize,
    reason: String,
}

/// Runs all cases of a file in one of the languages; empty lines are left out. Of an error in CEL or COMPAT only the
/// phase counts: the record tells few kinds apart there.
///
/// # Errors
/// A line is not a case.
pub fn run(file: &str, language: Language) -> Result<Report, BadCase> {
    let mut report = Report::default();
    for (index, line) in file.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |reason| BadCase { line: index + 1, reason };
        let case = Case::read(line).map_err(bad)?;
        let expected = match case.expected(language) {
            Some(expected) if case.needs_functions.is_none() => expected,
            _ => {
                report.skipped.push(case.id);
                continue;
            }
        };
        let (reasons, safer) = compare(&case, &expected, language).map_err(bad)?;
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
                "skipped, they need functions of their own or were not recorded: {}",
                self.skipped.join(", ")
            )?;
        }
        if self.safer > 0 {
            writeln!(
                f,
                "in {} of them the original crashed or failed, and this engine does not",
                self.safer
            )?;
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

/// What this engine made of a case.
enum Actual {
    Value(AttributeValue),
    CompileError(CompileError),
    EvalError(EvalError),
}

/// What counts as the same.
enum Wanted {
    Value(AttributeValue),
    Error {
        phase: String,
        kind: Option<String>,
    },
    /// Any value of this type.
    AnyValue,
}

/// What differs, and whether the case is one of those to be answered safer than recorded.
fn compare(case: &Case, expected: &Outcome, language: Language) -> Result<(Vec<String>, bool), String> {
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
    let recorded_type = expected.value_type()?;
    let (mut wanted, safer) = wanted(expected, recorded_type)?;
    if language != Language::Cexl {
        wanted.forget_kind();
    }
    if !wanted.is(&actual) {
        reasons.push(format!("expected {wanted}, got {actual}"));
    }
    if let (Some(wanted), Some(actual)) = (recorded_type, value_type)
        && wanted != actual
    {
        reasons.push(format!("expected the type {wanted}, got {actual}"));
    }
    let mut references = |name: &str, wanted: &Option<Vec<String>>, mut actual: Vec<String>| {
        let Some(mut wanted) = wanted.clone() else { return };
        wanted.sort();
        actual.sort();
        if wanted != actual {
            reasons.push(format!("expected {name} {wanted:?}, got {actual:?}"));
        }
    };
    references("referenced", &expected.referenced, all_references(&reads, &vocabulary));
    references("referenced on the wire", &expected.referenced_wire, wire_references(&reads, &vocabulary));
    Ok((reasons, safer))
}

fn wanted(expected: &Outcome, value_type: Option<ValueType>) -> Result<(Wanted, bool), String> {
    let wrong_type =
        || Wanted::Error { phase: "eval".to_owned(), kind: Some("runtime_type_mismatch".to_owned()) };
    if let Some(error) = expected.error() {
        let safe = match (error.kind.as_str(), error.message.as_str()) {
            ("panic", message) if !message.contains("index out of range") => wrong_type(),
            ("interpreter_limit", "stack underflow") => {
                Wanted::Error { phase: "eval".to_owned(), kind: Some("attribute_missing".to_owned()) }
            }
            ("panic" | "interpreter_limit", _) => Wanted::AnyValue,
            (kind, _) => {
                return Ok((
                    Wanted::Error { phase: error.phase.clone(), kind: Some(kind.to_owned()) },
                    false,
                ));
            }
        };
        return Ok((safe, true));
    }
    match (expected.value()?, value_type) {
        (Some(value), Some(value_type)) if !is_value_of(&value, value_type) => Ok((wrong_type(), true)),
        (Some(value), _) => Ok((Wanted::Value(value), false)),
        (None, _) => Err("it has neither a value nor an error".to_owned()),
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

impl Wanted {
    fn forget_kind(&mut self) {
        if let Wanted::Error { kind, .. } = self {
            *kind = None;
        }
    }

    fn is(&self, actual: &Actual) -> bool {
        match (self, actual) {
            (
                Wanted::Value(AttributeValue::Double(wanted)),
                Actual::Value(AttributeValue::Double(actual)),
            ) => wanted.to_bits() == actual.to_bits(),
            (Wanted::Value(wanted), Actual::Value(actual)) => wanted == actual,
            (Wanted::AnyValue, Actual::Value(_)) => true,
            (Wanted::Error { phase, kind }, Actual::CompileError(error)) => {
                phase == "compile" && kind.as_ref().is_none_or(|kind| kind == error.kind().as_str())
            }
            (Wanted::Error { phase, kind }, Actual::EvalError(error)) => {
                phase == "eval" && kind.as_ref().is_none_or(|kind| kind == error.kind().as_str())
            }
            _ => false,
        }
    }
}

impl Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Value(value) => write!(f, "{value:?}"),
            Wanted::AnyValue => f.write_str("a value"),
            Wanted::Error { phase, kind: Some(kind) } => write!(f, "the {phase} error {kind}"),
            Wanted::Error { phase, kind: None } => write!(f, "an error of the phase {phase}"),
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
    let sign = |reference: &Reference<'_>| if reference.present { "" } else { "-" };
    reads.all(vocabulary).map(|reference| format!("{}{}", sign(&reference), target(&reference))).collect()
}

/// `name=EXACT`, `name[key]=ABSENCE`
fn wire_references(reads: &Reads, vocabulary: &Vocabulary) -> Vec<String> {
    let condition = |reference: &Reference<'_>| if reference.present { "EXACT" } else { "ABSENCE" };
    reads
        .referenced(vocabulary)
        .map(|reference| format!("{}={}", target(&reference), condition(&reference)))
        .collect()
}

fn target(reference: &Reference<'_>) -> String {
    match reference.key {
        Some(key) => format!("{}[{key}]", reference.name),
        None => reference.name.to_owned(),
    }
}
