//! Credentials as their files have them.

use std::{fmt::Display, sync::Arc, time::Duration};

use tokio::time;
use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer},
};

use super::{Credentials, certificates, file, private_key};

/// How long a handshake may take.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often files that are not there yet are looked for, as Mixer does.
const MISSING: Duration = Duration::from_millis(500);
/// Files are read that often at most, however many connections are made.
pub(super) const REST: Duration = Duration::from_millis(500);
/// How often files are looked at while no connection is made.
pub(super) const POLL: Duration = Duration::from_secs(10);

/// Tries until it succeeds, and says what it waits for.
pub(super) async fn patiently<T>(load: impl Fn() -> Result<T, String>) -> Arc<T> {
    let mut told = String::new();
    loop {
        match load() {
            Ok(loaded) => return Arc::new(loaded),
            Err(error) if error == told => {}
            Err(error) => {
                tracing::warn!("TLS waits for its files: {error}");
                told = error;
            }
        }
        time::sleep(MISSING).await;
    }
}

/// A certificate, with those above it, and its key.
type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Credentials {
    pub(super) fn read(&self) -> Result<Vec<Vec<u8>>, String> {
        let files = [&self.certificate, &self.key, &self.authorities].map(|path| {
            file::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
        });
        files.into_iter().collect()
    }

    pub(super) fn roots(&self, authorities: &[u8]) -> Result<Arc<RootCertStore>, String> {
        let path = self.authorities.display();
        let mut roots = RootCertStore::empty();
        let found = certificates(authorities).map_err(|why| format!("{path} {why}"))?;
        match roots.add_parsable_certificates(found) {
            (0, _) => Err(format!("{path} holds no certificate that can be trusted")),
            _ => Ok(Arc::new(roots)),
        }
    }

    pub(super) fn pair(&self, certificate: &[u8], key: &[u8]) -> Result<Pair, String> {
        let chain =
            certificates(certificate).map_err(|why| format!("{} {why}", self.certificate.display()))?;
        let key = private_key(key).map_err(|why| format!("{} {why}", self.key.display()))?;
        Ok((chain, key))
    }

    pub(super) fn unfit(&self, error: impl Display) -> String {
        format!("{} does not go with {}: {error}", self.key.display(), self.certificate.display())
    }
}
