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

/// The body of a response, with the values of its expressions.
const BODY: Part = Part { name: "the body has", max: 64 << 10 };

/// The names and values of the headers of a response, which proxies and clients limit, too.
const HEADERS: Part = Part { name: "the headers have", max: 8 << 10 };

/// A part of a response with its maximum length in bytes.
struct Part {
    name: &'static str,
    max: usize,
}

impl Part {
    fn check(&self, length: usize) -> Result<(), DenialError> {
        if length > self.max { Err(DenialError::TooLong(self.name, self.max)) } else { Ok(()) }
    }
}

/// Why a denial is answered without the form of its rule.
#[derive(Debug, thiserror::Error)]
enum DenialError {
    #[error(transparent)]
    Eval(#[from] EvalError),
    #[error("the value of header {0} has a control character")]
    Header(HeaderName),
    #[error("{0} more than {1} bytes")]
    TooLong(&'static str, usize),
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
        let (mut of_headers, mut of_body) = (0, 0);
        for (name, value) in &form.headers {
            headers.push((name.clone(), self.text(value, denial, &HEADERS, &mut of_headers)?));
        }
        if let Some(redirect) = &form.redirect {
            let mut location = self.text(&redirect.location, denial, &HEADERS, &mut of_headers)?;
            if !redirect.query.is_empty() {
                let fragment = location.find('#').map(|start| location.split_off(start));
                location.push(if location.contains('?') { '&' } else { '?' });
                let start = location.len();
                let mut query = Serializer::for_suffix(location, start);
                for (name, value) in &redirect.query {
                    query.append_pair(name, &self.text(value, denial, &HEADERS, &mut of_headers)?);
                }
                location = query.finish();
                location.extend(fragment);
            }
            headers.push((LOCATION, location));
        }
        let body = match &form.body {
            None => None,
            Some(BodyTemplate::Text(text)) => Some(self.text(text, denial, &BODY, &mut of_body)?),
            Some(BodyTemplate::Json(template)) => {
                if !headers.iter().any(|(name, _)| *name == CONTENT_TYPE) {
                    headers.push((CONTENT_TYPE, "application/json".to_owned()));
                }
                Some(self.json(template, denial, &mut of_body)?.to_string())
            }
        };
        if let Some((name, _)) =
            headers.iter().find(|(_, value)| HeaderValue::from_bytes(value.as_bytes()).is_err())
        {
            return Err(DenialError::Header(name.clone()));
        }
        HEADERS.check(headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum())?;
        let replaced =
            |name: &str| headers.iter().any(|(known, _)| known.as_str().eq_ignore_ascii_case(name));
        response.response_header_operations.retain(|HeaderOperation { name, .. }| {
            let is_of_body = body.is_some() && name.eq_ignore_ascii_case(CONTENT_TYPE.as_str());
            !is_of_body && !replaced(name)
        });
        if let Some(body) = body {
            BODY.check(body.len())?;
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

    /// Returns a text, and adds its length to the length of its part.
    fn text(
        &mut self,
        expression: &Expression,
        denial: &Bag,
        part: &Part,
        length: &mut usize,
    ) -> Result<String, DenialError> {
        let text = self.value(expression, denial)?.to_string();
        *length += text.len();
        part.check(*length)?;
        Ok(text)
    }

    /// Returns a value of the body, and adds the length of its JSON to the length of the body.
    fn json(
        &mut self,
        template: &JsonTemplate,
        denial: &Bag,
        length: &mut usize,
    ) -> Result<Json, DenialError> {
        Ok(match template {
            JsonTemplate::Constant(value) => value.clone(),
            JsonTemplate::Value(expression) => {
                let value = Json::from(self.value(expression, denial)?);
                *length += value.to_string().len();
                BODY.check(*length)?;
                value
            }
            JsonTemplate::Array(items) => {
                let items = items.iter().map(|item| self.json(item, denial, length));
                Json::Array(items.collect::<Result<_, _>>()?)
            }
            JsonTemplate::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| {
                    Ok::<_, DenialError>((name.clone(), self.json(value, denial, length)?))
                });
                Json::Object(fields.collect::<Result<_, _>>()?)
            }
        })
    }
}
