//! Generates the configuration of config.proto.

fn main() {
    mixer_adapter_build::adapter("config.proto");
}
