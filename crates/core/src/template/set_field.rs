//! Sets values of instances, without the wire format.

use std::collections::BTreeMap;

use crate::value::{DnsName, Duration, EmailAddress, IpAddress, StringMap, TimeStamp, Uri, Value, ValueType};

/// A step on the path from an instance to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// The field of a message, by number. An entry of a map has the fields 1 and 2.
    Field(u32),
    /// The entry of a map.
    Key(Box<str>),
    /// The item of a list.
    Index(usize),
}

/// A message, or a field of one.
pub trait SetField {
    /// Sets the value at a path. Returns false if the value has another type, or the message has no such field, entry or item.
    fn set(&mut self, path: &[PathStep], value: Value) -> bool;
}

macro_rules! values {
    ($($value_type:ident: $kind:ident($field:ty)),* $(,)?) => {
        $(impl SetField for $field {
            fn set(&mut self, path: &[PathStep], value: Value) -> bool {
                let Value::$kind(value) = value else { return false };
                *self = value;
                path.is_empty()
            }
        })*

        /// Returns the empty value of a type.
        pub fn empty_value(value_type: ValueType) -> Value {
            match value_type {
                ValueType::Unspecified => Value::Unspecified,
                $(ValueType::$value_type => Value::$kind(Default::default()),)*
            }
        }
    };
}

values! {
    String: String(String),
    Int64: Int64(i64),
    Double: Double(f64),
    Bool: Bool(bool),
    IpAddress: IpAddress(IpAddress),
    Timestamp: TimeStamp(TimeStamp),
    Duration: Duration(Duration),
    EmailAddress: EmailAddress(EmailAddress),
    DnsName: DnsName(DnsName),
    Uri: Uri(Uri),
    StringMap: StringMap(StringMap),
}

impl SetField for Value {
    fn set(&mut self, path: &[PathStep], value: Value) -> bool {
        *self = value;
        path.is_empty()
    }
}

// A field of a recursive message.
impl<T: SetField> SetField for Box<T> {
    fn set(&mut self, path: &[PathStep], value: Value) -> bool {
        (**self).set(path, value)
    }
}

impl<T: SetField + Default> SetField for Option<T> {
    fn set(&mut self, path: &[PathStep], value: Value) -> bool {
        self.get_or_insert_default().set(path, value)
    }
}

impl<T: SetField> SetField for BTreeMap<String, T> {
    fn set(&mut self, path: &[PathStep], value: Value) -> bool {
        let [PathStep::Key(key), PathStep::Field(2), rest @ ..] = path else { return false };
        self.get_mut(&**key).is_some_and(|entry| entry.set(rest, value))
    }
}

impl<T: SetField> SetField for Vec<T> {
    fn set(&mut self, path: &[PathStep], value: Value) -> bool {
        let [PathStep::Index(index), rest @ ..] = path else { return false };
        self.get_mut(*index).is_some_and(|item| item.set(rest, value))
    }
}
