use super::{Operand, address};
use crate::expression::error::EvalError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Relation {
    /// The relation with its operands exchanged.
    pub(crate) fn reversed(self) -> Self {
        match self {
            Relation::Equal | Relation::NotEqual => self,
            Relation::Less => Relation::Greater,
            Relation::LessOrEqual => Relation::GreaterOrEqual,
            Relation::Greater => Relation::Less,
            Relation::GreaterOrEqual => Relation::LessOrEqual,
        }
    }

    /// Compares operands of one type. The compiler rejects types without an order, and without equality.
    #[inline]
    pub(super) fn holds(self, left: &Operand<'_>, right: &Operand<'_>) -> Result<bool, EvalError> {
        Ok(match (left, right) {
            (Operand::Str(left), Operand::Str(right)) => ordered::<str>(self, left, right),
            (Operand::Int(left), Operand::Int(right)) => ordered(self, left, right),
            (Operand::Double(left), Operand::Double(right)) => match self {
                // Bits: a NaN equals itself, and -0 is not 0 (docs/behaviour/expressions.md#equality).
                Relation::Equal => left.to_bits() == right.to_bits(),
                Relation::NotEqual => left.to_bits() != right.to_bits(),
                _ => ordered(self, left, right),
            },
            (Operand::Bool(left), Operand::Bool(right)) => ordered(self, left, right),
            (Operand::Timestamp(left), Operand::Timestamp(right)) => match self {
                Relation::LessOrEqual => left.nanos() < right.nanos() || left.identical(*right),
                Relation::GreaterOrEqual => left.nanos() > right.nanos() || left.identical(*right),
                _ => ordered(self, &left.nanos(), &right.nanos()),
            },
            (Operand::Address(left), Operand::Address(right)) => {
                address::equal(left, right) != (self == Relation::NotEqual)
            }
            _ => return Err(left.misfit()),
        })
    }
}

pub(crate) fn ordered<T: PartialOrd + ?Sized>(relation: Relation, left: &T, right: &T) -> bool {
    match relation {
        Relation::Equal => left == right,
        Relation::NotEqual => left != right,
        Relation::Less => left < right,
        Relation::LessOrEqual => left <= right,
        Relation::Greater => left > right,
        Relation::GreaterOrEqual => left >= right,
    }
}
