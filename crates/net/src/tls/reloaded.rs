use std::{
    fmt::{self, Display},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Something made of files, and made again when they change. While they cannot be used, as in the middle of being replaced, the
/// former serves on.
pub struct Reloaded<T, E> {
    files: Box<dyn Fn() -> Result<Contents, E> + Send + Sync>,
    make: Box<Make<T, E>>,
    rest: Duration,
    state: Mutex<State<T>>,
}

/// What the files hold, in their order.
type Contents = Vec<Vec<u8>>;
type Make<T, E> = dyn Fn(&[Vec<u8>]) -> Result<T, E> + Send + Sync;

struct State<T> {
    contents: Contents,
    made: Arc<T>,
    looked: Instant,
    /// What was wrong when they were last looked at.
    told: String,
}

impl<T, E> Reloaded<T, E>
where
    T: Send + Sync + 'static,
    E: Display + Send + 'static,
{
    /// Reads the files and makes the first. They are read again when it is asked for, but not within `rest` of the last time.
    pub fn load(
        rest: Duration,
        files: impl Fn() -> Result<Contents, E> + Send + Sync + 'static,
        make: impl Fn(&[Vec<u8>]) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let contents = files()?;
        let made = Arc::new(make(&contents)?);
        let state = State { contents, made, looked: Instant::now(), told: String::new() };
        Ok(Self { files: Box::new(files), make: Box::new(make), rest, state: Mutex::new(state) })
    }

    /// What the files make now.
    pub async fn current(this: &Arc<Self>) -> Arc<T> {
        let looked = this.lock().looked;
        if looked.elapsed() >= this.rest {
            let aside = this.clone();
            // Where the program is ending it is not looked at again.
            let _ = tokio::task::spawn_blocking(move || aside.look()).await;
        }
        this.kept()
    }

    /// What they made when they were last looked at.
    pub fn kept(&self) -> Arc<T> {
        self.lock().made.clone()
    }

    fn look(&self) {
        let seen = (self.files)().and_then(|contents| {
            if contents == self.lock().contents {
                return Ok(None);
            }
            (self.make)(&contents).map(|made| Some((contents, Arc::new(made))))
        });
        let mut state = self.lock();
        state.looked = Instant::now();
        match seen {
            Ok(changed) => {
                state.told.clear();
                if let Some((contents, made)) = changed {
                    tracing::info!("certificates or keys changed; new connections use the new ones");
                    (state.contents, state.made) = (contents, made);
                }
            }
            Err(error) => {
                let error = error.to_string();
                if state.told != error {
                    tracing::warn!(
                        error,
                        "certificates or keys changed but cannot be used; the former ones serve on"
                    );
                    state.told = error;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without what was made, which may be secret.
impl<T, E> fmt::Debug for Reloaded<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloaded").finish_non_exhaustive()
    }
}
