//! Generates the messages that adapters share with Mixer and the standard templates; pure Rust, no protoc.

fn main() {
    mixer_adapter_build::core("proto", "templates");
}
