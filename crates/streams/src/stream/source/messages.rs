//! Resources that a program has as messages.

use prost::Name;

use super::driver::ConfigServer;
use crate::stream::{raw_change::RawChange, raw_resource::RawResource, type_url::collection_of};
use mixer_adapter_core::proto::Any;

/// The prefix of type URLs.
const HOST: &str = "type.googleapis.com/";

impl ConfigServer {
    /// Serves these messages by their names, in place of all others of their type. Unchanged resources stay as they
    /// are.
    ///
    /// ```
    /// # use mixer_adapter_streams::stream::source::{Catalogue, ConfigServer, ConfigServerOptions};
    /// #[derive(Clone, PartialEq, prost::Message)]
    /// struct RouteConfiguration {
    ///     #[prost(string, tag = "1")]
    ///     name: String,
    /// }
    ///
    /// impl prost::Name for RouteConfiguration {
    ///     const PACKAGE: &'static str = "envoy.config.route.v3";
    ///     const NAME: &'static str = "RouteConfiguration";
    /// }
    ///
    /// let server = ConfigServer::new(Catalogue::default().open(), ConfigServerOptions::default());
    /// server.serve_messages([("local_route", RouteConfiguration { name: "local_route".to_owned() })]);
    /// assert_eq!(server.catalogue().snapshot("envoy.config.route.v3.RouteConfiguration").unwrap().resources().len(), 1);
    /// ```
    pub fn serve_messages<M: Name>(&self, messages: impl IntoIterator<Item = (impl Into<String>, M)>) {
        let type_url = format!("{HOST}{}", M::full_name());
        let resources = messages.into_iter().map(|(name, message)| {
            let body = Any { type_url: type_url.clone(), value: message.encode_to_vec().into() };
            RawResource { name: name.into(), body, ..RawResource::default() }.into()
        });
        self.apply(&RawChange {
            collection: collection_of(&type_url).as_str().into(),
            version: String::new(),
            full: true,
            resources: resources.collect(),
            removed: Vec::new(),
        });
    }
}
