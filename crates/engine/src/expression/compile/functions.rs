//! The functions and operators with their signatures (docs/behaviour/expressions.md#type-rules and
//! docs/behaviour/expressions.md#functions).

use crate::expression::{
    code::{Relation, StrFormat},
    fields::{
        self,
        FieldFunction::{self, Json, Query, QueryAll, Segment},
    },
};
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
    Format(StrFormat),
    ToLower,
    Match,
    Matches,
    StartsWith,
    EndsWith,
    Field(FieldFunction),
    ToInt,
}

/// The names and types of a function. UNSPECIFIED stands for one type that the first operand of it determines.
pub(crate) struct Signature {
    function: Function,
    /// The usual spelling.
    pub(crate) symbol: &'static str,
    /// The name for calls of an operator as a function.
    word: &'static str,
    /// The receiver of a method; `None` for a function.
    pub(crate) receiver: Option<ValueType>,
    pub(crate) arguments: &'static [ValueType],
    pub(crate) returns: ValueType,
}

const ANY: ValueType = Unspecified;

const fn signature(
    function: Function,
    symbol: &'static str,
    word: &'static str,
    receiver: Option<ValueType>,
    arguments: &'static [ValueType],
    returns: ValueType,
) -> Signature {
    Signature { function, symbol, word, receiver, arguments, returns }
}

/// Every function.
pub(crate) static SIGNATURES: [Signature; 30] = [
    signature(Function::Or, "||", "LOR", None, &[Bool, Bool], Bool),
    signature(Function::And, "&&", "LAND", None, &[Bool, Bool], Bool),
    signature(Function::FirstOf, "|", "OR", None, &[ANY, ANY], ANY),
    signature(Function::Add, "+", "ADD", None, &[ANY, ANY], ANY),
    signature(Function::Index, "[]", "INDEX", None, &[StringMap, String], String),
    signature(Function::Compare(Relation::Equal), "==", "EQ", None, &[ANY, ANY], Bool),
    signature(Function::Compare(Relation::NotEqual), "!=", "NEQ", None, &[ANY, ANY], Bool),
    signature(Function::Compare(Relation::Less), "<", "LT", None, &[ANY, ANY], Bool),
    signature(Function::Compare(Relation::LessOrEqual), "<=", "LEQ", None, &[ANY, ANY], Bool),
    signature(Function::Compare(Relation::Greater), ">", "GT", None, &[ANY, ANY], Bool),
    signature(Function::Compare(Relation::GreaterOrEqual), ">=", "GEQ", None, &[ANY, ANY], Bool),
    signature(Function::Size, "size", "size", None, &[String], Int64),
    signature(Function::Conditional, "conditional", "conditional", None, &[Bool, ANY, ANY], ANY),
    signature(
        Function::ConditionalString,
        "conditionalString",
        "conditionalString",
        None,
        &[Bool, String, String],
        String,
    ),
    signature(Function::EmptyStringMap, "emptyStringMap", "emptyStringMap", None, &[], StringMap),
    signature(Function::Ip, "ip", "ip", None, &[String], IpAddress),
    signature(Function::Timestamp, "timestamp", "timestamp", None, &[String], Timestamp),
    signature(Function::Format(StrFormat::DnsName), "dnsName", "dnsName", None, &[String], DnsName),
    signature(Function::Format(StrFormat::Email), "email", "email", None, &[String], EmailAddress),
    signature(Function::Format(StrFormat::Uri), "uri", "uri", None, &[String], Uri),
    signature(Function::ToLower, "toLower", "toLower", None, &[String], String),
    signature(Function::Match, "match", "match", None, &[String, String], Bool),
    signature(Function::Matches, "matches", "matches", Some(String), &[String], Bool),
    signature(Function::StartsWith, "startsWith", "startsWith", Some(String), &[String], Bool),
    signature(Function::EndsWith, "endsWith", "endsWith", Some(String), &[String], Bool),
    signature(Function::Field(Json), fields::JSON, fields::JSON, None, &[String, String], String),
    signature(Function::Field(Query), "query", "query", None, &[String, String], String),
    signature(Function::Field(QueryAll), "queryAll", "queryAll", None, &[String, String], String),
    signature(Function::Field(Segment), "segment", "segment", None, &[String, Int64], String),
    signature(Function::ToInt, fields::TO_INT, fields::TO_INT, None, &[String], Int64),
];

impl Function {
    /// Finds a function by its name or operator.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let mut signatures = SIGNATURES.iter();
        signatures.find(|known| known.symbol == name || known.word == name).map(|known| known.function)
    }

    pub(crate) fn signature(self) -> &'static Signature {
        SIGNATURES.iter().find(|known| known.function == self).unwrap_or(&SIGNATURES[0])
    }

    /// The name in messages: the symbol of an operator.
    pub(crate) fn name(self) -> &'static str {
        self.signature().symbol
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
    /// All operands are evaluated, including the receiver, and the last are used.
    Evaluated,
}
