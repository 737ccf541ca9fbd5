//! Tests the rules one by one, within the budget of the suite.

use std::{fmt, time::Duration};

use tokio::{
    sync::RwLock,
    time::{Instant, timeout_at},
};

use super::{
    common::Options,
    rules::{RULES, Rule},
};

pub(crate) type Outcome = anyhow::Result<()>;

/// A rule that was tested or skipped.
#[derive(Debug)]
pub(crate) struct Tested {
    pub(crate) rule: &'static Rule,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
}

#[derive(Debug)]
pub(crate) enum Verdict {
    Kept,
    Broken(String),
    Skipped(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("is kept"),
            Self::Broken(reason) => write!(f, "is broken: {reason}"),
            Self::Skipped(reason) => write!(f, "is not tested: {reason}"),
        }
    }
}

/// A reason not to test a rule, as the error of its test.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Skipped(pub(crate) String);

/// The longest budget, which an `Instant` can have.
const MAX_BUDGET: Duration = Duration::from_secs(24 * 60 * 60);

/// Held for writing while a suite measures the process, and for reading by the rules of the suites that run in parallel.
static PROCESS: RwLock<()> = RwLock::const_new(());

/// A run of the suite.
pub(crate) struct Run<'a> {
    options: &'a Options,
    progress: &'a (dyn Fn(&Tested) + Sync),
    end: Instant,
    /// Why no further rule is tested.
    stopped: Option<&'static str>,
    pub(crate) tested: Vec<Tested>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(options: &'a Options, progress: &'a (dyn Fn(&Tested) + Sync)) -> Self {
        let end = Instant::now() + options.budget.min(MAX_BUDGET);
        Self { options, progress, end, stopped: None, tested: Vec::new() }
    }

    /// Tests a rule, unless it is excepted, the budget has ended, or an essential rule is broken.
    pub(crate) async fn rule(&mut self, name: &str, test: impl Future<Output = Outcome>) {
        self.after(PROCESS.read(), name, test).await;
    }

    /// Tests a rule that measures the process while no other suite runs in it.
    pub(crate) async fn alone(&mut self, name: &str, test: impl Future<Output = Outcome>) {
        self.after(PROCESS.write(), name, test).await;
    }

    /// Tests a rule under a lock. The time until it is acquired is not part of the budget.
    async fn after<L>(
        &mut self,
        lock: impl Future<Output = L>,
        name: &str,
        test: impl Future<Output = Outcome>,
    ) {
        let start = Instant::now();
        let _locked = lock.await;
        self.end += start.elapsed();
        self.test(name, test).await;
    }

    async fn test(&mut self, name: &str, test: impl Future<Output = Outcome>) {
        let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
            unreachable!("{name} is not in the list of rules")
        };
        let start = Instant::now();
        let verdict = if self.options.excepted.iter().any(|excepted| excepted == name) {
            Verdict::Skipped("it is excepted".to_owned())
        } else if let Some(reason) = self.stopped {
            Verdict::Skipped(reason.to_owned())
        } else {
            let outcome =
                if Instant::now() < self.end { timeout_at(self.end, test).await.ok() } else { None };
            match outcome {
                Some(Ok(())) => Verdict::Kept,
                Some(Err(error)) if error.is::<Skipped>() => Verdict::Skipped(error.to_string()),
                Some(Err(error)) => Verdict::Broken(error.to_string()),
                None => {
                    self.stopped = Some("the budget has ended");
                    let budget = self.options.budget;
                    Verdict::Broken(format!(
                        "is not tested within the budget of {budget:?}, nor are the rules after it; see `budget(..)`"
                    ))
                }
            }
        };
        let tested = Tested { rule, verdict, took: start.elapsed() };
        (self.progress)(&tested);
        self.tested.push(tested);
    }

    /// Tests a rule without which the others cannot be tested.
    pub(crate) async fn essential(&mut self, name: &str, test: impl Future<Output = Outcome>) {
        self.rule(name, test).await;
        if let Some(Tested { verdict: Verdict::Broken(_), .. }) = self.tested.last() {
            self.stopped.get_or_insert("a rule before it is broken, and comes first");
        }
    }

    /// Returns the time for one of several parts of the suite of similar length.
    pub(crate) fn share(&self) -> Duration {
        (self.options.budget / 6).min(Duration::from_secs(10))
    }
}
