//! Explains the params of an instance in a trace.

use super::Instance;
use crate::{
    attribute::{Attributes, Reads},
    trace::{Param, value_text},
};

impl Instance {
    /// Returns the strings in the params with their values for a request.
    pub(crate) fn explain(&self, attributes: Attributes<'_>) -> Vec<Param> {
        let constants = self.constants.iter().map(|constant| Param {
            field: constant.path.to_string(),
            text: constant.text.to_string(),
            is_literal: constant.is_literal,
            value: Some(value_text(&constant.value)),
            error: None,
        });
        let sources = self.sources();
        let evaluated = sources.iter().map(|source| {
            let value = source.expression.eval(attributes, &mut Reads::default());
            let (value, error) = match value {
                Ok(value) => (Some(value_text(&value.into())), None),
                Err(error) => (None, Some(error.to_string())),
            };
            let (field, text) = (source.path.to_string(), source.text.to_string());
            Param { field, text, is_literal: false, value, error }
        });
        let mut params: Vec<Param> = constants.chain(evaluated).collect();
        params.sort_by(|one, other| one.field.cmp(&other.field));
        params
    }
}
