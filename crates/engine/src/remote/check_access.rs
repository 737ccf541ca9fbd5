//! The hosts and files that the connection of a handler may use, by the origin of its configuration.

use std::{fs, path::Path};

use super::{address::Address, security, settings::Settings};
use mixer_adapter_core::adapter::{Access, ConfigErrors};

impl Settings {
    /// Checks the hosts and the files that the connection names.
    ///
    /// # Errors
    /// The fields with the flags that would allow them.
    pub(super) fn check_access(&self, access: &Access) -> Result<(), ConfigErrors> {
        const ADDRESS: &str = "connection.address";
        let address = match &self.address {
            Address::Host(address) => access.host(ADDRESS, &address.host),
            Address::Unix(path) => check_file(access, ADDRESS, path),
        };
        let files = self.security.iter().flat_map(security::Settings::files);
        let files = files.map(|(field, path)| check_file(access, &field, path));
        let token_host = self.security.as_ref().and_then(security::Settings::token_host);
        let token_host = token_host.map(|(field, host)| access.host(field, host));
        let mut errors = ConfigErrors::default();
        for refused in [address].into_iter().chain(files).chain(token_host).filter_map(Result::err) {
            for violation in refused.into_violations() {
                errors.push(violation.field, violation.reason);
            }
        }
        errors.into_result()
    }
}

/// Checks a file and, if it is limited to a directory, where its links lead.
fn check_file(access: &Access, field: &str, path: &Path) -> Result<(), ConfigErrors> {
    let location = access.file(field, path)?;
    let Some(root) = &location.root else { return Ok(()) };
    let leads_out = match (fs::canonicalize(root), fs::canonicalize(&location.path)) {
        (Ok(root), Ok(path)) => !path.starts_with(root),
        // There is nothing to read.
        _ => false,
    };
    if leads_out {
        let reason = format!("{location} is a link to a file outside --file-root");
        return Err(ConfigErrors::single(field, reason));
    }
    Ok(())
}
