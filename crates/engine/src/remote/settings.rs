use std::time::Duration;

use super::{address::Address, security};
use mixer_adapter_config::proto::istio::policy::v1beta1::Connection;
use mixer_adapter_core::adapter::ConfigErrors;

/// The parsed `connection` of a handler.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) timeout: Option<Duration>,
    pub(super) security: Option<security::Settings>,
}

impl Settings {
    /// Validates a connection without its files and the network. The fields in the errors are relative to the handler, such as
    /// `connection.authentication.tls.token_path`.
    pub(super) fn read(connection: &Connection) -> Result<Self, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let address = Address::parse(&connection.address)
            .map_err(|error| errors.push("connection.address", error.to_string()))
            .ok();
        let timeout = connection.timeout.and_then(|timeout| {
            let timeout = Duration::try_from(timeout).ok().filter(|timeout| !timeout.is_zero());
            if timeout.is_none() {
                errors.push("connection.timeout", "must be longer than 0s; omit it for no limit");
            }
            timeout
        });
        let security = connection
            .authentication
            .as_ref()
            .and_then(|authentication| security::Settings::read(authentication, &mut errors));
        match (address, errors.into_result()) {
            (Some(address), Ok(())) => Ok(Self { address, timeout, security }),
            (_, Err(errors)) => Err(errors),
            (None, Ok(())) => Err(ConfigErrors::single("connection.address", "is missing")),
        }
    }
}

#[cfg(all(test, not(feature = "tls")))]
mod tests {
    use super::*;

    #[test]
    fn authentication_is_an_error_without_the_feature_tls() {
        let address = "adapter:9091".to_owned();
        let connection = Connection { address, timeout: None, authentication: Some(Default::default()) };
        let error = Settings::read(&connection).map_err(|error| error.to_string());
        assert!(
            error.is_err_and(|error| error.starts_with("connection.authentication: this build has no TLS"))
        );
    }
}
