//! Handlers: adapters with a configuration. The table here builds, shares, caches and closes them.

mod adapters;
mod blocking;
mod call_error;
mod closing;
mod entry;
mod kept;
mod live;
mod servers;
mod table;

pub use adapters::list;
pub use adapters::{AdapterInfo, Adapters, AdaptersBuilder, StartError, TemplateInfo};
pub use call_error::CallError;
pub use closing::Closing;
pub use entry::BoxFuture;
pub use entry::Handler;
pub use servers::{Caller, Claim, Method, Resolver};
pub use table::{HandlerTable, TableLimits};
