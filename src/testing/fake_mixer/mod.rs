//! The fake Mixer: the engine with a test's configuration, over adapters in the process.

mod answer;
mod ask;
mod attributes;
mod backend;
mod call;
mod connect;
mod fault;
mod handler;
mod mixer;
mod params;
mod resources;
mod setup;

pub use answer::Answer;
pub use ask::Ask;
pub use attributes::Attributes;
pub use call::Call;
pub use fault::Fault;
pub use handler::FakeHandler;
pub use mixer::FakeMixer;
pub use params::{IntoParams, Params};
pub use setup::{NoAdapter, Refused, Setup};
