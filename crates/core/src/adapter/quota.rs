use std::time::Duration;

use crate::{
    proto::{
        QuotaRequest, QuotaResult,
        istio::mixer::adapter::model::v1beta1::{quota_request::QuotaParams, quota_result},
    },
    template::{Breach, Malformed},
};

/// What a quota call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaArgs {
    /// How much; a negative amount releases what was allocated.
    pub amount: i64,
    /// Whether part of the amount will do.
    pub best_effort: bool,
    /// Names the call: the same call sent again has the same id and must count once. Not unique among unrelated calls
    /// of several Mixers (docs/behaviour/adapter-calls.md#deduplication-ids), and empty from clients that have none.
    pub dedup_id: String,
}

/// That amount, all or nothing, in a call without an id.
impl From<i64> for QuotaArgs {
    fn from(amount: i64) -> Self {
        Self { amount, best_effort: false, dedup_id: String::new() }
    }
}

/// The answer of a quota call.
///
/// ```
/// use mixer_adapter_core::Grant;
/// use std::time::Duration;
/// Grant::of(5).for_(Duration::from_secs(60));
/// Grant::nothing();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    granted: i64,
    valid_duration: Duration,
}

impl Grant {
    /// So much is granted (or, of a release, was released). Unless the request is best effort it must be all of the
    /// amount or nothing.
    pub fn of(amount: i64) -> Self {
        Self { granted: amount, valid_duration: Duration::ZERO }
    }

    /// Nothing is granted.
    pub fn nothing() -> Self {
        Self::of(0)
    }

    /// How long the grant holds; zero, the default, is "until it is released".
    #[must_use]
    pub fn for_(mut self, duration: Duration) -> Self {
        self.valid_duration = duration;
        self
    }

    /// The amount granted.
    pub fn amount(&self) -> i64 {
        self.granted
    }

    /// How long the grant holds.
    pub fn valid_duration(&self) -> Duration {
        self.valid_duration
    }
}

/// What a grant is held against, and the name it goes by in the answer: Mixer looks a grant up under the instance's
/// full name and takes a missing one for zero (docs/behaviour/adapter-calls.md#quota-answers).
#[derive(Clone, Debug)]
pub struct QuotaAsked {
    name: String,
    amount: i64,
    best_effort: bool,
}

impl QuotaAsked {
    /// Finds the instance's own entry in the request; the only entry of a request with one, whatever its name.
    #[doc(hidden)]
    pub fn new(
        instance: &str,
        request: Option<QuotaRequest>,
        dedup_id: String,
    ) -> Result<(QuotaArgs, Self), Malformed> {
        let quotas = request.ok_or(Malformed::NoQuotaRequest)?.quotas;
        let (name, QuotaParams { amount, best_effort }) = match quotas.get_key_value(instance) {
            Some((name, params)) => (name, params),
            None if quotas.is_empty() => return Err(Malformed::NoQuotaRequest),
            None if quotas.len() == 1 => quotas.iter().next().ok_or(Malformed::NoQuotaRequest)?,
            None => {
                return Err(Malformed::OtherQuotas {
                    instance: instance.to_owned(),
                    asked: quotas.into_keys().collect(),
                });
            }
        };
        let args = QuotaArgs { amount: *amount, best_effort: *best_effort, dedup_id };
        Ok((args, Self { name: name.clone(), amount: *amount, best_effort: *best_effort }))
    }

    /// The answer on the wire, if the grant keeps the contract.
    #[doc(hidden)]
    pub fn respond(self, Grant { granted, valid_duration }: Grant) -> Result<QuotaResult, Breach> {
        if granted < 0 {
            return Err(Breach::NegativeGrant { granted });
        }
        if !self.best_effort && 0 < granted && granted < self.amount {
            return Err(Breach::PartialGrant { asked: self.amount, granted });
        }
        let result = quota_result::Result {
            valid_duration: crate::value::Duration::from(valid_duration).value,
            granted_amount: granted,
            status: None,
        };
        Ok(QuotaResult { quotas: [(self.name, result)].into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(amount: i64, best_effort: bool) -> QuotaAsked {
        QuotaAsked { name: "q.instance.ns".to_owned(), amount, best_effort }
    }

    #[test]
    fn grants_are_keyed_by_the_instance() {
        let result = asked(3, false).respond(Grant::of(3)).expect("kept the contract");
        assert_eq!(result.quotas["q.instance.ns"].granted_amount, 3);
    }

    #[test]
    fn partial_grants_need_best_effort() {
        let breach = asked(3, false).respond(Grant::of(2)).expect_err("broke the contract");
        assert_eq!(breach, Breach::PartialGrant { asked: 3, granted: 2 });
        assert!(asked(3, true).respond(Grant::of(2)).is_ok());
        assert!(asked(3, false).respond(Grant::of(4)).is_ok());
        assert!(asked(3, false).respond(Grant::nothing()).is_ok());
        assert!(asked(-3, false).respond(Grant::of(2)).is_ok());
    }

    #[test]
    fn negative_grants_are_refused() {
        assert_eq!(asked(3, true).respond(Grant::of(-1)), Err(Breach::NegativeGrant { granted: -1 }));
    }

    #[test]
    fn the_instances_own_quota_is_chosen() {
        let params = |amount| QuotaParams { amount, best_effort: false };
        let request = |names: &[(&str, i64)]| QuotaRequest {
            quotas: names.iter().map(|(name, amount)| (name.to_string(), params(*amount))).collect(),
        };
        let amount =
            |request| QuotaAsked::new("a", Some(request), String::new()).map(|(args, _)| args.amount);
        assert_eq!(amount(request(&[("a", 1), ("b", 2)])), Ok(1));
        assert_eq!(amount(request(&[("b", 2)])), Ok(2));
        assert!(matches!(amount(request(&[("b", 2), ("c", 3)])), Err(Malformed::OtherQuotas { .. })));
        assert_eq!(amount(request(&[])), Err(Malformed::NoQuotaRequest));
    }
}
