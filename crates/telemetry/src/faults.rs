//! Instances of a report that are not delivered.

use std::fmt::Display;

use mixer_adapter_core::AdapterError;

use crate::{amount::AmountError, series::RecordError};

/// The maximum number of faults in the error of a report.
const FAULTS_NAMED: usize = 5;

/// A metric instance that was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// An instance that the configuration does not name.
    #[error("no metric is configured for the instance {0}")]
    NoMetric(String),
    /// A value that is not a number.
    #[error("the value of {instance}: {source}")]
    Value {
        /// The name of the instance.
        instance: String,
        /// The reason.
        source: AmountError,
    },
    /// A value that the metric cannot have.
    #[error("{instance}: {source}")]
    Record {
        /// The name of the instance.
        instance: String,
        /// The reason.
        source: RecordError,
    },
}

/// Makes the answer to a report of the outcomes of all its instances.
///
/// # Errors
/// INVALID_ARGUMENT with the first faults and the number of further ones.
pub fn report<E: Display>(outcomes: impl Iterator<Item = Result<(), E>>) -> Result<(), AdapterError> {
    let faults: Vec<E> = outcomes.filter_map(Result::err).collect();
    let named: Vec<String> = faults.iter().take(FAULTS_NAMED).map(ToString::to_string).collect();
    let named = named.join("; ");
    match faults.len().saturating_sub(FAULTS_NAMED) {
        _ if faults.is_empty() => Ok(()),
        0 => Err(AdapterError::invalid(named)),
        more => Err(AdapterError::invalid(format!("{named}; and {more} more"))),
    }
}
