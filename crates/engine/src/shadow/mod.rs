//! Evaluations of requests whose outcomes do not count: by actions in the shadow, and by a second configuration. They begin when the
//! answer is known, are limited, and are compared with it (docs/operating/shadow.md).

mod call;
mod counts;
pub(crate) mod kind;
mod quotas;
mod verdict;

use std::{sync::Arc, time::Duration};

use mixer_adapter_core::framework::settings;
use tokio::{runtime::Handle, sync::Semaphore};

use crate::{sample::Sample, snapshot::Snapshot};

pub use call::ShadowCall;
pub use counts::ShadowCounts;
pub use kind::ShadowKind;
pub(crate) use quotas::{dimensions_field, keep_apart};
pub use verdict::ShadowDifference;

settings! {
    /// The limits of evaluations in the shadow.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct ShadowOptions {
        /// Share of calls that are evaluated, from 0 to 1.
        sample: f64 = 1.0,
        /// Maximum number of concurrent evaluations.
        evaluations: usize = 64,
        /// Maximum size of the requests that are evaluated or wait for it, in bytes.
        bytes: usize = 8 << 20,
        /// Maximum time from the answer to the end of the evaluation.
        timeout: Duration = Duration::from_secs(5),
        /// The runtime of the evaluations; by default the runtime of the call.
        runtime: Option<Handle> = None,
    }
}

/// The evaluations of an engine in the shadow.
#[derive(Debug)]
pub struct Shadow {
    timeout: Duration,
    runtime: Option<Handle>,
    sample: Sample,
    state: Arc<State>,
}

/// The state that evaluations share.
#[derive(Debug)]
struct State {
    evaluations: Semaphore,
    /// A permit for each byte of requests that are evaluated or wait for it.
    bytes: Arc<Semaphore>,
    /// By [`ShadowKind`].
    counts: [ShadowCounts; ShadowKind::ALL.len()],
}

impl Shadow {
    /// Creates the shadow of an engine.
    pub fn new(options: ShadowOptions) -> Self {
        let ShadowOptions { sample, evaluations, bytes, timeout, runtime } = options;
        let [evaluations, bytes] =
            [evaluations, bytes].map(|permits| Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let state = State { evaluations, bytes: Arc::new(bytes), counts: Default::default() };
        Self { timeout, runtime, sample: Sample::new(sample), state: Arc::new(state) }
    }

    /// Returns the attributes that a second configuration uses, and that the one in use does not declare with the same type. No request
    /// has them.
    pub fn undeclared(second: &Snapshot, in_use: &Snapshot) -> Vec<String> {
        let (used, known) = (second.bag(), in_use.vocabulary());
        let undeclared = second.vocabulary().iter().filter(|declared| {
            let in_use = known.find(declared.name).map(|known| known.value_type);
            used.holds_slot(declared.slot) && in_use != Some(declared.value_type)
        });
        undeclared.map(|declared| declared.name.to_string()).collect()
    }

    /// The counters of a kind.
    pub fn counts(&self, kind: ShadowKind) -> &ShadowCounts {
        &self.state.counts[kind as usize]
    }
}

impl Default for Shadow {
    fn default() -> Self {
        Self::new(ShadowOptions::default())
    }
}
