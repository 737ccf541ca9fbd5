//! The bounds of a distribution's buckets.

use mixer_adapter_telemetry::series::{BoundsError, DEFAULT_BOUNDS, MAX_BUCKETS, check_bounds};

use super::params::metric_info::{
    BucketsDefinition,
    buckets_definition::{Definition, Exponential, Linear},
};

/// A definition of buckets that is not valid.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum BucketsError {
    #[error("num_finite_buckets must be at least 0 and less than {MAX_BUCKETS}, not {0}")]
    Count(i32),
    #[error(transparent)]
    Bounds(#[from] BoundsError),
}

/// Returns the upper bounds in ascending order, without the last one, which is infinite.
pub(super) fn bounds(buckets: Option<&BucketsDefinition>) -> Result<Vec<f64>, BucketsError> {
    let bounds = match buckets.and_then(|buckets| buckets.definition.as_ref()) {
        None => return Ok(DEFAULT_BOUNDS.to_vec()),
        Some(Definition::ExplicitBuckets(explicit)) if explicit.bounds.is_empty() => {
            return Ok(DEFAULT_BOUNDS.to_vec());
        }
        Some(Definition::ExplicitBuckets(explicit)) => explicit.bounds.clone(),
        Some(Definition::LinearBuckets(Linear { num_finite_buckets, width, offset })) => {
            // Added up as in the original, because a product is rounded differently.
            std::iter::successors(Some(*offset), |bound| Some(bound + width))
                .take(count(*num_finite_buckets)?)
                .collect()
        }
        Some(Definition::ExponentialBuckets(Exponential { num_finite_buckets, growth_factor, scale })) => {
            std::iter::successors(Some(*scale), |bound| Some(bound * growth_factor))
                .take(count(*num_finite_buckets)?)
                .collect()
        }
    };
    Ok(check_bounds(bounds)?)
}

fn count(finite_buckets: i32) -> Result<usize, BucketsError> {
    match usize::try_from(finite_buckets) {
        Ok(count) if count < MAX_BUCKETS => Ok(count + 1),
        _ => Err(BucketsError::Count(finite_buckets)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{super::params::metric_info::buckets_definition::Explicit, *};

    fn of(definition: Definition) -> Result<Vec<f64>, BucketsError> {
        bounds(Some(&BucketsDefinition { definition: Some(definition) }))
    }

    fn linear(num_finite_buckets: i32, width: f64, offset: f64) -> Result<Vec<f64>, BucketsError> {
        of(Definition::LinearBuckets(Linear { num_finite_buckets, width, offset }))
    }

    fn exponential(
        num_finite_buckets: i32,
        growth_factor: f64,
        scale: f64,
    ) -> Result<Vec<f64>, BucketsError> {
        of(Definition::ExponentialBuckets(Exponential { num_finite_buckets, growth_factor, scale }))
    }

    fn explicit(bounds: &[f64]) -> Result<Vec<f64>, BucketsError> {
        of(Definition::ExplicitBuckets(Explicit { bounds: bounds.to_vec() }))
    }

    // TestBucket of prometheus_test.go, and the largest of its other distributions.
    #[test]
    fn bounds_are_those_of_the_original() {
        assert_eq!(linear(1, 1.0, 4.0).unwrap(), [4.0, 5.0]);
        // Recorded.
        assert_eq!(linear(3, 0.1, -1.0).unwrap(), [-1.0, -0.9, -0.8, -0.700_000_000_000_000_1]);
        assert_eq!(explicit(&[6.0, 7.0]).unwrap(), [6.0, 7.0]);
        assert_eq!(exponential(3, 3.0, 4.0).unwrap(), [4.0, 12.0, 36.0, 108.0]);
        assert_eq!(exponential(198, 2.0, 0.14).unwrap().len(), 199);
    }

    #[test]
    fn the_default_bounds_are_those_of_the_go_client() {
        for bounds in [bounds(None), bounds(Some(&BucketsDefinition { definition: None })), explicit(&[])] {
            assert_eq!(bounds.unwrap(), [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
        }
    }

    #[test]
    fn an_infinite_last_bound_is_implied() {
        assert_eq!(explicit(&[1.0, f64::INFINITY]).unwrap(), [1.0]);
    }

    #[test]
    fn bounds_that_do_not_ascend_are_refused() {
        for (bounds, reason) in [
            (linear(2, 0.0, 4.0), "bounds must ascend, and 4 comes before 4"),
            (linear(-1, 1.0, 4.0), "num_finite_buckets must be at least 0 and less than 1000, not -1"),
            (linear(i32::MAX, 1.0, 4.0), "num_finite_buckets must be"),
            (exponential(3, 1.0, 4.0), "bounds must ascend"),
            (exponential(3, 2.0, 0.0), "bounds must ascend"),
            (exponential(900, 1e10, 1.0), "a bound is infinite"),
            (explicit(&[2.0, 1.0]), "bounds must ascend, and 2 comes before 1"),
            (explicit(&[f64::NAN]), "a bound is infinite or not a number"),
            (explicit(&(0..1001).map(f64::from).collect::<Vec<_>>()), "1001 bounds are more than 1000"),
        ] {
            let error = bounds.unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
