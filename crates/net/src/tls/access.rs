use std::{
    collections::BTreeSet,
    fmt,
    io::ErrorKind,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Deserialize;
use tokio::time::Instant;
use tonic::Status;

use super::{Identity, file};

/// Who may open streams, or who may not. An empty list lets nobody in; Istio's lets everybody in where it is missing
/// (docs/behaviour/mcp.md#access-lists).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    names: BTreeSet<String>,
    denies: bool,
}

impl AccessList {
    /// Lets in who has one of these names: SANs, such as `spiffe://cluster.local/ns/istio-system/sa/galley`.
    pub fn allow<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), denies: false }
    }

    /// Lets in everybody who is known, but for who has one of these names.
    pub fn deny<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { denies: true, ..Self::allow(names) }
    }

    /// Whether that name is let in.
    pub fn allows(&self, name: &str) -> bool {
        self.names.contains(name) != self.denies
    }

    /// Whether a peer is let in. The error says why not; `None` is a peer that showed no certificate.
    pub fn check(&self, peer: Option<&Identity>) -> Result<(), Status> {
        let refused = |why: &str| Err(Status::unauthenticated(format!("Authentication failure: {why}")));
        let Some(peer) = peer else { return refused("denying by default: no auth info found") };
        match (self.names.iter().any(|name| peer.has(name)), self.denies) {
            (true, false) | (false, true) => Ok(()),
            (false, false) => refused("no allowed identity found in peer's authentication info"),
            (true, true) => refused("an identity in the peer's authentication info is denied"),
        }
    }

    /// Whether nobody is let in.
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

/// Where a list comes from: names, and a file with more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSettings {
    /// Names that are let in.
    pub allow: Vec<String>,
    /// A file as Galley's `--accessListFile`: `allowed: [names]`, and `isblacklist: true` where they are who is kept out; then the
    /// names above do not count.
    pub file: Option<PathBuf>,
}

/// A list that follows its file. Streams that are open when it changes go on.
#[derive(Debug)]
pub struct Access {
    settings: AccessSettings,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    list: Arc<AccessList>,
    looked: Option<Instant>,
    told: String,
    refused: Option<(Instant, u64)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    allowed: Vec<String>,
    #[serde(default)]
    isblacklist: bool,
}

/// The file is read that often at most, however many streams open.
const REST: Duration = Duration::from_millis(500);
/// How often refusals are logged.
const LOGGED: Duration = Duration::from_secs(60);

impl Access {
    /// The list as it is now. If it lets nobody in, that is said.
    pub fn new(settings: AccessSettings) -> Self {
        let list = Arc::new(AccessList::allow(&settings.allow));
        let state = State { list, looked: None, told: String::new(), refused: None };
        let access = Self { settings, state: Mutex::new(state) };
        access.look();
        if access.lock().list.is_closed() {
            tracing::warn!(
                "nobody is on the list of who may dial, so everybody is refused; name them with --mcp-allow or --mcp-allow-file"
            );
        }
        access
    }

    /// The list, which may have changed.
    pub async fn current(self: &Access) -> Arc<AccessList> {
        let fresh = |looked: &Instant| looked.elapsed() < REST;
        if self.settings.file.is_some() && !self.lock().looked.as_ref().is_some_and(fresh) {
            self.look();
        }
        self.lock().list.clone()
    }

    /// Whether a peer may open a stream now.
    pub async fn check(&self, peer: Option<&Identity>) -> Result<(), Status> {
        let checked = self.current().await.check(peer);
        if let Err(why) = &checked {
            self.log(why, peer);
        }
        checked
    }

    fn look(&self) {
        let Some(path) = &self.settings.file else { return };
        let read = match file::read(path) {
            // Nobody wrote down who is let in.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok((
                File { allowed: Vec::new(), isblacklist: false },
                format!("{} is missing", path.display()),
            )),
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
            Ok(content) => String::from_utf8(content)
                .map_err(|error| error.to_string())
                .and_then(|text| serde_saphyr::from_str::<File>(&text).map_err(|error| error.to_string()))
                .map(|list| (list, String::new()))
                .map_err(|error| format!("{} is no list of names: {error}", path.display())),
        };
        let mut state = self.lock();
        state.looked = Some(Instant::now());
        let told = match read {
            Ok((File { allowed, isblacklist: true }, told)) => {
                state.list = Arc::new(AccessList::deny(allowed));
                told
            }
            Ok((File { allowed, isblacklist: false }, told)) => {
                state.list = Arc::new(AccessList::allow(allowed.iter().chain(&self.settings.allow)));
                told
            }
            Err(error) => format!("{error}; the former list stays"),
        };
        if !told.is_empty() && told != state.told {
            tracing::warn!("the list of who may dial: {told}");
        }
        state.told = told;
    }

    /// Once a minute, with how often it happened since.
    fn log(&self, why: &Status, peer: Option<&Identity>) {
        let mut state = self.lock();
        match &mut state.refused {
            Some((told, since)) if told.elapsed() < LOGGED => *since += 1,
            refused => {
                let since = refused.map_or(0, |(_, since)| since);
                tracing::warn!(names = ?peer.map(Identity::names), unlogged = since, "a peer is refused: {}", why.message());
                *refused = Some((Instant::now(), 0));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
