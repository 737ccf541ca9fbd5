//! Certificate authorities, certificates, and issuers of tokens for tests.
#![allow(clippy::unwrap_used, clippy::new_without_default, missing_docs)]

mod issuer;

pub use issuer::{Issuer, unsigned};

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rustls_pki_types::CertificateDer;
use tempfile::TempDir;

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, in PEM.
pub struct Certified {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        // Authorities with the same name would be confused, and signatures would not verify.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, NUMBER.fetch_add(1, SeqCst).to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        pem("CERTIFICATE", self.0.der())
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// Issues a certificate for names, IP addresses and URIs.
    pub fn issue(&self, names: &[&str]) -> Certified {
        let mut params = CertificateParams::new([]).unwrap();
        params.subject_alt_names = names.iter().map(|name| subject(name)).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = pem("CERTIFICATE", params.signed_by(&key, &self.0).unwrap().der());
        Certified { certificate, key: pem("PRIVATE KEY", &key.serialize_der()) }
    }
}

fn pem(kind: &str, der: &[u8]) -> String {
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", STANDARD.encode(der))
}

fn subject(name: &str) -> SanType {
    if let Ok(ip) = name.parse::<IpAddr>() {
        return SanType::IpAddress(ip);
    }
    let text = name.try_into().unwrap();
    if name.contains("://") { SanType::URI(text) } else { SanType::DnsName(text) }
}

/// A folder of files that tests change.
pub struct Files(TempDir);

impl Files {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
