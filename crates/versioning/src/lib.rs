//! Versions of protobuf APIs: a policy like Envoy's, as functions that tests and `mixer-adapter proto` call.
//!
//! A [`ProtoSet`] is checked against a [`Baseline`], the published facts, one per line, in a file that is committed
//! beside the protos. [`check`] returns every [`Violation`]; [`record`] adds compatible changes to the baseline.
//!
//! ```no_run
//! use mixer_adapter_versioning::{Baseline, ProtoSet, check};
//!
//! let protos = ProtoSet::open(&["proto"], &[])?;
//! let baseline: Baseline = std::fs::read_to_string("proto/baseline.txt")?.parse()?;
//! for violation in check(&protos, &baseline, None) {
//!     println!("{violation}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod baseline;
mod baseline_test;
mod bump;
mod check;
mod compatibility;
mod facts;
mod locations;
mod options;
mod references;
mod schedule;
mod set;
mod translate;
mod version;
mod violation;

pub use baseline::{Baseline, BaselineError};
pub use baseline_test::assert_baseline;
pub use bump::{BumpError, NextVersion, bump};
pub use check::{check, check_references, compare, record};
pub use set::{ProtoSet, ProtoSetError};
pub use translate::{Loss, Row, TranslateError, Translation, Translator};
pub use version::{PackageVersion, SemanticVersion, SemanticVersionError, Stability, Stage};
pub use violation::{Exception, ExceptionError, Rule, Violation};
