use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

/// The certificates of a file, at least one.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("holds no certificate (PEM)".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("is not PEM: {error}")),
    }
}

/// The private key of a file. The error shows nothing of it.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| "holds no private key (PEM)".to_owned())
}
