//! The compliance suite: the rules of `docs/adapter-contract.md` as a test of any adapter.
//!
//! | question | file |
//! |---|---|
//! | which rules are there, and how is each repaired | `rules.txt` |
//! | how are they run within a budget | `run.rs` |
//! | which rules apply to any adapter, in this process or behind a server | `common.rs`, `survey.rs` |
//! | which rules need the adapter in this process | `process_rules.rs`, `usage.rs` |
//! | how is the adapter called and observed in this process | `process.rs`, `observed.rs` |

pub(crate) mod common;
pub(crate) mod instances;
mod observed;
mod process;
mod process_rules;
pub(crate) mod rules;
pub(crate) mod run;
pub(crate) mod survey;
mod usage;

use std::{
    fmt,
    marker::PhantomData,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use self::{
    common::Options,
    observed::{Observed, ObservedHandler, Observer},
    process::Suite,
    rules::RULES,
    run::{Run, Tested, Verdict},
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

/// A rule of the contract that an adapter breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The rule's name, as in `docs/adapter-contract.md`.
    pub rule: &'static str,
    /// How the adapter breaks it.
    pub reason: String,
    /// How to repair the adapter.
    pub repair: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n    repair: {}", self.rule, self.reason, self.repair)
    }
}

impl<A> Compliance<A> {
    /// Creates the suite with an empty configuration.
    #[allow(clippy::new_without_default)] // always followed by its other methods
    pub fn new() -> Self {
        Self { options: Options::default(), state: Arc::new(()), adapter: PhantomData }
    }

    /// Sets the state of the program, of which a test replaces parts: a service, a clock.
    pub fn state<S>(self, state: S) -> Compliance<A, S> {
        Compliance { options: self.options, state: Arc::new(state), adapter: PhantomData }
    }
}

impl<A: Adapter<S>, S: Send + Sync + 'static> Compliance<A, S> {
    /// Sets a configuration that the adapter accepts, in YAML or JSON.
    pub fn config(mut self, text: &str) -> Self {
        self.options.config = Some(text.to_owned());
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

    /// Adds an instance of a template to those that the suite makes, in YAML or JSON: for adapters that answer only few instances.
    pub fn example(mut self, template: &str, fields: &str) -> Self {
        self.options.examples.push((template.to_owned(), fields.to_owned()));
        self
    }

    /// Omits a rule that the adapter breaks on purpose, such as `answers-hold`.
    ///
    /// # Panics
    /// If there is no such rule.
    #[track_caller]
    pub fn except(mut self, rule: &str) -> Self {
        assert!(RULES.iter().any(|known| known.name == rule), "`{rule}` is not a rule of the contract");
        self.options.excepted.push(rule.to_owned());
        self
    }

    /// Sets the limit for each call, opening and closing; by default 10 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.options.patience = patience;
        self
    }

    /// Sets the limit for the whole suite; by default 2 minutes. An adapter that answers slowly is tested with fewer instances.
    pub fn budget(mut self, budget: Duration) -> Self {
        self.options.budget = budget;
        self
    }

    /// Runs the suite and returns the broken rules.
    ///
    /// # Panics
    /// If no thread can be started.
    pub fn violations(&self) -> Vec<Violation> {
        self.test().into_iter().filter_map(Violation::of).collect()
    }

    /// Runs the suite.
    ///
    /// # Panics
    /// If a rule is broken; the message lists the broken rules with the reasons and their repair.
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

    /// Tests all rules on a thread of its own, whose runtime the adapter cannot block.
    fn test(&self) -> Vec<Tested> {
        let add = |observer: Arc<Observer>, adapters: AdaptersBuilder| {
            let state = Observed { state: self.state.clone(), observer };
            adapters.add_with::<ObservedHandler<A>, Observed<S>>(Arc::new(state))
        };
        let (options, templates) = (&self.options, OnceLock::new());
        let suite = Suite { adapter: A::NAME, blocking: A::BLOCKING, options, templates, add: &add };
        let tested = || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let progress: &(dyn Fn(&Tested) + Sync) = &|tested| print_progress(A::NAME, tested);
                runtime.block_on(process_rules::test(&suite, Run::new(&self.options, progress)))
            }
            Err(error) => panic!("cannot start a runtime: {error}"),
        };
        thread::scope(|scope| match scope.spawn(tested).join() {
            Ok(tested) => tested,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

impl Violation {
    fn of(tested: Tested) -> Option<Self> {
        let Verdict::Broken(reason) = tested.verdict else { return None };
        Some(Self { rule: tested.rule.name, reason, repair: tested.rule.repair })
    }
}

/// Prints the outcome of a rule, which `cargo test` shows with `--nocapture` and of a test that failed.
#[expect(clippy::print_stderr, reason = "tests print there, and their runner captures it")]
fn print_progress(adapter: &str, tested: &Tested) {
    let Tested { rule, verdict, took } = tested;
    eprintln!("compliance of `{adapter}`: {} {verdict} ({} ms)", rule.name, took.as_millis());
}
