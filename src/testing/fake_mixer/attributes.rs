use std::collections::BTreeMap;

use mixer_adapter_engine::attribute::{AttributeValue, ParsedAttributes};

/// The attributes of a request, by name. The macro [`attributes!`](crate::attributes) makes them, and they are collected from
/// maps and iterators of names and values.
///
/// ```
/// use mixer_adapter::testing::Attributes;
/// use std::collections::HashMap;
/// let from_a_map: Attributes = HashMap::from([("request.path", "/x")]).into_iter().collect();
/// assert_eq!(from_a_map, mixer_adapter::attributes! { "request.path" => "/x" });
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(BTreeMap<String, AttributeValue>);

/// The attributes of a request: names and values of any type that converts into an
/// [`AttributeValue`](mixer_adapter_engine::attribute::AttributeValue).
///
/// ```
/// use mixer_adapter::testing::attributes;
/// use std::{net::Ipv4Addr, time::{Duration, SystemTime}};
/// attributes! {
///     "request.path" => "/x",
///     "request.size" => 42,
///     "request.time" => SystemTime::now(),
///     "request.headers" => [("x-user", "ada"), ("host", "example.com")],
///     "response.duration" => Duration::from_millis(3),
///     "source.ip" => Ipv4Addr::LOCALHOST,
///     "connection.mtls" => true,
/// };
/// ```
#[macro_export]
macro_rules! attributes {
    ($($name:expr => $value:expr),* $(,)?) => {
        $crate::testing::Attributes::default()$(.with($name, $value))*
    };
}

impl Attributes {
    /// Adds an attribute, or replaces the one with the same name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<AttributeValue>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    pub(super) fn into_written(self) -> ParsedAttributes {
        self.0.into_iter().collect()
    }
}

impl<K: Into<String>, V: Into<AttributeValue>> FromIterator<(K, V)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(attributes: I) -> Self {
        Self(attributes.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// A report of one request.
impl IntoIterator for Attributes {
    type Item = Self;
    type IntoIter = std::iter::Once<Self>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}
