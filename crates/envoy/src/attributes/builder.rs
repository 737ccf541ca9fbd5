use std::net::IpAddr;

use mixer_adapter_core::value::ValueType;
use mixer_adapter_engine::attribute::{AttributeValue, Bag, parse_declared};

use super::host::HostError;
use crate::{
    proto::envoy::config::core::v3::{Address, address, socket_address},
    request_headers::EntryError,
};

/// Collects the attributes of a request.
pub(super) struct AttributeBuilder {
    bag: Bag,
}

/// A message without attributes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AttributeError {
    /// A configured value that is not of the type of its attribute.
    #[error("{origin} {name}: {value:?} is not a valid {value_type}")]
    Value {
        /// The part of the message.
        origin: &'static str,
        name: String,
        value: String,
        value_type: ValueType,
    },
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Header(#[from] EntryError),
}

impl AttributeBuilder {
    pub(super) fn new(bag: Bag) -> Self {
        Self { bag }
    }

    pub(super) fn finish(self) -> Bag {
        self.bag
    }

    /// Sets an attribute if it is declared.
    pub(super) fn set(&mut self, name: &str, value: impl Into<AttributeValue>) {
        self.bag.insert(name, value);
    }

    /// Sets an attribute if there is a value.
    pub(super) fn set_some(&mut self, name: &str, value: Option<impl Into<AttributeValue>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// Sets an attribute to a value that is computed only if the bag holds the attribute.
    pub(super) fn set_with<V: Into<AttributeValue>>(
        &mut self,
        name: &str,
        value: impl FnOnce() -> Option<V>,
    ) {
        self.bag.insert_with(name, value);
    }

    /// Sets a string attribute unless the text is empty, which in proto3 means absent.
    pub(super) fn set_text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.set(name, text);
        }
    }

    /// Sets the attributes of an IP address and its port; other kinds of addresses have neither.
    pub(super) fn set_address(&mut self, ip: &str, port: &str, address: Option<&Address>) {
        self.set_with(ip, || socket(address).map(|(ip, _)| ip));
        self.set_with(port, || socket(address)?.1);
    }

    /// Sets attributes by configured names; names that are not declared are ignored.
    ///
    /// # Errors
    /// A value is not of the declared type.
    pub(super) fn set_configured<'a>(
        &mut self,
        origin: &'static str,
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), AttributeError> {
        for (name, text) in values {
            let Some(declared) = self.bag.vocabulary().find(name) else { continue };
            let (slot, value_type) = (declared.slot, declared.value_type);
            let value = parse_declared(text, value_type).ok_or_else(|| {
                let (name, value) = (name.to_owned(), text.to_owned());
                AttributeError::Value { origin, name, value, value_type }
            })?;
            self.bag.set(slot, value);
        }
        Ok(())
    }

    /// Returns a string attribute.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(AttributeValue::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns whether an attribute is declared and used.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.bag.holds(name)
    }

    /// Returns whether the attribute has a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn get(&self, name: &str) -> Option<&AttributeValue> {
        self.bag.at(self.bag.vocabulary().find(name)?.slot)
    }
}

/// Returns the IP address and the port of a socket address.
pub(super) fn socket(address: Option<&Address>) -> Option<(IpAddr, Option<i64>)> {
    let address::Address::SocketAddress(socket) = address?.address.as_ref()?;
    let port = match &socket.port_specifier {
        Some(socket_address::PortSpecifier::PortValue(port)) => Some(i64::from(*port)),
        _ => None,
    };
    Some((socket.address.parse().ok()?, port))
}
