use super::{Field, ParamsError, Typed, encode};
use mixer_adapter_core::value::Value;

/// A string in params that is the same for every request.
#[derive(Debug)]
pub(super) struct Constant {
    pub(super) path: Box<str>,
    /// The source.
    pub(super) text: Box<str>,
    /// Whether it is a literal, the text between quotes, and not an expression.
    pub(super) is_literal: bool,
    pub(super) value: Value,
}

impl Constant {
    pub(super) fn literal(path: &str, text: &str, literal: &str) -> Self {
        Self { path: path.into(), text: text.into(), is_literal: true, value: literal.into() }
    }
}

/// Evaluates a field whose expression is constant and records the constant; returns other fields unchanged.
pub(super) fn fold(field: Field, constants: &mut Vec<Constant>) -> Result<Field, Vec<ParamsError>> {
    let (Field::Scalar(number, _, source) | Field::Typed(number, _, source)) = &field else {
        return Ok(field);
    };
    let Some(value) = source.expression.constant() else { return Ok(field) };
    let mut bytes = Vec::new();
    encode::value(&field, &value, &mut bytes)
        .map_err(|error| vec![ParamsError::new(&source.path, error.to_string())])?;
    let value_type = value.value_type();
    constants.push(Constant {
        path: source.path.clone(),
        text: source.text.clone(),
        is_literal: false,
        value: value.into(),
    });
    Ok(match &field {
        Field::Typed(_, Typed::Value, _) => Field::ConstantValue(*number, value_type, bytes),
        _ => Field::Constant(bytes),
    })
}
