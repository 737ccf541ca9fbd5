//! The fake Mixer: the engine with a test's configuration and in-process adapters.

mod answer;
mod attributes;
mod backend;
mod call;
mod connect;
mod fault;
mod handler;
mod mixer;
mod params;
mod request_builder;
mod resources;
mod setup;

pub use answer::Answer;
pub use attributes::Attributes;
pub use call::RecordedCall;
pub use fault::InjectedFault;
pub use handler::FakeHandler;
pub use mixer::FakeMixer;
pub use params::{IntoParams, Params};
pub use request_builder::RequestBuilder;
pub use setup::{NoAdapter, RejectedConfigError, Setup};
