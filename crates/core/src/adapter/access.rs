//! The files and hosts that a configuration may reach.

use std::{
    fmt,
    net::IpAddr,
    path::{Component, Path, PathBuf, absolute},
    str::FromStr,
    sync::Arc,
};

use super::ConfigErrors;
use crate::framework::settings;

/// Decides which of the files and hosts that a configuration names may be reached.
///
/// The operator's files may name any file or host; a configuration from a call, a session or a configuration server only those that
/// flags allow.
///
/// [`Context`](super::Context) asks it for each file and host. An adapter with its own clients takes it from
/// [`Context::access`](super::Context::access).
#[derive(Clone, Debug)]
pub struct Access(Option<Arc<AccessLimits>>);

settings! {
    /// Limits on the files and hosts of a configuration. By default all are forbidden.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct AccessLimits {
        /// The directory that files must be under (`--file-root`).
        file_root: Option<PathBuf> = None,
        /// The hosts that may be connected to (`--allow-hosts`).
        hosts: HostList = HostList::default(),
        /// Maximum memory in bytes of the data that all handlers of such configurations fetch from these hosts.
        fetched_bytes: usize = 32 << 20,
    }
}

/// The location of a file that may be opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileLocation {
    /// The directory that must contain the file, whatever links are below it; `None` if it may be anywhere.
    pub root: Option<PathBuf>,
    /// The absolute path, which begins with the root.
    pub path: PathBuf,
}

impl Access {
    /// Allows every file and host.
    pub fn unrestricted() -> Self {
        Self(None)
    }

    /// Allows files and hosts within limits.
    pub fn limited(limits: AccessLimits) -> Self {
        Self(Some(Arc::new(limits)))
    }

    /// Returns whether there are limits.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Maximum memory in bytes of the data that all handlers with these limits fetch; `None` without limits.
    pub fn fetched_bytes(&self) -> Option<usize> {
        self.0.as_ref().map(|limits| limits.fetched_bytes)
    }

    /// Returns the location of the file that a field of the configuration names. The caller opens it below
    /// [`root`](FileLocation::root) without following links out of it.
    ///
    /// # Errors
    /// The field with the flag that would allow the file.
    pub fn file(&self, field: &str, path: &Path) -> Result<FileLocation, ConfigErrors> {
        let path = absolute(path)
            .map_err(|error| ConfigErrors::single(field, format!("{path:?} is not a path: {error}")))?;
        let Some(limits) = &self.0 else { return Ok(FileLocation { root: None, path }) };
        let setting = match &limits.file_root {
            Some(root) if is_below(&path, root) => {
                return Ok(FileLocation { root: Some(root.clone()), path });
            }
            Some(root) => format!("is {}", root.display()),
            None => "is not set".to_owned(),
        };
        let reason = format!(
            "{} may not be opened: a configuration from a call, a session or a server names files only under --file-root, which \
             {setting}",
            path.display()
        );
        Err(ConfigErrors::single(field, reason))
    }

    /// Checks the host that a field of the configuration names, a name or an address.
    ///
    /// # Errors
    /// The field with the flag that would allow the host.
    pub fn host(&self, field: &str, host: &str) -> Result<(), ConfigErrors> {
        if self.allows_host(host) {
            return Ok(());
        }
        let reason = format!(
            "{host} may not be connected to: a configuration from a call, a session or a server names only hosts in --allow-hosts"
        );
        Err(ConfigErrors::single(field, reason))
    }

    /// Returns whether a host may be connected to. Also applies to redirects.
    pub fn allows_host(&self, host: &str) -> bool {
        self.0.as_ref().is_none_or(|limits| limits.hosts.contains(host))
    }

    /// Returns whether an address of an [allowed host](Self::allows_host) may be connected to. Loopback and link-local addresses
    /// must be in the list themselves, except loopback addresses of `localhost`.
    pub fn allows_address(&self, host: &str, address: IpAddr) -> bool {
        self.0.as_ref().is_none_or(|limits| {
            let address = address.to_canonical();
            let by_name = address.is_loopback() && host.eq_ignore_ascii_case("localhost");
            !is_local(address) || limits.hosts.names(address) || by_name
        })
    }
}

/// Returns whether a path without `..` is below a directory.
fn is_below(path: &Path, root: &Path) -> bool {
    path.strip_prefix(root).is_ok_and(|below| {
        below.components().next().is_some()
            && below.components().all(|component| matches!(component, Component::Normal(_)))
    })
}

/// Returns whether an address belongs to this machine or its link.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}

/// A list of hosts: names, `*.example.com` for all names below a domain, and IP addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList(Vec<HostPattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Name(String),
    Below(String),
    Address(IpAddr),
}

/// An entry of a list of hosts that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a host; write a name such as lists.example.com, *.example.com, or an IP address, without a port"
)]
pub struct HostListError(String);

impl HostList {
    /// Returns whether the list has a host, a name or an address.
    fn contains(&self, host: &str) -> bool {
        let host = normal(host);
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.names(address.to_canonical());
        }
        self.0.iter().any(|pattern| match pattern {
            HostPattern::Name(name) => *name == host,
            HostPattern::Below(domain) => host
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.strip_suffix('.').is_some_and(|subdomain| !subdomain.is_empty())),
            HostPattern::Address(_) => false,
        })
    }

    /// Returns whether the list has this very address.
    fn names(&self, address: IpAddr) -> bool {
        self.0.contains(&HostPattern::Address(address))
    }
}

/// The form in which hosts are compared.
fn normal(host: &str) -> String {
    host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase()
}

impl FromStr for HostList {
    type Err = HostListError;

    /// Parses hosts that are separated by commas.
    fn from_str(text: &str) -> Result<Self, HostListError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(HostPattern::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl HostPattern {
    fn parse(entry: &str) -> Result<Self, HostListError> {
        let host = normal(entry);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let (name, below) = match host.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (host.as_str(), false),
        };
        let is_name = name.split('.').all(|label| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        });
        match (is_name, below) {
            (true, true) => Ok(Self::Below(name.to_owned())),
            (true, false) => Ok(Self::Name(name.to_owned())),
            (false, _) => Err(HostListError(entry.to_owned())),
        }
    }
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn limited(root: Option<&str>, hosts: &str) -> Access {
        let file_root = root.map(PathBuf::from);
        Access::limited(AccessLimits::default().file_root(file_root).hosts(hosts.parse().unwrap()))
    }

    #[test]
    fn files_are_allowed_below_the_root_only() {
        let access = limited(Some("/var/log/mixer"), "");
        let location = access.file("output_path", Path::new("/var/log/mixer/a/b.log")).unwrap();
        assert_eq!(location.root.as_deref(), Some(Path::new("/var/log/mixer")));
        for outside in
            ["/etc/passwd", "/var/log/mixer", "/var/log/mixer2/a", "/var/log/mixer/../a", "a", "/dev/stdout"]
        {
            let errors = access.file("output_path", Path::new(outside)).unwrap_err().into_violations();
            assert_eq!(errors[0].field, "output_path", "{outside}");
            assert!(
                errors[0].reason.contains("--file-root, which is /var/log/mixer"),
                "{}",
                errors[0].reason
            );
        }
        let unset = limited(None, "").file("output_path", Path::new("/a")).unwrap_err().to_string();
        assert!(unset.contains("--file-root, which is not set"), "{unset}");
        assert!(Access::unrestricted().file("output_path", Path::new("/etc/a")).is_ok());
    }

    #[test]
    fn hosts_are_allowed_by_name_domain_and_address() {
        let access = limited(None, "lists.example.com, *.example.org,192.0.2.1,::1");
        for host in [
            "lists.example.com",
            "LISTS.example.com.",
            "a.b.example.org",
            "192.0.2.1",
            "[::1]",
            "::ffff:192.0.2.1",
        ] {
            assert!(access.host("provider_url", host).is_ok(), "{host}");
        }
        for host in [
            "example.com",
            "example.org",
            ".example.org",
            "badexample.org",
            "192.0.2.2",
            "127.0.0.1",
            "localhost",
            "",
        ] {
            let error = access.host("provider_url", host).unwrap_err();
            assert!(error.to_string().contains("--allow-hosts"), "{error}");
        }
        assert!(Access::unrestricted().allows_host("anything"));
    }

    #[test]
    fn local_addresses_behind_an_allowed_name_must_be_in_the_list_themselves() {
        let allows = |hosts: &str, host: &str, address: &str| {
            limited(None, hosts).allows_address(host, address.parse().unwrap())
        };
        assert!(allows("a.example", "a.example", "192.0.2.1"));
        for local in
            ["127.0.0.1", "127.1.2.3", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", "::ffff:127.0.0.1"]
        {
            assert!(!allows("a.example", "a.example", local), "{local}");
        }
        assert!(allows("a.example,127.0.0.1", "a.example", "127.0.0.1"));
        assert!(allows("localhost", "localhost", "::1"));
        assert!(!allows("localhost", "localhost", "169.254.169.254"));
    }

    #[test]
    fn entries_that_are_not_hosts_are_refused() {
        for bad in ["http://a", "a:80", "a b", "*", "*.", "10.0.0.0/8"] {
            assert_eq!(HostList::from_str(bad), Err(HostListError(bad.to_owned())), "{bad}");
        }
    }
}
