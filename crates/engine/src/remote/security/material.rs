use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};

use super::{file, settings::TrustSettings};
use mixer_adapter_core::adapter::ConfigErrors;
use mixer_adapter_net::tls::{Reloaded, SanVerifier, certificates, private_key, uris};

/// Certificates and keys, as they were in their files when a connection was last made.
pub(super) struct Material(Arc<Reloaded<Loaded, ConfigErrors>>);

struct Loaded {
    roots: Arc<RootCertStore>,
    config: Arc<ClientConfig>,
}

/// What the system trusts, read once: it does not change while a program runs.
static SYSTEM: LazyLock<Vec<CertificateDer<'static>>> = LazyLock::new(|| {
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!(%error, "certificates that the system trusts cannot be read");
    }
    found.certs
});

impl Material {
    pub(super) fn load(settings: TrustSettings, adapter_sans: &[String]) -> Result<Self, ConfigErrors> {
        let (settings, adapter_sans) = (Arc::new(settings), adapter_sans.to_vec());
        let named = settings.clone();
        let reloaded = Reloaded::load(
            Duration::ZERO,
            move || read(&named),
            move |files| load(files, &settings, &adapter_sans),
        );
        reloaded.map(|reloaded| Self(Arc::new(reloaded)))
    }

    /// The configuration for a new connection. Files that changed are loaded again; while they cannot be, as in the
    /// middle of being replaced, the former content serves on.
    pub(super) async fn current(&self) -> Arc<ClientConfig> {
        Reloaded::current(&self.0).await.config.clone()
    }

    /// The certificates trusted.
    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        self.0.kept().roots.clone()
    }
}

/// Without the key.
impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").finish_non_exhaustive()
    }
}

/// The certificates trusted, the key, the certificate; empty where the settings name no file.
fn read(settings: &TrustSettings) -> Result<Vec<Vec<u8>>, ConfigErrors> {
    let field = |name: &str| format!("{}.{name}", settings.field);
    let identity = settings.identity.as_ref();
    let files = [
        ("ca_certificates", settings.ca_certificates.as_ref()),
        ("private_key", identity.map(|identity| &identity.private_key)),
        ("client_certificate", identity.map(|identity| &identity.client_certificate)),
    ];
    let read = |(name, path): (&str, Option<&std::path::PathBuf>)| match path {
        Some(path) => file::read(&field(name), path),
        None => Ok(Vec::new()),
    };
    files.into_iter().map(read).collect()
}

fn load(
    files: &[Vec<u8>],
    settings: &TrustSettings,
    adapter_sans: &[String],
) -> Result<Loaded, ConfigErrors> {
    let fault =
        |name: &str, reason: String| ConfigErrors::single(format!("{}.{name}", settings.field), reason);
    let [ca_certificates, key, client_certificate] = files else {
        return Err(ConfigErrors::single(settings.field, "a file is missing"));
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(SYSTEM.iter().cloned());
    if settings.ca_certificates.is_some() {
        let given = certificates(ca_certificates).map_err(|why| fault("ca_certificates", why))?;
        if roots.add_parsable_certificates(given).0 == 0 {
            return Err(fault("ca_certificates", "holds no certificate that can be trusted".to_owned()));
        }
    }
    if roots.is_empty() {
        return Err(fault("ca_certificates", "is missing, and the system trusts no certificate".to_owned()));
    }
    let roots = Arc::new(roots);
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigErrors::single(settings.field, error.to_string()))?;
    let mut config = if settings.identity.is_some() {
        let chain = certificates(client_certificate).map_err(|why| fault("client_certificate", why))?;
        let key = private_key(key).map_err(|why| fault("private_key", why))?;
        let accepted =
            accepted_sans(adapter_sans, chain.first()).map_err(|why| fault("client_certificate", why))?;
        let verifier = SanVerifier::new(roots.clone(), accepted, "the adapter");
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(chain, key)
            .map_err(|error| fault("private_key", format!("does not go with client_certificate: {error}")))?
    } else {
        builder.with_root_certificates(roots.clone()).with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Loaded { roots, config: Arc::new(config) })
}

/// The SANs of which an adapter is to have one: those given, or without any the URI SANs of the client's own certificate. Its DNS name
/// is not looked at. This is Mixer's rule for mutual TLS (docs/behaviour/connections.md#mutual-tls).
fn accepted_sans(given: &[String], own: Option<&CertificateDer<'_>>) -> Result<Vec<String>, String> {
    let accepted = match own {
        _ if !given.is_empty() => given.to_vec(),
        Some(own) => uris(own).map_err(|error| format!("cannot be read: {error}"))?,
        None => Vec::new(),
    };
    if accepted.is_empty() {
        return Err(
            "has no URI SAN, and an adapter is taken for having the same one: use one that has, or name the \
             SANs of adapters in the options"
                .to_owned(),
        );
    }
    Ok(accepted)
}
