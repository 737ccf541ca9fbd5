//! Numbers of instance values.

use mixer_adapter_core::{
    adapter::Faults,
    value::{Value, ValueType, parse_float},
};

/// A value that is not a number.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// The instance has no value.
    #[error("it is absent")]
    Absent,
    /// A text that is not a number.
    #[error("{0:?} is not a number")]
    Text(String),
    /// A value of another type.
    #[error("a {0} is not a number")]
    Type(ValueType),
}

/// Converts a value to a number: durations to seconds, texts if they are numbers
/// (docs/behaviour/adapters.md#metrics-and-labels).
///
/// # Errors
/// Any other value.
pub fn amount(value: Option<&Value>) -> Result<f64, AmountError> {
    match value {
        None => Err(AmountError::Absent),
        Some(Value::Int64(number)) => Ok(*number as f64),
        Some(Value::Double(number)) => Ok(*number),
        Some(Value::Duration(duration)) => Ok(duration.nanos() as f64 / 1e9),
        Some(Value::String(text)) => parse_float(text).ok_or_else(|| AmountError::Text(text.clone())),
        Some(other) => Err(AmountError::Type(other.value_type())),
    }
}

/// Refuses a field with the name of an instance whose value, of a [`ValueType`], cannot be a number.
pub fn check_amount(faults: &mut Faults<'_>, field: String, instance: &str, value_type: i32) {
    use ValueType::{Double, Duration, Int64, String, Unspecified};
    if let Ok(value_type) = ValueType::try_from(value_type)
        && !matches!(value_type, Int64 | Double | Duration | String | Unspecified)
    {
        faults.push(field, format!("the value of {instance} is a {value_type}, which is not a number"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    // The values of TestProm_HandleMetrics.
    #[test]
    fn numbers_durations_and_numeric_texts_are_amounts() {
        let amount = |value: Value| amount(Some(&value)).unwrap();
        assert_eq!(amount(8.into()), 8.0);
        assert_eq!(amount(16.0.into()), 16.0);
        assert_eq!(amount(Duration::from_millis(386).into()), 0.386);
        assert_eq!(amount("8.243543".into()), 8.243_543);
        assert_eq!(amount("-Inf".into()), f64::NEG_INFINITY);
        assert_eq!(amount("1_000".into()), 1000.0);
        assert!(amount("nan".into()).is_nan());
    }

    // The values of TestProm_HandleMetricFailures.
    #[test]
    fn other_values_are_not() {
        assert_eq!(amount(Some(&true.into())).unwrap_err().to_string(), "a BOOL is not a number");
        assert_eq!(
            amount(Some(&"not a value".into())).unwrap_err().to_string(),
            "\"not a value\" is not a number"
        );
        assert_eq!(amount(Some(&"1e999".into())).unwrap_err().to_string(), "\"1e999\" is not a number");
        assert_eq!(amount(None).unwrap_err(), AmountError::Absent);
    }
}
