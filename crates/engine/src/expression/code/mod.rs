//! Compiled expressions: one tree of nodes, typed by what its values are.
//!
//! An [`Expr`] of a [`Kind`] can only hold operations that give values of this kind, so nothing about the expression
//! is left to check when it runs. What is checked is the request: an attribute may be missing or of another type.

mod address;
mod map;
mod number;
mod text;
mod time;
mod truth;

use std::{fmt::Debug, sync::Arc};

#[cfg(feature = "cel")]
pub(crate) use address::same as same_address;
pub(crate) use address::{Address, AddressOp, parse as parse_address};
pub(crate) use map::Map;
pub(crate) use number::{Double, DoubleOp, Int, IntOp};
pub(crate) use text::{Form, Key, Text, TextOp};
pub(crate) use time::{Instant, InstantOp, Length, Moment};
pub(crate) use truth::{Comparison, Pattern, Relation, Truth, TruthOp};
#[cfg(feature = "cel")]
pub(crate) use {text::to_lower, truth::glob};

use super::{
    error::{EvalError, EvalErrorKind},
    span::Span,
};
use crate::attribute::{AttributeValue, Attributes, Declaration, Reads};
use mixer_adapter_core::value::ValueType;

/// What an evaluation reads and where it notes that.
pub(crate) struct Env<'a, 'r> {
    pub(crate) attributes: Attributes<'a>,
    pub(crate) reads: &'r mut Reads,
}

/// The values some types share: texts are the values of STRING, URI, DNS_NAME and EMAIL_ADDRESS.
pub(crate) trait Kind: Sized + 'static {
    /// A value known when the expression is compiled.
    type Constant: Debug + Send + Sync;
    /// A value at run time, borrowed from the expression or from the request where it can be.
    type Value<'a>;
    /// The functions and operators that give such values.
    type Operation: Debug + Send + Sync;

    fn constant(constant: &Self::Constant) -> Self::Value<'_>;

    /// The value of an attribute; `None` if the request sends another type.
    fn read(value: &AttributeValue, slot: u32) -> Option<Self::Value<'_>>;

    fn run<'a>(operation: &'a Self::Operation, env: &mut Env<'a, '_>) -> Result<Self::Value<'a>, EvalError>;

    /// Runs an operation on the left of `|`, where its value does not always count.
    ///
    /// There a map entry may be missing. And the original has a defect that shows: it computes an operator (`==`,
    /// `<`, `&&`, `||`, `+`, but not `|` and `[]`) or a `size`, and goes on to the right side all the same. What it
    /// computes can raise an error, so it is not left out.
    fn try_run<'a>(
        operation: &'a Self::Operation,
        env: &mut Env<'a, '_>,
    ) -> Result<Option<Self::Value<'a>>, EvalError> {
        Self::run(operation, env).map(Some)
    }
}

/// An expression whose values are of this kind.
#[derive(Debug)]
pub(crate) enum Expr<K: Kind> {
    Constant(K::Constant),
    Attribute(Attribute),
    /// `a | b | c`: all but the last, and the last.
    FirstOf(Vec<Expr<K>>, Box<Expr<K>>),
    Conditional(Box<(Expr<Truth>, Expr<K>, Expr<K>)>),
    /// Operands that are evaluated and not used: the arguments a function has too many.
    After(Vec<Code>, Box<Expr<K>>),
    Operation(Box<K::Operation>),
}

/// An expression of any kind.
#[derive(Debug)]
pub(crate) enum Code {
    Text(Expr<Text>),
    Int(Expr<Int>),
    Double(Expr<Double>),
    Truth(Expr<Truth>),
    Instant(Expr<Instant>),
    Length(Expr<Length>),
    Address(Expr<Address>),
    Map(Expr<Map>),
}

/// Does the same with the expression in a [`Code`], whatever its kind; gives code of that kind.
macro_rules! each_kind {
    ($code:expr, $expr:ident => $result:expr) => {
        match $code {
            Code::Text($expr) => Code::Text($result),
            Code::Int($expr) => Code::Int($result),
            Code::Double($expr) => Code::Double($result),
            Code::Truth($expr) => Code::Truth($result),
            Code::Instant($expr) => Code::Instant($result),
            Code::Length($expr) => Code::Length($result),
            Code::Address($expr) => Code::Address($result),
            Code::Map($expr) => Code::Map($result),
        }
    };
}
pub(crate) use each_kind;

/// A kind as a part of [`Code`].
pub(crate) trait Part: Kind {
    /// The type whose values these are; for texts the plain one.
    const TYPE: ValueType;

    /// The expression, if it is of this kind.
    fn of(code: Code) -> Option<Expr<Self>>;
}

macro_rules! part {
    ($($kind:ident: $value_type:ident),* $(,)?) => {
        $(impl Part for $kind {
            const TYPE: ValueType = ValueType::$value_type;

            fn of(code: Code) -> Option<Expr<Self>> {
                match code {
                    Code::$kind(expr) => Some(expr),
                    _ => None,
                }
            }
        })*
    };
}

part! {
    Text: String,
    Int: Int64,
    Double: Double,
    Truth: Bool,
    Instant: Timestamp,
    Length: Duration,
    Address: IpAddress,
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
    /// Made once: for many requests this is what a condition comes to.
    missing: EvalError,
}

impl Attribute {
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

    /// The value, which has to be there.
    #[inline]
    fn value<'a, K: Kind>(&self, env: &mut Env<'a, '_>) -> Result<K::Value<'a>, EvalError> {
        match env.attributes.read(self.slot, env.reads) {
            Some(value) => self.typed::<K>(value),
            None => Err(self.missing.clone()),
        }
    }

    /// The value, if it is there.
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

    /// The value, which has to be there.
    #[inline]
    pub(crate) fn value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<K::Value<'a>, EvalError> {
        match self {
            Expr::Constant(constant) => Ok(K::constant(constant)),
            Expr::Attribute(attribute) => attribute.value::<K>(env),
            Expr::Operation(operation) => K::run(operation, env),
            Expr::FirstOf(..) | Expr::Conditional(_) | Expr::After(..) => self.chosen(env),
        }
    }

    /// The value of one of the branches. Apart from `value`, to keep that small.
    #[inline(never)]
    fn chosen<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<K::Value<'a>, EvalError> {
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

    /// The value if there is one, on the left of `|`: an attribute, a map entry or a nested `|` may be missing
    /// (docs/behaviour/expressions.md#attributes-that-are-absent). Operators never have one there, see [`Kind::try_run`].
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
    /// Evaluates for the errors and the reads, not for the value.
    fn run<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<(), EvalError> {
        match self {
            Code::Text(expr) => expr.value(env).map(drop),
            Code::Int(expr) => expr.value(env).map(drop),
            Code::Double(expr) => expr.value(env).map(drop),
            Code::Truth(expr) => expr.value(env).map(drop),
            Code::Instant(expr) => expr.value(env).map(drop),
            Code::Length(expr) => expr.value(env).map(drop),
            Code::Address(expr) => expr.value(env).map(drop),
            Code::Map(expr) => expr.value(env).map(drop),
        }
    }
}
