//! Generates the messages and services of the Mixer API, sessions and explanations; pure Rust, no protoc.

fn main() {
    mixer_adapter_build::protos(&[
        "mixer/adapter/model/v1beta1/infrastructure_backend.proto",
        "mixer/v1/attributes.proto",
        "mixer/v1/check.proto",
        "mixer/v1/mixer.proto",
        "mixer/v1/report.proto",
        "mixer_adapter/v1/explain.proto",
    ]);
}
