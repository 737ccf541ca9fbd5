use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::pending,
    sync::Arc,
};

use http::HeaderMap;
use tonic::Status;

#[cfg(feature = "tls")]
use crate::JwtVerifier;
use crate::{Connection, Tokens, connections::ConnectionState};

/// Who may call what.
///
/// A client is known by a SAN of its certificate, or by its token. Paths belong to groups, such as the services of one kind.
#[derive(Debug)]
pub struct Authorization {
    sans: Option<BTreeSet<String>>,
    tokens: Option<Arc<Tokens>>,
    #[cfg(feature = "tls")]
    jwt: Option<Arc<JwtVerifier>>,
    /// The names that may call the paths of a group. Other groups are open to any authenticated client.
    groups: BTreeMap<&'static str, BTreeSet<String>>,
    group_of: fn(&str) -> Option<&'static str>,
    certificates: bool,
}

impl Authorization {
    /// Lets every client call everything. `group_of` names the group of a path; paths without a group are open to everybody.
    pub fn open(group_of: fn(&str) -> Option<&'static str>) -> Self {
        Self {
            sans: None,
            tokens: None,
            #[cfg(feature = "tls")]
            jwt: None,
            groups: BTreeMap::new(),
            group_of,
            certificates: false,
        }
    }

    /// Authenticates clients by certificate. If `names` is not empty, the certificate must have a SAN in it.
    #[must_use]
    pub fn with_certificates(self, sans: Vec<String>) -> Self {
        let sans = (!sans.is_empty()).then(|| sans.into_iter().collect());
        Self { sans, certificates: true, ..self }
    }

    /// Knows clients by tokens.
    #[must_use]
    pub fn with_tokens(self, tokens: Arc<Tokens>) -> Self {
        Self { tokens: Some(tokens), ..self }
    }

    /// Knows clients by JSON Web Tokens.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_jwt(self, jwt: Arc<JwtVerifier>) -> Self {
        Self { jwt: Some(jwt), ..self }
    }

    /// Lets only clients with this name call the paths of a group; called again, those with any of the names.
    #[must_use]
    pub fn with_name(mut self, group: &'static str, name: String) -> Self {
        self.groups.entry(group).or_default().insert(name);
        self
    }

    /// Whether clients are authenticated.
    pub fn authenticates(&self) -> bool {
        self.certificates || self.knows_tokens()
    }

    /// Reads the files of tokens and keys again.
    pub fn reload(&self) {
        if let Some(tokens) = &self.tokens {
            tokens.reload();
        }
        #[cfg(feature = "tls")]
        if let Some(jwt) = &self.jwt {
            jwt.reload();
        }
    }

    /// Follows the files of tokens and keys.
    pub async fn watch(&self) -> Infallible {
        let tokens = async {
            match &self.tokens {
                Some(tokens) => tokens.watch().await,
                None => pending().await,
            }
        };
        #[cfg(feature = "tls")]
        let tokens = async {
            match &self.jwt {
                Some(jwt) => tokio::join!(tokens, jwt.watch()).0,
                None => tokens.await,
            }
        };
        tokens.await
    }

    fn knows_tokens(&self) -> bool {
        #[cfg(feature = "tls")]
        if self.jwt.is_some() {
            return true;
        }
        self.tokens.is_some()
    }

    /// Returns the name of the client whose token a request has.
    #[cfg_attr(not(feature = "tls"), allow(unused_variables))] // only JSON Web Tokens cost a verification
    fn token_name(&self, headers: &HeaderMap, connection: &ConnectionState) -> Option<Arc<str>> {
        let name = self.tokens.as_ref().and_then(|tokens| tokens.client(headers));
        #[cfg(feature = "tls")]
        let name = name.or_else(|| self.jwt.as_ref()?.client(headers, &connection.refused_tokens));
        name
    }

    /// Returns the name in the certificate of a connection that may be used.
    pub(crate) fn certificate_name(&self, connection: &Connection) -> Option<Arc<str>> {
        let identity = connection.identity.as_ref()?;
        match &self.sans {
            None => connection.peer(),
            Some(sans) => sans.iter().find(|san| identity.has(san)).map(|san| Arc::from(san.as_str())),
        }
    }

    /// Returns the name of the client of a call, if it may call this path.
    ///
    /// # Errors
    /// UNAUTHENTICATED and PERMISSION_DENIED.
    pub(crate) fn check(
        &self,
        certificate: Option<&Arc<str>>,
        path: &str,
        headers: &HeaderMap,
        connection: &ConnectionState,
    ) -> Result<Option<Arc<str>>, Status> {
        let name = certificate.cloned().or_else(|| self.token_name(headers, connection));
        if !self.authenticates() {
            return Ok(name);
        }
        let Some(group) = (self.group_of)(path) else { return Ok(name) };
        let Some(name) = name else {
            let expected = match (self.certificates, self.knows_tokens()) {
                (true, true) => "an allowed certificate or a valid token",
                (true, false) => "an allowed certificate",
                _ => "a valid token",
            };
            return Err(Status::unauthenticated(format!("the client has to show {expected}")));
        };
        match self.groups.get(group) {
            Some(names) if !names.contains(&*name) => {
                Err(Status::permission_denied(format!("{name} may not call this service ({group})")))
            }
            _ => Ok(Some(name)),
        }
    }
}
