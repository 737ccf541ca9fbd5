//! Generates the messages of resources; pure Rust, no protoc.

fn main() {
    mixer_adapter_build::protos(&[
        "mixer/adapter/model/v1beta1/info.proto",
        "mixer/adapter/model/v1beta1/template.proto",
        "policy/v1beta1/cfg.proto",
    ]);
}
