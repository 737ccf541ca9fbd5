//! Handlers, which are adapters with a configuration: opened, shared, cached, called and closed here.

mod adapter_info;
mod adapters;
mod blocking;
mod built_instance;
mod cache;
mod call;
mod call_error;
mod closing;
mod erased;
mod handler_index;
mod http;
mod opening;
mod opening_queue;
mod panics;
mod status_details;

pub use adapter_info::{AdapterInfo, TemplateInfo, quoted_list};
pub use adapters::{Adapters, AdaptersBuilder, StartError};
pub use built_instance::{BuiltInstance, LocalInstance};
pub use call::{BegunCall, CallContext, FailedCall, LocalCall, Method, Resolver, instance_list, log_failure};
pub use call_error::CallError;
pub use closing::Closing;
pub use erased::{BoxFuture, Handler, Purpose};
pub use http::http_client;
pub use mixer_adapter_net::grpc::Caller;
pub use opening::{HandlerTable, TableLimits};
pub use panics::log_panics;
pub use status_details::{details_of, grpc_error};
