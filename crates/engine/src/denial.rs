//! The form of the responses to requests that a rule denies, or whose quota it refuses (docs/envoy/answers.md#the-form-of-a-denial).

use std::sync::Arc;

use http::HeaderName;
use serde_json::Value as Json;

use crate::{attribute::Vocabulary, expression::Expression};

/// The name of the denial's code, such as `PERMISSION_DENIED`.
pub(crate) const CODE: &str = "denial.code";

/// The adapter's reason for the denial.
pub(crate) const MESSAGE: &str = "denial.message";

/// The form of the responses of a rule. Its absent parts come from the adapter's response.
#[derive(Debug)]
pub(crate) struct DenialForm {
    /// The vocabulary with [`CODE`] and [`MESSAGE`].
    pub(crate) vocabulary: Arc<Vocabulary>,
    /// The slots of the attributes that its expressions mention.
    pub(crate) slots: Box<[u32]>,
    pub(crate) status: Option<u32>,
    pub(crate) headers: Vec<(HeaderName, Expression)>,
    pub(crate) redirect: Option<Redirect>,
    pub(crate) body: Option<BodyTemplate>,
}

#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) location: Expression,
    /// Parameters that are added to the query of the location.
    pub(crate) query: Vec<(String, Expression)>,
}

#[derive(Debug)]
pub(crate) enum BodyTemplate {
    Text(Box<Expression>),
    Json(JsonTemplate),
}

/// A JSON value in which expressions take the place of texts.
#[derive(Debug)]
pub(crate) enum JsonTemplate {
    Constant(Json),
    Value(Box<Expression>),
    Array(Vec<JsonTemplate>),
    Object(Vec<(String, JsonTemplate)>),
}
