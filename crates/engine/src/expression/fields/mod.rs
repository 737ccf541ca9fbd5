//! Fields of a request: of its body, which is JSON, of its query and of its path.
//!
//! A field that is not there is absent, as an attribute is. A field that servers may read differently, or that cannot be
//! read, is an error, also on the left of `|`: a rule that denies by its value must not pass such a request.

mod json;
mod path;

pub(crate) use json::JsonMemo;
pub(crate) use path::{query, query_all, segment};

/// The functions that return fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldFunction {
    Json,
    Query,
    QueryAll,
    Segment,
}

/// The names of the functions by discriminant.
pub(crate) const FUNCTIONS: [&str; 4] = [JSON, "query", "queryAll", "segment"];

impl FieldFunction {
    pub(crate) fn name(self) -> &'static str {
        FUNCTIONS[self as usize]
    }
}

/// The function that returns a field of a JSON text.
pub(crate) const JSON: &str = "json";

/// The conversion to INT64, whose value is absent without its operand.
pub(crate) const TO_INT: &str = "toInt";

/// The attributes that show whether the body of a request is complete. [`BODY`] has as much of it as is UTF-8, and
/// [`TRUNCATED`] is there if there is a body.
pub(crate) const BODY: &str = "request.body";
pub(crate) const TRUNCATED: &str = "request.body_truncated";

/// Why a field has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldError {
    #[error("it is absent")]
    Absent,
    #[error("the body of the request is cut off")]
    CutOff,
    #[error("the body of the request is not UTF-8")]
    NotUtf8,
    #[error("the text has more than {max} bytes")]
    TooLong { max: usize },
    #[error("the text is not JSON: {0}")]
    NotJson(String),
    #[error("the text has the key more than once or in another case, which servers read differently")]
    AmbiguousKey,
    #[error("the query has several values for the parameter, of which servers choose different ones")]
    SeveralValues,
    #[error("the path has a segment `.` or `..`, which servers resolve differently")]
    DotSegment,
    #[error("the path has a `;`, behind which servers ignore a part of a segment")]
    PathParameter,
    #[error("the query has the parameter in another case, which some servers ignore")]
    ParameterCase,
    #[error("the query has a `;`, which some servers take for `&`")]
    Semicolon,
    #[error("a number is too large to be exact")]
    Inexact,
}

/// Returns whether a name is a key for servers that ignore case (Go's `encoding/json`, ASP.NET).
fn is_key(name: &str, key: &str) -> bool {
    if name.is_ascii() && key.is_ascii() {
        return name.eq_ignore_ascii_case(key);
    }
    name.chars().map(fold).eq(key.chars().map(fold))
}

/// Folds case. Both directions: the long s has only the upper case of `s`, the sign for Kelvin only the lower case of `k`.
fn fold(c: char) -> char {
    let upper = c.to_uppercase().next().unwrap_or(c);
    upper.to_lowercase().next().unwrap_or(upper)
}

/// Checks that the body of a request is complete. `has_text` is whether [`BODY`] is there, `truncated` the value of [`TRUNCATED`].
pub(crate) fn check_body(has_text: bool, truncated: Option<bool>) -> Result<(), FieldError> {
    match truncated {
        Some(true) => Err(FieldError::CutOff),
        Some(false) if !has_text => Err(FieldError::NotUtf8),
        _ => Ok(()),
    }
}
