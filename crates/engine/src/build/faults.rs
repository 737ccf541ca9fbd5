//! Faults of expressions.

use super::index::language;
use crate::{
    attribute::Vocabulary,
    expression::{CompileError, Expression, Span},
};
use mixer_adapter_config::{Excerpt, Resource, Topic, ValidationError};
use mixer_adapter_core::value::ValueType;

/// Compiles the expression of a field for a `target` such as `a condition`. Adds the faults, and returns `None`, if it does not compile or
/// is of another type.
pub(super) fn compile(
    resource: &Resource,
    field: &str,
    text: &str,
    vocabulary: &Vocabulary,
    (target, wanted): (&str, ValueType),
    faults: &mut Vec<ValidationError>,
) -> Option<Expression> {
    match Expression::compile_in(language(resource), text, vocabulary) {
        Ok(expression) if expression.value_type() == wanted => return Some(expression),
        Ok(expression) => {
            faults.extend(of_expression(resource, field, text, &expression));
            let actual = expression.value_type();
            let reason = format!("the expression is of type {actual}; {target} is {wanted}");
            faults.push(resource.error(field, reason));
        }
        Err(error) => faults.extend(of_compilation(resource, field, text, &error)),
    }
    None
}

/// Returns the faults of a field whose text does not compile.
pub(super) fn of_compilation<'a>(
    resource: &'a Resource,
    field: &'a str,
    text: &'a str,
    error: &'a CompileError,
) -> impl Iterator<Item = ValidationError> + 'a {
    error.all().map(move |error| {
        let fault = resource.error(field, error.to_string()).in_excerpt(excerpt(text, error.span()));
        if let Some(help) = error.hint() { fault.with_help(help) } else { fault }
    })
}

/// Returns the faults of an expression that compiles: invalid constants, unused operands, and calls that are probably not intended.
pub(super) fn of_expression<'a>(
    resource: &'a Resource,
    field: &'a str,
    text: &'a str,
    expression: &'a Expression,
) -> impl Iterator<Item = ValidationError> + 'a {
    let constants = expression.invalid_constants().iter().map(move |error| {
        let fault = resource.error(field, error.to_string()).on(Topic::InvalidConstant);
        fault.in_excerpt(excerpt(text, error.span()))
    });
    let unused = expression.nullability.unused_fallbacks.iter();
    let unused = unused.map(move |unused| resource.warning(field, unused.to_string()));
    let doubtful = expression.doubtful_calls.iter().map(move |call| {
        let fault = resource.warning(field, call.reason.as_str()).with_help(call.help.as_str());
        fault.in_excerpt(excerpt(text, call.span))
    });
    constants.chain(unused).chain(doubtful)
}

pub(super) fn excerpt(text: &str, span: Span) -> Excerpt {
    Excerpt { text: text.into(), start: span.start as usize, end: span.end as usize }
}
