//! A client of the Mixer API, and of other methods.

use tonic::{Request, Response, Status, client::Grpc, codec::Codec, transport::Endpoint};
use tonic_prost::ProstCodec;

use super::Server;

/// Calls a method of the Mixer API.
pub(crate) fn call<Q, A>(server: &Server, method: &str, request: Q) -> Result<Response<A>, Status>
where
    ProstCodec<Q, A>: Codec<Encode = Q, Decode = A>,
    Q: Send + Sync + 'static,
    A: Send + Sync + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(unary(server, &format!("/istio.mixer.v1.Mixer/{method}"), Request::new(request)))
}

/// Calls a method on a connection of its own.
pub(crate) async fn unary<Q, A>(
    server: &Server,
    path: &str,
    request: Request<Q>,
) -> Result<Response<A>, Status>
where
    ProstCodec<Q, A>: Codec<Encode = Q, Decode = A>,
    Q: Send + Sync + 'static,
    A: Send + Sync + 'static,
{
    let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
    let mut client = Grpc::new(endpoint.connect().await.unwrap());
    client.ready().await.unwrap();
    client.unary(request, path.parse().unwrap(), ProstCodec::<Q, A>::default()).await
}
