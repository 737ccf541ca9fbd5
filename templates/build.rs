//! Generates the templates of this folder; pure Rust, no protoc.

fn main() {
    mixer_adapter_build::templates(".");
}
