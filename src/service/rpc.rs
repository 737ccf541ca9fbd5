//! Unary methods of services that are known when this is compiled.

use bytes::Bytes;
use prost::Message;
use tonic::Status;

use mixer_adapter_core::framework::frame::frame;
use mixer_adapter_host::handler::{BoxFuture, Caller};

/// A unary method that is not a template's.
pub(super) type Rpc = Box<dyn Fn(Bytes, Caller) -> BoxFuture<'static, Result<Bytes, Status>> + Send + Sync>;

/// Makes a method of a function from message to message.
pub(super) fn rpc<Request, Response, Answer>(
    method: impl Fn(Request, Caller) -> Answer + Send + Sync + Clone + 'static,
) -> Rpc
where
    Request: Message + Default + 'static,
    Response: Message,
    Answer: Future<Output = Result<Response, Status>> + Send + 'static,
{
    limited_rpc(|_| Ok(()), method)
}

/// Like [`rpc`], for encoded requests that `admit` accepts.
pub(super) fn limited_rpc<Request, Response, Answer>(
    admit: impl Fn(&[u8]) -> Result<(), Status> + Send + Sync + 'static,
    method: impl Fn(Request, Caller) -> Answer + Send + Sync + Clone + 'static,
) -> Rpc
where
    Request: Message + Default + 'static,
    Response: Message,
    Answer: Future<Output = Result<Response, Status>> + Send + 'static,
{
    Box::new(move |request, caller| {
        let (admitted, method) = (admit(&request), method.clone());
        Box::pin(async move {
            admitted?;
            let request = Request::decode(request).map_err(|error| {
                Status::invalid_argument(format!("the request cannot be decoded: {error}"))
            })?;
            Ok(frame(&method(request, caller).await?))
        })
    })
}
