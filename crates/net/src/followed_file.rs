use std::{
    convert::Infallible,
    error::Error,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

/// How often the file is read.
const POLL: Duration = Duration::from_secs(2);

/// The content of a file that is followed when it changes. While it cannot be used, the former content stays in use, and the fault
/// is logged once.
#[derive(Debug)]
pub(crate) struct FollowedFile<T, E> {
    path: PathBuf,
    read: fn(&Path) -> Result<T, E>,
    current: RwLock<Arc<T>>,
    last_logged: Mutex<String>,
}

impl<T: PartialEq, E: Error + 'static> FollowedFile<T, E> {
    /// Reads the file.
    pub(crate) fn load(path: PathBuf, read: fn(&Path) -> Result<T, E>) -> Result<Self, E> {
        let current = RwLock::new(Arc::new(read(&path)?));
        Ok(Self { path, read, current, last_logged: Mutex::default() })
    }

    /// Returns the last content that could be used.
    pub(crate) fn current(&self) -> Arc<T> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again.
    pub(crate) fn reload(&self) {
        let file = self.path.display();
        let mut last_logged = self.last_logged.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.read)(&self.path) {
            Ok(content) => {
                if *self.current() != content {
                    tracing::info!(%file, "the file changed and is in use");
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(content);
                }
                last_logged.clear();
            }
            Err(error) => {
                let text = crate::with_causes(&error);
                if text != *last_logged {
                    tracing::warn!(%file, error = text, "the changed file cannot be used; the former content stays in use");
                    *last_logged = text;
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
