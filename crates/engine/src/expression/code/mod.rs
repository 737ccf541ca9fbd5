//! Compiled expressions: trees of typed nodes.
//!
//! An [`Expr`] of a [`Kind`] contains only operations that return values of this kind, so evaluation checks nothing but
//! the request: an attribute may be missing or of another type.

mod address;
mod boolean;
mod field;
mod map;
mod number;
mod string;
mod time;

use std::{fmt::Debug, sync::Arc};

#[cfg(feature = "cel")]
pub(crate) use address::equal as addresses_equal;
pub(crate) use address::{AddressOp, parse as parse_address};
pub(crate) use boolean::{BoolOp, Comparison, Pattern, Relation, ordered};
pub(crate) use field::FieldOp;
pub(crate) use number::{DoubleOp, IntOp, parse as parse_int};
#[cfg(feature = "cel")]
pub(crate) use string::MAX_CONCATENATED;
pub(crate) use string::{Key, StrFormat, StrOp};
pub(crate) use time::{TimestampOp, ZonedTimestamp, parse_nanos};
#[cfg(feature = "cel")]
pub(crate) use {boolean::glob, string::to_lower};

use super::{
    error::{EvalError, EvalErrorKind},
    span::Span,
};
use crate::attribute::{AttributeValue, Attributes, Declaration, Reads};
use mixer_adapter_core::value::ValueType;

/// The context of an evaluation.
pub(crate) struct Env<'a, 'r> {
    pub(crate) attributes: Attributes<'a>,
    pub(crate) reads: &'r mut Reads,
    /// The bytes that concatenations have made.
    concatenated: usize,
}

impl<'a, 'r> Env<'a, 'r> {
    pub(crate) fn new(attributes: Attributes<'a>, reads: &'r mut Reads) -> Self {
        Self { attributes, reads, concatenated: 0 }
    }
}

/// A representation of values, shared by the types that have it: [`Str`] by STRING, URI, DNS_NAME and EMAIL_ADDRESS.
pub(crate) trait Kind: Sized + 'static {
    /// A constant of an expression.
    type Constant: Debug + Send + Sync;
    /// A value at evaluation, borrowed from the expression or the request where possible.
    type Value<'a>;
    /// The functions and operators that return such values.
    type Operation: Debug + Send + Sync;

    fn constant(constant: &Self::Constant) -> Self::Value<'_>;

    /// Converts the value of an attribute; `None` if it is of another type.
    fn read(value: &AttributeValue, slot: u32) -> Option<Self::Value<'_>>;

    fn run<'a>(operation: &'a Self::Operation, env: &mut Env<'a, '_>) -> Result<Self::Value<'a>, EvalError>;

    /// Runs an operation as the left operand of `|`; `None` continues with the right operand.
    ///
    /// A map entry and a field of a request may be missing. Mixer also continues after evaluating an operator (`==`, `<`, `&&`, `||`, `+`, but not
    /// `|` and `[]`) or `size`, a defect that is observable; they are evaluated because they may fail.
    fn try_run<'a>(
        operation: &'a Self::Operation,
        env: &mut Env<'a, '_>,
    ) -> Result<Option<Self::Value<'a>>, EvalError> {
        Self::run(operation, env).map(Some)
    }
}

/// An expression with values of one kind.
#[derive(Debug)]
pub(crate) enum Expr<K: Kind> {
    Constant(K::Constant),
    Attribute(Attribute),
    /// `a | b | c`: all operands but the last, and the last.
    FirstOf(Vec<Expr<K>>, Box<Expr<K>>),
    Conditional(Box<(Expr<Bool>, Expr<K>, Expr<K>)>),
    /// Surplus arguments of a function, evaluated only for their errors, and the call itself.
    After(Vec<Code>, Box<Expr<K>>),
    Operation(Box<K::Operation>),
}

/// An expression of any kind.
#[derive(Debug)]
pub(crate) enum Code {
    Str(Expr<Str>),
    Int(Expr<Int>),
    Double(Expr<Double>),
    Bool(Expr<Bool>),
    Timestamp(Expr<Timestamp>),
    Duration(Expr<Duration>),
    Address(Expr<Address>),
    Map(Expr<Map>),
}

/// Maps the expression in a [`Code`] to another of the same kind.
macro_rules! each_kind {
    ($code:expr, $expr:ident => $result:expr) => {
        match $code {
            Code::Str($expr) => Code::Str($result),
            Code::Int($expr) => Code::Int($result),
            Code::Double($expr) => Code::Double($result),
            Code::Bool($expr) => Code::Bool($result),
            Code::Timestamp($expr) => Code::Timestamp($result),
            Code::Duration($expr) => Code::Duration($result),
            Code::Address($expr) => Code::Address($result),
            Code::Map($expr) => Code::Map($result),
        }
    };
}
pub(crate) use each_kind;

/// A kind that is a variant of [`Code`].
pub(crate) trait FromCode: Kind {
    /// The type of the values; STRING for all types with string values.
    const TYPE: ValueType;

    /// Returns the expression if it is of this kind.
    fn from_code(code: Code) -> Option<Expr<Self>>;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $value_type:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) enum $kind {}

        impl FromCode for $kind {
            const TYPE: ValueType = ValueType::$value_type;

            fn from_code(code: Code) -> Option<Expr<Self>> {
                match code {
                    Code::$kind(expr) => Some(expr),
                    _ => None,
                }
            }
        }
    )*};
}

kinds! {
    /// STRING, DNS_NAME, EMAIL_ADDRESS, URI
    Str: String,
    /// INT64
    Int: Int64,
    /// DOUBLE
    Double: Double,
    /// BOOL
    Bool: Bool,
    /// TIMESTAMP
    Timestamp: Timestamp,
    /// DURATION, in nanoseconds
    Duration: Duration,
    /// IP_ADDRESS, as bytes; a request may have any length.
    Address: IpAddress,
    /// STRING_MAP
    Map: StringMap,
}

/// A kind without operations.
#[derive(Debug)]
pub(crate) enum Never {}

/// An attribute in an expression.
#[derive(Debug)]
pub(crate) struct Attribute {
    slot: u32,
    name: Arc<str>,
    declared: ValueType,
    span: Span,
    /// Created once: for many requests it is the outcome of a condition.
    missing: EvalError,
}

impl Attribute {
    /// The name of the attribute.
    #[cfg(feature = "cel")]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn new(declaration: Declaration<'_>, span: Span) -> Self {
        let name = Arc::clone(declaration.name);
        let missing = EvalError::new(EvalErrorKind::MissingAttribute { name: Arc::clone(&name) }, span);
        Self { slot: declaration.slot, name, declared: declaration.value_type, span, missing }
    }

    #[cfg(feature = "cel")]
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    #[cfg(feature = "cel")]
    pub(crate) fn declared(&self) -> ValueType {
        self.declared
    }

    /// Returns the value; an error if it is missing.
    #[inline]
    fn value<'a, K: Kind>(&self, env: &mut Env<'a, '_>) -> Result<K::Value<'a>, EvalError> {
        match env.attributes.read(self.slot, env.reads) {
            Some(value) => self.typed::<K>(value),
            None => Err(self.missing.clone()),
        }
    }

    /// Returns the value; `None` if it is missing.
    fn try_value<'a, K: Kind>(&self, env: &mut Env<'a, '_>) -> Result<Option<K::Value<'a>>, EvalError> {
        match env.attributes.read(self.slot, env.reads) {
            Some(value) => self.typed::<K>(value).map(Some),
            None => Ok(None),
        }
    }

    #[inline]
    fn typed<'a, K: Kind>(&self, value: &'a AttributeValue) -> Result<K::Value<'a>, EvalError> {
        match K::read(value, self.slot) {
            Some(value) => Ok(value),
            None => Err(self.wrong_type(value.kind())),
        }
    }

    #[cold]
    pub(crate) fn wrong_type(&self, actual: &'static str) -> EvalError {
        let kind = EvalErrorKind::WrongType { name: Arc::clone(&self.name), declared: self.declared, actual };
        EvalError::new(kind, self.span)
    }
}

impl<K: Kind> Expr<K> {
    pub(crate) fn operation(operation: K::Operation) -> Self {
        Expr::Operation(Box::new(operation))
    }

    /// Returns the value; an error if it is missing.
    #[inline]
    pub(crate) fn value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<K::Value<'a>, EvalError> {
        match self {
            Expr::Constant(constant) => Ok(K::constant(constant)),
            Expr::Attribute(attribute) => attribute.value::<K>(env),
            Expr::Operation(operation) => K::run(operation, env),
            Expr::FirstOf(..) | Expr::Conditional(_) | Expr::After(..) => self.branch_value(env),
        }
    }

    /// Evaluates the variants with branches. Not inlined into `value`, which must stay small.
    #[inline(never)]
    fn branch_value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<K::Value<'a>, EvalError> {
        match self {
            Expr::FirstOf(choices, last) => match first(choices, env)? {
                Some(value) => Ok(value),
                None => last.value(env),
            },
            Expr::Conditional(branches) => {
                let (condition, yes, no) = &**branches;
                if condition.value(env)? { yes.value(env) } else { no.value(env) }
            }
            Expr::After(unused, expr) => {
                for code in unused {
                    code.run(env)?;
                }
                expr.value(env)
            }
            Expr::Constant(_) | Expr::Attribute(_) | Expr::Operation(_) => self.value(env),
        }
    }

    /// Evaluates the left operand of `|`: an attribute, a map entry or a nested `|` may be missing
    /// (docs/behaviour/expressions.md#attributes-that-are-absent). For operators see [`Kind::try_run`].
    pub(crate) fn try_value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<Option<K::Value<'a>>, EvalError> {
        match self {
            Expr::Attribute(attribute) => attribute.try_value::<K>(env),
            Expr::Operation(operation) => K::try_run(operation, env),
            Expr::FirstOf(choices, last) => match first(choices, env)? {
                Some(value) => Ok(Some(value)),
                None => last.try_value(env),
            },
            _ => self.value(env).map(Some),
        }
    }
}

fn first<'a, K: Kind>(
    choices: &'a [Expr<K>],
    env: &mut Env<'a, '_>,
) -> Result<Option<K::Value<'a>>, EvalError> {
    for choice in choices {
        if let Some(value) = choice.try_value(env)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

impl Code {
    /// Evaluates for errors and reads only.
    fn run<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<(), EvalError> {
        macro_rules! value {
            ($($kind:ident)*) => {
                match self {
                    $(Code::$kind(expr) => expr.value(env).map(drop),)*
                }
            };
        }
        value!(Str Int Double Bool Timestamp Duration Address Map)
    }
}
