//! Extensions by the names they had in v2, where their configuration could be a `Struct` without a type, or missing.

/// Filters of connections.
const NETWORK: [(&str, &str); 8] = [
    ("echo", "envoy.config.filter.network.echo.v2.Echo"),
    ("ext_authz", "envoy.config.filter.network.ext_authz.v2.ExtAuthz"),
    (
        "http_connection_manager",
        "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager",
    ),
    ("mongo_proxy", "envoy.config.filter.network.mongo_proxy.v2.MongoProxy"),
    ("ratelimit", "envoy.config.filter.network.rate_limit.v2.RateLimit"),
    ("rbac", "envoy.config.filter.network.rbac.v2.RBAC"),
    ("redis_proxy", "envoy.config.filter.network.redis_proxy.v2.RedisProxy"),
    ("tcp_proxy", "envoy.config.filter.network.tcp_proxy.v2.TcpProxy"),
];

/// Filters of requests.
const HTTP: [(&str, &str); 17] = [
    ("buffer", "envoy.config.filter.http.buffer.v2.Buffer"),
    ("cors", "envoy.config.filter.http.cors.v2.Cors"),
    ("csrf", "envoy.config.filter.http.csrf.v2.CsrfPolicy"),
    ("ext_authz", "envoy.config.filter.http.ext_authz.v2.ExtAuthz"),
    ("fault", "envoy.config.filter.http.fault.v2.HTTPFault"),
    ("grpc_http1_bridge", "envoy.config.filter.http.grpc_http1_bridge.v2.Config"),
    ("grpc_json_transcoder", "envoy.config.filter.http.transcoder.v2.GrpcJsonTranscoder"),
    ("grpc_web", "envoy.config.filter.http.grpc_web.v2.GrpcWeb"),
    ("gzip", "envoy.config.filter.http.gzip.v2.Gzip"),
    ("header_to_metadata", "envoy.config.filter.http.header_to_metadata.v2.Config"),
    ("health_check", "envoy.config.filter.http.health_check.v2.HealthCheck"),
    ("jwt_authn", "envoy.config.filter.http.jwt_authn.v2alpha.JwtAuthentication"),
    ("lua", "envoy.config.filter.http.lua.v2.Lua"),
    ("rate_limit", "envoy.config.filter.http.rate_limit.v2.RateLimit"),
    ("ratelimit", "envoy.config.filter.http.rate_limit.v2.RateLimit"),
    ("rbac", "envoy.config.filter.http.rbac.v2.RBAC"),
    ("router", "envoy.config.filter.http.router.v2.Router"),
];

/// Configuration of filters of requests for one route.
const PER_ROUTE: [(&str, &str); 5] = [
    ("buffer", "envoy.config.filter.http.buffer.v2.BufferPerRoute"),
    ("csrf", "envoy.config.filter.http.csrf.v2.CsrfPolicy"),
    ("ext_authz", "envoy.config.filter.http.ext_authz.v2.ExtAuthzPerRoute"),
    ("fault", "envoy.config.filter.http.fault.v2.HTTPFault"),
    ("rbac", "envoy.config.filter.http.rbac.v2.RBACPerRoute"),
];

/// Filters of new connections.
const LISTENER: [(&str, &str); 5] = [
    ("http_inspector", "envoy.config.filter.listener.http_inspector.v2.HttpInspector"),
    ("original_dst", "envoy.config.filter.listener.original_dst.v2.OriginalDst"),
    ("original_src", "envoy.config.filter.listener.original_src.v2alpha1.OriginalSrc"),
    ("proxy_protocol", "envoy.config.filter.listener.proxy_protocol.v2.ProxyProtocol"),
    ("tls_inspector", "envoy.config.filter.listener.tls_inspector.v2.TlsInspector"),
];

const ACCESS_LOG: [(&str, &str); 3] = [
    ("file", "envoy.config.accesslog.v2.FileAccessLog"),
    ("http_grpc", "envoy.config.accesslog.v2.HttpGrpcAccessLogConfig"),
    ("tcp_grpc", "envoy.config.accesslog.v2.TcpGrpcAccessLogConfig"),
];

/// The messages that name an extension and have its configuration, and those extensions.
const CONTAINERS: [(&str, &[(&str, &str)]); 4] = [
    ("envoy.api.v2.listener.Filter", &NETWORK),
    ("envoy.api.v2.listener.ListenerFilter", &LISTENER),
    ("envoy.config.filter.network.http_connection_manager.v2.HttpFilter", &HTTP),
    ("envoy.config.filter.accesslog.v2.AccessLog", &ACCESS_LOG),
];

/// The message of the configuration of an extension that a container names.
pub(super) fn config_of(container: &str, name: &str) -> Option<&'static str> {
    let (_, extensions) = CONTAINERS.iter().find(|(known, _)| *known == container)?;
    find(extensions, name)
}

/// The name under which version 2 of Envoy finds an extension of that container, by the message of its configuration.
pub(super) fn name_of(container: &str, message: &str) -> Option<String> {
    let (_, extensions) = CONTAINERS.iter().find(|(known, _)| *known == container)?;
    let category = match container.rsplit('.').next()? {
        "Filter" => "filters.network",
        "ListenerFilter" => "filters.listener",
        "HttpFilter" => "filters.http",
        _ => "access_loggers",
    };
    // Of several names of one extension the last is the newest.
    let (short, _) = extensions.iter().rfind(|(_, known)| *known == message)?;
    Some(format!("envoy.{category}.{short}"))
}

/// Returns the name under which version 2 of Envoy finds a per-route configuration of an HTTP filter, by its message.
pub(super) fn name_per_route(message: &str) -> Option<String> {
    let (short, _) = PER_ROUTE.iter().find(|(_, known)| *known == message)?;
    Some(format!("envoy.filters.http.{short}"))
}

/// Returns the message of the per-route configuration of an HTTP filter.
pub(super) fn config_per_route(name: &str) -> Option<&'static str> {
    find(&PER_ROUTE, name)
}

/// `envoy.filters.http.router`, `envoy.router` and `envoy.file_access_log` are the same extensions under their newer and older names.
fn find(extensions: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let short = name.strip_prefix("envoy.")?;
    let short = short.rsplit('.').next().unwrap_or(short);
    let short = short.strip_suffix("_access_log").unwrap_or(short);
    extensions.iter().find(|(known, _)| *known == short).map(|(_, message)| *message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Types;
    use mixer_adapter_config::envoy::successor;

    #[test]
    fn the_configuration_of_every_extension_is_a_message_of_v2_that_v3_has() {
        for (container, extensions) in CONTAINERS.into_iter().chain([("per route", &PER_ROUTE[..])]) {
            for (name, message) in extensions {
                assert!(Types::v2(message).is_some(), "{container}: {name}: {message}");
                let successor = successor(message).and_then(Types::v3);
                assert!(successor.is_some(), "{container}: {name}: {message} became nothing");
            }
        }
    }

    #[test]
    fn extensions_are_found_by_their_older_and_newer_names() {
        let http = "envoy.config.filter.network.http_connection_manager.v2.HttpFilter";
        for name in ["envoy.router", "envoy.filters.http.router"] {
            assert_eq!(config_of(http, name), Some("envoy.config.filter.http.router.v2.Router"));
        }
        let log = "envoy.config.filter.accesslog.v2.AccessLog";
        for name in ["envoy.file_access_log", "envoy.access_loggers.file"] {
            assert_eq!(config_of(log, name), Some("envoy.config.accesslog.v2.FileAccessLog"));
        }
        assert_eq!(config_of(http, "router"), None, "not a name of Envoy's");
    }
}
