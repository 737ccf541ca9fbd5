//! Generates the messages of Istio's interfaces and the standard templates; pure Rust, no protoc.

fn main() {
    mixer_adapter_build::framework("proto", "templates");
}
