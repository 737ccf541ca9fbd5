fn main() {
    mixer_adapter_build::adapter("config.proto");
}
