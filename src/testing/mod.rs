//! Tests of adapters: a fake Mixer that explains its answers, a fake HTTP service, and a compliance suite for any adapter.
//!
//! A [`FakeMixer`] is the engine of this project with a test's configuration. It calls the adapter under test as a Mixer
//! does, by gRPC over a pair of pipes in the process: no port, no server to start, and tests run in parallel.
//!
//! ```no_run
//! # use mixer_adapter::{Adapter, AdapterError, Call, Check, Code, Context, Handle};
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
//! #     async fn open(params: Params, _: Context) -> Result<Self, AdapterError> { Ok(Self(params.value)) }
//! # }
//! # impl Handle<ListEntry> for Closed {
//! #     async fn handle(&self, entry: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
//! #         let denied = entry.value.as_ref().is_some_and(|value| value.to_string() == self.0);
//! #         Ok(if denied { Check::deny(Code::PermissionDenied, "closed") } else { Check::allow() })
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use mixer_adapter::testing::{FakeMixer, attributes};
//!
//! let mixer = FakeMixer::with::<Closed>()
//!     .handler("closed", "value: /admin")
//!     .instance::<ListEntry>("path", "value: request.url_path")
//!     .rule(r#"request.method == "GET""#, "closed", ["path"])
//!     .start()
//!     .await
//!     .unwrap();
//! let get = |path: &str| attributes! { "request.method" => "GET", "request.url_path" => path };
//! mixer.check(get("/admin")).await.expect_denied(Code::PermissionDenied, "closed");
//! mixer.check(get("/")).await.expect_allowed();
//! # }
//! ```
//!
//! Start with [`FakeMixer::with`]; for calls without rules and attributes see [`Setup::params`]. docs/testing.md is a
//! tutorial.
//!
//! One line in the adapter's file tests the contract in `docs/adapter-contract.md`:
//!
//! ```ignore
//! mixer_adapter::testing::compliance!(DenyList);
//! // With an accepted configuration, and with a configuration that is rejected because of a field:
//! mixer_adapter::testing::compliance!(ListChecker, config("overrides: [a, b]"), refuses("ttl", "ttl: -1s"));
//! ```

pub(crate) mod compliance;
mod fake_mixer;
mod fake_service;

pub use compliance::{Compliance, Violation};
pub use fake_mixer::{
    Answer, Attributes, FakeHandler, FakeMixer, InjectedFault, IntoParams, NoAdapter, Params, RecordedCall,
    RejectedConfigError, RequestBuilder, Setup,
};
pub use fake_service::FakeService;

pub use crate::compliance;
#[doc(inline)]
pub use crate::{answer::Verdict, attributes};

/// Defines a test of the adapter contract.
///
/// Methods of [`Compliance`](crate::testing::Compliance) after the adapter configure it: `config("entries: [a]")`,
/// `refuses("ttl", "ttl: -1s")`, `state(Services::fake())`, `except("answers-hold")`. The test is `keeps_the_adapter_contract`, or has the name before the adapter: `compliance!(keeps_it_with_urls = DenyList, ..)`.
#[macro_export]
macro_rules! compliance {
    ($test:ident = $adapter:ty $(, $method:ident $arguments:tt)* $(,)?) => {
        #[test]
        fn $test() {
            $crate::testing::Compliance::<$adapter>::new()$(.$method $arguments)*.run();
        }
    };
    ($adapter:ty $(, $method:ident $arguments:tt)* $(,)?) => {
        $crate::compliance!(keeps_the_adapter_contract = $adapter $(, $method $arguments)*);
    };
}
