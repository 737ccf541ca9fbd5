//! The code of each function and operator. The operands have been checked by then; what is left to refuse are
//! operators that no release implements for a type.

use std::{borrow::Cow, sync::Arc};

use super::{Typed, check::argument_type, functions::Function};
use crate::{
    attribute::StringMap,
    expression::{
        code::{
            AddressOp, Code, Comparison, DoubleOp, Expr, Form, InstantOp, IntOp, Key, Moment, Part, Pattern,
            Relation, Text, TextOp, Truth, TruthOp, each_kind, parse_address,
        },
        error::{CompileError, CompileErrorKind},
        format::pattern,
        span::Span,
        syntax::Chain,
    },
};
use mixer_adapter_core::value::ValueType;

/// A chain of operands of one type, which is the type of the chain.
pub(crate) fn chain(chain: Chain, operands: Vec<Typed>, span: Span) -> Result<Typed, CompileError> {
    let value_type = operands.first().map(|first| first.value_type).unwrap_or_default();
    let mut operands = Operands { function: chain.symbol(), operands: operands.into_iter() };
    let code = match chain {
        Chain::And => Code::Truth(Expr::operation(TruthOp::And(operands.rest()?))),
        Chain::Or => Code::Truth(Expr::operation(TruthOp::Or(operands.rest()?))),
        Chain::FirstOf => operands.first_of()?,
        Chain::Add => operands.sum(value_type, span)?,
    };
    Ok(Typed { code, value_type, span })
}

/// A call of a function that returns `value_type`; `name` is where it is named.
pub(crate) fn call(
    function: Function,
    value_type: ValueType,
    operands: Vec<Typed>,
    name: Span,
    span: Span,
) -> Result<Typed, CompileError> {
    let mut operands = Operands { function: function.name(), operands: operands.into_iter() };
    let code = match function {
        Function::Or => Code::Truth(Expr::operation(TruthOp::Or(operands.rest()?))),
        Function::And => Code::Truth(Expr::operation(TruthOp::And(operands.rest()?))),
        Function::FirstOf => operands.first_of()?,
        Function::Add => operands.sum(value_type, name)?,
        Function::Compare(relation) => Code::Truth(operands.comparison(relation, name)?),
        Function::Conditional => operands.conditional()?,
        Function::Index => {
            let (map, key) = (operands.next()?, operands.next()?);
            let key = match key {
                Expr::Constant(key) => Key::Constant(key),
                key => Key::Computed(key),
            };
            Code::Text(Expr::operation(TextOp::Entry(map, key)))
        }
        Function::ConditionalString => {
            let operation = TextOp::ConditionalString(operands.next()?, operands.next()?, operands.next()?);
            Code::Text(Expr::operation(operation))
        }
        Function::ToLower => Code::Text(Expr::operation(TextOp::ToLower(operands.next()?))),
        Function::DnsName => Code::Text(checked(Form::DnsName, operands.next()?, span)),
        Function::Email => Code::Text(checked(Form::Email, operands.next()?, span)),
        Function::Uri => Code::Text(checked(Form::Uri, operands.next()?, span)),
        Function::EmptyStringMap => Code::Map(Expr::Constant(StringMap::default())),
        Function::Size => Code::Int(Expr::operation(IntOp::Size(operands.next()?))),
        Function::Ip => {
            let text = operands.next()?;
            let known = constant(&text).and_then(|text| parse_address(text));
            Code::Address(known.map_or_else(|| Expr::operation(AddressOp::Parse(text, span)), Expr::Constant))
        }
        Function::Timestamp => {
            let text = operands.next()?;
            let known = constant(&text).and_then(|text| Moment::parse(text));
            Code::Instant(known.map_or_else(|| Expr::operation(InstantOp::Parse(text, span)), Expr::Constant))
        }
        Function::Match => Code::Truth(Expr::operation(TruthOp::Glob(operands.next()?, operands.next()?))),
        Function::StartsWith => {
            Code::Truth(Expr::operation(TruthOp::StartsWith(operands.next()?, operands.next()?)))
        }
        Function::EndsWith => {
            Code::Truth(Expr::operation(TruthOp::EndsWith(operands.next()?, operands.next()?)))
        }
        Function::Matches => {
            let pattern = match operands.next::<Text>()? {
                Expr::Constant(source) => {
                    pattern::compile(&source).map_or_else(Pattern::Broken, Pattern::Ready)
                }
                computed => Pattern::Computed(computed),
            };
            Code::Truth(Expr::operation(TruthOp::Matches(pattern, operands.next()?, span)))
        }
    };
    Ok(Typed { code, value_type, span })
}

/// Code that evaluates other code first.
pub(crate) fn after(unused: Vec<Code>, code: Code) -> Code {
    each_kind!(code, expr => Expr::After(unused, Box::new(expr)))
}

fn constant(text: &Expr<Text>) -> Option<&Arc<str>> {
    match text {
        Expr::Constant(text) => Some(text),
        _ => None,
    }
}

fn checked(form: Form, text: Expr<Text>, span: Span) -> Expr<Text> {
    match constant(&text).and_then(|text| form.check(Cow::Borrowed(text), span).ok()) {
        Some(known) => Expr::Constant(Arc::from(&*known)),
        None => Expr::operation(TextOp::Checked(form, text, span)),
    }
}

fn unsupported(operator: &str, value_type: ValueType, span: Span) -> CompileError {
    let message = format!("`{operator}` does not work for {value_type}");
    CompileError::new(CompileErrorKind::UnsupportedOperandType, span, message)
}

struct Operands {
    function: &'static str,
    operands: std::vec::IntoIter<Typed>,
}

impl Operands {
    /// The next one, of the kind it is used as.
    fn next<K: Part>(&mut self) -> Result<Expr<K>, CompileError> {
        match self.operands.next() {
            Some(typed) => {
                let (value_type, span) = (typed.value_type, typed.span);
                K::of(typed.code).ok_or_else(|| argument_type(self.function, K::TYPE, value_type, span))
            }
            None => {
                let message = format!("`{}` has too few operands", self.function);
                Err(CompileError::new(CompileErrorKind::Arity, Span::default(), message))
            }
        }
    }

    fn rest<K: Part>(&mut self) -> Result<Vec<Expr<K>>, CompileError> {
        (0..self.operands.len()).map(|_| self.next()).collect()
    }

    fn first_of(&mut self) -> Result<Code, CompileError> {
        match self.operands.next_back() {
            Some(last) => Ok(each_kind!(last.code, last => Expr::FirstOf(self.rest()?, Box::new(last)))),
            None => self.next().map(Code::Text),
        }
    }

    fn conditional(&mut self) -> Result<Code, CompileError> {
        let condition: Expr<Truth> = self.next()?;
        match self.operands.next_back() {
            Some(no) => {
                Ok(each_kind!(no.code, no => Expr::Conditional(Box::new((condition, self.next()?, no)))))
            }
            None => self.next().map(Code::Text),
        }
    }

    fn sum(&mut self, value_type: ValueType, operator: Span) -> Result<Code, CompileError> {
        match value_type {
            ValueType::String | ValueType::DnsName | ValueType::EmailAddress | ValueType::Uri => {
                Ok(Code::Text(Expr::operation(TextOp::Concat(self.rest()?))))
            }
            ValueType::Int64 => Ok(Code::Int(Expr::operation(IntOp::Sum(self.rest()?)))),
            ValueType::Double => Ok(Code::Double(Expr::operation(DoubleOp::Sum(self.next()?, self.rest()?)))),
            other => Err(unsupported("+", other, operator)),
        }
    }

    fn comparison(&mut self, relation: Relation, operator: Span) -> Result<Expr<Truth>, CompileError> {
        let value_type = self.operands.as_slice().first().map(|left| left.value_type).unwrap_or_default();
        let equality = matches!(relation, Relation::Equal | Relation::NotEqual);
        let form = match value_type {
            ValueType::DnsName => Some(Form::DnsName),
            ValueType::EmailAddress => Some(Form::Email),
            ValueType::Uri => Some(Form::Uri),
            _ => None,
        };
        Ok(Expr::operation(match (value_type, form) {
            (_, Some(form)) if equality => {
                let negated = relation == Relation::NotEqual;
                TruthOp::SameForm { form, negated, left: self.next()?, right: self.next()?, span: operator }
            }
            (ValueType::String, _) | (_, Some(_)) => TruthOp::Texts(self.pair(relation)?),
            (ValueType::Int64, _) => TruthOp::Ints(self.pair(relation)?),
            (ValueType::Double, _) => TruthOp::Doubles(self.pair(relation)?),
            (ValueType::Timestamp, _) => TruthOp::Instants(self.pair(relation)?),
            (ValueType::Bool, _) if equality => TruthOp::Truths(self.pair(relation)?),
            (ValueType::IpAddress, _) if equality => TruthOp::Addresses(self.pair(relation)?),
            (other, _) => return Err(unsupported(relation.symbol(), other, operator)),
        }))
    }

    fn pair<K: Part>(&mut self, relation: Relation) -> Result<Comparison<K>, CompileError> {
        Ok(Comparison { relation, left: self.next()?, right: self.next()? })
    }
}
