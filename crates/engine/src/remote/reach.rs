//! The hosts and files that the connection of a handler may use, by the origin of its configuration: it reads files and sends them as tokens, and
//! connects to hosts.

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
        let mut errors = ConfigErrors::default();
        let mut check = |checked: Result<(), ConfigErrors>| {
            for violation in checked.err().into_iter().flat_map(ConfigErrors::into_violations) {
                errors.push(violation.field, violation.reason);
            }
        };
        match &self.address {
            Address::Host(address) => check(access.host(ADDRESS, &address.host)),
            Address::Unix(path) => check(check_file(access, ADDRESS, path)),
        }
        for (field, path) in self.security.iter().flat_map(security::Settings::files) {
            check(check_file(access, &field, path));
        }
        if let Some((field, host)) = self.security.as_ref().and_then(security::Settings::token_host) {
            check(access.host(field, host));
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
    match leads_out {
        true => {
            Err(ConfigErrors::single(field, format!("{location} is a link to a file outside --file-root")))
        }
        false => Ok(()),
    }
}
