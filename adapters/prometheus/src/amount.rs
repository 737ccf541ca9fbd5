use mixer_adapter_core::value::{Value, ValueType, parse_float};

/// The number that a value stands for: durations in seconds, texts if they are numbers
/// (docs/behaviour/adapters.md#metrics-and-labels).
pub(super) fn amount(value: Option<&Value>) -> Result<f64, String> {
    match value {
        None => Err("there is none".to_owned()),
        Some(Value::Int64(number)) => Ok(*number as f64),
        Some(Value::Double(number)) => Ok(*number),
        Some(Value::Duration(duration)) => Ok(duration.nanos() as f64 / 1e9),
        Some(Value::String(text)) => parse_float(text).ok_or_else(|| format!("{text:?} is no number")),
        Some(other) => Err(format!("a {} is no number", other.value_type())),
    }
}

/// Whether values of that type can be numbers.
pub(super) fn may_be_amount(value_type: ValueType) -> bool {
    matches!(value_type, ValueType::Int64 | ValueType::Double | ValueType::Duration | ValueType::String)
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
        assert_eq!(amount("8.243543".into()), 8.243543);
        assert_eq!(amount("-Inf".into()), f64::NEG_INFINITY);
        assert_eq!(amount("1_000".into()), 1000.0);
        assert!(amount("nan".into()).is_nan());
    }

    // The values of TestProm_HandleMetricFailures.
    #[test]
    fn the_rest_is_not() {
        assert_eq!(amount(Some(&true.into())).unwrap_err(), "a BOOL is no number");
        assert_eq!(amount(Some(&"not a value".into())).unwrap_err(), "\"not a value\" is no number");
        assert_eq!(amount(Some(&"1e999".into())).unwrap_err(), "\"1e999\" is no number");
        assert_eq!(amount(None).unwrap_err(), "there is none");
    }
}
