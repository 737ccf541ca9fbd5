//! Handlers: adapters with a configuration. The table here builds, shares, caches and closes them.

mod adapters;
mod blocking;
mod call_error;
mod closing;
mod digest;
mod entry;
mod kept;
mod live;
mod params;
mod presence;
mod servers;
mod table;

pub(crate) use adapters::list;
pub use adapters::{AdapterInfo, Adapters, AdaptersBuilder, StartError, TemplateInfo};
pub use call_error::CallError;
pub use closing::Closing;
pub use digest::Digest;
pub(crate) use entry::BoxFuture;
pub use entry::Handler;
pub(crate) use params::struct_to_json;
pub use params::{ParamsError, read_json, read_params};
pub use servers::{Caller, Claim, Method, Resolver};
pub(crate) use servers::{FRAME_PREFIX, frame};
pub use table::{HandlerTable, TableLimits};
