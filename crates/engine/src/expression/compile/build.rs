//! The code of each function and operator. Operands are already checked; only operators that no release of Mixer
//! implements for a type are rejected here.

use std::{borrow::Cow, sync::Arc};

use super::{Typed, check::argument_type, functions::Function};
use crate::{
    attribute::StringMap,
    expression::{
        code::{
            AddressOp, Bool, BoolOp, Code, Comparison, DoubleOp, Expr, FieldOp, FromCode, IntOp, Key,
            Pattern, Relation, Str, StrFormat, StrOp, TimestampOp, ZonedTimestamp, each_kind, parse_address,
        },
        error::{CompileError, CompileErrorKind},
        formats::pattern,
        span::Span,
        syntax::Chain,
    },
};
use mixer_adapter_core::value::ValueType;

/// Builds a chain. All operands have the type of the chain.
pub(crate) fn chain(chain: Chain, operands: Vec<Typed>, span: Span) -> Result<Typed, CompileError> {
    let value_type = operands.first().map(|first| first.value_type).unwrap_or_default();
    let mut operands = Operands { function: chain.symbol(), operands: operands.into_iter() };
    let code = match chain {
        Chain::And => Code::Bool(Expr::operation(BoolOp::And(operands.rest()?))),
        Chain::Or => Code::Bool(Expr::operation(BoolOp::Or(operands.rest()?))),
        Chain::FirstOf => operands.first_of()?,
        Chain::Add => operands.sum(value_type, span)?,
    };
    Ok(Typed { code, value_type, span })
}

/// Builds a call of a function that returns `value_type`; `name` is the span of its name.
pub(crate) fn call(
    function: Function,
    value_type: ValueType,
    operands: Vec<Typed>,
    name: Span,
    span: Span,
) -> Result<Typed, CompileError> {
    let mut operands = Operands { function: function.name(), operands: operands.into_iter() };
    let code = match function {
        Function::Or => Code::Bool(Expr::operation(BoolOp::Or(operands.rest()?))),
        Function::And => Code::Bool(Expr::operation(BoolOp::And(operands.rest()?))),
        Function::FirstOf => operands.first_of()?,
        Function::Add => operands.sum(value_type, name)?,
        Function::Compare(relation) => Code::Bool(operands.comparison(relation, name)?),
        Function::Conditional => operands.conditional()?,
        Function::Index => {
            let (map, key) = (operands.next()?, operands.next()?);
            let key = match key {
                Expr::Constant(key) => Key::Constant(key),
                key => Key::Computed(key),
            };
            Code::Str(Expr::operation(StrOp::Entry(map, key)))
        }
        Function::ConditionalString => {
            let operation = StrOp::ConditionalString(operands.next()?, operands.next()?, operands.next()?);
            Code::Str(Expr::operation(operation))
        }
        Function::ToLower => Code::Str(Expr::operation(StrOp::ToLower(operands.next()?))),
        Function::DnsName => Code::Str(validated(StrFormat::DnsName, operands.next()?, span)),
        Function::Email => Code::Str(validated(StrFormat::Email, operands.next()?, span)),
        Function::Uri => Code::Str(validated(StrFormat::Uri, operands.next()?, span)),
        Function::EmptyStringMap => Code::Map(Expr::Constant(StringMap::default())),
        Function::Size => Code::Int(Expr::operation(IntOp::Size(operands.next()?))),
        Function::Ip => {
            let text = operands.next()?;
            let known = constant(&text).and_then(|text| parse_address(text, span).ok());
            Code::Address(known.map_or_else(|| Expr::operation(AddressOp::Parse(text, span)), Expr::Constant))
        }
        Function::Timestamp => {
            let text = operands.next()?;
            let known = constant(&text).and_then(|text| ZonedTimestamp::parse(text, span).ok());
            Code::Timestamp(
                known.map_or_else(|| Expr::operation(TimestampOp::Parse(text, span)), Expr::Constant),
            )
        }
        Function::Match => Code::Bool(Expr::operation(BoolOp::Glob(operands.next()?, operands.next()?))),
        Function::StartsWith => {
            Code::Bool(Expr::operation(BoolOp::StartsWith(operands.next()?, operands.next()?)))
        }
        Function::EndsWith => {
            Code::Bool(Expr::operation(BoolOp::EndsWith(operands.next()?, operands.next()?)))
        }
        Function::Matches => {
            let pattern = match operands.next::<Str>()? {
                Expr::Constant(source) => {
                    pattern::compile(&source).map_or_else(Pattern::Invalid, Pattern::Compiled)
                }
                computed => Pattern::Computed(computed),
            };
            Code::Bool(Expr::operation(BoolOp::Matches(pattern, operands.next()?, span)))
        }
        Function::Json => {
            let (text, path) = (operands.next()?, operands.next()?);
            let body = match operands.operands.len() {
                0 => None,
                _ => Some((operands.next()?, operands.next()?)),
            };
            field(FieldOp::Json(text, path, body), span)
        }
        Function::Query => field(FieldOp::Query(operands.next()?, operands.next()?), span),
        Function::QueryAll => field(FieldOp::QueryAll(operands.next()?, operands.next()?), span),
        Function::Segment => field(FieldOp::Segment(operands.next()?, operands.next()?), span),
        Function::ToInt => Code::Int(Expr::operation(IntOp::Parse(operands.next()?, span))),
    };
    Ok(Typed { code, value_type, span })
}

/// Builds code that evaluates `unused` first.
pub(crate) fn after(unused: Vec<Code>, code: Code) -> Code {
    each_kind!(code, expr => Expr::After(unused, Box::new(expr)))
}

fn constant(text: &Expr<Str>) -> Option<&Arc<str>> {
    match text {
        Expr::Constant(text) => Some(text),
        _ => None,
    }
}

fn validated(format: StrFormat, text: Expr<Str>, span: Span) -> Expr<Str> {
    match constant(&text).and_then(|text| format.validate(Cow::Borrowed(text), span).ok()) {
        Some(known) => Expr::Constant(Arc::from(&*known)),
        None => Expr::operation(StrOp::Validate(format, text, span)),
    }
}

fn field(field: FieldOp, span: Span) -> Code {
    Code::Str(Expr::operation(StrOp::Field(field, span)))
}

fn unsupported(operator: &str, value_type: ValueType, span: Span) -> CompileError {
    let message = format!("`{operator}` is not defined for {value_type}");
    CompileError::new(CompileErrorKind::UnsupportedOperandType, span, message)
}

struct Operands {
    function: &'static str,
    operands: std::vec::IntoIter<Typed>,
}

impl Operands {
    /// Returns the next operand as an expression of kind `K`.
    fn next<K: FromCode>(&mut self) -> Result<Expr<K>, CompileError> {
        match self.operands.next() {
            Some(typed) => {
                let (value_type, span) = (typed.value_type, typed.span);
                K::from_code(typed.code)
                    .ok_or_else(|| argument_type(self.function, K::TYPE, value_type, span))
            }
            None => {
                let message = format!("`{}` has too few operands", self.function);
                Err(CompileError::new(CompileErrorKind::Arity, Span::default(), message))
            }
        }
    }

    fn rest<K: FromCode>(&mut self) -> Result<Vec<Expr<K>>, CompileError> {
        (0..self.operands.len()).map(|_| self.next()).collect()
    }

    fn first_of(&mut self) -> Result<Code, CompileError> {
        match self.operands.next_back() {
            Some(last) => Ok(each_kind!(last.code, last => Expr::FirstOf(self.rest()?, Box::new(last)))),
            None => self.next().map(Code::Str),
        }
    }

    fn conditional(&mut self) -> Result<Code, CompileError> {
        let condition: Expr<Bool> = self.next()?;
        match self.operands.next_back() {
            Some(no) => {
                Ok(each_kind!(no.code, no => Expr::Conditional(Box::new((condition, self.next()?, no)))))
            }
            None => self.next().map(Code::Str),
        }
    }

    fn sum(&mut self, value_type: ValueType, operator: Span) -> Result<Code, CompileError> {
        match value_type {
            ValueType::String | ValueType::DnsName | ValueType::EmailAddress | ValueType::Uri => {
                Ok(Code::Str(Expr::operation(StrOp::Concat(self.rest()?))))
            }
            ValueType::Int64 => Ok(Code::Int(Expr::operation(IntOp::Sum(self.rest()?)))),
            ValueType::Double => Ok(Code::Double(Expr::operation(DoubleOp::Sum(self.next()?, self.rest()?)))),
            other => Err(unsupported("+", other, operator)),
        }
    }

    fn comparison(&mut self, relation: Relation, operator: Span) -> Result<Expr<Bool>, CompileError> {
        let value_type = self.operands.as_slice().first().map(|left| left.value_type).unwrap_or_default();
        let equality = matches!(relation, Relation::Equal | Relation::NotEqual);
        let format = match value_type {
            ValueType::DnsName => Some(StrFormat::DnsName),
            ValueType::EmailAddress => Some(StrFormat::Email),
            ValueType::Uri => Some(StrFormat::Uri),
            _ => None,
        };
        Ok(Expr::operation(match (value_type, format) {
            (_, Some(format)) if equality => {
                let (negated, span) = (relation == Relation::NotEqual, operator);
                BoolOp::FormatsEqual { format, negated, left: self.next()?, right: self.next()?, span }
            }
            (ValueType::String, _) | (_, Some(_)) => BoolOp::CompareStrs(self.pair(relation)?),
            (ValueType::Int64, _) => BoolOp::CompareInts(self.pair(relation)?),
            (ValueType::Double, _) => BoolOp::CompareDoubles(self.pair(relation)?),
            (ValueType::Timestamp, _) => BoolOp::CompareTimestamps(self.pair(relation)?),
            (ValueType::Bool, _) if equality => BoolOp::CompareBools(self.pair(relation)?),
            (ValueType::IpAddress, _) if equality => BoolOp::CompareAddresses(self.pair(relation)?),
            (other, _) => return Err(unsupported(Function::Compare(relation).name(), other, operator)),
        }))
    }

    fn pair<K: FromCode>(&mut self, relation: Relation) -> Result<Comparison<K>, CompileError> {
        Ok(Comparison { relation, left: self.next()?, right: self.next()? })
    }
}
