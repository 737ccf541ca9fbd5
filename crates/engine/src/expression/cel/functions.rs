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
        code::{StrFormat, ZonedTimestamp, glob, parse_address, parse_int, to_lower},
        fields::{FieldError, TO_INT, check_body, query, query_all, segment},
        formats::pattern,
        span::Span,
    },
};
use mixer_adapter_core::value::parse_duration;

/// The standard library of CEL with Mixer's functions.
pub(crate) static ENV: LazyLock<Result<Arc<Env>, DeclarationError>> =
    LazyLock::new(|| environment().map(Arc::new));

fn environment() -> Result<Env, DeclarationError> {
    let mut env = Env::default().with_optional_support(false).with_stdlib();
    let json_operands = || vec![STRING_TYPE, STRING_TYPE, DYN_TYPE, DYN_TYPE, DYN_TYPE, DYN_TYPE];
    let functions: [(&str, Vec<_>, Function); 22] = [
        ("match", vec![STRING_TYPE, STRING_TYPE], matches_glob),
        ("reverse", vec![STRING_TYPE], reverse),
        ("toLower", vec![STRING_TYPE], lower),
        ("email", vec![STRING_TYPE], email),
        ("dnsName", vec![STRING_TYPE], dns_name),
        ("uri", vec![STRING_TYPE], uri),
        ("ip", vec![STRING_TYPE], ip),
        ("emptyStringMap", vec![], empty_string_map),
        ("@matches", vec![STRING_TYPE, DYN_TYPE], matches),
        (CONCAT, vec![DYN_TYPE, DYN_TYPE, DYN_TYPE], concat),
        ("@range", vec![DYN_TYPE, DYN_TYPE, INT_TYPE], range),
        ("@timestamp", vec![STRING_TYPE], timestamp),
        ("@duration", vec![STRING_TYPE], duration),
        (TO_INT, vec![STRING_TYPE], to_int),
        ("json", json_operands(), json),
        ("@has_json", json_operands(), has_json),
        ("query", vec![STRING_TYPE, STRING_TYPE], parameter),
        ("@has_query", vec![STRING_TYPE, STRING_TYPE], has_parameter),
        ("queryAll", vec![STRING_TYPE, STRING_TYPE], parameters),
        ("@has_queryAll", vec![STRING_TYPE, STRING_TYPE], has_parameters),
        ("segment", vec![STRING_TYPE, INT_TYPE], path_segment),
        ("@has_segment", vec![STRING_TYPE, INT_TYPE], has_path_segment),
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

fn matches_glob<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    own(CelBool::from(glob(text(&operands, 0)?, text(&operands, 1)?)))
}

fn reverse<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    own(CelString::from(text(&operands, 0)?.chars().rev().collect::<String>()))
}

fn lower<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    own(CelString::from(to_lower(Cow::Borrowed(text(&operands, 0)?)).into_owned()))
}

fn email<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    formatted(StrFormat::Email, "email", &operands)
}

fn dns_name<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    formatted(StrFormat::DnsName, "dnsName", &operands)
}

fn uri<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    formatted(StrFormat::Uri, "uri", &operands)
}

fn formatted<'b, 'v>(format: StrFormat, name: &str, operands: &[CowVal<'b, 'v>]) -> CallResult<'b, 'v> {
    match format.validate(Cow::Borrowed(text(operands, 0)?), Span::default()) {
        Ok(valid) => own(FormattedStr { format, text: Arc::from(&*valid) }),
        Err(error) => Err(ExecutionError::function_error(name, error.detail())),
    }
}

fn ip<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    let text = text(&operands, 0)?;
    let Some(address) = parse_address(text) else {
        let message = format!("`{text}` is neither an IPv4 nor an IPv6 address");
        return Err(ExecutionError::function_error("ip", message));
    };
    own(IpValue(Bytes::copy_from_slice(&address)))
}

fn empty_string_map<'b, 'v>(_: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    own(MapValue { entries: StringMap::default(), recorder: None })
}

fn timestamp<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    let text = text(&operands, 0)?;
    let time = ZonedTimestamp::parse(text).and_then(|zoned| date_time(zoned.timestamp));
    // As in cel-go (common/types/timestamp.go), whose times begin with the year 1.
    let time = time.filter(|time| chrono::Datelike::year(time) >= 1);
    match time {
        Some(time) => own(CelTimestamp::from(time)),
        None => {
            let message = format!("`{text}` is not an RFC 3339 time; write it like `2006-01-02T15:04:05Z`");
            Err(ExecutionError::function_error("timestamp", message))
        }
    }
}

fn duration<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    let text = text(&operands, 0)?;
    match parse_duration(text) {
        Some(nanos) => own(CelDuration::from(chrono::Duration::nanoseconds(nanos))),
        None => {
            let message = format!("write it like `300ms`, `5s` or `1m30s`, not `{text}`");
            Err(ExecutionError::function_error("duration", message))
        }
    }
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

fn to_int<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    let number = parse_int(text(&operands, 0)?, Span::default());
    let number = number.map_err(|error| ExecutionError::function_error(TO_INT, error.detail()))?;
    own(CelInt::from(number))
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
fn json_field(operands: &[CowVal<'_, '_>]) -> Field {
    let (text, path) = (text(operands, 0)?, text(operands, 1)?);
    let memo = operands.get(2).and_then(|operand| operand.downcast_ref::<JsonValue>());
    let memo = memo.ok_or(ExecutionError::MissingArgumentOrTarget)?;
    let [has_text, is_known, truncated] = [3, 4, 5].map(|index| {
        let operand = operands.get(index).and_then(|operand| operand.downcast_ref::<CelBool>());
        operand.is_some_and(|operand| *operand.inner())
    });
    Ok(check_body(has_text, is_known.then_some(truncated)).and_then(|()| memo.0.field(text, path)))
}

fn json<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    value("json", json_field(&operands))
}

fn has_json<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    presence("json", json_field(&operands))
}

fn query_field(operands: &[CowVal<'_, '_>]) -> Field {
    Ok(query(text(operands, 0)?, text(operands, 1)?))
}

fn parameter<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    value("query", query_field(&operands))
}

fn has_parameter<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    presence("query", query_field(&operands))
}

fn query_values(operands: &[CowVal<'_, '_>]) -> Field {
    Ok(query_all(text(operands, 0)?, text(operands, 1)?))
}

fn parameters<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    value("queryAll", query_values(&operands))
}

fn has_parameters<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    presence("queryAll", query_values(&operands))
}

fn segment_field(operands: &[CowVal<'_, '_>]) -> Field {
    let number = operands.get(1).and_then(|operand| operand.downcast_ref::<CelInt>());
    let number = number.ok_or(ExecutionError::MissingArgumentOrTarget)?;
    Ok(segment(text(operands, 0)?, *number.inner()))
}

fn path_segment<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    value("segment", segment_field(&operands))
}

fn has_path_segment<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    presence("segment", segment_field(&operands))
}
