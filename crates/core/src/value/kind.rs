use std::fmt;

/// The type of an attribute: `istio.policy.v1beta1.ValueType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ValueType {
    /// VALUE_TYPE_UNSPECIFIED
    Unspecified = 0,
    /// STRING
    String = 1,
    /// INT64
    Int64 = 2,
    /// DOUBLE
    Double = 3,
    /// BOOL
    Bool = 4,
    /// TIMESTAMP
    Timestamp = 5,
    /// IP_ADDRESS
    IpAddress = 6,
    /// EMAIL_ADDRESS
    EmailAddress = 7,
    /// URI
    Uri = 8,
    /// DNS_NAME
    DnsName = 9,
    /// DURATION
    Duration = 10,
    /// STRING_MAP
    StringMap = 11,
}

const NAMES: [(ValueType, &str); 12] = [
    (ValueType::Unspecified, "VALUE_TYPE_UNSPECIFIED"),
    (ValueType::String, "STRING"),
    (ValueType::Int64, "INT64"),
    (ValueType::Double, "DOUBLE"),
    (ValueType::Bool, "BOOL"),
    (ValueType::Timestamp, "TIMESTAMP"),
    (ValueType::IpAddress, "IP_ADDRESS"),
    (ValueType::EmailAddress, "EMAIL_ADDRESS"),
    (ValueType::Uri, "URI"),
    (ValueType::DnsName, "DNS_NAME"),
    (ValueType::Duration, "DURATION"),
    (ValueType::StringMap, "STRING_MAP"),
];

impl ValueType {
    /// Returns the name in configuration, `IP_ADDRESS`.
    pub fn as_str_name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Returns the type with a name in configuration.
    pub fn from_str_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str_name())
    }
}
