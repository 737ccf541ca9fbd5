//! Resolves the names of a CEL expression to attributes.

use std::sync::Arc;

use cel::{
    common::{
        types::{CelBool, CelDouble, CelDuration, CelInt, CelNull, CelString, CelTimestamp},
        value::{CowVal, Val},
    },
    context::VariableResolver,
};
use chrono::{DateTime, FixedOffset};
use parking_lot::Mutex;
use prost_types::Timestamp;
use regex::Regex;

use super::values::{
    FormattedStr, IpValue, JsonValue, MapRecorder, MapValue, PatternValue, SharedReads, WorkCounter,
};
use crate::{
    attribute::{AttributeValue, Attributes, StringMap},
    expression::{
        code::{Attribute, StrFormat},
        error::EvalError,
    },
};
use mixer_adapter_core::value::ValueType;

/// The name of the counter of work.
pub(crate) const WORK_COUNTER: &str = "!work";

/// The name of the parsed JSON of the request.
pub(crate) const JSON_MEMO: &str = "!json";

/// Resolves the names of a checked expression: `#2` is its attribute 2, `?2` whether the request has that attribute,
/// `~0` its pattern 0, [`WORK_COUNTER`] the counter of its work, [`JSON_MEMO`] the request's JSON. No CEL source can spell these names.
pub(crate) struct Resolver<'a> {
    pub(crate) used: &'a [Attribute],
    pub(crate) patterns: &'a [Regex],
    pub(crate) attributes: Attributes<'a>,
    pub(crate) reads: SharedReads,
    pub(crate) work: WorkCounter,
    /// The first error: [`VariableResolver::resolve`] cannot return one. It overrides the value.
    pub(crate) error: Mutex<Option<EvalError>>,
}

impl VariableResolver for Resolver<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        if name == WORK_COUNTER {
            return Some(CowVal::owned(self.work.clone()));
        }
        if name == JSON_MEMO {
            return Some(CowVal::owned(JsonValue(Arc::clone(self.attributes.json()))));
        }
        let index: usize = name.get(1..)?.parse().ok()?;
        match name.as_bytes()[0] {
            b'#' => self.used.get(index).map(|attribute| self.value(attribute)),
            b'?' => {
                let present = self.read(self.used.get(index)?).is_some();
                Some(CowVal::owned(CelBool::from(present)))
            }
            b'~' => Some(CowVal::owned(PatternValue(self.patterns.get(index)?.clone()))),
            _ => None,
        }
    }
}

impl<'a> Resolver<'a> {
    /// Reads an attribute unless an earlier read failed.
    fn read(&self, attribute: &Attribute) -> Option<&'a AttributeValue> {
        if self.error.lock().is_some() {
            return None;
        }
        let mut reads = self.reads.lock();
        self.attributes.read(attribute.slot, &mut reads)
    }

    fn value<'b>(&'b self, attribute: &Attribute) -> CowVal<'b, 'b> {
        let declared = attribute.declared;
        let value: Box<dyn Val + 'b> = match self.read(attribute) {
            None => Self::default(declared),
            Some(value) => match self.typed(declared, value, attribute.slot) {
                Some(value) => value,
                None => {
                    let mut error = self.error.lock();
                    error.get_or_insert_with(|| attribute.wrong_type(value.kind()));
                    Box::new(CelNull)
                }
            },
        };
        CowVal::Owned(value)
    }

    fn typed<'b>(
        &'b self,
        declared: ValueType,
        value: &'b AttributeValue,
        slot: u32,
    ) -> Option<Box<dyn Val + 'b>> {
        Some(match (declared, value) {
            (ValueType::String, AttributeValue::String(text)) => Box::new(CelString::from(&**text)),
            (ValueType::Int64, AttributeValue::Int64(number) | AttributeValue::Duration(number)) => {
                Box::new(CelInt::from(*number))
            }
            (ValueType::Double, AttributeValue::Double(number)) => Box::new(CelDouble::from(*number)),
            (ValueType::Bool, AttributeValue::Bool(value)) => Box::new(CelBool::from(*value)),
            (ValueType::Duration, AttributeValue::Duration(nanos)) => {
                Box::new(CelDuration::from(chrono::Duration::nanoseconds(*nanos)))
            }
            (ValueType::Timestamp, AttributeValue::Timestamp(instant)) => {
                Box::new(CelTimestamp::from(date_time(*instant)?))
            }
            (ValueType::IpAddress, AttributeValue::Bytes(bytes)) => Box::new(IpValue(bytes.clone())),
            (ValueType::StringMap, AttributeValue::StringMap(entries)) => Box::new(MapValue {
                entries: entries.clone(),
                recorder: Some(Arc::new(MapRecorder::new(slot, Arc::clone(&self.reads)))),
            }),
            (_, AttributeValue::String(text)) => {
                Box::new(FormattedStr { format: StrFormat::of(declared)?, text: Arc::clone(text) })
            }
            _ => return None,
        })
    }

    /// Returns the zero value as which a missing attribute reads in CEL
    /// (docs/behaviour/expressions.md#cel-and-compat).
    fn default<'b>(declared: ValueType) -> Box<dyn Val + 'b> {
        match declared {
            ValueType::String => Box::new(CelString::from("")),
            ValueType::Int64 => Box::new(CelInt::from(0)),
            ValueType::Double => Box::new(CelDouble::from(0.0)),
            ValueType::Bool => Box::new(CelBool::from(false)),
            ValueType::Duration => Box::new(CelDuration::from(chrono::Duration::zero())),
            ValueType::Timestamp => Box::new(CelTimestamp::from(DateTime::UNIX_EPOCH.fixed_offset())),
            ValueType::IpAddress => Box::new(IpValue(bytes::Bytes::new())),
            ValueType::StringMap => Box::new(MapValue { entries: StringMap::default(), recorder: None }),
            _ => match StrFormat::of(declared) {
                Some(format) => Box::new(FormattedStr { format, text: Arc::from("") }),
                None => Box::new(CelNull),
            },
        }
    }
}

pub(crate) fn date_time(instant: Timestamp) -> Option<DateTime<FixedOffset>> {
    let nanos = u32::try_from(instant.nanos).ok()?;
    Some(DateTime::from_timestamp(instant.seconds, nanos)?.fixed_offset())
}
