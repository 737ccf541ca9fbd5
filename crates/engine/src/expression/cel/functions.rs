//! The functions that Mixer adds to CEL.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        functions::Function,
        types::{
            CelBool, CelBytes, CelDuration, CelInt, CelList, CelMap, CelString, CelTimestamp, DYN_TYPE,
            INT_TYPE, STRING_TYPE,
        },
        value::{CowVal, Val},
    },
};

use super::{
    resolver::date_time,
    values::{FormattedStr, IpValue, JsonValue, MapValue, PatternValue, WorkCounter},
};
use crate::{
    attribute::StringMap,
    expression::{
        code::{StrFormat, ZonedTimestamp, glob, parse_address, parse_int, parse_nanos, to_lower},
        error::EvalError,
        fields::{FieldError, TO_INT, check_body, query, query_all, segment},
        formats::pattern,
        span::Span,
    },
};

/// The standard library of CEL with Mixer's functions.
pub(crate) static ENV: LazyLock<Result<Arc<Env>, DeclarationError>> =
    LazyLock::new(|| environment().map(Arc::new));

fn environment() -> Result<Env, DeclarationError> {
    let mut env = Env::default().with_optional_support(false).with_stdlib();
    let json_operands = || vec![STRING_TYPE, STRING_TYPE, DYN_TYPE, DYN_TYPE, DYN_TYPE, DYN_TYPE];
    let functions: [(&str, Vec<_>, Function); 22] = [
        ("match", vec![STRING_TYPE, STRING_TYPE], |operands| {
            own(CelBool::from(glob(text(&operands, 0)?, text(&operands, 1)?)))
        }),
        ("reverse", vec![STRING_TYPE], reverse),
        ("toLower", vec![STRING_TYPE], |operands| {
            own(CelString::from(to_lower(Cow::Borrowed(text(&operands, 0)?)).into_owned()))
        }),
        ("email", vec![STRING_TYPE], |operands| formatted(StrFormat::Email, "email", &operands)),
        ("dnsName", vec![STRING_TYPE], |operands| formatted(StrFormat::DnsName, "dnsName", &operands)),
        ("uri", vec![STRING_TYPE], |operands| formatted(StrFormat::Uri, "uri", &operands)),
        ("ip", vec![STRING_TYPE], |operands| {
            own(IpValue(Bytes::copy_from_slice(&converted("ip", &operands, parse_address)?)))
        }),
        ("emptyStringMap", vec![], |_| own(MapValue { entries: StringMap::default(), recorder: None })),
        ("@matches", vec![STRING_TYPE, DYN_TYPE], matches),
        (CONCAT, vec![DYN_TYPE, DYN_TYPE, DYN_TYPE], concat),
        ("@range", vec![DYN_TYPE, DYN_TYPE, INT_TYPE], range),
        ("@timestamp", vec![STRING_TYPE], timestamp),
        ("@duration", vec![STRING_TYPE], |operands| {
            let nanos = converted("duration", &operands, parse_nanos)?;
            own(CelDuration::from(chrono::Duration::nanoseconds(nanos)))
        }),
        (TO_INT, vec![STRING_TYPE], |operands| own(CelInt::from(converted(TO_INT, &operands, parse_int)?))),
        ("json", json_operands(), |operands| value("json", json(&operands))),
        ("@has_json", json_operands(), |operands| presence("json", json(&operands))),
        ("query", vec![STRING_TYPE, STRING_TYPE], |operands| value("query", parameter(&operands))),
        ("@has_query", vec![STRING_TYPE, STRING_TYPE], |operands| presence("query", parameter(&operands))),
        ("queryAll", vec![STRING_TYPE, STRING_TYPE], |operands| value("queryAll", parameters(&operands))),
        ("@has_queryAll", vec![STRING_TYPE, STRING_TYPE], |operands| {
            presence("queryAll", parameters(&operands))
        }),
        ("segment", vec![STRING_TYPE, INT_TYPE], |operands| value("segment", path_segment(&operands))),
        ("@has_segment", vec![STRING_TYPE, INT_TYPE], |operands| {
            presence("segment", path_segment(&operands))
        }),
    ];
    for (name, operands, function) in functions {
        env.add_overload(name, name, operands, function)?;
    }
    env.add_member_overload("reverse", "string.reverse", STRING_TYPE, vec![], reverse)?;
    Ok(env)
}

type CallResult<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn text<'a>(operands: &'a [CowVal<'_, '_>], index: usize) -> Result<&'a str, ExecutionError> {
    let operand = operands.get(index).and_then(|operand| operand.downcast_ref::<CelString<'_>>());
    operand.map(CelString::inner).ok_or(ExecutionError::MissingArgumentOrTarget)
}

fn own<'b, 'v>(value: impl Val + 'v) -> CallResult<'b, 'v> {
    Ok(CowVal::owned(value))
}

/// Returns the value that a function parses from its operand.
fn converted<T>(
    function: &str,
    operands: &[CowVal<'_, '_>],
    parse: impl FnOnce(&str, Span) -> Result<T, EvalError>,
) -> Result<T, ExecutionError> {
    parse(text(operands, 0)?, Span::default())
        .map_err(|error| ExecutionError::function_error(function, error.detail()))
}

fn reverse<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    own(CelString::from(text(&operands, 0)?.chars().rev().collect::<String>()))
}

fn formatted<'b, 'v>(format: StrFormat, function: &str, operands: &[CowVal<'b, 'v>]) -> CallResult<'b, 'v> {
    let text = converted(function, operands, |text, span| {
        Ok(Arc::<str>::from(&*format.validate(Cow::Borrowed(text), span)?))
    })?;
    own(FormattedStr { format, text })
}

fn timestamp<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    let time = converted("timestamp", &operands, |text, span| {
        let time = date_time(ZonedTimestamp::parse(text, span)?.timestamp);
        // As in cel-go (common/types/timestamp.go), whose times begin with the year 1.
        let time = time.filter(|time| chrono::Datelike::year(time) >= 1);
        time.ok_or_else(|| ZonedTimestamp::invalid(text, span))
    })?;
    own(CelTimestamp::from(time))
}

/// Returns its first operand, the range of a macro, and counts the nodes that the macro evaluates for its elements.
fn range<'b, 'v>(mut operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    let [range, counter, nodes] = operands.as_slice() else {
        return Err(ExecutionError::MissingArgumentOrTarget);
    };
    let list = range.downcast_ref::<CelList<'_>>().map(|list| list.inner().len());
    let elements = list.or_else(|| range.downcast_ref::<CelMap<'_>>().map(|map| map.inner().len()));
    let nodes = nodes.downcast_ref::<CelInt>().and_then(|nodes| usize::try_from(*nodes.inner()).ok());
    if let (Some(counter), Some(elements), Some(nodes)) =
        (counter.downcast_ref::<WorkCounter>(), elements, nodes)
    {
        counter.add_steps(elements.saturating_mul(nodes))?;
    }
    Ok(operands.swap_remove(0))
}

/// The name of [`concat`].
pub(crate) const CONCAT: &str = "@concat";

/// Adds its first two operands, and counts the bytes of the sum if it is a text.
fn concat<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    let [left, right, counter] = operands.as_slice() else {
        return Err(ExecutionError::MissingArgumentOrTarget);
    };
    let counter = counter.downcast_ref::<WorkCounter>().ok_or(ExecutionError::MissingArgumentOrTarget)?;
    if counter.exceeds_concatenated(length(left.as_ref()).saturating_add(length(right.as_ref()))) {
        return Err(ExecutionError::function_error(CONCAT, "too long"));
    }
    let Some(adder) = left.as_adder() else {
        let types = format!("{} + {}", left.get_type().name(), right.get_type().name());
        return Err(ExecutionError::function_error("+", types));
    };
    Ok(CowVal::Owned(adder.add(right.as_ref())?.into_owned()))
}

/// The length of a text in bytes.
fn length(value: &dyn Val) -> usize {
    let text = value.downcast_ref::<CelString<'_>>().map(|text| text.inner().len());
    text.or_else(|| value.downcast_ref::<CelBytes<'_>>().map(|bytes| bytes.inner().len())).unwrap_or(0)
}

/// `text.matches(pattern)`; a constant pattern is compiled with the expression, others here.
fn matches<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    let searched = text(&operands, 0)?;
    let compiled = operands.get(1).and_then(|operand| operand.downcast_ref::<PatternValue>());
    own(CelBool::from(match compiled {
        Some(pattern) => pattern.0.is_match(searched),
        None => {
            let pattern = pattern::compile_computed(text(&operands, 1)?);
            pattern.map_err(|error| ExecutionError::function_error("matches", error))?.is_match(searched)
        }
    }))
}

/// A field of the request; the outer error is of operands.
type Field = Result<Result<Option<String>, FieldError>, ExecutionError>;

/// Returns the value of a field that `function` returns; an error if it is absent.
fn value<'b, 'v>(function: &str, field: Field) -> CallResult<'b, 'v> {
    let value = field?.and_then(|value| value.ok_or(FieldError::Absent));
    own(CelString::from(value.map_err(|error| ExecutionError::function_error(function, error))?))
}

/// Returns whether a field is present, for `pick`.
fn presence<'b, 'v>(function: &str, field: Field) -> CallResult<'b, 'v> {
    let value = field?.map_err(|error| ExecutionError::function_error(function, error))?;
    own(CelBool::from(value.is_some()))
}

/// `json(text, path)`, with the operands that the checker adds.
fn json(operands: &[CowVal<'_, '_>]) -> Field {
    let (text, path) = (text(operands, 0)?, text(operands, 1)?);
    let memo = operands.get(2).and_then(|operand| operand.downcast_ref::<JsonValue>());
    let memo = memo.ok_or(ExecutionError::MissingArgumentOrTarget)?;
    let [has_text, is_known, truncated] = [3, 4, 5].map(|index| {
        let operand = operands.get(index).and_then(|operand| operand.downcast_ref::<CelBool>());
        operand.is_some_and(|operand| *operand.inner())
    });
    Ok(check_body(has_text, is_known.then_some(truncated)).and_then(|()| memo.0.field(text, path)))
}

fn parameter(operands: &[CowVal<'_, '_>]) -> Field {
    Ok(query(text(operands, 0)?, text(operands, 1)?))
}

fn parameters(operands: &[CowVal<'_, '_>]) -> Field {
    Ok(query_all(text(operands, 0)?, text(operands, 1)?))
}

fn path_segment(operands: &[CowVal<'_, '_>]) -> Field {
    let number = operands.get(1).and_then(|operand| operand.downcast_ref::<CelInt>());
    let number = number.ok_or(ExecutionError::MissingArgumentOrTarget)?;
    Ok(segment(text(operands, 0)?, *number.inner()))
}
