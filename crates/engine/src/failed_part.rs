//! The parts of a request that failed, for the decision log and the counters of rules.

use std::{borrow::Cow, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeMap as _};
use tonic::Code;

use mixer_adapter_core::framework::status::status_name;

/// A part of a request that failed: the decision on the request may rest on it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedPart {
    /// The full name of the rule.
    pub rule: Arc<str>,
    /// The full name of the handler; `None` for conditions and headers.
    pub handler: Option<Arc<str>>,
    /// The cause.
    pub cause: FailureCause,
}

/// Why a part of a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureCause {
    /// The condition could not be evaluated.
    Condition,
    /// An instance could not be built.
    Instance,
    /// The value of a header could not be evaluated.
    Header,
    /// The response to a denied request is not in the form of its rule.
    Denial,
    /// A call ended with this code, or its answer could not be used.
    Call(Code),
}

impl FailureCause {
    /// Returns `condition`, `instance`, `header`, `denial`, or the name of the code.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Condition => "condition".into(),
            Self::Instance => "instance".into(),
            Self::Header => "header".into(),
            Self::Denial => "denial".into(),
            Self::Call(code) => status_name(code as i32),
        }
    }
}

impl Serialize for FailedPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("rule", &*self.rule)?;
        if let Some(handler) = &self.handler {
            map.serialize_entry("handler", &**handler)?;
        }
        map.serialize_entry("cause", &self.cause.name())?;
        map.end()
    }
}

/// Maximum number of failed parts of a request with names.
const MAX_PARTS: usize = 10;

/// The first failed parts of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedParts(Vec<FailedPart>);

impl FailedParts {
    /// No parts.
    pub const NONE: Self = Self(Vec::new());

    /// Adds a part, unless it is known or there are ten.
    pub(crate) fn add(&mut self, rule: &Arc<str>, handler: Option<&Arc<str>>, cause: FailureCause) {
        let part = FailedPart { rule: rule.clone(), handler: handler.cloned(), cause };
        if self.0.len() < MAX_PARTS && !self.0.contains(&part) {
            self.0.push(part);
        }
    }

    /// Adds the parts of another request of the same call.
    pub fn append(&mut self, parts: &Self) {
        parts.0.iter().for_each(|part| self.add(&part.rule, part.handler.as_ref(), part.cause));
    }

    /// Returns the parts.
    pub fn list(&self) -> &[FailedPart] {
        &self.0
    }
}
