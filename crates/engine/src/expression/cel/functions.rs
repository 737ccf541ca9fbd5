//! The functions Mixer adds to CEL.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        functions::Function,
        types::{CelBool, CelDuration, CelString, CelTimestamp, DYN_TYPE, STRING_TYPE},
        value::{CowVal, Val},
    },
};

use super::{
    resolver::date_time,
    values::{FormValue, IpValue, MapValue, PatternValue},
};
use crate::{
    attribute::StringMap,
    expression::{
        code::{Form, Moment, glob, parse_address, to_lower},
        format::pattern,
        span::Span,
    },
};
use mixer_adapter_core::value::parse_duration;

/// CEL's library and Mixer's functions.
pub(crate) static ENV: LazyLock<Result<Arc<Env>, String>> =
    LazyLock::new(|| environment().map(Arc::new).map_err(|error| error.to_string()));

fn environment() -> Result<Env, DeclarationError> {
    let mut env = Env::default().with_optional_support(false).with_stdlib();
    let text = || vec![STRING_TYPE];
    let functions: [(&str, Vec<_>, Function); 11] = [
        ("match", vec![STRING_TYPE, STRING_TYPE], matches_glob),
        ("reverse", text(), reverse),
        ("toLower", text(), lower),
        ("email", text(), email),
        ("dnsName", text(), dns_name),
        ("uri", text(), uri),
        ("ip", text(), ip),
        ("emptyStringMap", vec![], empty_string_map),
        ("@matches", vec![STRING_TYPE, DYN_TYPE], matches),
        ("@timestamp", text(), timestamp),
        ("@duration", text(), duration),
    ];
    for (name, operands, function) in functions {
        env.add_overload(name, name, operands, function)?;
    }
    env.add_member_overload("reverse", "string.reverse", STRING_TYPE, vec![], reverse)?;
    Ok(env)
}

type Outcome<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn text<'a>(operands: &'a [CowVal<'_, '_>], index: usize) -> Result<&'a str, ExecutionError> {
    let operand = operands.get(index).and_then(|operand| operand.downcast_ref::<CelString>());
    operand.map(CelString::inner).ok_or(ExecutionError::MissingArgumentOrTarget)
}

fn own<'b, 'v>(value: impl Val + 'v) -> Outcome<'b, 'v> {
    Ok(CowVal::owned(value))
}

fn matches_glob<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    own(CelBool::from(glob(text(&operands, 0)?, text(&operands, 1)?)))
}

fn reverse<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    own(CelString::from(text(&operands, 0)?.chars().rev().collect::<String>()))
}

fn lower<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    own(CelString::from(to_lower(Cow::Borrowed(text(&operands, 0)?)).into_owned()))
}

fn email<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    form(Form::Email, "email", &operands)
}

fn dns_name<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    form(Form::DnsName, "dnsName", &operands)
}

fn uri<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    form(Form::Uri, "uri", &operands)
}

fn form<'b, 'v>(form: Form, name: &str, operands: &[CowVal<'b, 'v>]) -> Outcome<'b, 'v> {
    match form.check(Cow::Borrowed(text(operands, 0)?), Span::default()) {
        Ok(checked) => own(FormValue { form, text: Arc::from(&*checked) }),
        Err(error) => Err(ExecutionError::function_error(name, error)),
    }
}

fn ip<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let text = text(&operands, 0)?;
    match parse_address(text) {
        Some(address) => own(IpValue(Bytes::copy_from_slice(&address))),
        None => Err(ExecutionError::function_error(
            "ip",
            format!("no IP_ADDRESS: `{text}` is neither IPv4 nor IPv6"),
        )),
    }
}

fn empty_string_map<'b, 'v>(_: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    own(MapValue { entries: StringMap::default(), source: None })
}

fn timestamp<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let text = text(&operands, 0)?;
    let time = Moment::parse(text).and_then(|moment| date_time(moment.instant));
    match time {
        Some(time) => own(CelTimestamp::from(time)),
        None => {
            let message = format!("`{text}` is not written like `2006-01-02T15:04:05Z`");
            Err(ExecutionError::function_error("timestamp", message))
        }
    }
}

fn duration<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let text = text(&operands, 0)?;
    match parse_duration(text) {
        Some(nanos) => own(CelDuration::from(chrono::Duration::nanoseconds(nanos))),
        None => {
            let message = format!("`{text}` is not written like `1m30s`");
            Err(ExecutionError::function_error("duration", message))
        }
    }
}

/// `text.matches(pattern)`, with a pattern that is ready or one to be compiled.
fn matches<'b, 'v>(operands: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let searched = text(&operands, 0)?;
    let ready = operands.get(1).and_then(|operand| operand.downcast_ref::<PatternValue>());
    own(CelBool::from(match ready {
        Some(pattern) => pattern.0.is_match(searched),
        None => {
            let pattern = pattern::compile(text(&operands, 1)?);
            pattern.map_err(|error| ExecutionError::function_error("matches", error))?.is_match(searched)
        }
    }))
}
