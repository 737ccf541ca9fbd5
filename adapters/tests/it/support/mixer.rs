//! A client of the Mixer API.

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
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
        let mut client = Grpc::new(endpoint.connect().await.unwrap());
        client.ready().await.unwrap();
        let path = format!("/istio.mixer.v1.Mixer/{method}").parse().unwrap();
        client.unary(Request::new(request), path, ProstCodec::<Q, A>::default()).await
    })
}
