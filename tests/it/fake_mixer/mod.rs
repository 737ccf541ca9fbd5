//! The fake Mixer: its explanations, and its treatment of adapters, faults and configuration.

mod answers;
mod configuration;
mod details;
mod elsewhere;
mod failure_policy;
mod faults;
mod handler;
mod killers;
mod sessions;

use mixer_adapter::{
    template::ListEntry,
    testing::{Attributes, FakeMixer, Setup, attributes},
};
use test_adapters::Probe;

/// A handler that does what `request.path` says, and writes it down in that ledger.
fn obedient(ledger: &str) -> Setup<Probe> {
    FakeMixer::with::<Probe>()
        .handler("probe", &*format!("{{ledger: {ledger}, seq: 7, grant: 3}}"))
        .instance::<ListEntry>("order", "value: request.path")
        .rule("true", "probe", ["order"])
}

fn order(path: &str) -> Attributes {
    attributes! { "request.path" => path }
}
