use super::{Bool, Env, Expr, Int, Kind, Str};
use crate::expression::{
    error::EvalError,
    fields::{self, FieldError, check_body, query, query_all, segment},
    span::Span,
};

/// A function that returns a field of a request.
#[derive(Debug)]
pub(crate) enum FieldOp {
    /// `json(text, path)`, and if the text is the body of the request, the attributes that show whether it is complete.
    Json(Expr<Str>, Expr<Str>, Option<(Expr<Str>, Expr<Bool>)>),
    Query(Expr<Str>, Expr<Str>),
    QueryAll(Expr<Str>, Expr<Str>),
    Segment(Expr<Str>, Expr<Int>),
}

impl FieldOp {
    fn function(&self) -> &'static str {
        match self {
            Self::Json(..) => fields::JSON,
            Self::Query(..) => "query",
            Self::QueryAll(..) => "queryAll",
            Self::Segment(..) => "segment",
        }
    }

    /// Returns the value; an error if it or an operand is missing.
    pub(super) fn value<'a>(&'a self, span: Span, env: &mut Env<'a, '_>) -> Result<String, EvalError> {
        if let Some(value) = self.try_value(span, env)? {
            return Ok(value);
        }
        match self {
            Self::Json(text, path, _) | Self::Query(text, path) | Self::QueryAll(text, path) => {
                text.value(env)?;
                path.value(env)?;
            }
            Self::Segment(path, number) => {
                path.value(env)?;
                number.value(env)?;
            }
        }
        Err(EvalError::no_value(self.function(), &FieldError::Absent, span))
    }

    /// Returns the value; `None` if it or an operand is missing.
    pub(super) fn try_value<'a>(
        &'a self,
        span: Span,
        env: &mut Env<'a, '_>,
    ) -> Result<Option<String>, EvalError> {
        let found = match self {
            Self::Json(text, path, body) => {
                let complete = match body {
                    Some((body, truncated)) => {
                        check_body(body.try_value(env)?.is_some(), truncated.try_value(env)?)
                    }
                    None => Ok(()),
                };
                let Some((text, path)) = both(text, path, env)? else {
                    return complete.map(|()| None).map_err(|error| self.error(&error, span));
                };
                complete.and_then(|()| env.attributes.json().field(&text, &path))
            }
            Self::Query(path, key) => {
                both(path, key, env)?.map_or(Ok(None), |(path, key)| query(&path, &key))
            }
            Self::QueryAll(path, key) => {
                both(path, key, env)?.map_or(Ok(None), |(path, key)| query_all(&path, &key))
            }
            Self::Segment(path, number) => {
                both(path, number, env)?.map_or(Ok(None), |(path, number)| segment(&path, number))
            }
        };
        found.map_err(|error| self.error(&error, span))
    }

    fn error(&self, error: &FieldError, span: Span) -> EvalError {
        EvalError::no_value(self.function(), error, span)
    }
}

/// The values of two operands.
type Both<'a, A, B> = (<A as Kind>::Value<'a>, <B as Kind>::Value<'a>);

/// Returns both operands; `None` if one is missing.
fn both<'a, A: Kind, B: Kind>(
    first: &'a Expr<A>,
    second: &'a Expr<B>,
    env: &mut Env<'a, '_>,
) -> Result<Option<Both<'a, A, B>>, EvalError> {
    let (first, second) = (first.try_value(env)?, second.try_value(env)?);
    Ok(first.zip(second))
}
