//! Attributes, which describe a request (docs/behaviour/configuration.md#attribute-vocabulary).
//!
//! A [`Vocabulary`] declares names and types and assigns each attribute a slot. A [`Bag`] holds the values of a request
//! by slot. [`Reads`] records which of them were read.

mod bag;
mod parse;
mod reads;
mod standard;
mod value;
mod vocabulary;

pub use bag::{Attributes, Bag, UsedSlots};
pub use parse::{
    ParseAttributesError, ParsedAttributes, parse_declared, parse_json, parse_logged, parse_pairs, parse_text,
};
pub use reads::{Reads, Reference};
pub(crate) use standard::ENVOY;
pub use standard::{Standard, StandardAttribute, standard_attributes};
pub use value::{AttributeValue, StringMap};
pub use vocabulary::{ConflictingTypesError, Declaration, Vocabulary};
