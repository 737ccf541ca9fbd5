//! The type rules of calls (docs/behaviour/expressions.md#type-rules) and their errors.

use super::{
    Typed,
    functions::{Function, SIGNATURES, Signature},
};
use crate::expression::{
    error::{CompileError, CompileErrorKind},
    span::Span,
    syntax::Call,
};
use mixer_adapter_core::{framework::suggest::suggest, value::ValueType};

/// Resolves the function of a call; an error if a method is called as a function or the reverse.
pub(crate) fn callee(call: &Call) -> Result<Function, CompileError> {
    let name = &call.name;
    if let (true, Some(entry)) = (call.on_entry, &call.receiver) {
        let span = entry.span.to(call.name_span);
        let message = "a method cannot be called on a map entry directly";
        return Err(CompileError::new(CompileErrorKind::UnsupportedSyntax, span, message)
            .help("add parentheses: `(m[\"k\"]).startsWith(..)`"));
    }
    let Some(function) = Function::find(name) else {
        return Err(unknown(name, call.name_span));
    };
    let (message, help) = match (function.signature().receiver, &call.receiver) {
        (None, Some(_)) => {
            (format!("`{name}` is not a method"), format!("call it as a function, `{name}(..)`"))
        }
        (Some(_), None) => {
            (format!("`{name}` is a method"), format!("call it on a string, `\"..\".{name}(..)`"))
        }
        _ => return Ok(function),
    };
    Err(CompileError::new(CompileErrorKind::MethodKind, call.name_span, message).help(help))
}

fn unknown(name: &str, span: Span) -> CompileError {
    let (what, help) = match name {
        "!" => ("operator", Some("compare with `== false` instead".to_owned())),
        "-" => ("operator", Some("subtraction and negative numbers are not supported".to_owned())),
        "*" | "/" | "%" | "<<" | ">>" | "&" | "&^" | "^" | "<-" => ("operator", None),
        "has" => ("function", Some("use `a | default` for an attribute that may be missing".to_owned())),
        "pick" => ("function", Some("use `a | b`".to_owned())),
        _ => {
            let symbols = SIGNATURES.iter().map(|known| known.symbol);
            let words =
                symbols.filter(|symbol| symbol.starts_with(|first: char| first.is_ascii_alphabetic()));
            ("function", suggest(name, words).map(|similar| format!("did you mean `{similar}`?")))
        }
    };
    let message = format!("unknown {what} `{name}`");
    let error = CompileError::new(CompileErrorKind::UnknownFunction, span, message);
    if let Some(help) = help { error.help(help) } else { error }
}

/// The type checker of one call.
pub(crate) struct CallChecker<'c> {
    call: &'c Call,
    signature: &'static Signature,
    any: Option<ValueType>,
}

impl<'c> CallChecker<'c> {
    pub(crate) fn new(call: &'c Call, function: Function) -> Self {
        Self { call, signature: function.signature(), any: None }
    }

    pub(super) fn receiver(&mut self, receiver: &Typed) -> Result<(), CompileError> {
        let actual = receiver.value_type;
        let Some(wanted) = self.signature.receiver.and_then(|wanted| self.mismatch(wanted, actual)) else {
            return Ok(());
        };
        let message = format!("the receiver of `{}` must be {wanted}, but is {actual}", self.call.name);
        Err(CompileError::new(CompileErrorKind::ReceiverType, receiver.span, message))
    }

    /// Checks that there are enough arguments. Surplus arguments are accepted, as in Mixer.
    pub(crate) fn arity(&self, span: Span) -> Result<(), CompileError> {
        let (actual, wanted) = (self.call.arguments.len(), self.signature.arguments.len());
        if actual >= wanted {
            return Ok(());
        }
        let message = format!("`{}` takes {wanted} argument(s), but is called with {actual}", self.call.name);
        Err(CompileError::new(CompileErrorKind::Arity, span, message))
    }

    /// Checks the argument at `index`; a surplus one may have any type.
    pub(super) fn argument(&mut self, index: usize, argument: &Typed) -> Result<(), CompileError> {
        let wanted = self.signature.arguments.get(index).copied();
        match wanted.and_then(|wanted| self.mismatch(wanted, argument.value_type)) {
            None => Ok(()),
            Some(wanted) => Err(argument_type(&self.call.name, wanted, argument.value_type, argument.span)),
        }
    }

    pub(crate) fn returns(&self) -> ValueType {
        match self.signature.returns {
            ValueType::Unspecified => self.any.unwrap_or_default(),
            returns => returns,
        }
    }

    /// Returns the expected type if the actual one differs.
    fn mismatch(&mut self, wanted: ValueType, actual: ValueType) -> Option<ValueType> {
        let wanted = match wanted {
            ValueType::Unspecified => *self.any.get_or_insert(actual),
            wanted => wanted,
        };
        (wanted != actual).then_some(wanted)
    }
}

pub(crate) fn argument_type(name: &str, wanted: ValueType, actual: ValueType, span: Span) -> CompileError {
    let message = format!("`{name}` expects {wanted} here, but this is {actual}");
    let error = CompileError::new(CompileErrorKind::ArgumentType, span, message);
    match (wanted, actual) {
        (ValueType::String, ValueType::Duration) => {
            error.help("a string that parses as a duration is a duration, even `\"0\"`")
        }
        (ValueType::Timestamp, ValueType::String) => error.help("use `timestamp(\"..\")` to parse a time"),
        (ValueType::IpAddress, ValueType::String) => error.help("use `ip(\"..\")` to parse an address"),
        (ValueType::DnsName, ValueType::String) => error.help("use `dnsName(\"..\")` to parse a name"),
        (ValueType::Uri, ValueType::String) => error.help("use `uri(\"..\")` to parse a URI"),
        (ValueType::EmailAddress, ValueType::String) => error.help("use `email(\"..\")` to parse an address"),
        (ValueType::Double, ValueType::Int64) => error.help("write it with a fraction: `1.0`"),
        _ => error,
    }
}
