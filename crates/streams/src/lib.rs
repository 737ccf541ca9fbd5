//! Configuration over the network: MCP and xDS, as a sink and as a source for others, and the tests of other programs' ends.
//!
//! ```text
//! URL --subscription--> stream of MCP or xDS --body--> resources --> (acceptance, in mixer-adapter-config)
//! resources --feed--> catalogue --dialogue--> streams of MCP and xDS --> sinks
//! ```
//!
//! Resources and their errors are defined in `mixer-adapter-config`. The messages of their bodies ([`Types`]) include
//! Envoy's and Istio's.
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
//! use mixer_adapter_streams::{
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

pub mod certify;
mod envoy_v2;
mod identity;
mod listen_url;
pub mod mcp;
mod ordered;
pub mod proto;
mod scoped_url;
mod settings;
pub mod stream;
mod subscription;
mod text_format;
mod types;
mod url;
pub mod xds;

pub use identity::sink_id;
pub use listen_url::ListenUrl;
pub use scoped_url::{Scoped, ScopedUrl, collection, collection_filters};
pub use settings::{SourceSettings, Wanted};
pub use subscription::{NotDeliveredError, StreamSource, Subscription};
pub use text_format::FILE_FORMATS;
pub use types::{Types, TypesError};
pub use url::{ConfigUrl, ConfigUrlError, ServerUrl};
