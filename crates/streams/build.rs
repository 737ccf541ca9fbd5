//! Generates the messages and services of MCP and xDS; pure Rust, no protoc.

fn main() {
    mixer_adapter_build::protos(&[
        "envoy/config/core/v3/base.proto",
        "envoy/service/discovery/v3/ads.proto",
        "envoy/service/discovery/v3/discovery.proto",
        "envoy/type/v3/semantic_version.proto",
        "mcp/v1alpha1/mcp.proto",
        "mcp/v1alpha1/metadata.proto",
        "mcp/v1alpha1/resource.proto",
    ]);
}
