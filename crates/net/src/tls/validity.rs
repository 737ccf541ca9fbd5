//! When certificates are valid.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

/// The time in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) start: SystemTime,
    pub(super) end: SystemTime,
}

/// After the last time that a certificate can have, the end of the year 9999, in seconds since the Unix epoch.
const NEVER: u64 = 253_402_300_800;

impl Validity {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, Error> {
        // webpki reads the times only to verify: here at a time that is too early, and at a time that is too late.
        let start = match verify_at(certificate, 0)? {
            Error::CertNotValidYet { not_before, .. } => not_before,
            _ => UnixTime::since_unix_epoch(Duration::ZERO),
        };
        match verify_at(certificate, NEVER)? {
            Error::CertExpired { not_after, .. } => {
                let [start, end] = [start, not_after]
                    .map(|time| SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()));
                Ok(Self { start, end })
            }
            error => Err(error),
        }
    }

    /// The time in which both are valid.
    pub(super) fn intersection(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// The time in which either is valid.
    pub(super) fn union(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// Returns why a certificate cannot be verified without authorities at a time in seconds since the Unix epoch.
fn verify_at(certificate: &CertificateDer<'_>, seconds: u64) -> Result<Error, Error> {
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let parsed = EndEntityCert::try_from(certificate)?;
    let verified = parsed.verify_for_usage(&[], &[], &[], time, KeyUsage::server_auth(), None, None);
    Ok(verified.err().unwrap_or(Error::UnknownIssuer))
}

/// Formats a time to the second.
pub(super) fn date(time: SystemTime) -> String {
    prost_types::Timestamp::from(time).to_string()
}

/// A file of certificates in use.
#[derive(Debug)]
pub(super) struct CertificateFile {
    path: PathBuf,
    end: SystemTime,
}

/// The files of certificates that this process uses.
static IN_USE: Mutex<Vec<Weak<CertificateFile>>> = Mutex::new(Vec::new());

impl CertificateFile {
    pub(super) fn new(path: PathBuf, end: SystemTime) -> Arc<Self> {
        let file = Arc::new(Self { path, end });
        let mut files = IN_USE.lock();
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(&file));
        file
    }
}

/// Returns the ends of the certificates that this process uses, by file.
pub fn certificate_ends() -> BTreeMap<PathBuf, SystemTime> {
    let files: Vec<_> = IN_USE.lock().iter().filter_map(Weak::upgrade).collect();
    files.iter().map(|file| (file.path.clone(), file.end)).collect()
}
