//! The functions and operators with their signatures (docs/behaviour/expressions.md#type-rules and
//! docs/behaviour/expressions.md#functions).

use crate::expression::code::Relation;
use mixer_adapter_core::value::ValueType::{
    self, Bool, DnsName, EmailAddress, Int64, IpAddress, String, StringMap, Timestamp, Unspecified, Uri,
};

/// A function or operator. Operators are functions, too: `a == b` may be written `EQ(a, b)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Or,
    And,
    FirstOf,
    Add,
    Index,
    Compare(Relation),
    Size,
    Conditional,
    ConditionalString,
    EmptyStringMap,
    Ip,
    Timestamp,
    DnsName,
    Email,
    Uri,
    ToLower,
    Match,
    Matches,
    StartsWith,
    EndsWith,
}

/// The types of a function. UNSPECIFIED stands for one type that the first operand of it determines.
pub(crate) struct Signature {
    /// The receiver of a method; `None` for a function.
    pub(crate) receiver: Option<ValueType>,
    pub(crate) arguments: &'static [ValueType],
    pub(crate) returns: ValueType,
}

const ANY: ValueType = Unspecified;

/// Every function with its usual spelling and the name by which operators can be called.
pub(crate) const NAMES: [(Function, &str, &str); 25] = [
    (Function::Or, "||", "LOR"),
    (Function::And, "&&", "LAND"),
    (Function::FirstOf, "|", "OR"),
    (Function::Add, "+", "ADD"),
    (Function::Index, "[]", "INDEX"),
    (Function::Compare(Relation::Equal), "==", "EQ"),
    (Function::Compare(Relation::NotEqual), "!=", "NEQ"),
    (Function::Compare(Relation::Less), "<", "LT"),
    (Function::Compare(Relation::LessOrEqual), "<=", "LEQ"),
    (Function::Compare(Relation::Greater), ">", "GT"),
    (Function::Compare(Relation::GreaterOrEqual), ">=", "GEQ"),
    (Function::Size, "size", "size"),
    (Function::Conditional, "conditional", "conditional"),
    (Function::ConditionalString, "conditionalString", "conditionalString"),
    (Function::EmptyStringMap, "emptyStringMap", "emptyStringMap"),
    (Function::Ip, "ip", "ip"),
    (Function::Timestamp, "timestamp", "timestamp"),
    (Function::DnsName, "dnsName", "dnsName"),
    (Function::Email, "email", "email"),
    (Function::Uri, "uri", "uri"),
    (Function::ToLower, "toLower", "toLower"),
    (Function::Match, "match", "match"),
    (Function::Matches, "matches", "matches"),
    (Function::StartsWith, "startsWith", "startsWith"),
    (Function::EndsWith, "endsWith", "endsWith"),
];

impl Function {
    /// Finds a function by its name or operator.
    pub(crate) fn find(name: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(_, symbol, word)| *symbol == name || *word == name)
            .map(|(function, ..)| *function)
    }

    /// The name in messages: the symbol of an operator.
    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(function, ..)| *function == self).map_or("", |(_, symbol, _)| symbol)
    }

    pub(crate) fn signature(self) -> Signature {
        let (receiver, arguments, returns): (_, &'static [ValueType], _) = match self {
            Function::Or | Function::And => (None, &[Bool, Bool], Bool),
            Function::FirstOf | Function::Add => (None, &[ANY, ANY], ANY),
            Function::Index => (None, &[StringMap, String], String),
            Function::Compare(_) => (None, &[ANY, ANY], Bool),
            Function::Size => (None, &[String], Int64),
            Function::Conditional => (None, &[Bool, ANY, ANY], ANY),
            Function::ConditionalString => (None, &[Bool, String, String], String),
            Function::EmptyStringMap => (None, &[], StringMap),
            Function::Ip => (None, &[String], IpAddress),
            Function::Timestamp => (None, &[String], Timestamp),
            Function::DnsName => (None, &[String], DnsName),
            Function::Email => (None, &[String], EmailAddress),
            Function::Uri => (None, &[String], Uri),
            Function::ToLower => (None, &[String], String),
            Function::Match => (None, &[String, String], Bool),
            Function::Matches | Function::StartsWith | Function::EndsWith => (Some(String), &[String], Bool),
        };
        Signature { receiver, arguments, returns }
    }

    /// How Mixer treats surplus operands (docs/behaviour/expressions.md#type-rules).
    pub(crate) fn excess(self) -> Excess {
        use Function::{Add, And, Compare, Conditional, FirstOf, Index, Or, Size};
        match self {
            And => Excess::Used,
            Or | FirstOf | Add | Index | Compare(_) | Size | Conditional => Excess::Ignored,
            _ => Excess::Evaluated,
        }
    }
}

/// The treatment of surplus operands.
pub(crate) enum Excess {
    Ignored,
    Used,
    /// All are evaluated, including the receiver, and the last ones are used.
    Evaluated,
}
