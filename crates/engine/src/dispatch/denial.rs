//! The response to a denied request in the form of its rule.

use std::sync::Arc;

use form_urlencoded::Serializer;
use http::{
    HeaderName, HeaderValue,
    header::{CONTENT_TYPE, LOCATION},
};
use serde_json::Value as Json;

use super::{direct_response::http_code, evaluator::Evaluator};
use crate::{
    attribute::Bag,
    denial::{BodyTemplate, CODE, DenialForm, JsonTemplate, MESSAGE},
    expression::{EvalError, Expression},
    failed_part::FailureCause,
    proto::istio::mixer::v1::{HeaderOperation, RouteDirective, header_operation::Operation},
    trace::{Step, cut},
};
use mixer_adapter_core::{framework::status::status_name, proto::Status, value::Value};

/// The maximum length of a body in bytes, with the values of its expressions.
const MAX_BODY: usize = 64 << 10;

/// Why a denial is answered without the form of its rule.
#[derive(Debug, thiserror::Error)]
enum DenialError {
    #[error(transparent)]
    Eval(#[from] EvalError),
    #[error("the value of header {0} has a control character")]
    Header(HeaderName),
    #[error("the body has more than {} bytes", MAX_BODY)]
    TooLong,
}

impl Evaluator<'_, '_> {
    /// Gives `response`, the adapter's response to a denied request, the form of the rule. If that fails, the response stays as it is.
    pub(super) fn form_denial(
        &mut self,
        rule: &Arc<str>,
        form: &DenialForm,
        status: &Status,
        response: Option<RouteDirective>,
    ) -> Option<RouteDirective> {
        let mut denial = Bag::new(form.vocabulary.clone());
        denial.insert(CODE, &*status_name(status.code));
        denial.insert(MESSAGE, status.message.as_str());
        let formed = self.formed(form, &denial, status.code, response.clone().unwrap_or_default());
        self.record.trace(|| Step::Denial {
            rule: rule.to_string(),
            outcome: match &formed {
                Ok(response) => format!(
                    "status {}, body {:?}",
                    response.direct_response_code,
                    cut(&response.direct_response_body)
                ),
                Err(error) => format!("not in the form of the rule: {error}"),
            },
        });
        match formed {
            Ok(response) => Some(response),
            Err(error) => {
                tracing::debug!(%rule, %error, "a denial is not in the form of its rule");
                self.record.failed.add(rule, None, FailureCause::Denial);
                response
            }
        }
    }

    fn formed(
        &mut self,
        form: &DenialForm,
        denial: &Bag,
        code: i32,
        mut response: RouteDirective,
    ) -> Result<RouteDirective, DenialError> {
        let mut headers: Vec<(HeaderName, String)> = Vec::new();
        for (name, value) in &form.headers {
            headers.push((name.clone(), self.value(value, denial)?.to_string()));
        }
        if let Some(redirect) = &form.redirect {
            let mut location = self.value(&redirect.location, denial)?.to_string();
            if !redirect.query.is_empty() {
                location.push(if location.contains('?') { '&' } else { '?' });
                let start = location.len();
                let mut query = Serializer::for_suffix(location, start);
                for (name, value) in &redirect.query {
                    query.append_pair(name, &self.value(value, denial)?.to_string());
                }
                location = query.finish();
            }
            headers.push((LOCATION, location));
        }
        let body = match &form.body {
            None => None,
            Some(BodyTemplate::Text(text)) => Some(self.value(text, denial)?.to_string()),
            Some(BodyTemplate::Json(template)) => {
                if !headers.iter().any(|(name, _)| *name == CONTENT_TYPE) {
                    headers.push((CONTENT_TYPE, "application/json".to_owned()));
                }
                Some(self.json(template, denial)?.to_string())
            }
        };
        if let Some((name, _)) =
            headers.iter().find(|(_, value)| HeaderValue::from_bytes(value.as_bytes()).is_err())
        {
            return Err(DenialError::Header(name.clone()));
        }
        let replaced =
            |name: &str| headers.iter().any(|(known, _)| known.as_str().eq_ignore_ascii_case(name));
        let is_of_body = |name: &str| body.is_some() && name.eq_ignore_ascii_case(CONTENT_TYPE.as_str());
        response
            .response_header_operations
            .retain(|known| !replaced(&known.name) && !is_of_body(&known.name));
        if let Some(body) = body {
            if body.len() > MAX_BODY {
                return Err(DenialError::TooLong);
            }
            response.direct_response_body = body;
        }
        let operation = Operation::Replace as i32;
        let operations = headers.into_iter().filter(|(_, value)| !value.is_empty());
        response.response_header_operations.extend(operations.map(|(name, value)| HeaderOperation {
            name: name.to_string(),
            value,
            operation,
        }));
        response.direct_response_code = match (form.status, &form.redirect, response.direct_response_code) {
            (Some(status), _, _) => status,
            (None, Some(_), _) => 302,
            (None, None, 0) => http_code(code),
            (None, None, status) => status,
        };
        Ok(response)
    }

    fn value(&mut self, expression: &Expression, denial: &Bag) -> Result<Value, DenialError> {
        Ok(self.eval_with(expression, denial)?.into())
    }

    fn json(&mut self, template: &JsonTemplate, denial: &Bag) -> Result<Json, DenialError> {
        Ok(match template {
            JsonTemplate::Constant(value) => value.clone(),
            JsonTemplate::Value(expression) => self.value(expression, denial)?.into(),
            JsonTemplate::Array(items) => {
                Json::Array(items.iter().map(|item| self.json(item, denial)).collect::<Result<_, _>>()?)
            }
            JsonTemplate::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, value)| Ok::<_, DenialError>((name.clone(), self.json(value, denial)?)));
                Json::Object(fields.collect::<Result<_, _>>()?)
            }
        })
    }
}
