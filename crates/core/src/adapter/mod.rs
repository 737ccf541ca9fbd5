//! The traits that an author implements, [`Adapter`] and [`Handle`], with their answers and errors.

mod access;
mod check;
mod config;
mod error;
mod inferred;
mod peer;
mod quota;
mod templates;

pub use access::{Access, AccessLimits, FileLocation, HostList, HostListError};
pub use check::Check;
pub use config::{Config, ConfigErrors, Violation};
pub use error::{AdapterError, Code};
pub use inferred::{InferredType, InferredTypes};
pub use peer::peer;
#[doc(hidden)]
pub use peer::with_peer;
pub use quota::{Grant, LimitOverride, LimitState, QuotaRequest};
#[doc(hidden)]
pub use templates::TemplateVisitor;
pub use templates::Templates;

use crate::template::Template;

/// A plugin that serves one or more templates: it checks requests, receives reports, grants quota or generates attributes.
///
/// A value of the type is a *handler*: the adapter with one configuration. [`open`](Self::open) makes it,
/// [`Handle::handle`] is called once per request and concurrently, and [`close`](Self::close) ends it after the last call.
/// Mixers and sessions with equal configurations share one handler.
///
/// ```
/// use mixer_adapter_core::{Adapter, AdapterError, Check, Code, Handle};
/// use mixer_adapter_templates::{CheckNothing, checknothing};
/// # use mixer_adapter_core::adapter::Config;
/// # #[derive(Clone, PartialEq, mixer_adapter_core::prost::Message)]
/// # #[prost(prost_path = "mixer_adapter_core::prost")]
/// # struct Params {}
/// # impl Config for Params {
/// #     const NAME: &'static str = "example.Params";
/// #     const DESCRIPTOR: &'static [u8] = &[];
/// #     const GENERATED: () = ();
/// # }
///
/// struct Closed;
///
/// impl Adapter for Closed {
///     const NAME: &str = "closed";
///     const DESCRIPTION: &str = "Denies everything.";
///     type Config = Params; // generated from config.proto by mixer_adapter_build::adapter
///     type Templates = (CheckNothing,);
///
///     async fn open(_: Params) -> Result<Self, AdapterError> {
///         Ok(Self)
///     }
/// }
///
/// impl Handle<CheckNothing> for Closed {
///     async fn handle(&self, _: checknothing::InstanceMsg) -> Result<Check, AdapterError> {
///         Ok(Check::deny(Code::PermissionDenied, "closed for the weekend"))
///     }
/// }
/// ```
pub trait Adapter: Sized + Send + Sync + 'static {
    /// The name in configuration: `^[a-z]([-a-z0-9]*[a-z0-9])?$`, at most 63 bytes, checked at compile time.
    const NAME: &'static str;
    /// One sentence for lists and for the adapter resource.
    const DESCRIPTION: &'static str;
    /// The version, such as `env!("CARGO_PKG_VERSION")`: servers of configuration see it, and the deprecations in the configuration proceed by it.
    /// Empty if it has none.
    const VERSION: &'static str = "";
    /// An example of the configuration: `params` of a handler in YAML, which the command `reference` shows.
    const EXAMPLE: &'static str = "{}";
    /// Whether `open`, `handle` or `close` may block the thread (synchronous I/O, long computations). A blocking adapter
    /// runs on its own bounded pool of threads, so that it does not delay other adapters.
    const BLOCKING: bool = false;

    /// A rough estimate of the memory that a handler takes, in bytes for each byte of its configuration. Limits on the handlers
    /// that calls and sessions keep open count in these bytes.
    const BYTES_PER_CONFIG_BYTE: usize = 4;

    /// The configuration: `Params` of the adapter's config.proto.
    type Config: Config;
    /// The templates served, as a tuple such as `(ListEntry, Quota)`. Each requires a [`Handle`].
    type Templates: Templates<Self>;

    /// Makes a handler.
    ///
    /// # Errors
    /// An error refuses the configuration. It is returned to CreateSession and to calls with this configuration until
    /// `open` is tried again some seconds later.
    fn open(config: Self::Config) -> impl Future<Output = Result<Self, AdapterError>> + Send;

    /// Makes a handler of a configuration that may name files or hosts. An adapter that opens what its configuration names
    /// implements this, and asks [`Access`] before: configurations also come from calls and sessions of others.
    ///
    /// The default calls [`open`](Self::open), for adapters that reach nothing.
    ///
    /// # Errors
    /// As [`open`](Self::open), and files and hosts that are not allowed.
    fn open_within(
        config: Self::Config,
        access: Access,
    ) -> impl Future<Output = Result<Self, AdapterError>> + Send {
        drop(access);
        Self::open(config)
    }

    /// The memory that this handler takes beyond what [`BYTES_PER_CONFIG_BYTE`](Self::BYTES_PER_CONFIG_BYTE) estimates, in bytes, about. For
    /// adapters whose handlers can be many times as large as their configurations, such as compiled patterns.
    fn additional_bytes(&self) -> usize {
        0
    }

    /// Validates a configuration without opening anything. Called before [`open`](Self::open).
    ///
    /// `types` holds the types of the session's instances; it is empty when a call carries its own configuration.
    ///
    /// # Errors
    /// All faults of the configuration, and instances that the adapter cannot serve.
    fn validate(config: &Self::Config, types: &InferredTypes) -> Result<(), ConfigErrors> {
        let (_, _) = (config, types);
        Ok(())
    }

    /// Validates a configuration that may name files or hosts, also with regard to what it may reach. An adapter that implements
    /// [`open_within`](Self::open_within) implements this, too, so that faults are found before a handler is opened.
    ///
    /// The default calls [`validate`](Self::validate).
    ///
    /// # Errors
    /// As [`validate`](Self::validate), and files and hosts that are not allowed.
    fn validate_within(
        config: &Self::Config,
        types: &InferredTypes,
        access: &Access,
    ) -> Result<(), ConfigErrors> {
        let _ = access;
        Self::validate(config, types)
    }

    /// Returns the probable mistakes of a valid configuration, such as an entry that no value equals. The server logs them, and `validate`
    /// prints them as warnings. `types` is as in [`validate`](Self::validate).
    fn warnings(config: &Self::Config, types: &InferredTypes) -> Vec<Violation> {
        let (_, _) = (config, types);
        Vec::new()
    }

    /// Flushes buffers and releases resources. Called once, after the last call has ended; shutdown waits for it.
    fn close(self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Serves one template.
#[diagnostic::on_unimplemented(
    message = "`{Self}` lists the template `{T}` but does not handle it",
    note = "add `impl Handle<{T}> for {Self}`, or remove `{T}` from `type Templates`"
)]
pub trait Handle<T: Template>: Adapter {
    /// Serves one call. The types of input and answer follow from the template's variety ([`Template`]).
    ///
    /// # Errors
    /// An error means that the adapter failed; a denial is an answer ([`Check::deny`]). A real Mixer turns an error into
    /// INTERNAL for the whole request, whatever its code (docs/behaviour/adapter-calls.md#errors-of-an-adapter).
    fn handle(&self, input: T::Input) -> impl Future<Output = Result<T::Answer, AdapterError>> + Send;
}
