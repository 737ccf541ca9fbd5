//! What an adapter's author implements: [`Adapter`], and [`Handle`] for each template it serves.

mod check;
mod config;
mod error;
mod inferred;
mod name;
mod quota;
mod templates;

use std::future::Future;

pub use check::Check;
pub use config::{Config, ConfigErrors, Violation};
pub use error::{AdapterError, Code};
pub use inferred::{InferredType, InferredTypes};
pub use name::is_valid_name;
pub use quota::{Grant, QuotaArgs, QuotaAsked};
pub use templates::{TemplateVisitor, Templates};

use crate::template::Template;

/// A plugin that checks, reports, grants quota or makes attributes, for the templates it names.
///
/// A value of the adapter's type is a *handler*: the adapter with one configuration. [`open`](Self::open) makes it,
/// [`Handle::handle`] is called with each request, any number at a time, and [`close`](Self::close) ends it after its
/// last call. Equal configurations share one handler, whichever Mixers and sessions ask for it.
///
/// ```
/// use mixer_adapter_core::{Adapter, AdapterError, Check, Code, Handle, template::{checknothing, CheckNothing}};
/// # use mixer_adapter_core::adapter::Config;
/// # #[derive(Clone, PartialEq, mixer_adapter_core::prost::Message)]
/// # #[prost(prost_path = "mixer_adapter_core::prost")]
/// # struct Params {}
/// # impl Config for Params { const NAME: &'static str = "example.Params"; const DESCRIPTOR: &'static [u8] = &[]; }
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
    /// The name in configuration: `^[a-z]([-a-z0-9]*[a-z0-9])?$`, checked when the program is compiled.
    const NAME: &'static str;
    /// One sentence for lists and for the adapter resource.
    const DESCRIPTION: &'static str;
    /// Whether `handle` may block its thread (file or network calls that are not async, long computations). Such an
    /// adapter runs on a bounded pool of threads of its own, so that it stalls nobody else.
    const BLOCKING: bool = false;

    /// The configuration: `Params` of the adapter's config.proto.
    type Config: Config;
    /// The templates it serves, as a tuple: `(ListEntry, Quota)`. Each needs a [`Handle`].
    type Templates: Templates<Self>;

    /// Makes a handler. An error refuses the configuration: it becomes the answer to Validate and CreateSession, and to
    /// each call that brings this configuration, until it is tried again some seconds later.
    fn open(config: Self::Config) -> impl Future<Output = Result<Self, AdapterError>> + Send;

    /// Looks for faults in a configuration without opening anything, and for instances it cannot serve. Called before
    /// [`open`](Self::open), with the types of the session's instances; without types where a request brings its own
    /// configuration.
    fn validate(config: &Self::Config, types: &InferredTypes) -> Result<(), ConfigErrors> {
        let (_, _) = (config, types);
        Ok(())
    }

    /// Flushes what is buffered and lets go of everything. Called once, after the last call has ended; shutdown waits
    /// for it.
    fn close(self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// How an adapter serves one template.
#[diagnostic::on_unimplemented(
    message = "`{Self}` lists the template `{T}` but does not handle it",
    note = "add `impl Handle<{T}> for {Self}`, or take `{T}` out of `type Templates`"
)]
pub trait Handle<T: Template>: Adapter {
    /// Serves one call. A denial is an answer (`Check::deny`); an error means that the adapter failed, and a real Mixer
    /// turns it into INTERNAL for the whole request, whatever its code (docs/behaviour/adapter-calls.md#errors-of-an-adapter).
    fn handle(&self, input: T::Input) -> impl Future<Output = Result<T::Answer, AdapterError>> + Send;
}
