//! The interface between an adapter and the framework that serves it.
//!
//! Start with [`Adapter`], the trait that an author implements, and [`Handle`], which it implements once for each template.
//! Then:
//!
//! - [`template`]: the trait of templates; the standard ones are in `mixer-adapter-templates`;
//! - [`Check`] and [`Grant`]: the answers of checks and quota calls; [`AdapterError`] and [`Code`]: failures;
//! - [`Call`] and [`Context`]: the instances of a call with its deadline and client, and the environment of a handler;
//! - [`adapter`]: settings parsed from configurations ([`adapter::Settings`]) and types announced by sessions;
//! - [`log`]: lines of the log in bounded numbers;
//! - [`value`]: attribute values inside instances;
//! - [`metrics`]: counters, gauges and histograms of a handler on the metrics page ([`Context::metrics`]), with the feature `metrics`;
//! - [`retention`]: state that outlives a handler, such as counters;
//! - [`proto`]: messages shared with Mixer.
//!
//! A library with an adapter depends on this crate and `mixer-adapter-templates`. Programs and tests use the crate
//! `mixer-adapter`, which re-exports both.
//!
//! # Features
//!
//! * `metrics`: metrics of handlers, with the types of `prometheus-client`.

// Generated code names this crate, both here and in the crates of authors.
extern crate self as mixer_adapter_core;

pub mod adapter;
#[doc(hidden)]
pub mod framework;
mod locked;
pub mod log;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod proto;
pub mod retention;
pub mod template;
pub mod value;

pub use adapter::{
    Adapter, AdapterError, Call, Check, Code, Context, Grant, Handle, LimitState, QuotaRequest,
};
pub use http;
pub use proto::istio::policy::v1beta1::DirectHttpResponse;
pub use {anyhow, prost, prost_types};

/// Includes the code that `mixer_adapter_build` generated for a protobuf package. A module can include several.
///
/// ```ignore
/// mod config {
///     mixer_adapter_core::include_proto!("adapter.denier.config");
/// }
/// ```
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        include!(env!(
            concat!("MIXER_ADAPTER_PACKAGE_", $package),
            concat!(
                "build.rs does not generate the package \"",
                $package,
                "\"; mixer_adapter_build::adapter and mixer_adapter_build::template generate here: ",
                env!(
                    "MIXER_ADAPTER_PACKAGES",
                    "build.rs generates no package; call mixer_adapter_build::adapter in it"
                )
            )
        ));
    };
}
