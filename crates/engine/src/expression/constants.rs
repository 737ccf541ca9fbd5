//! Constants that cannot be evaluated: the argument of `ip("..")`, `timestamp("..")` and the like, and the pattern of
//! `matches`. As in Mixer they are errors of each evaluation, not of compilation; validation finds them.

use std::borrow::Cow;

use super::{
    code::{StrFormat, ZonedTimestamp, parse_address, parse_int, parse_nanos},
    error::EvalError,
    formats::pattern,
    span::Span,
    syntax::{Ast, Literal, Node},
};

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
    let format = match function {
        "ip" => return parse_address(text, span).map(drop),
        "timestamp" => return ZonedTimestamp::parse(text, span).map(drop),
        "duration" => return parse_nanos(text, span).map(drop),
        "toInt" => return parse_int(text, span).map(drop),
        "matches" => {
            return pattern::compile(text).map(drop).map_err(|error| EvalError::pattern(&error, span));
        }
        "dnsName" => StrFormat::DnsName,
        "email" => StrFormat::Email,
        "uri" => StrFormat::Uri,
        _ => return Ok(()),
    };
    format.validate(Cow::Borrowed(text), span).map(drop)
}
