fn main() {
    mixer_adapter_build::adapter("config.proto");
    mixer_adapter_build::adapter("demo.proto");
}
