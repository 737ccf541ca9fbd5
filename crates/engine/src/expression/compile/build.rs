//! The code of each function and operator. Operands are already checked; only operators that no release of Mixer
//! implements for a type are rejected here.

use std::{borrow::Cow, sync::Arc};

use super::{Typed, check::argument_type, functions::Function};
use crate::expression::{
    code::{
        Expr, FieldCall, Key, MapRef, Operand, Operation, Pattern, Relation, StrFormat, ZonedTimestamp, glob,
        parse_address,
    },
    error::{CompileError, CompileErrorKind},
    fields::FieldFunction,
    formats::pattern,
    span::Span,
    syntax::Chain,
};
use mixer_adapter_core::value::ValueType::{self, Bool, Int64, String, StringMap};

/// Builds a chain. All operands have the type of the chain.
pub(crate) fn chain(chain: Chain, operands: Vec<Typed>, span: Span) -> Result<Typed, CompileError> {
    let value_type = operands.first().map(|first| first.value_type).unwrap_or_default();
    let mut operands = Operands { function: chain.symbol(), operands: operands.into_iter() };
    let code = match chain {
        Chain::And => Expr::operation(Operation::And(operands.rest(Bool)?)),
        Chain::Or => Expr::operation(Operation::Or(operands.rest(Bool)?)),
        Chain::FirstOf => operands.first_of()?,
        Chain::Add => Expr::operation(operands.sum(value_type, span)?),
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
        Function::Or => Expr::operation(Operation::Or(operands.rest(Bool)?)),
        Function::And => Expr::operation(Operation::And(operands.rest(Bool)?)),
        Function::FirstOf => operands.first_of()?,
        Function::Add => Expr::operation(operands.sum(value_type, name)?),
        Function::Compare(relation) => Expr::operation(operands.comparison(relation, name)?),
        Function::Conditional => operands.conditional()?,
        Function::Index => {
            let map = operands.next(StringMap)?;
            let key = match operands.next(String)? {
                Expr::Constant(Operand::Str(key)) => Key::Constant(Arc::from(&*key)),
                key => Key::Computed(key),
            };
            Expr::operation(Operation::Entry(map, key))
        }
        Function::ConditionalString => {
            let [condition, yes, no] = [operands.next(Bool)?, operands.next(String)?, operands.next(String)?];
            Expr::operation(Operation::ConditionalString(condition, yes, no))
        }
        Function::ToLower => Expr::operation(Operation::ToLower(operands.next(String)?)),
        Function::Format(format) => validated(format, operands.next(String)?, span),
        Function::EmptyStringMap => Expr::Constant(Operand::Map(MapRef::empty())),
        Function::Size => Expr::operation(Operation::Size(operands.next(String)?)),
        Function::Ip => {
            let text = operands.next(String)?;
            let known = constant(&text).and_then(|text| parse_address(text, span).ok());
            match known {
                Some(address) => Expr::Constant(Operand::Address(Cow::Owned(address.to_vec()))),
                None => Expr::operation(Operation::ParseAddress(text, span)),
            }
        }
        Function::Timestamp => {
            let text = operands.next(String)?;
            let known = constant(&text).and_then(|text| ZonedTimestamp::parse(text, span).ok());
            match known {
                Some(time) => Expr::Constant(Operand::Timestamp(time)),
                None => Expr::operation(Operation::ParseTimestamp(text, span)),
            }
        }
        Function::Match => operands.test(glob)?,
        Function::StartsWith => operands.test(|text, prefix| text.starts_with(prefix))?,
        Function::EndsWith => operands.test(|text, suffix| text.ends_with(suffix))?,
        Function::Matches => {
            let pattern = match operands.next(String)? {
                Expr::Constant(Operand::Str(source)) => {
                    pattern::compile(&source).map_or_else(Pattern::Invalid, Pattern::Compiled)
                }
                computed => Pattern::Computed(computed),
            };
            Expr::operation(Operation::Matches(pattern, operands.next(String)?, span))
        }
        Function::Field(function) => operands.field(function, span)?,
        Function::ToInt => Expr::operation(Operation::ParseInt(operands.next(String)?, span)),
    };
    Ok(Typed { code, value_type, span })
}

fn constant(text: &Expr) -> Option<&str> {
    match text {
        Expr::Constant(Operand::Str(text)) => Some(text),
        _ => None,
    }
}

fn validated(format: StrFormat, text: Expr, span: Span) -> Expr {
    let known = constant(&text).and_then(|text| format.validate(Cow::Borrowed(text), span).ok());
    match known.map(Cow::into_owned) {
        Some(known) => Expr::Constant(Operand::Str(Cow::Owned(known))),
        None => Expr::operation(Operation::Validate(format, text, span)),
    }
}

fn unsupported(operator: &str, value_type: ValueType, span: Span) -> CompileError {
    let message = format!("`{operator}` is not defined for {value_type}");
    CompileError::new(CompileErrorKind::UnsupportedOperandType, span, message)
}

/// Returns the type that stands for all types with the same representation: STRING for all types with string values.
fn representation(value_type: ValueType) -> ValueType {
    if StrFormat::of(value_type).is_some() { String } else { value_type }
}

struct Operands {
    function: &'static str,
    operands: std::vec::IntoIter<Typed>,
}

impl Operands {
    /// Returns the next operand, which must have the representation of a type.
    fn next(&mut self, wanted: ValueType) -> Result<Expr, CompileError> {
        let Typed { code, value_type, span } = self.operands.next().ok_or_else(|| self.too_few())?;
        let wanted = representation(wanted);
        if representation(value_type) == wanted {
            return Ok(code);
        }
        Err(argument_type(self.function, wanted, value_type, span))
    }

    fn last(&mut self) -> Result<Typed, CompileError> {
        self.operands.next_back().ok_or_else(|| self.too_few())
    }

    fn too_few(&self) -> CompileError {
        let message = format!("`{}` has too few operands", self.function);
        CompileError::new(CompileErrorKind::Arity, Span::default(), message)
    }

    fn rest(&mut self, wanted: ValueType) -> Result<Vec<Expr>, CompileError> {
        (0..self.operands.len()).map(|_| self.next(wanted)).collect()
    }

    fn first_of(&mut self) -> Result<Expr, CompileError> {
        let last = self.last()?;
        Ok(Expr::FirstOf(self.rest(last.value_type)?, Box::new(last.code)))
    }

    fn conditional(&mut self) -> Result<Expr, CompileError> {
        let condition = self.next(Bool)?;
        let no = self.last()?;
        Ok(Expr::Conditional(Box::new([condition, self.next(no.value_type)?, no.code])))
    }

    /// Builds a test of two texts.
    fn test(&mut self, test: fn(&str, &str) -> bool) -> Result<Expr, CompileError> {
        Ok(Expr::operation(Operation::Test(test, self.next(String)?, self.next(String)?)))
    }

    /// Builds a call of a function that returns a field.
    fn field(&mut self, function: FieldFunction, span: Span) -> Result<Expr, CompileError> {
        let argument = if function == FieldFunction::Segment { Int64 } else { String };
        let operands = [self.next(String)?, self.next(argument)?];
        let body = match self.operands.len() {
            0 => None,
            _ => Some([self.next(String)?, self.next(Bool)?]),
        };
        Ok(Expr::operation(Operation::Field(FieldCall { function, operands, body, span })))
    }

    fn sum(&mut self, value_type: ValueType, operator: Span) -> Result<Operation, CompileError> {
        match representation(value_type) {
            String => Ok(Operation::Concat(self.rest(String)?)),
            Int64 => Ok(Operation::SumInts(self.rest(Int64)?)),
            ValueType::Double => Ok(Operation::SumDoubles(self.rest(ValueType::Double)?)),
            _ => Err(unsupported("+", value_type, operator)),
        }
    }

    fn comparison(&mut self, relation: Relation, operator: Span) -> Result<Operation, CompileError> {
        let value_type = self.operands.as_slice().first().map(|left| left.value_type).unwrap_or_default();
        let equality = matches!(relation, Relation::Equal | Relation::NotEqual);
        let is_defined = match representation(value_type) {
            String | Int64 | ValueType::Double | ValueType::Timestamp => true,
            Bool | ValueType::IpAddress => equality,
            _ => false,
        };
        if !is_defined {
            return Err(unsupported(Function::Compare(relation).name(), value_type, operator));
        }
        let (left, right) = (self.next(value_type)?, self.next(value_type)?);
        Ok(match StrFormat::of(value_type).filter(|_| equality) {
            Some(format) => {
                let (negated, span) = (relation == Relation::NotEqual, operator);
                Operation::FormatsEqual { format, negated, left, right, span }
            }
            None => Operation::Compare(relation, left, right),
        })
    }
}
