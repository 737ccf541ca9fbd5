use std::{
    convert::Infallible,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

/// How often the file is read.
const POLL: Duration = Duration::from_secs(2);

/// How long a file that is missing or has no bytes counts as being written.
const WRITING: Duration = Duration::from_secs(10);

/// The content of a file that is followed when it changes. The default content admits nobody; it is used when
/// the file has been missing or empty for [`WRITING`]. While the file has faults, the former content stays in use, and the fault is logged once.
#[derive(Debug)]
pub(crate) struct FollowedFile<T, E> {
    path: PathBuf,
    read: fn(&Path) -> Result<T, E>,
    current: RwLock<Arc<T>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_logged: String,
    /// Since when the file is missing or empty.
    absent_since: Option<Instant>,
}

impl<T: Default + PartialEq, E: Error + 'static> FollowedFile<T, E> {
    /// Reads the file.
    pub(crate) fn load(path: PathBuf, read: fn(&Path) -> Result<T, E>) -> Result<Self, E> {
        let current = RwLock::new(Arc::new(read(&path)?));
        Ok(Self { path, read, current, state: Mutex::default() })
    }

    /// Returns the content in use.
    pub(crate) fn current(&self) -> Arc<T> {
        self.current.read().clone()
    }

    /// Returns whether the content in use admits nobody.
    pub(crate) fn admits_nobody(&self) -> bool {
        *self.current() == T::default()
    }

    /// Reads the file again.
    pub(crate) fn reload(&self) {
        let file = self.path.display();
        let mut state = self.state.lock();
        let read = if is_absent(&self.path) {
            let since = *state.absent_since.get_or_insert_with(Instant::now);
            (since.elapsed() >= WRITING).then(T::default).ok_or_else(|| ABSENT.to_owned())
        } else {
            state.absent_since = None;
            (self.read)(&self.path).map_err(|error| crate::with_causes(&error))
        };
        match read {
            Ok(content) => {
                if *self.current() != content {
                    *self.current.write() = Arc::new(content);
                    if self.admits_nobody() {
                        tracing::warn!(%file, "the file changed and admits nobody")
                    } else {
                        tracing::info!(%file, "the file changed and is in use")
                    }
                }
                state.last_logged.clear();
            }
            Err(error) => {
                if error != state.last_logged {
                    tracing::warn!(%file, error, "the changed file cannot be used; the former content stays in use");
                    state.last_logged = error;
                }
            }
        }
    }

    /// Reads the file from time to time.
    pub(crate) async fn watch(&self) -> Infallible {
        loop {
            tokio::time::sleep(POLL).await;
            self.reload();
        }
    }
}

const ABSENT: &str = "it is missing or empty, and admits nobody after 10 s";

/// Returns whether a file is missing or has no bytes, as while it is being written.
fn is_absent(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(file) => file.is_file() && file.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
