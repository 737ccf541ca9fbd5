//! The type rules of calls, and what is said when one is broken (docs/behaviour/expressions.md#type-rules).

use super::functions::{Function, Signature};
use crate::expression::{
    error::{CompileError, CompileErrorKind},
    span::Span,
    syntax::Call,
};
use mixer_adapter_core::value::ValueType;

/// The function a call names, called the way that function is called.
pub(crate) fn callee(call: &Call) -> Result<Function, CompileError> {
    let name = &call.name;
    if let (true, Some(entry)) = (call.on_entry, &call.receiver) {
        let span = entry.span.to(call.name_span);
        let message = "a method cannot be called on a map entry directly";
        return Err(CompileError::new(CompileErrorKind::UnsupportedSyntax, span, message)
            .help("put parentheses around it: `(m[\"k\"]).startsWith(..)`"));
    }
    let Some(function) = Function::named(name) else {
        return Err(unknown(name, call.name_span));
    };
    let error = |message: String, help: String| {
        Err(CompileError::new(CompileErrorKind::MethodKind, call.name_span, message).help(help))
    };
    match (function.signature().receiver, &call.receiver) {
        (None, Some(_)) => {
            error(format!("`{name}` is no method"), format!("call it as a function, `{name}(..)`"))
        }
        (Some(_), None) => {
            error(format!("`{name}` is a method"), format!("call it on a text, `\"..\".{name}(..)`"))
        }
        _ => Ok(function),
    }
}

fn unknown(name: &str, span: Span) -> CompileError {
    let (what, help) = match name {
        "!" => ("operator", Some("there is no negation: compare with `== false`")),
        "-" => ("operator", Some("there is no subtraction, and there are no negative numbers")),
        "*" | "/" | "%" | "<<" | ">>" | "&" | "&^" | "^" | "<-" => ("operator", None),
        "has" => ("function", Some("`a | default` stands in for a missing attribute")),
        "pick" => ("function", Some("`a | b` is the first of two that is there")),
        _ => ("function", None),
    };
    let error =
        CompileError::new(CompileErrorKind::UnknownFunction, span, format!("there is no {what} `{name}`"));
    match help {
        Some(help) => error.help(help),
        None => error,
    }
}

/// The types of one call, filled in operand by operand.
pub(crate) struct Checked<'c> {
    call: &'c Call,
    signature: Signature,
    any: Option<ValueType>,
}

impl<'c> Checked<'c> {
    pub(crate) fn new(call: &'c Call, function: Function) -> Self {
        Self { call, signature: function.signature(), any: None }
    }

    pub(crate) fn receiver(&mut self, actual: ValueType, span: Span) -> Result<(), CompileError> {
        let Some(wanted) = self.signature.receiver.and_then(|wanted| self.mismatch(wanted, actual)) else {
            return Ok(());
        };
        let message = format!("`{}` is called on {wanted}, this is {actual}", self.call.name);
        Err(CompileError::new(CompileErrorKind::ReceiverType, span, message))
    }

    /// Too many are accepted, as Mixer does.
    pub(crate) fn arity(&self, span: Span) -> Result<(), CompileError> {
        let (actual, wanted) = (self.call.arguments.len(), self.signature.arguments.len());
        if actual >= wanted {
            return Ok(());
        }
        let message = format!("`{}` takes {wanted} argument(s), here it has {actual}", self.call.name);
        Err(CompileError::new(CompileErrorKind::Arity, span, message))
    }

    /// Checks the argument at `index`; one too many may have any type.
    pub(crate) fn argument(
        &mut self,
        index: usize,
        actual: ValueType,
        span: Span,
    ) -> Result<(), CompileError> {
        let Some(&wanted) = self.signature.arguments.get(index) else { return Ok(()) };
        match self.mismatch(wanted, actual) {
            None => Ok(()),
            Some(wanted) => Err(argument_type(&self.call.name, wanted, actual, span)),
        }
    }

    pub(crate) fn returns(&self) -> ValueType {
        match self.signature.returns {
            ValueType::Unspecified => self.any.unwrap_or_default(),
            returns => returns,
        }
    }

    /// The type that is wanted, where the actual one is another.
    fn mismatch(&mut self, wanted: ValueType, actual: ValueType) -> Option<ValueType> {
        let wanted = match wanted {
            ValueType::Unspecified => *self.any.get_or_insert(actual),
            wanted => wanted,
        };
        (wanted != actual).then_some(wanted)
    }
}

pub(crate) fn argument_type(name: &str, wanted: ValueType, actual: ValueType, span: Span) -> CompileError {
    let message = format!("`{name}` needs {wanted} here, this is {actual}");
    let error = CompileError::new(CompileErrorKind::ArgumentType, span, message);
    match (wanted, actual) {
        (ValueType::String, ValueType::Duration) => {
            error.help("a text that reads as a duration is one, even `\"0\"`")
        }
        (ValueType::Timestamp, ValueType::String) => error.help("`timestamp(\"..\")` reads a text as a time"),
        (ValueType::IpAddress, ValueType::String) => error.help("`ip(\"..\")` reads a text as an address"),
        (ValueType::DnsName, ValueType::String) => error.help("`dnsName(\"..\")` reads a text as a name"),
        (ValueType::Uri, ValueType::String) => error.help("`uri(\"..\")` reads a text as a URI"),
        (ValueType::EmailAddress, ValueType::String) => {
            error.help("`email(\"..\")` reads a text as an address")
        }
        (ValueType::Double, ValueType::Int64) => error.help("write a fraction: `1.0`"),
        _ => error,
    }
}
