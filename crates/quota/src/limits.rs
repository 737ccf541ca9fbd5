//! The configured limits.

use std::{collections::BTreeMap, time::Duration};

use mixer_adapter_core::{
    AdapterError,
    adapter::{Faults, LimitOverride},
    prost_types,
    value::Value,
};
use mixer_adapter_templates::Quota as QuotaTemplate;

use super::{literal::Literal, params::QuotaParams, warnings};

/// The maximum length of a window: a longer one is a mistake.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const YEAR: &str = "not be longer than 365 days (8760h)";

/// The default duration for which a repeated call is recognized
/// (docs/behaviour/adapters.md#deduplication-of-memquota).
const DEFAULT_DEDUPLICATION: Duration = Duration::from_secs(1);

/// The quotas of a valid configuration.
#[derive(Debug)]
pub struct Limits<E = ()> {
    quotas: BTreeMap<String, Quota<E>>,
    /// The minimum duration for which a repeated call is recognized.
    pub deduplication: Duration,
}

/// One quota: its limit, and the overrides of that.
#[derive(Debug)]
pub struct Quota<E = ()> {
    limit: Limit,
    overrides: Vec<Override>,
    /// What only this adapter has.
    pub extra: E,
}

#[derive(Debug)]
struct Override {
    dimensions: Vec<(String, Literal)>,
    limit: Limit,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The maximum amount in use; never negative.
    pub max: i64,
    /// How long an amount is in use; `None` means until it is released.
    pub valid: Option<Duration>,
}

impl<E> Limits<E> {
    /// Parses the fields `quotas` and `min_deduplication_duration`, and adds their errors to `faults`.
    pub fn parse(
        quotas: Vec<QuotaParams<'_, E>>,
        min_deduplication_duration: Option<prost_types::Duration>,
        faults: &mut Faults<'_>,
    ) -> Self {
        warnings::add(&quotas, faults);
        let names: Vec<&str> = quotas.iter().map(|quota| quota.name).collect();
        let mut read = BTreeMap::new();
        for (index, quota) in quotas.into_iter().enumerate() {
            let path = format!("quotas[{index}]");
            let name = quota.name;
            let quota = Quota::read(quota, &path, faults);
            if name.is_empty() {
                faults.push(format!("{path}.name"), "must be the name of a quota instance");
            }
            read.entry(name.to_owned()).or_insert(quota);
        }
        faults.unique("quotas", "name", names);
        let deduplication = faults
            .duration("min_deduplication_duration", min_deduplication_duration)
            .must("be longer than zero", |given| !given.is_zero())
            .must(YEAR, |given| *given <= LONGEST)
            .or(DEFAULT_DEDUPLICATION);
        let limits = Self { quotas: read, deduplication };
        for (instance, _) in faults.types().of::<QuotaTemplate>() {
            if limits.find(instance).is_none() {
                faults.push("quotas", limits.missing(instance));
            }
        }
        limits
    }

    /// Returns the quota of an instance: the entry with its full name, or else with the first part of the name.
    pub fn find(&self, instance: &str) -> Option<&Quota<E>> {
        let short = instance.split('.').next().unwrap_or_default();
        self.quotas.get(instance).or_else(|| self.quotas.get(short))
    }

    /// Returns the quota of the instance of a call.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it has none.
    pub fn of_call(&self, instance: &str) -> Result<&Quota<E>, AdapterError> {
        self.find(instance)
            .ok_or_else(|| AdapterError::invalid(format!("quotas: {}", self.missing(instance))))
    }

    /// Returns the reason of an instance without a quota.
    fn missing(&self, instance: &str) -> String {
        let known: Vec<&str> = self.quotas.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!("no entry for instance `{instance}`: add one with its name; there are entries for: {known}")
    }
}

impl<E> Quota<E> {
    fn read(quota: QuotaParams<'_, E>, path: &str, faults: &mut Faults<'_>) -> Self {
        let overrides = quota.overrides.iter().enumerate().map(|(index, given)| Override {
            dimensions: given
                .dimensions
                .iter()
                .map(|(name, text)| (name.clone(), Literal::new(text)))
                .collect(),
            limit: Limit::read(
                given.max_amount,
                given.valid_duration,
                &format!("{path}.overrides[{index}]"),
                faults,
            ),
        });
        let overrides = overrides.collect();
        let limit = Limit::read(quota.max_amount, quota.valid_duration, path, faults);
        Self { limit, overrides, extra: quota.extra }
    }

    /// Returns the limit for dimensions: from the first override whose dimensions all match, or else from the quota.
    pub fn limit(&self, dimensions: &BTreeMap<String, Value>) -> Limit {
        self.overrides
            .iter()
            .find(|given| given.dimensions.iter().all(|(name, literal)| literal.equals(dimensions.get(name))))
            .map_or(self.limit, |given| given.limit)
    }
}

impl Limit {
    /// Returns a limit that the caller sets; `None` for one without a window.
    pub fn given(limit: LimitOverride) -> Option<Self> {
        let valid = limit.window.min(LONGEST);
        (!valid.is_zero()).then_some(Self { max: limit.max_amount, valid: Some(valid) })
    }

    fn read(max: i64, valid: Option<prost_types::Duration>, path: &str, faults: &mut Faults<'_>) -> Self {
        let max =
            faults.number(format!("{path}.max_amount"), max).must("not be negative", |max| *max >= 0).or(0);
        let valid = faults.duration(format!("{path}.valid_duration"), valid);
        let valid = valid.must(YEAR, |given| *given <= LONGEST).optional();
        Self { max, valid: valid.filter(|valid| !valid.is_zero()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mixer_adapter_core::{
        adapter::{Access, ConfigErrors, InferredTypes},
        value::IpAddress,
    };

    use super::*;
    use crate::OverrideParams;

    fn quota(name: &str, max_amount: i64) -> QuotaParams<'_> {
        QuotaParams { name, max_amount, valid_duration: None, overrides: Vec::new(), extra: () }
    }

    fn parse(
        quotas: Vec<QuotaParams<'_>>,
        deduplication: Option<prost_types::Duration>,
    ) -> Result<Limits, ConfigErrors> {
        let (types, access) = (InferredTypes::default(), Access::unrestricted());
        let mut faults = Faults::new(&types, &access);
        let limits = Limits::parse(quotas, deduplication, &mut faults);
        faults.into_errors().into_result().map(|()| limits)
    }

    /// TestHandler_Limit: (what the override demands, the instance's dimensions, whether the override is taken).
    #[test]
    fn the_first_override_whose_dimensions_all_match_is_taken() {
        let ip = Value::from(IpAddress { value: vec![192, 10, 1, 118].into() });
        type Case = (&'static str, Vec<(&'static str, &'static str)>, Vec<(&'static str, Value)>, i64);
        let cases: [Case; 5] = [
            ("match", vec![("destination", "dest1")], vec![("destination", "dest1".into())], 75),
            ("other value", vec![("destination", "dest1")], vec![("destination", "dest2".into())], 42),
            ("address", vec![("source.ip", "192.10.1.118")], vec![("source.ip", ip)], 75),
            ("missing dimension", vec![("destination", "dest1")], vec![("source", "src1".into())], 42),
            ("no dimensions match all", vec![], vec![("destination", "dest2".into())], 75),
        ];
        for (name, demanded, given, max) in cases {
            let demanded = demanded.iter().map(|(name, text)| (name.to_string(), text.to_string()));
            let dimensions = demanded.collect();
            let given_limit =
                OverrideParams { dimensions: &dimensions, max_amount: 75, valid_duration: None };
            let quota = QuotaParams { overrides: vec![given_limit], ..quota("q", 42) };
            let limits = parse(vec![quota], None).unwrap();
            let dimensions = given.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(limits.find("q").unwrap().limit(&dimensions).max, max, "{name}");
        }
    }

    #[test]
    fn a_quota_is_found_by_the_full_name_before_the_first_part_of_it() {
        let quotas = vec![quota("requestcount", 1), quota("requestcount.instance.istio-system", 2)];
        let limits = parse(quotas, None).unwrap();
        let max = |name| limits.find(name).map(|quota| quota.limit(&BTreeMap::new()).max);
        assert_eq!(max("requestcount.instance.istio-system"), Some(2));
        assert_eq!(max("requestcount.quota.istio-system"), Some(1));
        assert_eq!(max("requestcount"), Some(1));
        assert_eq!(max("other.instance.istio-system"), None);
    }

    #[test]
    fn calls_are_deduplicated_for_a_second_by_default() {
        assert_eq!(parse(Vec::new(), None).unwrap().deduplication, Duration::from_secs(1));
    }

    #[test]
    fn each_fault_names_its_field() {
        let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let dimensions = BTreeMap::new();
        let long =
            OverrideParams { dimensions: &dimensions, max_amount: -1, valid_duration: seconds(i64::MAX) };
        let quotas = vec![
            QuotaParams { valid_duration: seconds(-1), ..quota("", -1) },
            quota("a", 0),
            QuotaParams { overrides: vec![long], ..quota("a", 0) },
        ];
        let violations = parse(quotas, seconds(0)).unwrap_err().into_violations();
        let fields: Vec<&str> = violations.iter().map(|violation| violation.field.as_str()).collect();
        let expected = [
            "quotas[0].max_amount",
            "quotas[0].valid_duration",
            "quotas[0].name",
            "quotas[2].overrides[0].max_amount",
            "quotas[2].overrides[0].valid_duration",
            "quotas[2].name",
            "min_deduplication_duration",
        ];
        assert_eq!(fields, expected);
    }
}
