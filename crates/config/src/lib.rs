//! Configuration: resources, their files, and their faults.
//!
//! ```text
//! text --parse--> resources --source--> changes --acceptance--> set --> (the engine builds a snapshot)
//! ```
//!
//! A [`Resource`] has a name and a spec as JSON; an [`Entry`] of a [`ConfigSet`] has the decoded spec; a
//! [`ValidationError`] is a fault with file, line and field. Templates, adapters and expressions are the engine's part.
//! Sources other than files, and the messages of other programs such as Envoy, are in `mixer-adapter-streams`.

mod acceptance;
pub mod annotations;
mod any;
mod bounded;
mod candidate;
mod change;
mod collection;
mod collection_filter;
mod difference;
mod discovery;
mod document;
pub mod envoy;
mod evolution;
mod first;
mod holdings;
mod istio;
mod lines;
mod lint;
mod merged_source;
mod name;
mod offer;
mod parse;
mod parsed;
pub mod proto;
mod resource;
mod resource_lint;
mod resources;
mod runtime;
mod scope;
mod set;
pub mod source;
mod spec;
mod validation_error;

pub use acceptance::{Acceptance, Apply, AwaitedCollection, LossPolicy, Progress, RefusedUpdate};
pub use any::content;
pub use bounded::{MAX_NAME, MAX_TEXT, join_texts, limit_texts, truncate};
pub use change::{Change, Content};
pub use collection::Collection;
pub use collection_filter::CollectionFilter;
pub use evolution::{Finding, findings};
pub use lint::{lint, names_quota};
pub use merged_source::MergedSource;
pub use name::{Kind, ResourceName};
pub use offer::{Decision, Decisions, Offer, Offers, Update, Verdict};
pub use parse::parse;
pub use parsed::Parsed;
pub use resource::Resource;
pub use resources::Resources;
pub use set::{ConfigSet, Entry, ResolveError};
pub use source::{is_test, read, text_files};
pub use spec::{Handler, Instance, Spec, Target};
pub use validation_error::{Deprecation, Excerpt, Origin, Severity, Topic, ValidationError};
