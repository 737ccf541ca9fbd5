//! Generates the messages of Envoy's services; pure Rust, no protoc.

fn main() {
    let files = [
        "envoy/config/core/v3/address.proto",
        "envoy/config/core/v3/base.proto",
        "envoy/data/accesslog/v3/accesslog.proto",
        "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
        "envoy/service/accesslog/v3/als.proto",
        "envoy/service/auth/v3/attribute_context.proto",
        "envoy/service/auth/v3/external_auth.proto",
        "envoy/service/ratelimit/v3/rls.proto",
        "envoy/type/v3/http_status.proto",
        "envoy/type/v3/ratelimit_unit.proto",
        "envoy/type/v3/semantic_version.proto",
    ];
    let headers = "envoy.service.auth.v3.AttributeContext.HttpRequest.headers";
    mixer_adapter_build::protos_with_encoded(&files, &[headers]);
}
