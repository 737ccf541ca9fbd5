use std::{convert::Infallible, fmt, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{self, Instant};

use super::{ReadFile, TlsError, TlsFile, materials::TlsMaterials, validity::CertificateFile};

/// A TLS configuration that follows its files. While they cannot be used, as in the middle of being replaced, the last usable one
/// stays.
pub(super) struct CertReloader<T> {
    files: Vec<(TlsFile, PathBuf)>,
    read: ReadFile,
    build: Box<Build<T>>,
    debounce: Duration,
    state: Mutex<Option<State<T>>>,
}

type Build<T> = dyn Fn(&TlsMaterials) -> Result<T, TlsError> + Send + Sync;

struct State<T> {
    materials: TlsMaterials,
    config: Arc<T>,
    /// The ends of the certificates, for metrics.
    _certificates: Vec<Arc<CertificateFile>>,
    last_checked: Instant,
    last_logged: String,
}

/// How often missing files are looked for, as in Mixer.
const RETRY: Duration = Duration::from_millis(500);
/// How often files are checked while no connection is made.
const POLL: Duration = Duration::from_secs(10);

impl<T: Send + Sync + 'static> CertReloader<T> {
    /// Creates a reloader of files that need not exist yet. They are checked for changes when the configuration is used, at most
    /// once in `debounce`.
    pub(super) fn new(
        debounce: Duration,
        files: Vec<(TlsFile, PathBuf)>,
        read: ReadFile,
        build: impl Fn(&TlsMaterials) -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { files, read, build: Box::new(build), debounce, state: Mutex::new(None) })
    }

    /// Returns the configuration as of the current files; waits until they can be used for the first time.
    pub(super) async fn current(self: &Arc<Self>) -> Arc<T> {
        let mut last_logged = String::new();
        loop {
            if let Some(state) =
                self.state.lock().as_ref().filter(|state| state.last_checked.elapsed() < self.debounce)
            {
                return state.config.clone();
            }
            let reloader = self.clone();
            // Fails only while the runtime shuts down.
            let checked = tokio::task::spawn_blocking(move || reloader.check()).await;
            if let Some(state) = &*self.state.lock() {
                return state.config.clone();
            }
            if let Ok(Err(error)) = checked {
                let error = error.to_string();
                if error != last_logged {
                    tracing::warn!(error, "waiting for the files of TLS");
                    last_logged = error;
                }
            }
            time::sleep(RETRY).await;
        }
    }

    /// Checks the files from time to time, so that faults are logged before the files are needed.
    pub(super) async fn watch(self: &Arc<Self>) -> Infallible {
        loop {
            self.current().await;
            time::sleep(POLL).await;
        }
    }

    /// Reads the files, and uses them if they changed. Fails only while none were usable yet.
    pub(super) fn check(&self) -> Result<(), TlsError> {
        let changed = TlsMaterials::read(&self.files, &self.read).and_then(|materials| {
            if self.state.lock().as_ref().is_some_and(|state| state.materials == materials) {
                return Ok(None);
            }
            let certificates = materials.valid_certificates()?;
            let config = Arc::new((self.build)(&materials)?);
            Ok(Some((materials, config, certificates)))
        });
        let mut state = self.state.lock();
        let Some(state) = &mut *state else {
            if let Some((materials, config, certificates)) = changed? {
                let (last_checked, last_logged) = (Instant::now(), String::new());
                *state =
                    Some(State { materials, config, _certificates: certificates, last_checked, last_logged });
            }
            return Ok(());
        };
        state.last_checked = Instant::now();
        match changed {
            Ok(changed) => {
                state.last_logged.clear();
                if let Some((materials, config, certificates)) = changed {
                    tracing::info!("certificates or keys changed; new connections use them");
                    (state.materials, state.config, state._certificates) = (materials, config, certificates);
                }
            }
            Err(error) => {
                let error = error.to_string();
                if state.last_logged != error {
                    tracing::warn!(
                        error,
                        "changed certificates or keys cannot be used; the former ones stay in use"
                    );
                    state.last_logged = error;
                }
            }
        }
        Ok(())
    }
}

/// Without the configuration, which holds secrets.
impl<T> fmt::Debug for CertReloader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertReloader").field("files", &self.files).finish_non_exhaustive()
    }
}
