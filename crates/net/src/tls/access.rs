use std::{
    collections::BTreeSet,
    error::Error,
    fmt,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;
use tonic::Status;

use super::Identity;
use crate::read_file;

/// An allow list or a deny list of the peers that may open streams. An empty allow list allows nobody; a missing list in Istio's format
/// allows everybody (docs/behaviour/mcp.md#access-lists).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    names: BTreeSet<String>,
    denies: bool,
}

impl AccessList {
    /// Allows peers with any of these SANs, such as `spiffe://cluster.local/ns/istio-system/sa/galley`.
    pub fn allow<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), denies: false }
    }

    /// Allows any authenticated peer without these SANs.
    pub fn deny<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { denies: true, ..Self::allow(names) }
    }

    /// Checks a peer; `None` is one without a certificate.
    ///
    /// # Errors
    /// UNAUTHENTICATED, with the reason.
    pub fn check(&self, peer: Option<&Identity>) -> Result<(), Status> {
        let refused =
            |reason: &str| Err(Status::unauthenticated(format!("Authentication failure: {reason}")));
        let Some(peer) = peer else { return refused("denying by default: no auth info found") };
        match (self.names.iter().any(|name| peer.has(name)), self.denies) {
            (true, false) | (false, true) => Ok(()),
            (false, false) => refused("no allowed identity found in peer's authentication info"),
            (true, true) => refused("an identity in the peer's authentication info is denied"),
        }
    }

    fn is_closed(&self) -> bool {
        self.names.is_empty() && !self.denies
    }
}

impl fmt::Display for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.denies { "all but " } else { "only " })?;
        f.debug_set().entries(&self.names).finish()
    }
}

/// The origin of an access list: names, and a file with more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSettings {
    /// SANs that are allowed.
    pub allow: Vec<String>,
    /// A file as Galley's `--accessListFile`: `allowed: [SAN]`, with `isblacklist: true` for SANs that are denied; then `allow` has no
    /// effect.
    pub file: Option<PathBuf>,
}

/// An access list that follows its file. Streams that are open when it changes stay open.
#[derive(Debug)]
pub struct Access {
    settings: AccessSettings,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    list: Arc<AccessList>,
    last_checked: Option<Instant>,
    last_logged: String,
    /// The last refusal that was logged, and the number of refusals since.
    refusals: Option<(Instant, u64)>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    allowed: Vec<String>,
    #[serde(default)]
    isblacklist: bool,
}

/// The file is read at most this often, however many streams open.
const DEBOUNCE: Duration = Duration::from_millis(500);
/// How often the file is read while no stream opens.
#[cfg(feature = "tls")]
const POLL: Duration = Duration::from_secs(10);
/// How often refusals are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

impl Access {
    /// Reads the list. Warns if it allows nobody.
    pub fn new(settings: AccessSettings) -> Self {
        let list = Arc::new(AccessList::allow(&settings.allow));
        let state = State { list, last_checked: None, last_logged: String::new(), refusals: None };
        let access = Self { settings, state: Mutex::new(state) };
        access.reload();
        if access.state.lock().list.is_closed() {
            tracing::warn!(
                "the access list is empty, so every peer is refused; allow SANs with --mcp-allow or --mcp-allow-file"
            );
        }
        access
    }

    /// Checks by the current list whether a peer may open a stream.
    ///
    /// # Errors
    /// UNAUTHENTICATED, with the reason.
    pub fn check(&self, peer: Option<&Identity>) -> Result<(), Status> {
        if self.settings.file.is_some()
            && self.state.lock().last_checked.as_ref().is_none_or(|last| last.elapsed() >= DEBOUNCE)
        {
            self.reload();
        }
        let list = self.state.lock().list.clone();
        list.check(peer).inspect_err(|reason| self.log_refusal(reason, peer))
    }

    /// Reads the file from time to time, so that faults are logged before a stream opens.
    #[cfg(feature = "tls")]
    pub(super) async fn watch(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(POLL).await;
            self.reload();
        }
    }

    fn reload(&self) {
        let Some(path) = &self.settings.file else { return };
        let read = read(path);
        let mut state = self.state.lock();
        state.last_checked = Some(Instant::now());
        let fault = read.as_ref().err().map(ToString::to_string).unwrap_or_default();
        // A missing file is an empty list; any other fault leaves the former list in use.
        let list = match read {
            Err(error)
                if error
                    .downcast_ref()
                    .is_some_and(|error: &io::Error| error.kind() == ErrorKind::NotFound) =>
            {
                Some(File::default())
            }
            read => read.ok(),
        };
        if let Some(File { allowed, isblacklist }) = list {
            state.list = Arc::new(if isblacklist {
                AccessList::deny(allowed)
            } else {
                AccessList::allow(allowed.iter().chain(&self.settings.allow))
            });
        }
        if !fault.is_empty() && fault != state.last_logged {
            tracing::warn!(file = %path.display(), fault, "the access list cannot be read");
        }
        state.last_logged = fault;
    }

    /// Logs refusals once in [`LOG_INTERVAL`], with their number.
    fn log_refusal(&self, reason: &Status, peer: Option<&Identity>) {
        let mut state = self.state.lock();
        match &mut state.refusals {
            Some((last, since)) if last.elapsed() < LOG_INTERVAL => *since += 1,
            refusals => {
                let unlogged = refusals.map_or(0, |(_, since)| since);
                let names = peer.map(Identity::names);
                tracing::warn!(?names, unlogged, reason = reason.message(), "peer refused");
                *refusals = Some((Instant::now(), 0));
            }
        }
    }
}

/// Reads a list.
fn read(path: &Path) -> Result<File, Box<dyn Error>> {
    Ok(serde_saphyr::from_str(&String::from_utf8(read_file(path)?)?)?)
}
