//! Attributes: what a request is described by (docs/behaviour/configuration.md#attribute-vocabulary).
//!
//! A [`Vocabulary`] says which attributes exist and of which type each is. A [`Bag`] holds one request's values, by
//! the slot the vocabulary gave each name. [`Reads`] remembers which of them were looked at.

mod bag;
mod reads;
mod value;
mod vocabulary;
mod written;

pub use bag::{Attributes, Bag};
pub use reads::{Reads, Reference};
pub use value::{AttributeValue, StringMap};
pub use vocabulary::{Conflict, Declaration, Vocabulary};
pub use written::{Unreadable, Written, read_json, read_pairs, read_text};
