//! The services of Envoy, and their names before version 3 of Envoy's API, whose messages are compatible.

use std::sync::Arc;

use mixer_adapter_envoy::{Services, proto};

use super::{
    additional::AdditionalServices,
    rpc::{Rpc, rpc},
    server::Server,
};

const AUTHORIZATION: [&str; 2] =
    ["envoy.service.auth.v3.Authorization", "envoy.service.auth.v2.Authorization"];

const CHECK: [&str; 2] =
    ["/envoy.service.auth.v3.Authorization/Check", "/envoy.service.auth.v2.Authorization/Check"];

impl Server {
    /// Serves Envoy's external authorization, too.
    #[must_use]
    pub fn envoy(self, services: Arc<Services>) -> Self {
        let check = || -> Rpc {
            let services = services.clone();
            rpc(move |request, caller| {
                let services = services.clone();
                async move { services.check(request, caller.deadline).await }
            })
        };
        self.add(AdditionalServices {
            names: AUTHORIZATION.into(),
            rpcs: CHECK.map(|path| (path, check())).into(),
            routes: Box::new(|routes| routes),
            descriptors: proto::DESCRIPTORS,
        })
    }
}
