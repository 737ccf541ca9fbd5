use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::SystemTime,
};

use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::{
    ReadFile, TlsError, TlsFile,
    validity::{CertificateFile, Validity, date},
};

/// The files of one end of TLS, as they were read together.
#[derive(PartialEq, Eq)]
pub(super) struct TlsMaterials(Vec<TlsMaterial>);

#[derive(PartialEq, Eq)]
struct TlsMaterial {
    file: TlsFile,
    path: PathBuf,
    content: Vec<u8>,
}

/// The authorities that the system trusts, read once: they do not change while a program runs.
static SYSTEM: LazyLock<Vec<CertificateDer<'static>>> = LazyLock::new(|| {
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!(%error, "reading the certificates that the system trusts failed");
    }
    found.certs
});

/// A certificate chain and the key of its first certificate.
type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl TlsMaterials {
    pub(super) fn read(files: &[(TlsFile, PathBuf)], read: &ReadFile) -> Result<Self, TlsError> {
        files
            .iter()
            .map(|(file, path)| {
                let content = read(path).map_err(|error| TlsError::File {
                    file: *file,
                    path: path.clone(),
                    reason: format!("cannot be read: {error}"),
                })?;
                Ok(TlsMaterial { file: *file, path: path.clone(), content })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn get(&self, file: TlsFile) -> Option<&TlsMaterial> {
        self.0.iter().find(|material| material.file == file)
    }

    /// Returns the authorities of the file and, with `system`, the system's.
    pub(super) fn roots(&self, system: bool) -> Result<Arc<RootCertStore>, TlsError> {
        let mut roots = RootCertStore::empty();
        if system {
            roots.add_parsable_certificates(SYSTEM.iter().cloned());
        }
        if let Some(authorities) = self.get(TlsFile::Authorities)
            && roots.add_parsable_certificates(authorities.certificates()?).0 == 0
        {
            return Err(authorities.unusable("holds no certificate that can be trusted"));
        }
        if roots.is_empty() { Err(TlsError::NoAuthorities) } else { Ok(Arc::new(roots)) }
    }

    /// The own certificate and key, if files are given.
    pub(super) fn identity(&self) -> Result<Option<ChainAndKey>, TlsError> {
        let (Some(certificate), Some(key)) = (self.get(TlsFile::Certificate), self.get(TlsFile::Key)) else {
            return Ok(None);
        };
        // The error of the parser might show parts of the key.
        let parsed = PrivateKeyDer::from_pem_slice(&key.content);
        let parsed = parsed.map_err(|_| key.unusable("holds no private key (PEM)"))?;
        Ok(Some((certificate.certificates()?, parsed)))
    }

    /// Returns the files of certificates if all are valid now.
    pub(super) fn valid_certificates(&self) -> Result<Vec<Arc<CertificateFile>>, TlsError> {
        let files = self.0.iter().filter(|material| material.file != TlsFile::Key);
        files.filter_map(|material| material.valid_certificates().transpose()).collect()
    }

    /// Makes the error of a file.
    pub(super) fn unusable(&self, file: TlsFile, reason: impl Into<String>) -> TlsError {
        match self.get(file) {
            Some(material) => material.unusable(reason),
            None => TlsError::Config(reason.into()),
        }
    }

    /// The error of a key that is not the certificate's.
    pub(super) fn mismatch(&self, error: impl std::fmt::Display) -> TlsError {
        let certificate = self.get(TlsFile::Certificate).map(|certificate| certificate.path.display());
        let certificate = certificate.map(|path| path.to_string()).unwrap_or_default();
        self.unusable(TlsFile::Key, format!("does not belong to {certificate}: {error}"))
    }
}

impl TlsMaterial {
    /// The certificates of the file, at least one.
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.content).collect();
        match found {
            Ok(found) if found.is_empty() => Err(self.unusable("holds no certificate (PEM)")),
            Ok(found) => Ok(found),
            Err(error) => Err(self.unusable(format!("is not PEM: {error}"))),
        }
    }

    /// Returns the file with its end. A chain is valid while all its certificates are, and authorities while any is. Certificates that
    /// cannot be read do not count: rustls ignores them among authorities, and refuses others.
    fn valid_certificates(&self) -> Result<Option<Arc<CertificateFile>>, TlsError> {
        let certificates = self.certificates()?;
        let validities = certificates.iter().filter_map(|certificate| Validity::of(certificate).ok());
        let merge = if self.file == TlsFile::Authorities { Validity::union } else { Validity::intersection };
        let Some(validity) = validities.reduce(merge) else { return Ok(None) };
        let now = SystemTime::now();
        if now > validity.end {
            return Err(self.unusable(format!("has expired: it was valid until {}", date(validity.end))));
        }
        if now < validity.start {
            return Err(self.unusable(format!("is not valid before {}", date(validity.start))));
        }
        Ok(Some(CertificateFile::new(self.path.clone(), validity.end)))
    }

    fn unusable(&self, reason: impl Into<String>) -> TlsError {
        TlsError::File { file: self.file, path: self.path.clone(), reason: reason.into() }
    }
}
