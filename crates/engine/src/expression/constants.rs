//! Constants that cannot be evaluated: the argument of `ip("..")`, `timestamp("..")` and the like, and the pattern of
//! `matches`. As in Mixer they are errors of each evaluation, not of compilation; validation finds them.

use std::borrow::Cow;

use super::{
    code::{StrFormat, ZonedTimestamp, parse_address, parse_int},
    error::EvalError,
    formats::pattern,
    span::Span,
    syntax::{Ast, Literal, Node},
};
use mixer_adapter_core::value::{ValueType, parse_duration};

/// Returns the errors of all constants in an expression in Mixer's syntax.
pub(super) fn invalid(ast: &Ast) -> Box<[EvalError]> {
    let mut found = Vec::new();
    for (call, _) in ast.calls() {
        // The receiver of `matches` is the pattern; the other functions have one argument.
        let argument = call.receiver.as_deref().or(call.arguments.first());
        if let Some(Ast { node: Node::Literal(Literal::Str(text)), span, .. }) = argument {
            found.extend(check(&call.name, text, *span).err());
        }
    }
    found.sort_by_key(|error| error.span().start);
    found.into()
}

/// Checks the constant argument of a function that parses it.
pub(super) fn check(function: &str, text: &str, span: Span) -> Result<(), EvalError> {
    let (to, message) = match function {
        "ip" if parse_address(text).is_none() => {
            (ValueType::IpAddress, format!("`{text}` is neither an IPv4 nor an IPv6 address"))
        }
        "timestamp" if ZonedTimestamp::parse(text).is_none() => {
            let message = format!("`{text}` is not an RFC 3339 time; write it like `2006-01-02T15:04:05Z`");
            (ValueType::Timestamp, message)
        }
        "duration" if parse_duration(text).is_none() => {
            (ValueType::Duration, format!("write it like `300ms`, `5s` or `1m30s`, not `{text}`"))
        }
        "toInt" => return parse_int(text, span).map(drop),
        "dnsName" => return StrFormat::DnsName.validate(Cow::Borrowed(text), span).map(drop),
        "email" => return StrFormat::Email.validate(Cow::Borrowed(text), span).map(drop),
        "uri" => return StrFormat::Uri.validate(Cow::Borrowed(text), span).map(drop),
        "matches" => {
            return match pattern::compile(text) {
                Ok(_) => Ok(()),
                Err(error) => Err(EvalError::pattern(&error, span)),
            };
        }
        _ => return Ok(()),
    };
    Err(EvalError::conversion(to, span, message))
}
