fn main() {
    mixer_adapter_build::adapter("config.proto");
    mixer_adapter_build::template("template.proto");
}
