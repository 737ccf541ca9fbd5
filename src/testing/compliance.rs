use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::{
    faulty::{Faulty, Hangs, Panics},
    rules,
};
use mixer_adapter_core::adapter::Adapter;
use mixer_adapter_host::handler::AdaptersBuilder;

/// The compliance suite for one adapter. [`compliance!`](crate::compliance) defines a test that runs it.
///
/// An adapter that does not accept an empty configuration needs at least [`config`](Self::config).
#[derive(Clone, Debug)]
#[must_use]
pub struct Compliance<A, S = ()> {
    options: Options,
    state: Arc<S>,
    adapter: PhantomData<fn() -> A>,
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) config: String,
    pub(super) refused: Vec<(String, String)>,
    pub(super) instance: String,
    pub(super) patience: Duration,
}

/// The adapter under test without its type.
pub(super) struct Suite<'a> {
    pub(super) adapter: &'static str,
    pub(super) options: &'a Options,
    pub(super) add: &'a (dyn Fn(Form, AdaptersBuilder) -> AdaptersBuilder + Sync),
}

/// The form of the adapter that a rule hosts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Plain,
    Panics,
    Hangs,
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

impl<A> Compliance<A> {
    /// Creates the suite with an empty configuration.
    #[allow(clippy::new_without_default)] // always followed by its other methods
    pub fn new() -> Self {
        let options = Options {
            config: "{}".to_owned(),
            refused: Vec::new(),
            instance: "example.instance.istio-system".to_owned(),
            patience: Duration::from_secs(10),
        };
        Self { options, state: Arc::new(()), adapter: PhantomData }
    }

    /// Sets the state of the program, of which a test replaces parts: a service, a clock.
    pub fn state<S>(self, state: S) -> Compliance<A, S> {
        Compliance { options: self.options, state: Arc::new(state), adapter: PhantomData }
    }
}

impl<A: Adapter<S>, S: Send + Sync + 'static> Compliance<A, S> {
    /// Sets a configuration that the adapter accepts, in YAML or JSON.
    pub fn config(mut self, text: &str) -> Self {
        text.clone_into(&mut self.options.config);
        self
    }

    /// Adds a configuration that the adapter rejects because of `field`, such as `overrides[2].max_amount`.
    pub fn refuses(mut self, field: &str, text: &str) -> Self {
        self.options.refused.push((field.to_owned(), text.to_owned()));
        self
    }

    /// Sets the full name of all instances, for adapters whose configuration names them; by default
    /// `example.instance.istio-system`.
    pub fn instance(mut self, name: &str) -> Self {
        name.clone_into(&mut self.options.instance);
        self
    }

    /// Sets the limit for each call, opening and closing; by default 10 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.options.patience = patience;
        self
    }

    /// Runs the suite and returns the broken rules.
    pub fn violations(&self) -> Vec<Violation> {
        let add = |form, adapters: AdaptersBuilder| match form {
            Form::Plain => adapters.add_with::<A, S>(self.state.clone()),
            Form::Panics => adapters.add_with::<Faulty<A, Panics>, S>(self.state.clone()),
            Form::Hangs => adapters.add_with::<Faulty<A, Hangs>, S>(self.state.clone()),
        };
        let suite = Suite { adapter: A::NAME, options: &self.options, add: &add };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        match runtime {
            Ok(runtime) => {
                let violations = runtime.block_on(rules::violations(&suite));
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
