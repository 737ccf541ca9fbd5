//! The adapter trait and what its methods take and return.

mod access;
mod call;
mod check;
mod config;
mod context;
mod error;
mod faults;
mod files;
mod header_operation;
mod http;
mod inferred;
mod quota;
mod secret;
mod settings;
mod tasks;
mod templates;
mod warning;

pub use self::http::{Http, HttpError, HttpRequest, HttpResponse};
pub use access::{Access, AccessLimits, FileLocation, HostList, HostListError};
pub use call::Call;
pub use check::Check;
pub use config::{Config, ConfigErrors, Violation};
pub use context::Context;
pub use error::{AdapterError, Code};
pub use faults::{Declared, Faults, Setting, Shown};
pub use header_operation::HeaderOperation;
pub use inferred::{InferredType, InferredTypes};
pub use quota::{Grant, LimitOverride, LimitState, QuotaRequest};
pub use secret::{Secret, SecretText};
pub use settings::Settings;
#[doc(hidden)]
pub use templates::TemplateVisitor;
pub use templates::Templates;
pub use warning::Warning;

pub use crate::framework::is_framing_header;

#[doc(hidden)]
pub use self::http::{HttpTransport, Repeatable, SendFuture, TransportError, UnsendableError};
#[doc(hidden)]
pub use call::CallInfo;
#[doc(hidden)]
pub use context::{Environment, Shared};
#[doc(hidden)]
pub use tasks::Tasks;
#[doc(hidden)]
pub use warning::Warnings;

use crate::template::Template;

/// A plugin that serves one or more templates: it checks requests, receives reports, grants quota or generates attributes.
///
/// A value of the type is a *handler*: the adapter with one configuration. [`open`](Self::open) makes it,
/// [`Handle::handle`] is called once per request and concurrently, and [`close`](Self::close) ends it after the last call.
/// Mixers and sessions with equal configurations share one handler.
///
/// `S` is the state of the program, such as clients and clocks, which [`Context::state`] returns. Most adapters have none.
///
/// ```
/// use mixer_adapter_core::{Adapter, AdapterError, Call, Check, Code, Context, Handle};
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
///     async fn open(_: Params, _: Context) -> Result<Self, AdapterError> {
///         Ok(Self)
///     }
/// }
///
/// impl Handle<CheckNothing> for Closed {
///     async fn handle(&self, _: Call<checknothing::InstanceMsg>) -> Result<Check, AdapterError> {
///         Ok(Check::deny(Code::PermissionDenied, "closed for the weekend"))
///     }
/// }
/// ```
pub trait Adapter<S = ()>: Sized + Send + Sync + 'static {
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
    /// Whether checks are answered from memory, within microseconds. By default the engine of this process does not cache such answers: a
    /// lookup costs as much.
    const ANSWERS_FROM_MEMORY: bool = false;

    /// A rough estimate of the memory that a handler takes, in bytes for each byte of its configuration. Limits on the handlers
    /// that calls and sessions keep open count in these bytes.
    const BYTES_PER_CONFIG_BYTE: usize = 4;

    /// The configuration: `Params` of the adapter's config.proto, or [`Settings`] that are parsed from it.
    type Config: Settings;
    /// The templates served, as a tuple such as `(ListEntry, Quota)`. Each requires a [`Handle`].
    type Templates: Templates<Self>;

    /// Makes a handler of a valid configuration.
    ///
    /// # Errors
    /// An error refuses the configuration. It is returned to CreateSession and to calls with this configuration until
    /// `open` is tried again some seconds later.
    fn open(
        config: Self::Config,
        context: Context<S>,
    ) -> impl Future<Output = Result<Self, AdapterError>> + Send;

    /// The memory that this handler takes beyond what [`BYTES_PER_CONFIG_BYTE`](Self::BYTES_PER_CONFIG_BYTE) estimates, in bytes, about. For
    /// adapters whose handlers can be many times as large as their configurations, such as compiled patterns.
    fn additional_bytes(&self) -> usize {
        0
    }

    /// Flushes buffers and releases resources. Called once, after the last call has ended; shutdown waits for it. Tasks of
    /// [`Context::spawn`] end when it returns.
    fn close(self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Serves one template.
#[diagnostic::on_unimplemented(
    message = "`{Self}` lists the template `{T}` but does not handle it",
    note = "add `impl Handle<{T}> for {Self}`, or remove `{T}` from `type Templates`"
)]
pub trait Handle<T: Template>: Send + Sync + 'static {
    /// Serves one call. The types of input and answer follow from the template's variety ([`Template`]).
    ///
    /// # Errors
    /// An error means that the adapter failed; a denial is an answer ([`Check::deny`]). A real Mixer turns an error into
    /// INTERNAL for the whole request, whatever its code (docs/behaviour/adapter-calls.md#errors-of-an-adapter).
    fn handle(&self, call: T::Input) -> impl Future<Output = Result<T::Answer, AdapterError>> + Send;
}
