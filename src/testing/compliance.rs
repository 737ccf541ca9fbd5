use std::{fmt, marker::PhantomData, time::Duration};

use super::rules;
use mixer_adapter_core::adapter::Adapter;

/// The compliance suite for one adapter. [`compliance!`](crate::compliance) defines a test that runs it.
///
/// An adapter that does not accept an empty configuration needs at least [`config`](Self::config).
#[derive(Clone, Debug)]
#[must_use]
pub struct Compliance<A> {
    pub(super) config: String,
    pub(super) refused: Vec<(String, String)>,
    pub(super) instance: String,
    pub(super) patience: Duration,
    adapter: PhantomData<fn() -> A>,
}

/// A rule of the contract that an adapter breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The rule's name, as in `docs/adapter-contract.md`.
    pub rule: &'static str,
    /// How the adapter breaks it.
    pub reason: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.reason)
    }
}

impl<A: Adapter> Compliance<A> {
    /// Creates the suite with an empty configuration.
    #[allow(clippy::new_without_default)] // always followed by its other methods
    pub fn new() -> Self {
        Self {
            config: "{}".to_owned(),
            refused: Vec::new(),
            instance: "example.instance.istio-system".to_owned(),
            patience: Duration::from_secs(10),
            adapter: PhantomData,
        }
    }

    /// Sets a configuration that the adapter accepts, in YAML or JSON.
    pub fn config(mut self, text: &str) -> Self {
        text.clone_into(&mut self.config);
        self
    }

    /// Adds a configuration that the adapter rejects because of `field`, such as `overrides[2].max_amount`.
    pub fn refuses(mut self, field: &str, text: &str) -> Self {
        self.refused.push((field.to_owned(), text.to_owned()));
        self
    }

    /// Sets the full name of all instances, for adapters whose configuration names them; by default
    /// `example.instance.istio-system`.
    pub fn instance(mut self, name: &str) -> Self {
        name.clone_into(&mut self.instance);
        self
    }

    /// Sets the limit for each call, opening and closing; by default 10 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Runs the suite and returns the broken rules.
    pub fn violations(&self) -> Vec<Violation> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        match runtime {
            Ok(runtime) => {
                let violations = runtime.block_on(rules::violations(self));
                // A handler that blocks its thread must not block the end of the test.
                runtime.shutdown_background();
                violations
            }
            Err(error) => {
                vec![Violation { rule: "none", reason: format!("cannot start the runtime: {error}") }]
            }
        }
    }

    /// Runs the suite.
    ///
    /// # Panics
    /// If a rule is broken; the message lists the broken rules with the reasons.
    pub fn run(&self) {
        let violations = self.violations();
        let list: Vec<String> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
        assert!(
            violations.is_empty(),
            "adapter `{}` breaks the contract in docs/adapter-contract.md:{}",
            A::NAME,
            list.concat()
        );
    }
}
