use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::{HeaderName, Uri, header::AUTHORIZATION};

use super::header::{Header, Prefix};
use mixer_adapter_config::proto::istio::policy::v1beta1::{
    Authentication, Mutual, OAuth, Tls,
    authentication::AuthType,
    tls::{AuthHeader, TokenSource, TokenType},
};
use mixer_adapter_core::{adapter::ConfigErrors, framework::is_this_machine};
use mixer_adapter_net::tls::{
    self, ClientOptions, KeyPair, ServerIdentity, TlsError, TlsFile, check_server_name,
};

/// The settings of a connection's `authentication`. Holds paths of secrets, never secrets.
#[derive(Debug)]
pub(in super::super) struct Settings {
    pub(super) trust: TrustSettings,
    pub(super) server_name: Option<String>,
    pub(super) token: Option<TokenSettings>,
}

/// The files of TLS.
#[derive(Debug)]
pub(super) struct TrustSettings {
    /// The message of the fields below: `connection.authentication.tls`, or `.mutual`.
    field: &'static str,
    ca_certificates: Option<PathBuf>,
    /// The client's own certificate, for mutual TLS.
    identity: Option<KeyPair>,
}

impl TrustSettings {
    /// Reads the files. With mutual TLS an adapter must have a SAN in `adapter_sans`, or if it is empty, a URI SAN of the client's
    /// certificate; its DNS name does not count. This is Mixer's rule (docs/behaviour/connections.md#mutual-tls).
    pub(super) fn client(self, adapter_sans: &[String]) -> Result<Arc<tls::Client>, ConfigErrors> {
        let Self { field, ca_certificates, identity } = self;
        let server = match (&identity, adapter_sans) {
            (None, _) => ServerIdentity::DialedName,
            (Some(_), []) => ServerIdentity::SameAsClient,
            (Some(_), sans) => ServerIdentity::AnyOf(sans.to_vec()),
        };
        let options = ClientOptions { system_roots: true, authorities: ca_certificates, identity, server };
        tls::Client::load(options).map_err(|error| {
            let name = match error {
                TlsError::File { file: TlsFile::Certificate, .. } => ".client_certificate",
                TlsError::File { file: TlsFile::Key, .. } => ".private_key",
                TlsError::File { .. } | TlsError::NoAuthorities => ".ca_certificates",
                _ => "",
            };
            ConfigErrors::single(format!("{field}{name}"), error.to_string())
        })
    }
}

#[derive(Debug)]
pub(super) struct TokenSettings {
    pub(super) header: Header,
    pub(super) source: SourceSettings,
}

#[derive(Debug)]
pub(super) enum SourceSettings {
    File(PathBuf),
    OAuth(OAuthSettings),
}

pub(super) struct OAuthSettings {
    pub(super) client_id: String,
    pub(super) client_secret: PathBuf,
    pub(super) token_url: Uri,
    /// `grant_type`, the scopes and the endpoint's own parameters.
    pub(super) params: Vec<(String, String)>,
}

impl OAuthSettings {
    /// The URL of the token server without its query, which may hold secrets.
    pub(super) fn endpoint(&self) -> String {
        let (scheme, authority) = (self.token_url.scheme_str(), self.token_url.authority());
        let authority = authority.map_or("", |authority| authority.as_str());
        format!("{}://{authority}{}", scheme.unwrap_or_default(), self.token_url.path())
    }
}

/// Without the parameters, which may be secrets.
impl fmt::Debug for OAuthSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OAuthSettings({} at {})", self.client_id, self.endpoint())
    }
}

const TLS: &str = "connection.authentication.tls";
const MUTUAL: &str = "connection.authentication.mutual";
pub(super) const TOKEN_URL: &str = "connection.authentication.tls.oauth.token_url";

impl Settings {
    /// Reads the settings, and collects every fault that shows without reading a file.
    pub(in super::super) fn read(authentication: &Authentication, errors: &mut ConfigErrors) -> Option<Self> {
        if cfg!(not(feature = "tls")) {
            errors.push("connection.authentication", TlsError::Disabled.to_string());
            return None;
        }
        match &authentication.auth_type {
            Some(AuthType::Tls(tls)) => read_tls(tls, errors),
            Some(AuthType::Mutual(mutual)) => read_mutual(mutual, errors),
            None => {
                errors.push(
                    "connection.authentication",
                    "names neither tls nor mutual; leave it out for a connection in the clear",
                );
                None
            }
        }
    }

    /// Returns the files that are read, with the fields that name them.
    pub(in super::super) fn files(&self) -> impl Iterator<Item = (String, &Path)> {
        let TrustSettings { field, ca_certificates, identity } = &self.trust;
        let token = self.token.as_ref().map(|token| match &token.source {
            SourceSettings::File(path) => ("token_path", path),
            SourceSettings::OAuth(oauth) => ("oauth.client_secret", &oauth.client_secret),
        });
        let authorities = ca_certificates.iter().map(|path| ("ca_certificates", path));
        let identity = identity
            .iter()
            .flat_map(|own| [("client_certificate", &own.certificate), ("private_key", &own.key)]);
        let files = authorities.chain(identity).chain(token);
        files.map(move |(name, path)| (format!("{field}.{name}"), path.as_path()))
    }

    /// Returns the host that tokens are fetched from, with the field that names it.
    pub(in super::super) fn token_host(&self) -> Option<(&'static str, &str)> {
        match &self.token.as_ref()?.source {
            SourceSettings::File(_) => None,
            SourceSettings::OAuth(oauth) => Some((TOKEN_URL, oauth.token_url.host().unwrap_or_default())),
        }
    }
}

fn read_tls(tls: &Tls, errors: &mut ConfigErrors) -> Option<Settings> {
    let server_name = server_name(TLS, &tls.server_name, errors);
    let header = match &tls.token_type {
        Some(TokenType::AuthHeader(number)) => match AuthHeader::try_from(*number) {
            Ok(AuthHeader::Plain) => Some(Header { name: AUTHORIZATION, prefix: Prefix::None }),
            Ok(AuthHeader::Bearer) => Some(Header { name: AUTHORIZATION, prefix: Prefix::Bearer }),
            Err(_) => {
                errors.push(format!("{TLS}.auth_header"), format!("{number} is neither PLAIN nor BEARER"));
                None
            }
        },
        Some(TokenType::CustomHeader(name)) => custom_header(name, errors),
        None => match &tls.token_source {
            // As in Mixer, which does not look at the header's settings here.
            Some(TokenSource::Oauth(_)) => Some(Header { name: AUTHORIZATION, prefix: Prefix::FromServer }),
            Some(TokenSource::TokenPath(_)) => {
                errors.push(TLS, "token_path needs auth_header (PLAIN or BEARER) or custom_header");
                None
            }
            None => None,
        },
    };
    let source = match &tls.token_source {
        Some(TokenSource::TokenPath(path)) => {
            required_path(&format!("{TLS}.token_path"), path, errors).map(SourceSettings::File)
        }
        Some(TokenSource::Oauth(oauth)) => read_oauth(oauth, errors).map(SourceSettings::OAuth),
        None => {
            errors.push(TLS, "needs token_path or oauth, as in Mixer");
            None
        }
    };
    Some(Settings {
        trust: TrustSettings { field: TLS, ca_certificates: path(&tls.ca_certificates), identity: None },
        server_name,
        token: Some(TokenSettings { header: header?, source: source? }),
    })
}

fn read_mutual(mutual: &Mutual, errors: &mut ConfigErrors) -> Option<Settings> {
    let server_name = server_name(MUTUAL, &mutual.server_name, errors);
    let private_key = required_path(&format!("{MUTUAL}.private_key"), &mutual.private_key, errors);
    let client_certificate =
        required_path(&format!("{MUTUAL}.client_certificate"), &mutual.client_certificate, errors);
    let identity = KeyPair { certificate: client_certificate?, key: private_key? };
    let ca_certificates = path(&mutual.ca_certificates);
    let trust = TrustSettings { field: MUTUAL, ca_certificates, identity: Some(identity) };
    Some(Settings { trust, server_name, token: None })
}

fn read_oauth(oauth: &OAuth, errors: &mut ConfigErrors) -> Option<OAuthSettings> {
    const FIELD: &str = "connection.authentication.tls.oauth";
    let client_secret = required_path(&format!("{FIELD}.client_secret"), &oauth.client_secret, errors);
    if oauth.client_id.is_empty() {
        errors.push(format!("{FIELD}.client_id"), "is missing");
    }
    let token_url = token_url(&oauth.token_url, errors);
    let mut params = vec![("grant_type".to_owned(), "client_credentials".to_owned())];
    if !oauth.scopes.is_empty() {
        params.push(("scope".to_owned(), oauth.scopes.join(" ")));
    }
    for (name, value) in &oauth.endpoint_params {
        match &name[..] {
            // Some servers have another name for this grant.
            "grant_type" => value.clone_into(&mut params[0].1),
            "client_id" | "client_secret" => {
                errors.push(format!("{FIELD}.endpoint_params"), format!("{name:?} has a field of its own"));
            }
            "scope" if !oauth.scopes.is_empty() => {
                errors.push(format!("{FIELD}.endpoint_params"), "\"scope\" is given by scopes already");
            }
            _ => params.push((name.clone(), value.clone())),
        }
    }
    let client_id = oauth.client_id.clone();
    Some(OAuthSettings { client_id, client_secret: client_secret?, token_url: token_url?, params })
}

/// Checks the URL that the secret is sent to: over TLS, or to this machine. The errors do not show it: its query may be secret.
fn token_url(text: &str, errors: &mut ConfigErrors) -> Option<Uri> {
    let url: Uri = match text.parse() {
        Ok(url) => url,
        Err(_) if text.is_empty() => {
            errors.push(TOKEN_URL, "is missing");
            return None;
        }
        Err(error) => {
            errors.push(TOKEN_URL, format!("is not a valid URL: {error}"));
            return None;
        }
    };
    let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let reason = match url.scheme_str() {
        _ if has_user => "must not hold a user or a password",
        Some("https") if check_server_name(host).is_ok() => return Some(url),
        Some("http") if is_this_machine(host) => return Some(url),
        Some("http") => "would send the secret in the clear: use https",
        _ => "is not https://host/path",
    };
    errors.push(TOKEN_URL, reason);
    None
}

fn server_name(field: &str, name: &str, errors: &mut ConfigErrors) -> Option<String> {
    if let (false, Err(error)) = (name.is_empty(), check_server_name(name)) {
        errors.push(format!("{field}.server_name"), error.to_string());
    }
    (!name.is_empty()).then(|| name.to_owned())
}

fn custom_header(name: &str, errors: &mut ConfigErrors) -> Option<Header> {
    // HTTP/2 has lower-case names only.
    let parsed: Option<HeaderName> = name.to_ascii_lowercase().parse().ok();
    let name_of_token = parsed.filter(|name| {
        let is_reserved = matches!(
            name.as_str(),
            "te" | "content-type" | "user-agent" | "host" | "connection" | "content-length"
        );
        !is_reserved && !name.as_str().starts_with("grpc-") && !name.as_str().ends_with("-bin")
    });
    if name_of_token.is_none() {
        errors.push(format!("{TLS}.custom_header"), format!("a token cannot be sent as {name:?}"));
    }
    name_of_token.map(|name| Header { name, prefix: Prefix::None })
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

fn required_path(field: &str, text: &str, errors: &mut ConfigErrors) -> Option<PathBuf> {
    if text.is_empty() {
        errors.push(field, "is missing: the path of a file");
    }
    path(text)
}
