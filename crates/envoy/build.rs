//! Generates the messages and services of `proto/`; pure Rust, no protoc.

fn main() {
    mixer_adapter_build::protos("proto");
}
