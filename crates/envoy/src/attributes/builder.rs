use std::net::IpAddr;

use mixer_adapter_core::value::ValueType;
use mixer_adapter_engine::attribute::{AttributeValue, Bag, Standard, StringMap, parse_declared};

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
    pub(super) fn set(&mut self, attribute: Standard, value: impl Into<AttributeValue>) {
        self.set_with(attribute, || Some(value));
    }

    /// Sets an attribute if there is a value.
    pub(super) fn set_some(&mut self, attribute: Standard, value: Option<impl Into<AttributeValue>>) {
        if let Some(value) = value {
            self.set(attribute, value);
        }
    }

    /// Sets an attribute to a value that is computed only if the bag holds the attribute.
    pub(super) fn set_with<V: Into<AttributeValue>>(
        &mut self,
        attribute: Standard,
        value: impl FnOnce() -> Option<V>,
    ) {
        self.bag.set_standard(attribute, value);
    }

    /// Sets the map that a message names, which is computed only if the bag holds the attribute.
    pub(super) fn set_map(&mut self, name: &str, map: impl FnOnce() -> StringMap) {
        self.bag.insert_with(name, || Some(map()));
    }

    /// Sets a string attribute unless the text is empty, which in proto3 means absent.
    pub(super) fn set_text(&mut self, attribute: Standard, text: &str) {
        if !text.is_empty() {
            self.set(attribute, text);
        }
    }

    /// Sets the attributes of an IP address and its port; other kinds of addresses have neither.
    pub(super) fn set_address(&mut self, ip: Standard, port: Standard, address: Option<&Address>) {
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
    pub(super) fn text(&self, attribute: Standard) -> Option<&str> {
        match self.bag.standard(attribute) {
            Some(AttributeValue::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns whether an attribute is declared and used.
    pub(super) fn holds(&self, attribute: Standard) -> bool {
        self.bag.holds(attribute)
    }

    /// Returns whether the attribute has a value.
    pub(super) fn has(&self, attribute: Standard) -> bool {
        self.bag.standard(attribute).is_some()
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
