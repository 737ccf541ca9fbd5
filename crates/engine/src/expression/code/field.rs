use super::{Env, Expr, Operand};
use crate::expression::{
    error::EvalError,
    fields::{FieldError, FieldFunction, check_body, query, query_all, segment},
    span::Span,
};

/// A call of a function that returns a field of a request.
#[derive(Debug)]
pub(crate) struct FieldCall {
    pub(crate) function: FieldFunction,
    pub(crate) operands: [Expr; 2],
    /// The attributes that show whether the body of the request is complete, if the field is read from it.
    pub(crate) body: Option<[Expr; 2]>,
    pub(crate) span: Span,
}

impl FieldCall {
    /// Returns the value; an error if it or an operand is missing.
    pub(super) fn value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<String, EvalError> {
        if let Some(value) = self.try_value(env)? {
            return Ok(value);
        }
        for operand in &self.operands {
            operand.value(env)?;
        }
        Err(self.error(&FieldError::Absent))
    }

    /// Returns the value; `None` if it or an operand is missing.
    pub(super) fn try_value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<Option<String>, EvalError> {
        let complete = match &self.body {
            Some([body, truncated]) => {
                let has_text = body.try_value(env)?.is_some();
                check_body(has_text, truncated.try_value(env)?.map(Operand::into_bool).transpose()?)
            }
            None => Ok(()),
        };
        let [text, argument] = &self.operands;
        let (text, argument) = (text.try_value(env)?, argument.try_value(env)?);
        complete.map_err(|error| self.error(&error))?;
        let Some((text, argument)) = text.zip(argument) else { return Ok(None) };
        let text = text.into_text()?;
        let found = match self.function {
            FieldFunction::Json => env.attributes.json().field(&text, &argument.into_text()?),
            FieldFunction::Query => query(&text, &argument.into_text()?),
            FieldFunction::QueryAll => query_all(&text, &argument.into_text()?),
            FieldFunction::Segment => segment(&text, argument.into_int()?),
        };
        found.map_err(|error| self.error(&error))
    }

    fn error(&self, error: &FieldError) -> EvalError {
        EvalError::no_value(self.function.name(), error, self.span)
    }
}
