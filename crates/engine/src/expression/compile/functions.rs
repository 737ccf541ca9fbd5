//! The functions and operators, and what they take (docs/behaviour/expressions.md#type-rules and
//! docs/behaviour/expressions.md#functions).

use crate::expression::code::Relation;
use mixer_adapter_core::value::ValueType::{self, *};

/// Operators are functions too: `a == b` may be written `EQ(a, b)`.
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

/// What a function takes and gives. UNSPECIFIED stands for one type the caller chooses: the first value passed for it
/// decides.
pub(crate) struct Signature {
    /// A method's receiver; a function has none.
    pub(crate) receiver: Option<ValueType>,
    pub(crate) arguments: &'static [ValueType],
    pub(crate) returns: ValueType,
}

const ANY: ValueType = Unspecified;

/// Every function, the way it is usually written, and the name every operator can be called by.
const NAMES: [(Function, &str, &str); 25] = [
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
    /// The function of that name, or of that operator.
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(_, symbol, word)| *symbol == name || *word == name)
            .map(|(function, ..)| *function)
    }

    /// The name to call it by in messages: the operator, if it is one.
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

    /// What becomes of operands it has too many, in the original (docs/behaviour/expressions.md#type-rules).
    pub(crate) fn excess(self) -> Excess {
        use Function::*;
        match self {
            And => Excess::Used,
            Or | FirstOf | Add | Index | Compare(_) | Size | Conditional => Excess::Ignored,
            _ => Excess::Evaluated,
        }
    }
}

/// What becomes of operands a function has too many.
pub(crate) enum Excess {
    Ignored,
    Used,
    /// All are evaluated, the receiver among them, and the last ones are used.
    Evaluated,
}
