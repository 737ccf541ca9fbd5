use mixer_adapter_host::handler::CallError;

/// How an adapter breaks a rule.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BrokenRuleError(pub(super) String);

impl From<String> for BrokenRuleError {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<CallError> for BrokenRuleError {
    fn from(error: CallError) -> Self {
        Self(error.to_string())
    }
}
