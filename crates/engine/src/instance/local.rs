//! Instances for adapters in this process. They are built from values, without the wire format.

use std::sync::Arc;

use mixer_adapter_core::template::{PathStep, empty_value};
use mixer_adapter_host::handler::LocalInstance;
use prost::encoding::{decode_key, decode_varint};
use prost_reflect::MessageDescriptor;

use super::{Field, Instance, InstanceError, Scalar, Source, encode::eval};
use crate::{
    attribute::{Attributes, Reads},
    wire,
};

/// An instance whose constants are decoded.
#[derive(Debug)]
pub(crate) struct LocalForm {
    constants: Box<dyn LocalInstance>,
    values: Vec<(Box<[PathStep]>, Arc<Source>)>,
}

impl LocalForm {
    /// Creates the form of an instance; `decode` decodes its constants. `None` if the adapter's message lacks one of the fields, or
    /// has another type for it.
    pub(crate) fn new(
        instance: &Instance,
        decode: impl FnOnce(&[u8]) -> Option<Box<dyn LocalInstance>>,
    ) -> Option<Self> {
        let (mut encoded, mut values) = (Vec::new(), Vec::new());
        split(&instance.fields, instance.template.instance(), &mut Vec::new(), &mut encoded, &mut values)?;
        let constants = decode(&encoded)?;
        let mut trial = constants.copy();
        let mut values_fit = values.iter().map(|(path, source): &(Box<[PathStep]>, Arc<Source>)| {
            trial.set(path, empty_value(source.expression.value_type()))
        });
        values_fit.all(|fits| fits).then_some(Self { constants, values })
    }

    /// Builds the instance for the given attributes.
    pub(crate) fn build(
        &self,
        attributes: Attributes<'_>,
        reads: &mut Reads,
    ) -> Result<Box<dyn LocalInstance>, InstanceError> {
        let mut built = self.constants.copy();
        for (path, source) in &self.values {
            let is_set = built.set(path, eval(source, attributes, reads)?.into());
            debug_assert!(is_set, "its type was checked");
        }
        Ok(built)
    }
}

/// Appends the constants of fields, with the messages, entries and items that the others are in, and collects the others. `None` for
/// fields that templates in a process do not have.
fn split(
    fields: &[Field],
    message: &MessageDescriptor,
    path: &mut Vec<PathStep>,
    constants: &mut Vec<u8>,
    values: &mut Vec<(Box<[PathStep]>, Arc<Source>)>,
) -> Option<()> {
    let depth = path.len();
    for (place, field) in fields.iter().enumerate() {
        match field {
            Field::Constant(bytes) | Field::ConstantValue(_, _, bytes) => constants.extend_from_slice(bytes),
            Field::Scalar(number, Scalar::String | Scalar::Int64 | Scalar::Double | Scalar::Bool, source)
            | Field::Typed(number, _, source) => {
                path.push(PathStep::Field(*number));
                values.push((path.as_slice().into(), source.clone()));
            }
            Field::Message(number, content) => {
                let field = message.get_field(*number)?;
                path.push(PathStep::Field(*number));
                if field.is_map() {
                    path.push(PathStep::Key(key(content)?));
                } else if field.is_list() {
                    let before = fields[..place].iter();
                    let is_item = |field: &&Field| matches!(field, Field::Message(of, _) if of == number);
                    path.push(PathStep::Index(before.filter(is_item).count()));
                }
                let kind = field.kind();
                wire::nested(*number, constants, |constants| {
                    kind.as_message()
                        .and_then(|inner| split(content, inner, path, constants, values))
                        .ok_or(())
                })
                .ok()?;
            }
            Field::Scalar(..) | Field::Packed(..) => return None,
        }
        path.truncate(depth);
    }
    Some(())
}

/// Returns the key of a map's entry.
fn key(entry: &[Field]) -> Option<Box<str>> {
    let Field::Constant(encoded) = entry.first()? else { return None };
    let mut rest = &encoded[..];
    decode_key(&mut rest).ok()?;
    decode_varint(&mut rest).ok()?;
    std::str::from_utf8(rest).ok().map(Into::into)
}
