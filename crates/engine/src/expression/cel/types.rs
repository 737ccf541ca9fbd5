use std::fmt;

use mixer_adapter_core::value::ValueType;

/// The static type of a CEL expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    /// Known only at evaluation.
    Dyn,
    /// Not inferred yet, such as the element type of an empty list.
    Open,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    Ip,
    Email,
    Uri,
    DnsName,
    /// The type of types.
    Meta,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    /// A string map of Mixer, whose entries can be selected, but not counted, compared or iterated over.
    StringMap,
    /// A prefix of attribute names: `request` if `request.path` is declared.
    Object(String),
}

/// The types of attributes, except UNSPECIFIED.
const OF_ATTRIBUTES: [(ValueType, Type); 11] = [
    (ValueType::String, Type::String),
    (ValueType::Int64, Type::Int),
    (ValueType::Double, Type::Double),
    (ValueType::Bool, Type::Bool),
    (ValueType::Timestamp, Type::Timestamp),
    (ValueType::IpAddress, Type::Ip),
    (ValueType::EmailAddress, Type::Email),
    (ValueType::Uri, Type::Uri),
    (ValueType::DnsName, Type::DnsName),
    (ValueType::Duration, Type::Duration),
    (ValueType::StringMap, Type::StringMap),
];

impl Type {
    pub(crate) fn of(value_type: ValueType) -> Self {
        OF_ATTRIBUTES.into_iter().find(|(of, _)| *of == value_type).map_or(Type::Dyn, |(_, known)| known)
    }

    /// The attribute type with these values, or UNSPECIFIED.
    pub(crate) fn value_type(&self) -> ValueType {
        if let Type::Map(key, value) = self
            && (&**key, &**value) == (&Type::String, &Type::String)
        {
            return ValueType::StringMap;
        }
        OF_ATTRIBUTES.iter().find(|(_, known)| known == self).map_or(ValueType::Unspecified, |(of, _)| *of)
    }

    /// Returns whether a value of this type is accepted where `wanted` is expected.
    pub(crate) fn fits(&self, wanted: &Type) -> bool {
        match (self, wanted) {
            (Type::Dyn | Type::Open, _) | (_, Type::Dyn | Type::Open) => true,
            (Type::List(item), Type::List(wanted)) => item.fits(wanted),
            (Type::Map(key, value), Type::Map(wanted_key, wanted)) => {
                key.fits(wanted_key) && value.fits(wanted)
            }
            (Type::StringMap, Type::Map(key, value)) | (Type::Map(key, value), Type::StringMap) => {
                key.fits(&Type::String) && value.fits(&Type::String)
            }
            (actual, wanted) => actual == wanted,
        }
    }

    /// Returns the common type of values of either type.
    pub(crate) fn join(self, other: Type) -> Type {
        match (self, other) {
            (Type::Open, known) | (known, Type::Open) => known,
            (Type::List(a), Type::List(b)) => Type::List(Box::new(a.join(*b))),
            (a, b) if a == b => a,
            _ => Type::Dyn,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::List(item) => write!(f, "list({item})"),
            Type::Map(key, value) => write!(f, "map({key}, {value})"),
            Type::Object(name) => write!(f, "{name}.*"),
            Type::Dyn | Type::Open => f.write_str("dyn"),
            Type::Null => f.write_str("null"),
            Type::Uint => f.write_str("uint"),
            Type::Bytes => f.write_str("bytes"),
            Type::Meta => f.write_str("type"),
            other => other.value_type().fmt(f),
        }
    }
}
