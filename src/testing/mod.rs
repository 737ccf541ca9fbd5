//! For the tests of adapters: the suite that holds any adapter to the contract in `docs/adapter-contract.md`.
//!
//! One line in the adapter's file is a test of it:
//!
//! ```ignore
//! mixer_adapter::testing::compliance!(DenyList);
//! // With a configuration that it takes, and one that it refuses because of a field:
//! mixer_adapter::testing::compliance!(ListChecker, config("overrides: [a, b]"), refuses("ttl", "ttl: -1s"));
//! ```

mod compliance;
mod faulty;
mod instances;
mod rules;
mod subject;

pub use compliance::{Compliance, Violation};

pub use crate::compliance;

/// Makes a test of an adapter: that it keeps the contract. What follows its name are the methods of
/// [`Compliance`](crate::testing::Compliance) that say more about it.
#[macro_export]
macro_rules! compliance {
    ($adapter:ty $(, $method:ident $arguments:tt)* $(,)?) => {
        #[test]
        fn keeps_the_adapter_contract() {
            $crate::testing::Compliance::<$adapter>::new()$(.$method $arguments)*.run();
        }
    };
}
