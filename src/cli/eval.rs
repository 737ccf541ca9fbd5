use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, anyhow};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde_json::{Map, Value as Json, json};

use super::{
    UsageError, attribute_args::AttributeArgs, input::read_text, output_args::OutputArgs, progress::Progress,
};
use mixer_adapter_core::{framework::suggest::suggestion, value::ValueType};
use mixer_adapter_engine::{
    attribute::{AttributeValue, Bag, Reads, Vocabulary},
    expression::{CompileError, EvalError, Expression, Language, cases},
};

/// Evaluate an expression, or a file of cases
#[derive(Debug, Args)]
pub(super) struct Eval {
    /// The expression
    #[arg(value_name = "EXPR", required_unless_present = "cases", allow_hyphen_values = true)]
    expression: Option<String>,

    #[command(flatten)]
    attributes: AttributeArgs,

    /// Declare an attribute: my.size=INT64; can be repeated
    #[arg(long = "type", value_name = "NAME=TYPE", hide_env = true, value_parser = declaration)]
    types: Vec<(String, ValueType)>,

    /// The language, as in the annotation policy.istio.io/lang
    ///
    /// CEL or COMPAT [default: Mixer's own]
    #[arg(long = "lang", value_name = "LANG", ignore_case = true, value_parser = language())]
    language: Option<Language>,

    /// Run a file of cases: print the failed ones and the number of passed ones
    #[arg(long, value_name = "FILE", conflicts_with_all = ["expression", "positional", "arguments", "types"])]
    cases: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

/// The outcome of an expression.
enum Outcome {
    Value { value: AttributeValue, value_type: ValueType, read: Vec<(String, bool)> },
    CompileError(CompileError),
    EvalError(EvalError),
}

impl Eval {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(file) = &self.cases {
            return self.run_cases(file);
        }
        let text = self.expression.as_deref().unwrap_or_default();
        let outcome = self.evaluate(text)?;
        match (&outcome, self.output.data()) {
            (outcome, Some(data)) => data.print(&outcome.to_json())?,
            (Outcome::Value { value, value_type, read }, None) => {
                let read = read
                    .iter()
                    .map(|(name, present)| if *present { name.clone() } else { format!("{name} (absent)") });
                let read: Vec<_> = read.collect();
                let mut text = format!("{} {value_type}\n", value_json(value));
                if !read.is_empty() {
                    text.push_str(&format!("read: {}\n", read.join(", ")));
                }
                super::print(&text)?;
            }
            (Outcome::CompileError(error), None) => super::print_error(&error.render(text)),
            (Outcome::EvalError(error), None) => super::print_error(&error.render(text)),
        }
        Ok(match outcome {
            Outcome::Value { .. } => ExitCode::SUCCESS,
            Outcome::CompileError(_) | Outcome::EvalError(_) => ExitCode::FAILURE,
        })
    }

    fn evaluate(&self, text: &str) -> Result<Outcome, UsageError> {
        let mut types = Vocabulary::new();
        for (name, value_type) in &self.types {
            types.declare(name.as_str(), *value_type).map_err(|conflict| usage!("--type: {conflict}"))?;
        }
        types.declare_standard();
        let attributes = self.attributes.request(&types)?;
        for (name, value) in &attributes {
            if types.find(name).is_none() {
                let value_type = ValueType::from_str_name(value.kind()).unwrap_or(ValueType::IpAddress);
                // Cannot conflict: the attribute is not declared.
                let _ = types.declare(name.as_str(), value_type);
            }
        }
        let types = Arc::new(types);
        let expression = match Expression::compile_in(self.language.unwrap_or_default(), text, &types) {
            Ok(expression) => expression,
            Err(error) => return Ok(Outcome::CompileError(error)),
        };
        let mut bag = Bag::new(types.clone());
        for (name, value) in attributes {
            bag.insert(name, value);
        }
        let mut reads = Reads::default();
        Ok(match expression.eval(&bag, &mut reads) {
            Ok(value) => {
                let read = reads.all(&types).map(|read| {
                    let key = read.key.map(|key| format!("[{key}]")).unwrap_or_default();
                    (format!("{}{key}", read.name), read.present)
                });
                let read = read.collect();
                Outcome::Value { value: value.into(), value_type: expression.value_type(), read }
            }
            Err(error) => Outcome::EvalError(error),
        })
    }

    fn run_cases(&self, file: &Path) -> anyhow::Result<ExitCode> {
        let text = read_text(file)
            .map_err(|error| usage!("--cases: {}: cannot read the file: {error}", file.display()))?;
        let mut progress = Progress::new("lines", Some(text.lines().count()));
        let report = cases::run(&text, self.language.unwrap_or_default(), |line| progress.at(line))
            .map_err(|error| usage!("--cases: {}: {error}", file.display()))?;
        drop(progress);
        self.output.print(&cases_json(&report), || format!("{report}\n"))?;
        Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Outcome {
    fn to_json(&self) -> Json {
        match self {
            Self::Value { value, value_type, read } => {
                let read = read.iter().map(|(name, present)| json!({ "name": name, "present": present }));
                json!({
                    "value": value_json(value),
                    "type": value_type.as_str_name(),
                    "read": read.collect::<Vec<_>>(),
                })
            }
            Self::CompileError(error) => error_json("compile", error.kind().as_str(), error),
            Self::EvalError(error) => error_json("eval", error.kind().as_str(), error),
        }
    }
}

fn error_json(phase: &str, kind: &str, error: &impl ToString) -> Json {
    json!({ "error": { "phase": phase, "kind": kind, "message": error.to_string() } })
}

fn value_json(value: &AttributeValue) -> Json {
    match value {
        AttributeValue::Int64(number) => (*number).into(),
        // JSON has no infinity and no NaN.
        AttributeValue::Double(number) if number.is_finite() => (*number).into(),
        AttributeValue::Bool(truth) => (*truth).into(),
        AttributeValue::StringMap(map) => {
            let entries = map.iter().map(|(key, value)| (key.to_string(), Json::from(&**value)));
            entries.collect::<Map<_, _>>().into()
        }
        other => other.to_string().into(),
    }
}

fn cases_json(report: &cases::Report) -> Json {
    let mut json = json!(report);
    json["failed"] = report.failures.len().into();
    json
}

fn language() -> impl TypedValueParser<Value = Language> {
    PossibleValuesParser::new(["CEL", "COMPAT"]).map(|name| Language::from_annotation(&name.to_uppercase()))
}

/// Parses a declaration, `my.size=INT64`.
fn declaration(text: &str) -> anyhow::Result<(String, ValueType)> {
    let (name, value_type) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .context("write NAME=TYPE, such as my.size=INT64")?;
    let value_type = value_type.to_uppercase();
    let known = (1..).map_while(|number| ValueType::try_from(number).ok()).map(|known| known.as_str_name());
    let known: Vec<_> = known.collect();
    let parsed = ValueType::from_str_name(&value_type).filter(|known| *known != ValueType::Unspecified);
    let value_type =
        parsed.ok_or_else(|| anyhow!("unknown type {value_type}; {}", suggestion(&value_type, &known)))?;
    Ok((name.to_owned(), value_type))
}
