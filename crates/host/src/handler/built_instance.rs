//! Instances that are ready for a call.

use std::{any::Any, borrow::Cow, fmt::Debug};

use mixer_adapter_core::template::SetField;
use prost::{DecodeError, Message};

/// An `InstanceMsg` of a template in this process, without its type.
pub trait LocalInstance: Any + SetField + Send + Sync + Debug {
    /// Returns a copy.
    fn copy(&self) -> Box<dyn LocalInstance>;
    /// Encodes the message.
    fn encode(&self) -> Vec<u8>;
    /// Returns the length of the encoded message.
    fn encoded_len(&self) -> usize;
}

impl<M: Message + SetField + Clone + Debug + 'static> LocalInstance for M {
    fn copy(&self) -> Box<dyn LocalInstance> {
        Box::new(self.clone())
    }

    fn encode(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    fn encoded_len(&self) -> usize {
        Message::encoded_len(self)
    }
}

/// An instance for a call.
#[derive(Debug)]
pub enum BuiltInstance {
    /// An encoded `InstanceMsg`.
    Encoded(Vec<u8>),
    /// A message for a handler of this process, and its encoded length.
    Local(Box<dyn LocalInstance>, usize),
}

impl BuiltInstance {
    /// Creates an instance for a handler of this process.
    pub fn local(message: Box<dyn LocalInstance>) -> Self {
        let length = message.encoded_len();
        Self::Local(message, length)
    }

    /// Takes the message, or decodes it.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub fn take<M: Message + Default + 'static>(&mut self) -> Result<M, DecodeError> {
        if let Self::Local(local, _) = self
            && let Some(message) = (&mut **local as &mut dyn Any).downcast_mut()
        {
            return Ok(std::mem::take(message));
        }
        M::decode(&*self.encoded())
    }

    /// Returns the encoded message.
    pub fn encoded(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Encoded(encoded) => encoded.into(),
            Self::Local(local, _) => local.encode().into(),
        }
    }

    /// Returns the length of the encoded message.
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Encoded(encoded) => encoded.len(),
            Self::Local(_, length) => *length,
        }
    }

    /// Returns the size in memory in bytes; that of a message is an estimate.
    pub fn size(&self) -> usize {
        match self {
            Self::Encoded(encoded) => encoded.capacity(),
            // Nodes of maps have room for eleven entries, and each text is an allocation.
            Self::Local(local, length) => size_of_val(&**local) + 8 * length,
        }
    }
}

impl Clone for BuiltInstance {
    fn clone(&self) -> Self {
        match self {
            Self::Encoded(encoded) => Self::Encoded(encoded.clone()),
            Self::Local(local, length) => Self::Local(local.copy(), *length),
        }
    }
}
