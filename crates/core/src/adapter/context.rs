use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt, fs, io,
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

use super::{
    Access, Adapter, AdapterError, ConfigErrors, Faults, Http, HttpTransport, InferredTypes, Secret,
    Settings, Tasks, Warning, Warnings, files, secret,
};
use crate::{
    framework::digest::Digest,
    locked::locked,
    retention::{Retain, Retained, RetainedStates},
};

/// The environment of a handler: the state of the program, and the services of the server.
///
/// [`Adapter::open`](super::Adapter::open) receives it. Clones are the same context; a handler stores one if it needs it later.
///
/// Files and hosts that a configuration names are reached through the context, which checks that this configuration may:
/// configurations also come from calls and sessions of others (`--file-root`, `--allow-hosts`).
pub struct Context<S = ()> {
    state: Arc<S>,
    environment: Arc<Environment>,
}

/// The part of a [`Context`] that the server supplies.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "it is in a context only")]
pub struct Environment {
    pub adapter: &'static str,
    pub handler: Option<Arc<str>>,
    pub types: InferredTypes,
    pub access: Access,
    pub tasks: Arc<Tasks>,
    pub retained: Option<(Arc<RetainedStates>, Digest)>,
    pub shared: Arc<Shared>,
    pub warnings: Arc<Warnings>,
    #[cfg(feature = "metrics")]
    pub metrics: crate::metrics::Metrics,
    pub http: Option<Arc<dyn HttpTransport>>,
}

/// Values that the handlers of an adapter share, by their type.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Shared(Mutex<HashMap<TypeId, Arc<SharedValue>>>);

type SharedValue = OnceLock<Arc<dyn Any + Send + Sync>>;

impl<S> Context<S> {
    /// Makes a context outside of a server, for a test or a part of a program: every file may be reached, and nothing is retained.
    pub fn detached(state: S) -> Self {
        let environment = Environment {
            adapter: "detached",
            handler: None,
            types: InferredTypes::default(),
            access: Access::unrestricted(),
            tasks: Arc::new(Tasks::new(None)),
            retained: None,
            shared: Arc::default(),
            warnings: Arc::default(),
            #[cfg(feature = "metrics")]
            metrics: crate::metrics::Metrics::default(),
            http: None,
        };
        Self::new(Arc::new(state), environment)
    }

    /// Parses a configuration and opens a handler with it, as a server does; for a test of a handler without a server.
    ///
    /// # Errors
    /// The faults of the configuration, and the error of `open`.
    pub async fn open_handler<A: Adapter<S>>(
        self,
        params: <A::Config as Settings>::Params,
    ) -> Result<A, AdapterError> {
        let config = Faults::new(self.types(), self.access()).settings(params)?;
        A::open(config, self.clone()).await
    }

    #[doc(hidden)]
    pub fn new(state: Arc<S>, environment: Environment) -> Self {
        Self { state, environment: Arc::new(environment) }
    }

    /// Returns the same context with another state.
    #[doc(hidden)]
    pub fn with_state<T>(&self, state: Arc<T>) -> Context<T> {
        Context { state, environment: self.environment.clone() }
    }

    /// Returns the state of the program: the argument of [`main!`](../../mixer_adapter/macro.main.html), of the fake Mixer or of
    /// `compliance!`.
    pub fn state(&self) -> &Arc<S> {
        &self.state
    }

    /// Returns the name of the adapter.
    pub fn adapter(&self) -> &'static str {
        self.environment.adapter
    }

    /// Returns the full name of the configured handler for which this one was opened. Handlers with equal configurations share it; one
    /// of a call or a session has no name.
    pub fn handler(&self) -> Option<&str> {
        self.environment.handler.as_deref()
    }

    /// Returns the types of the instances of the session or the configured handler for which this one was opened.
    ///
    /// Sessions with an equal configuration share the handler, whatever their types; each is validated with its own
    /// ([`Faults::types`](super::Faults::types)).
    pub fn types(&self) -> &InferredTypes {
        &self.environment.types
    }

    /// Returns the files and hosts that the configuration may reach, for adapters with their own clients.
    pub fn access(&self) -> &Access {
        &self.environment.access
    }

    /// Runs a task until the handler is closed. A task that ends earlier is not restarted.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.environment.tasks.spawn(self.adapter(), task);
    }

    /// Returns the state that the last handler with this configuration left, or a new state from `create`.
    ///
    /// The server retains the state of a closed handler for `--state-retention`, within a share of `--memory-limit`. A handler with
    /// another configuration has another state.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// use mixer_adapter_core::{Context, retention::{Retain, Retained}};
    ///
    /// #[derive(Default)]
    /// struct Seen(AtomicU64);
    ///
    /// impl Retain for Seen {
    ///     fn bytes(&self) -> usize {
    ///         if self.0.load(Relaxed) == 0 { 0 } else { size_of::<Self>() }
    ///     }
    /// }
    ///
    /// fn open(context: Context) -> u64 {
    ///     let seen: Retained<Seen> = context.retained(Seen::default);
    ///     seen.0.fetch_add(1, Relaxed)
    /// }
    /// assert_eq!(open(Context::detached(())), 0);
    /// ```
    pub fn retained<T: Retain>(&self, create: impl FnOnce() -> T) -> Retained<T> {
        Retained::acquire(self.environment.retained.as_ref(), create)
    }

    /// Returns the value of a type that all handlers of the adapter in this server share, after creating it if necessary. It lives as
    /// long as the server. For limits and connections of the process, in place of a static.
    pub fn shared<T: Send + Sync + 'static>(&self, create: impl FnOnce() -> T) -> Arc<T> {
        let mut values = locked(&self.environment.shared.0);
        let value = values.entry(TypeId::of::<T>()).or_default().clone();
        // `create` may share further values.
        drop(values);
        match value.get_or_init(|| Arc::new(create())).clone().downcast() {
            Ok(value) => value,
            Err(_) => unreachable!("the key is the type of the value"),
        }
    }

    /// Shows a warning in `/readyz`, `/status` and on the page until the result is dropped, for example that a backend is away. The name of
    /// the handler or the adapter is added.
    ///
    /// ```
    /// use mixer_adapter_core::{Context, adapter::Warning};
    ///
    /// fn lose(context: &Context) -> Warning {
    ///     context.warn("the directory does not answer")
    /// }
    /// # drop(lose(&Context::detached(())));
    /// ```
    pub fn warn(&self, text: impl fmt::Display) -> Warning {
        let source = match self.handler() {
            Some(handler) => format!("handler {handler}"),
            None => format!("a handler of {}", self.adapter()),
        };
        self.environment.warnings.add(format_args!("{source}: {text}"))
    }

    /// Returns the metrics of the handler, with the feature `metrics`.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self) -> &crate::metrics::Metrics {
        &self.environment.metrics
    }

    /// Returns a client of HTTP services.
    pub fn http(&self) -> Http {
        Http::new(self.environment.http.clone(), self.environment.access.clone())
    }

    /// Returns a client of HTTP services that trusts the certificates of a file in place of the system's, as [`http`](Self::http) does if `path` is
    /// empty. The file is read again for each connection. No link leads out of `--file-root`.
    ///
    /// # Errors
    /// As [`open`](Self::open), or a file without certificates.
    pub async fn http_with_ca(&self, field: &str, path: &str) -> Result<Http, AdapterError> {
        if path.is_empty() {
            return Ok(self.http());
        }
        self.read(field, path).await?;
        let Some(system) = self.environment.http.clone() else { return Ok(self.http()) };
        let file = self.access().file(field, Path::new(path))?;
        let transport = secret::run(move || system.with_authorities(file).map_err(io::Error::other)).await;
        let transport = transport.map_err(|error| ConfigErrors::single(field, error.to_string()))?;
        Ok(Http::new(Some(transport), self.access().clone()))
    }

    /// Opens a regular file to read, if the configuration may. No link leads out of `--file-root`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT that names `field`, the field of the configuration with the path.
    pub async fn open(&self, field: &str, path: impl AsRef<Path>) -> Result<fs::File, AdapterError> {
        let location = self.access().file(field, path.as_ref())?;
        let opened = secret::run(move || files::open(&location)).await;
        opened.map_err(|error| unreadable(field, path.as_ref(), &error))
    }

    /// Reads a regular file of up to 16 MiB, if the configuration may. No link leads out of `--file-root`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn read(&self, field: &str, path: impl AsRef<Path>) -> Result<Vec<u8>, AdapterError> {
        let location = self.access().file(field, path.as_ref())?;
        let read = secret::run(move || location.read()).await;
        read.map_err(|error| unreadable(field, path.as_ref(), &error))
    }

    /// Reads a secret from a file, if the configuration may. The secret is read again when the file changes.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn secret(&self, field: &str, path: impl AsRef<Path>) -> Result<Secret, AdapterError> {
        let location = self.access().file(field, path.as_ref())?;
        Secret::open(location).await.map_err(|error| unreadable(field, path.as_ref(), &error))
    }

    /// Reads a secret, as [`secret`](Self::secret) does; `None` if `path` is empty.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn optional_secret(&self, field: &str, path: &str) -> Result<Option<Secret>, AdapterError> {
        if path.is_empty() { Ok(None) } else { self.secret(field, path).await.map(Some) }
    }
}

fn unreadable(field: &str, path: &Path, error: &io::Error) -> AdapterError {
    ConfigErrors::single(field, format!("{} cannot be read: {error}", path.display())).into()
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), environment: self.environment.clone() }
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Environment { adapter, handler, access, .. } = &*self.environment;
        f.debug_struct("Context")
            .field("adapter", adapter)
            .field("handler", handler)
            .field("access", access)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_value_is_created_once_and_may_share_others() {
        let context = Context::detached(());
        let create = || (*context.shared(|| 1_u8) + 1, *context.shared(|| 2_u16));
        let value = context.shared(create);
        assert_eq!(*value, (2, 2));
        assert!(Arc::ptr_eq(&value, &context.shared(|| (0_u8, 0_u16))));
    }
}
