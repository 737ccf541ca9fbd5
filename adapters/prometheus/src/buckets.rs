//! The upper bounds of a distribution's buckets.

use super::params::metric_info::{
    BucketsDefinition,
    buckets_definition::{Definition, Exponential, Linear},
};

/// The bounds that the Go client takes where a handler says nothing.
const DEFAULT: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Each series holds a count a bucket.
const MOST: usize = 1_000;

/// The bounds but for the last, which is infinite; in ascending order.
pub(super) fn bounds(buckets: Option<&BucketsDefinition>) -> Result<Vec<f64>, String> {
    let mut bounds = match buckets.and_then(|buckets| buckets.definition.as_ref()) {
        None => return Ok(DEFAULT.to_vec()),
        Some(Definition::ExplicitBuckets(explicit)) if explicit.bounds.is_empty() => {
            return Ok(DEFAULT.to_vec());
        }
        Some(Definition::ExplicitBuckets(explicit)) => explicit.bounds.clone(),
        Some(Definition::LinearBuckets(Linear { num_finite_buckets, width, offset })) => {
            // Added up as the original does, which rounds otherwise than a product.
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
    if bounds.last() == Some(&f64::INFINITY) {
        bounds.pop();
    }
    if bounds.len() > MOST {
        return Err(format!("{} bounds are more than {MOST}", bounds.len()));
    }
    if !bounds.iter().all(|bound| bound.is_finite()) {
        return Err("a bound is infinite or no number".to_owned());
    }
    match bounds.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(format!("bounds must ascend, and {} comes before {}", pair[0], pair[1])),
        None => Ok(bounds),
    }
}

fn count(finite_buckets: i32) -> Result<usize, String> {
    match usize::try_from(finite_buckets) {
        Ok(count) if count < MOST => Ok(count + 1),
        _ => Err(format!("num_finite_buckets must be at least 0 and less than {MOST}, not {finite_buckets}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{super::params::metric_info::buckets_definition::Explicit, *};

    fn of(definition: Definition) -> Result<Vec<f64>, String> {
        bounds(Some(&BucketsDefinition { definition: Some(definition) }))
    }

    fn linear(num_finite_buckets: i32, width: f64, offset: f64) -> Result<Vec<f64>, String> {
        of(Definition::LinearBuckets(Linear { num_finite_buckets, width, offset }))
    }

    fn exponential(num_finite_buckets: i32, growth_factor: f64, scale: f64) -> Result<Vec<f64>, String> {
        of(Definition::ExponentialBuckets(Exponential { num_finite_buckets, growth_factor, scale }))
    }

    fn explicit(bounds: &[f64]) -> Result<Vec<f64>, String> {
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
    fn without_bounds_there_are_the_clients() {
        for bounds in [bounds(None), bounds(Some(&BucketsDefinition { definition: None })), explicit(&[])] {
            assert_eq!(bounds.unwrap(), [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
        }
    }

    #[test]
    fn an_infinite_last_bound_is_the_one_every_distribution_has() {
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
            (explicit(&[f64::NAN]), "a bound is infinite or no number"),
            (explicit(&(0..1001).map(f64::from).collect::<Vec<_>>()), "1001 bounds are more than 1000"),
        ] {
            let error = bounds.unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
