use std::{
    fmt,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{file, san::SanVerifier, settings::TrustSettings};
use crate::{adapter::ConfigErrors, handler::Digest};

/// Certificates and keys, as they were in their files when a connection was last made.
pub(super) struct Material {
    settings: TrustSettings,
    adapter_sans: Vec<String>,
    loaded: Mutex<Loaded>,
}

#[derive(Clone)]
struct Loaded {
    /// Of the files' contents.
    digest: Digest,
    roots: Arc<RootCertStore>,
    config: Arc<ClientConfig>,
}

/// The contents of the files.
#[derive(Default)]
struct Files {
    ca_certificates: Vec<u8>,
    private_key: Vec<u8>,
    client_certificate: Vec<u8>,
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
        let files = Files::read(&settings)?;
        let loaded = files.load(&settings, adapter_sans)?;
        Ok(Self { settings, adapter_sans: adapter_sans.to_vec(), loaded: Mutex::new(loaded) })
    }

    /// The configuration for a new connection. Files that changed are loaded again; while they cannot be, as in the
    /// middle of being replaced, the former content serves on.
    pub(super) async fn current(this: &Arc<Self>) -> Arc<ClientConfig> {
        let aside = this.clone();
        let reloaded = tokio::task::spawn_blocking(move || aside.reload()).await;
        if let Ok(Err(error)) = reloaded {
            tracing::warn!(%error, "certificates or keys changed but cannot be used; the former ones serve on");
        }
        this.loaded().config
    }

    /// The certificates trusted.
    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        self.loaded().roots
    }

    fn reload(&self) -> Result<(), ConfigErrors> {
        let files = Files::read(&self.settings)?;
        if files.digest() != self.loaded().digest {
            let loaded = files.load(&self.settings, &self.adapter_sans)?;
            *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = loaded;
        }
        Ok(())
    }

    fn loaded(&self) -> Loaded {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Without the key.
impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Files {
    fn read(settings: &TrustSettings) -> Result<Self, ConfigErrors> {
        let field = |name: &str| format!("{}.{name}", settings.field);
        let mut files = Self::default();
        if let Some(path) = &settings.ca_certificates {
            files.ca_certificates = file::read(&field("ca_certificates"), path)?;
        }
        if let Some(identity) = &settings.identity {
            files.private_key = file::read(&field("private_key"), &identity.private_key)?;
            files.client_certificate =
                file::read(&field("client_certificate"), &identity.client_certificate)?;
        }
        Ok(files)
    }

    fn digest(&self) -> Digest {
        Digest::of([&self.ca_certificates[..], &self.private_key, &self.client_certificate])
    }

    fn load(&self, settings: &TrustSettings, adapter_sans: &[String]) -> Result<Loaded, ConfigErrors> {
        let fault =
            |name: &str, reason: String| ConfigErrors::one(format!("{}.{name}", settings.field), reason);
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(SYSTEM.iter().cloned());
        if settings.ca_certificates.is_some() {
            let given = certificates(&self.ca_certificates).map_err(|why| fault("ca_certificates", why))?;
            if roots.add_parsable_certificates(given).0 == 0 {
                return Err(fault("ca_certificates", "holds no certificate that can be trusted".to_owned()));
            }
        }
        if roots.is_empty() {
            return Err(fault(
                "ca_certificates",
                "is missing, and the system trusts no certificate".to_owned(),
            ));
        }
        let roots = Arc::new(roots);
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| ConfigErrors::one(settings.field, error.to_string()))?;
        let mut config = if settings.identity.is_some() {
            let chain =
                certificates(&self.client_certificate).map_err(|why| fault("client_certificate", why))?;
            let key = PrivateKeyDer::from_pem_slice(&self.private_key)
                .map_err(|_| fault("private_key", "holds no private key (PEM)".to_owned()))?;
            let verifier = SanVerifier::new(roots.clone(), adapter_sans, &chain)
                .map_err(|why| fault("client_certificate", why))?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_client_auth_cert(chain, key)
                .map_err(|error| {
                    fault("private_key", format!("does not go with client_certificate: {error}"))
                })?
        } else {
            builder.with_root_certificates(roots.clone()).with_no_client_auth()
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Loaded { digest: self.digest(), roots, config: Arc::new(config) })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("holds no certificate (PEM)".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("is not PEM: {error}")),
    }
}
