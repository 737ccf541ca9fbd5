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
    date_time_ymd,
};
use rustls_pki_types::CertificateDer;
use tempfile::TempDir;

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    name: String,
}

/// A certificate with its key, in PEM.
pub struct Certified {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        // Authorities with the same name would be confused, and signatures would not verify.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        Self::named(NUMBER.fetch_add(1, SeqCst).to_string())
    }

    fn named(name: String) -> Self {
        let issuer = CertifiedIssuer::self_signed(params(&name), KeyPair::generate().unwrap()).unwrap();
        Self { issuer, name }
    }

    /// A certificate of a stranger, who shows `number` authorities that have the name of this one and sign each other: each of them may
    /// have issued any other.
    pub fn imitated(&self, names: &[&str], number: usize) -> Certified {
        let strangers: Vec<_> = (0..number).map(|_| Self::named(self.name.clone())).collect();
        let mut certified = strangers[0].issue(names);
        for (index, stranger) in strangers.iter().enumerate() {
            let issuer = &strangers[(index + 1) % number].issuer;
            let signed = params(&self.name).signed_by(stranger.issuer.key(), issuer).unwrap();
            certified.certificate += &pem("CERTIFICATE", signed.der());
        }
        certified
    }

    pub fn pem(&self) -> String {
        pem("CERTIFICATE", self.issuer.der())
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// Issues a certificate for names, IP addresses and URIs.
    pub fn issue(&self, names: &[&str]) -> Certified {
        self.issue_with(names, CertificateParams::new([]).unwrap())
    }

    /// The same, valid from the beginning of one year to that of another.
    pub fn issue_for_years(&self, names: &[&str], start: i32, end: i32) -> Certified {
        let mut params = CertificateParams::new([]).unwrap();
        [params.not_before, params.not_after] = [start, end].map(|year| date_time_ymd(year, 1, 1));
        self.issue_with(names, params)
    }

    fn issue_with(&self, names: &[&str], mut params: CertificateParams) -> Certified {
        params.subject_alt_names = names.iter().map(|name| subject(name)).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = pem("CERTIFICATE", params.signed_by(&key, &self.issuer).unwrap().der());
        Certified { certificate, key: pem("PRIVATE KEY", &key.serialize_der()) }
    }
}

/// An authority of that name.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
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
