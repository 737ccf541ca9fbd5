use crate::{
    Grant, QuotaRequest,
    adapter::LimitOverride,
    proto::{self, QuotaResult, istio::mixer::adapter::model::v1beta1::quota_result},
    template::{InvalidAnswerError, MalformedRequestError},
    value::Duration,
};

/// The part of a quota call that its grant is validated against, and the name under which the grant is returned.
///
/// Mixer looks a grant up by the instance's full name and takes a missing one for zero
/// (docs/behaviour/adapter-calls.md#quota-answers).
#[derive(Clone, Debug)]
pub struct QuotaContext {
    name: String,
    amount: i64,
    best_effort: bool,
}

impl QuotaContext {
    /// Splits a call into the request for the handler and the context of its grant. The entry used is the instance's
    /// own, or the only one, whatever its name.
    pub fn new(
        instance: &str,
        request: Option<proto::QuotaRequest>,
        dedup_id: String,
    ) -> Result<(QuotaRequest, Self), MalformedRequestError> {
        let quotas = request.ok_or(MalformedRequestError::NoQuotaRequest)?.quotas;
        let (name, params) = match quotas.get_key_value(instance) {
            Some(own) => own,
            None if quotas.len() <= 1 => quotas.iter().next().ok_or(MalformedRequestError::NoQuotaRequest)?,
            None => {
                return Err(MalformedRequestError::OtherQuotas {
                    instance: instance.to_owned(),
                    requested: quotas.into_keys().collect(),
                });
            }
        };
        let request = QuotaRequest {
            amount: params.amount,
            best_effort: params.best_effort,
            dedup_id,
            report_limit: params.report_limit,
            past_limit: params.past_limit,
            limit: params.limit.and_then(|limit| {
                let window = std::time::Duration::try_from(limit.window?).ok()?;
                Some(LimitOverride { max_amount: limit.max_amount.max(0), window })
            }),
        };
        let context = Self { name: name.clone(), amount: params.amount, best_effort: params.best_effort };
        Ok((request, context))
    }

    /// Encodes a grant.
    ///
    /// # Errors
    /// The grant is negative, or partial without best effort.
    pub fn respond(self, grant: Grant) -> Result<QuotaResult, InvalidAnswerError> {
        let granted = grant.granted();
        if granted < 0 {
            return Err(InvalidAnswerError::NegativeGrant { granted });
        }
        if !self.best_effort && 0 < granted && granted < self.amount {
            return Err(InvalidAnswerError::PartialGrant { requested: self.amount, granted });
        }
        let result = quota_result::Result {
            valid_duration: Duration::from(grant.valid_duration()).value,
            granted_amount: granted,
            status: None,
            limit: grant.limit().map(|limit| quota_result::Limit {
                max_amount: limit.max_amount,
                remaining: limit.remaining,
                window: limit.window.and_then(|window| Duration::from(window).value),
                reset_after: limit.reset_after.and_then(|time| Duration::from(time).value),
            }),
        };
        Ok(QuotaResult { quotas: [(self.name, result)].into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::istio::mixer::adapter::model::v1beta1::quota_request::QuotaParams;

    fn context(amount: i64, best_effort: bool) -> QuotaContext {
        QuotaContext { name: "q.instance.ns".to_owned(), amount, best_effort }
    }

    #[test]
    fn grants_are_keyed_by_the_instance() {
        let result = context(3, false).respond(Grant::amount(3)).expect("a valid grant");
        assert_eq!(result.quotas["q.instance.ns"].granted_amount, 3);
    }

    #[test]
    fn partial_grants_need_best_effort() {
        let partial = context(3, false).respond(Grant::amount(2)).expect_err("a partial grant");
        assert_eq!(partial, InvalidAnswerError::PartialGrant { requested: 3, granted: 2 });
        assert!(context(3, true).respond(Grant::amount(2)).is_ok());
        assert!(context(3, false).respond(Grant::amount(4)).is_ok());
        assert!(context(3, false).respond(Grant::nothing()).is_ok());
        assert!(context(-3, false).respond(Grant::amount(2)).is_ok());
    }

    #[test]
    fn negative_grants_are_refused() {
        let negative = context(3, true).respond(Grant::amount(-1));
        assert_eq!(negative, Err(InvalidAnswerError::NegativeGrant { granted: -1 }));
    }

    #[test]
    fn the_instances_own_quota_is_chosen() {
        let params = |amount| QuotaParams { amount, ..QuotaParams::default() };
        let request = |names: &[(&str, i64)]| proto::QuotaRequest {
            quotas: names.iter().map(|(name, amount)| (name.to_string(), params(*amount))).collect(),
        };
        let amount =
            |request| QuotaContext::new("a", Some(request), String::new()).map(|(request, _)| request.amount);
        assert_eq!(amount(request(&[("a", 1), ("b", 2)])), Ok(1));
        assert_eq!(amount(request(&[("b", 2)])), Ok(2));
        let others = amount(request(&[("b", 2), ("c", 3)]));
        assert!(matches!(others, Err(MalformedRequestError::OtherQuotas { .. })));
        assert_eq!(amount(request(&[])), Err(MalformedRequestError::NoQuotaRequest));
    }
}
