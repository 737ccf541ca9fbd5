use std::{fmt, sync::Arc};

use super::span::{Span, render};
use mixer_adapter_core::value::ValueType;

/// Why a text is no expression: one line as [`Display`](fmt::Display), with the text marked by
/// [`render`](CompileError::render).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    kind: CompileErrorKind,
    span: Span,
    message: String,
    help: Option<String>,
}

/// The kinds of [`CompileError`], as the recorded cases of a real Mixer tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompileErrorKind {
    /// The text is no expression of Go's grammar.
    Parse,
    /// Go's grammar has it, the expression language has not.
    UnsupportedSyntax,
    /// A number or text that is out of range or badly written.
    Literal,
    /// No attribute of that name is declared.
    UnknownAttribute,
    /// There is no function or operator of that name.
    UnknownFunction,
    /// A function called as a method, or the reverse.
    MethodKind,
    /// Too few arguments.
    Arity,
    /// An operand or argument of the wrong type.
    ArgumentType,
    /// The receiver of a method has the wrong type.
    ReceiverType,
    /// An operator that does not work for values of this type.
    UnsupportedOperandType,
    /// The text is longer, or nested deeper, than this engine reads.
    TooLarge,
    /// The text is not an expression of the annotated language, CEL or COMPAT.
    Cel,
}

impl CompileErrorKind {
    /// The name the recorded cases use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parse => "parse_error",
            Self::UnsupportedSyntax => "unsupported_syntax",
            Self::Literal => "literal_error",
            Self::UnknownAttribute => "unknown_attribute",
            Self::UnknownFunction => "unknown_function",
            Self::MethodKind => "method_kind_mismatch",
            Self::Arity => "arity_mismatch",
            Self::ArgumentType => "type_error_arg",
            Self::ReceiverType => "type_error_target",
            Self::UnsupportedOperandType => "unsupported_operand_type",
            Self::TooLarge => "too_large",
            Self::Cel => "other_compile",
        }
    }
}

impl CompileError {
    pub(crate) fn new(kind: CompileErrorKind, span: Span, message: impl Into<String>) -> Self {
        Self { kind, span, message: message.into(), help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> CompileErrorKind {
        self.kind
    }

    /// Where in the text it is.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Several lines: the message, the place in `source`, marked, and what to do.
    pub fn render(&self, source: &str) -> String {
        render(source, self.span, self, self.help.as_deref())
    }
}

/// Why an expression has no value for a request. Cloning one shares it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.kind)]
pub struct EvalError(Arc<Fault>);

#[derive(Debug, PartialEq, Eq)]
struct Fault {
    kind: EvalErrorKind,
    span: Span,
}

/// What went wrong in an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvalErrorKind {
    /// The attribute is not in the request, and nothing stands in for it.
    MissingAttribute {
        /// The attribute.
        name: Arc<str>,
    },
    /// The request sends the attribute with a type that does not fit.
    WrongType {
        /// The attribute.
        name: Arc<str>,
        /// The type in the attribute manifest.
        declared: ValueType,
        /// The kind of the value in the request.
        actual: &'static str,
    },
    /// A text is not what a function reads it as.
    Conversion {
        /// What it should be.
        to: ValueType,
        /// The text, and why not.
        message: Box<str>,
    },
    /// The pattern of `matches` is no regular expression.
    Pattern {
        /// Where the pattern is wrong.
        message: Box<str>,
    },
    /// The expression is not BOOL, where the value decides something.
    NotBool {
        /// What it is instead.
        actual: ValueType,
    },
    /// An error of a CEL or COMPAT expression.
    Cel {
        /// What the interpreter said.
        message: Box<str>,
    },
}

impl fmt::Display for EvalErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingAttribute { name } => write!(f, "attribute `{name}` is missing"),
            Self::WrongType { name, declared, actual } => {
                write!(f, "attribute `{name}` is declared as {declared}, but the request sends {actual}")
            }
            Self::Conversion { to, message } => write!(f, "no {to}: {message}"),
            Self::Pattern { message } => write!(f, "no regular expression: {message}"),
            Self::NotBool { actual } => write!(f, "the expression is {actual}, a condition is BOOL"),
            Self::Cel { message } => f.write_str(message),
        }
    }
}

impl EvalErrorKind {
    /// The name the recorded cases use.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::MissingAttribute { .. } => "attribute_missing",
            Self::WrongType { .. } | Self::NotBool { .. } => "runtime_type_mismatch",
            Self::Conversion { .. } => "value_conversion_error",
            Self::Pattern { .. } => "regex_error",
            Self::Cel { .. } => "other_eval",
        }
    }
}

impl EvalError {
    pub(crate) fn new(kind: EvalErrorKind, span: Span) -> Self {
        Self(Arc::new(Fault { kind, span }))
    }

    pub(crate) fn conversion(to: ValueType, span: Span, message: impl Into<Box<str>>) -> Self {
        Self::new(EvalErrorKind::Conversion { to, message: message.into() }, span)
    }

    /// What went wrong.
    pub fn kind(&self) -> &EvalErrorKind {
        &self.0.kind
    }

    /// The part of the text that has no value.
    pub fn span(&self) -> Span {
        self.0.span
    }

    /// Several lines: the message, the place in `source`, marked, and what to do.
    pub fn render(&self, source: &str) -> String {
        let help = match &self.0.kind {
            EvalErrorKind::MissingAttribute { name } => {
                Some(format!("`{name} | ..` gives it a value to fall back to"))
            }
            EvalErrorKind::WrongType { .. } => {
                Some("correct the client, or the attribute manifest".to_owned())
            }
            _ => None,
        };
        render(source, self.0.span, self, help.as_deref())
    }
}
