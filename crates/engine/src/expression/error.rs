use std::{borrow::Cow, sync::Arc};

use super::{
    fields::FieldError,
    span::{Span, render},
};
use mixer_adapter_core::value::ValueType;

/// A compile error and further errors of the expression. [`Display`](std::fmt::Display) formats one line; [`render`](CompileError::render)
/// also shows the source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    kind: CompileErrorKind,
    span: Span,
    message: String,
    help: Option<String>,
    further: Vec<CompileError>,
}

/// Maximum number of errors of one expression that are reported after the first.
const MAX_FURTHER: usize = 19;

/// The kinds of [`CompileError`]; the recorded cases of Mixer distinguish the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileErrorKind {
    /// The text is not an expression in Go's grammar.
    Parse,
    /// Valid in Go's grammar, but not in the expression language.
    UnsupportedSyntax,
    /// A literal that is malformed or out of range.
    Literal,
    /// The attribute is not declared.
    UnknownAttribute,
    /// The function or operator does not exist.
    UnknownFunction,
    /// A function called as a method, or a method as a function.
    MethodKind,
    /// Too few arguments.
    Arity,
    /// An operand or argument of the wrong type.
    ArgumentType,
    /// The receiver of a method has the wrong type.
    ReceiverType,
    /// The operator is not defined for this type.
    UnsupportedOperandType,
    /// The expression exceeds the limit on length or nesting.
    TooLarge,
    /// The text is not valid in the annotated language, CEL or COMPAT.
    Cel,
}

impl CompileErrorKind {
    /// The name that the recorded cases use.
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
        Self { kind, span, message: message.into(), help: None, further: Vec::new() }
    }

    /// Returns the first of several errors, with the others; `None` if there are none.
    pub(crate) fn first_of(errors: Vec<Self>) -> Option<Self> {
        let mut errors = errors.into_iter();
        let first = errors.next()?;
        Some(Self { further: errors.take(MAX_FURTHER).collect(), ..first })
    }

    /// Iterates over all errors of the expression in the order of the compiler: this one, then further ones.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.further)
    }

    /// How to correct the expression, if there is a hint.
    pub fn hint(&self) -> Option<&str> {
        self.help.as_deref()
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The kind of error.
    pub fn kind(&self) -> CompileErrorKind {
        self.kind
    }

    /// The location in the source.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Renders several lines: the message, the marked location in `source`, and a hint.
    pub fn render(&self, source: &str) -> String {
        render(source, self.span, self, self.help.as_deref())
    }
}

/// A failed evaluation. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.kind)]
pub struct EvalError(Arc<EvalErrorInner>);

#[derive(Debug, PartialEq, Eq)]
struct EvalErrorInner {
    kind: EvalErrorKind,
    span: Span,
}

/// The kinds of [`EvalError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalErrorKind {
    /// The request lacks the attribute, and the expression has no fallback.
    #[error("attribute `{name}` is missing")]
    MissingAttribute {
        /// The attribute.
        name: Arc<str>,
    },
    /// The attribute's value in the request is not of the declared type.
    #[error("attribute `{name}` is declared as {declared}, but the request has {actual}")]
    WrongType {
        /// The attribute.
        name: Arc<str>,
        /// The type in the attribute manifest.
        declared: ValueType,
        /// The kind of the value in the request.
        actual: &'static str,
    },
    /// A function's argument is not in the expected format.
    #[error("not a valid {to}: {message}")]
    Conversion {
        /// The expected format.
        to: ValueType,
        /// The argument and its fault.
        message: Box<str>,
    },
    /// The pattern of `matches` is not a regular expression.
    #[error("not a valid regular expression: {message}")]
    Pattern {
        /// The pattern and its fault.
        message: Box<str>,
    },
    /// The expression is used as a condition but is not BOOL.
    #[error("a condition must be BOOL, but the expression is {actual}")]
    NotBool {
        /// Its type.
        actual: ValueType,
    },
    /// A field of the request, such as `json(request.body, "model")`, is absent or cannot be read.
    #[error("`{function}` has no value: {why}")]
    NoValue {
        /// The function.
        function: &'static str,
        /// The reason for the missing value.
        why: Box<str>,
    },
    /// Concatenations make more text than one evaluation may.
    #[error("concatenations make more than {} MiB", .max >> 20)]
    TooLong {
        /// The limit in bytes.
        max: usize,
    },
    /// An operand of a type that its operation does not take, which the compiler rejects.
    #[error("an operand is {actual}, which its operation does not take; this is a defect of the compiler")]
    Operand {
        /// The operand's type.
        actual: &'static str,
    },
    /// An error of a CEL or COMPAT expression.
    #[error("{message}")]
    Cel {
        /// The interpreter's message.
        message: Box<str>,
    },
}

impl EvalErrorKind {
    /// The name that the recorded cases use.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::MissingAttribute { .. } => "attribute_missing",
            Self::WrongType { .. } | Self::NotBool { .. } | Self::Operand { .. } => "runtime_type_mismatch",
            Self::Conversion { .. } => "value_conversion_error",
            Self::Pattern { .. } => "regex_error",
            Self::Cel { .. } | Self::TooLong { .. } | Self::NoValue { .. } => "other_eval",
        }
    }
}

/// The characters of a text from a request that an error quotes.
const MAX_QUOTED: usize = 500;

/// Returns a text from a request, or its beginning, for an error.
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

impl EvalError {
    pub(crate) fn new(kind: EvalErrorKind, span: Span) -> Self {
        Self(Arc::new(EvalErrorInner { kind, span }))
    }

    pub(crate) fn conversion(to: ValueType, span: Span, message: impl Into<Box<str>>) -> Self {
        Self::new(EvalErrorKind::Conversion { to, message: message.into() }, span)
    }

    pub(crate) fn no_value(function: &'static str, why: &FieldError, span: Span) -> Self {
        Self::new(EvalErrorKind::NoValue { function, why: why.to_string().into() }, span)
    }

    pub(crate) fn pattern(error: &impl ToString, span: Span) -> Self {
        Self::new(EvalErrorKind::Pattern { message: error.to_string().into() }, span)
    }

    /// The kind of error.
    pub fn kind(&self) -> &EvalErrorKind {
        &self.0.kind
    }

    /// The message without the kind's prefix, for functions that add their own.
    #[cfg(feature = "cel")]
    pub(crate) fn detail(&self) -> String {
        match &self.0.kind {
            EvalErrorKind::Conversion { message, .. } => message.to_string(),
            other => other.to_string(),
        }
    }

    /// The part of the source that has no value.
    pub fn span(&self) -> Span {
        self.0.span
    }

    /// Renders several lines: the message, the marked location in `source`, and a hint.
    pub fn render(&self, source: &str) -> String {
        let help = match &self.0.kind {
            EvalErrorKind::MissingAttribute { name } => Some(format!("add a fallback: `{name} | ..`")),
            EvalErrorKind::WrongType { .. } => {
                Some("correct the client or the attribute manifest".to_owned())
            }
            _ => None,
        };
        render(source, self.0.span, self, help.as_deref())
    }
}
