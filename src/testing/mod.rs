//! Tests of adapters: a Mixer in the test that says why, and a suite that holds any adapter to its contract.
//!
//! A [`FakeMixer`] is the engine of this project with a test's configuration. It calls the adapter under test as a Mixer
//! would, by gRPC over a pair of pipes in the process: no port, no server to start, any number of tests at a time.
//!
//! ```no_run
//! # use mixer_adapter::{Adapter, AdapterError, Check, Code, Handle};
//! # use mixer_adapter::adapter::Config;
//! # use mixer_adapter::template::{listentry, ListEntry};
//! # #[derive(Clone, PartialEq, mixer_adapter::prost::Message)]
//! # #[prost(prost_path = "mixer_adapter::prost")]
//! # struct Params { #[prost(string, tag = "1")] value: String }
//! # impl Config for Params {
//! #     const NAME: &'static str = "istio.policy.v1beta1.Uri";
//! #     const DESCRIPTOR: &'static [u8] = mixer_adapter::proto::DESCRIPTORS;
//! #     const GENERATED: () = ();
//! # }
//! # struct Closed(String);
//! # impl Adapter for Closed {
//! #     const NAME: &str = "closed";
//! #     const DESCRIPTION: &str = "Denies one path.";
//! #     type Config = Params;
//! #     type Templates = (ListEntry,);
//! #     async fn open(params: Params) -> Result<Self, AdapterError> { Ok(Self(params.value)) }
//! # }
//! # impl Handle<ListEntry> for Closed {
//! #     async fn handle(&self, entry: listentry::InstanceMsg) -> Result<Check, AdapterError> {
//! #         let denied = entry.value.is_some_and(|value| value.to_string() == self.0);
//! #         Ok(if denied { Check::deny(Code::PermissionDenied, "closed") } else { Check::allow() })
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use mixer_adapter::testing::{FakeMixer, attributes};
//!
//! let mixer = FakeMixer::with::<Closed>()
//!     .handler("closed", "value: /admin")
//!     .instance::<ListEntry>("path", "value: request.path")
//!     .rule(r#"request.method == "GET""#, "closed", ["path"])
//!     .start()
//!     .await
//!     .unwrap();
//! let get = |path: &str| attributes! { "request.method" => "GET", "request.path" => path };
//! mixer.check(get("/admin")).await.expect_denied(Code::PermissionDenied, "closed");
//! mixer.check(get("/")).await.expect_allowed();
//! # }
//! ```
//!
//! Start with [`FakeMixer::with`]; for calls without rules and attributes see [`Setup::params`]. docs/testing.md is the
//! tutorial.
//!
//! One line in the adapter's file holds it to the contract in `docs/adapter-contract.md`:
//!
//! ```ignore
//! mixer_adapter::testing::compliance!(DenyList);
//! // With a configuration that it takes, and one that it refuses because of a field:
//! mixer_adapter::testing::compliance!(ListChecker, config("overrides: [a, b]"), refuses("ttl", "ttl: -1s"));
//! ```

mod compliance;
mod fake_mixer;
mod faulty;
mod instances;
mod rules;
mod subject;

pub use compliance::{Compliance, Violation};
pub use fake_mixer::{
    Answer, Ask, Attributes, Call, FakeHandler, FakeMixer, Fault, IntoParams, NoAdapter, Params, Refused,
    Setup,
};

pub use crate::compliance;
#[doc(inline)]
pub use crate::{answer::Verdict, attributes};

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
