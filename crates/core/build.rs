//! Generates the messages that adapters share with Mixer; pure Rust, no protoc.

fn main() {
    mixer_adapter_build::protos(mixer_adapter_build::CORE);
}
