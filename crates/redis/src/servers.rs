//! The servers that a URL names.

use http::uri::Authority;
use mixer_adapter_core::framework::is_this_machine;

const PORT: u16 = 6379;

/// A host and a port.
pub type Address = (String, u16);

/// How Redis is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// The topology of the servers.
    pub topology: Topology,
    /// Their addresses.
    pub addresses: Vec<Address>,
    /// Whether they speak TLS.
    pub tls: bool,
    /// The database.
    pub database: i64,
    /// The user; the default user if empty.
    pub username: String,
    /// The path of a file with the password; none if empty.
    pub password_file: String,
    /// The path of a file with the password of the Sentinels; none if empty.
    pub sentinel_password_file: String,
    /// The path of a file with the certificates that sign the servers'; if empty, the system's certificates.
    pub ca_file: String,
}

/// The topology of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server with all keys.
    Single,
    /// Sentinels that know the server with this name.
    Sentinel(String),
    /// Nodes of a cluster.
    Cluster,
}

/// A URL that names no servers. Its text is not shown, because it could have a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It is not the URL of a Redis.
    #[error("is not the URL of a Redis; write it like `redis://host:6379/0` or `rediss://host:6379`")]
    Invalid,
    /// It has a user name or a password.
    #[error("must not have a user name or a password; they are in username and password_file")]
    UserInfo,
    /// Its database is not one.
    #[error("must have a database from 0 to 9999 after the host: `redis://host:6379/0`")]
    Database,
}

impl Servers {
    /// Parses `redis://host:6379/0`, or `rediss://` for TLS, with several hosts between commas.
    ///
    /// # Errors
    /// The URL names no servers.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::Invalid)?;
        let tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(UrlError::Invalid),
        };
        if rest.contains('@') {
            return Err(UrlError::UserInfo);
        }
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let database = match database {
            "" => 0,
            number => {
                number.parse().ok().filter(|number| (0..=9999).contains(number)).ok_or(UrlError::Database)?
            }
        };
        let addresses = hosts.split(',').map(|host| {
            let authority: Authority = host.parse().map_err(|_| UrlError::Invalid)?;
            let name = authority.host().trim_matches(['[', ']']);
            // `host:` and `host:port` with another port than a number have none.
            let has_port = authority.as_str().len() > authority.host().len();
            let port = if has_port { authority.port_u16().ok_or(UrlError::Invalid)? } else { PORT };
            if name.is_empty() { Err(UrlError::Invalid) } else { Ok((name.to_owned(), port)) }
        });
        Ok(Self {
            topology: Topology::Single,
            addresses: addresses.collect::<Result<_, _>>()?,
            tls,
            database,
            username: String::new(),
            password_file: String::new(),
            sentinel_password_file: String::new(),
            ca_file: String::new(),
        })
    }

    /// Returns whether a password can be sent to another machine without TLS. Sentinels and nodes of a cluster on this machine can name
    /// servers on others.
    pub fn exposes_password(&self) -> bool {
        let is_local = self.addresses.iter().all(|(host, _)| is_this_machine(host));
        let is_server_local = is_local && self.topology == Topology::Single;
        !self.tls
            && (!self.password_file.is_empty() && !is_server_local
                || !self.sentinel_password_file.is_empty() && !is_local)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn without_tls_passwords_are_for_servers_that_the_url_names_on_this_machine() {
        let sentinel = || Topology::Sentinel("quotas".to_owned());
        for (url, topology, exposes, exposes_of_sentinels) in [
            ("redis://127.0.0.1", Topology::Single, false, false),
            ("redis://[::1],localhost", sentinel(), true, false),
            ("redis://127.0.0.1", Topology::Cluster, true, false),
            ("redis://host", Topology::Single, true, true),
            ("redis://127.0.0.1,host", sentinel(), true, true),
            ("rediss://host", Topology::Single, false, false),
            ("rediss://host", sentinel(), false, false),
            ("rediss://host", Topology::Cluster, false, false),
        ] {
            let named = Servers { topology, ..Servers::parse(url).unwrap() };
            let file = || "file".to_owned();
            let of_server = Servers { password_file: file(), ..named.clone() };
            let of_sentinels = Servers { sentinel_password_file: file(), ..named.clone() };
            assert!(!named.exposes_password(), "{named:?}");
            assert_eq!(of_server.exposes_password(), exposes, "{of_server:?}");
            assert_eq!(of_sentinels.exposes_password(), exposes_of_sentinels, "{of_sentinels:?}");
        }
    }
}
