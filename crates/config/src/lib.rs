//! Configuration: resources, where they come from, and what is wrong with them.
//!
//! ```text
//! text --parse--> resources --source--> changes --acceptance--> set --> (the engine builds a snapshot)
//! ```
//!
//! A [`Resource`] is who it is and a spec as JSON; an [`Entry`] of a [`ConfigSet`] is a resource understood; a [`ValidationError`] says what is
//! wrong, in which file and line, in which field. Nothing here knows templates, adapters or expressions: that is the
//! engine's part.
//!
//! # Protocols without I/O
//!
//! The protocols are state machines that a program can run over any transport, and that tests drive message by message: the sink
//! [`SinkMachine`](stream::sink::SinkMachine) with its [dialects](stream::sink::Dialect) [`Sotw`](xds::sink::Sotw) and
//! [`Delta`](xds::sink::Delta), and the dialogues of a source, [`McpStream`](mcp::source::McpStream),
//! [`SotwStream`](xds::source::SotwStream) and [`DeltaStream`](xds::source::DeltaStream). This answers a request of xDS without a
//! connection:
//!
//! ```
//! use mixer_adapter_config::{
//!     proto::envoy::service::discovery::v3::DiscoveryRequest,
//!     stream::source::{Catalogue, ConfigServer, ConfigServerOptions},
//!     xds::source::SotwStream,
//! };
//!
//! let server = ConfigServer::new(Catalogue::default().open(), ConfigServerOptions::default());
//! let cluster = "{'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: shop}";
//! server.serve_text(cluster).expect("a valid text");
//!
//! let mut stream = SotwStream::new(None);
//! let type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
//! stream.requested(DiscoveryRequest { type_url, ..DiscoveryRequest::default() })?;
//! let response = stream.next(&server.catalogue()).expect("a response is due");
//! assert_eq!(response.resources.len(), 1);
//! # Ok::<(), tonic::Status>(())
//! ```
//!
//! # Features
//!
//! * `tls` (default): sources and sinks over TLS.

mod acceptance;
mod bounded;
mod candidate;
pub mod certify;
mod change;
mod collection;
mod collection_filter;
mod discovery;
mod document;
mod envoy_types;
mod envoy_v2;
mod evolution;
mod first;
mod holdings;
mod identity;
mod istio;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod istio_descriptors;
mod lines;
mod lint;
mod listen_url;
pub mod mcp;
mod merged_source;
mod name;
mod offer;
mod ordered;
mod parse;
mod parsed;
pub mod proto;
mod resource;
mod runtime;
mod scope;
mod scoped_url;
mod set;
pub mod source;
mod spec;
pub mod stream;
mod subscription;
mod text_format;
mod types;
mod url;
mod validation_error;
pub mod xds;

pub use acceptance::{Acceptance, Apply, AwaitedCollection, LossPolicy, Progress, RefusedUpdate};
pub(crate) use bounded::MAX_TEXT;
pub use bounded::{join_texts, limit_texts, truncate};
pub use change::{Change, Content};
pub use collection::Collection;
pub use collection_filter::CollectionFilter;
pub use evolution::Finding;
pub use evolution::findings;
pub use identity::sink_id;
pub use lint::lint;
pub use listen_url::ListenUrl;
pub use merged_source::MergedSource;
pub use name::{Kind, ResourceName};
pub use offer::{Decision, Decisions, Offer, Offers, Update, Verdict};
pub use parse::parse;
pub use parsed::Parsed;
pub use resource::Resource;
pub use scoped_url::{Scoped, ScopedUrl, collection, collection_filters};
pub use set::{ConfigSet, Entry, ResolveError};
pub use source::{is_test, read, test_files};
pub use spec::{Handler, Instance, Spec, Target};
pub use subscription::{NotDeliveredError, StreamSource, Subscription};
pub use types::{Types, TypesError};
pub use url::{ConfigUrl, ConfigUrlError};
pub use validation_error::{Deprecation, Excerpt, Origin, Severity, Topic, ValidationError};
