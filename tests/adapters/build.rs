fn main() {
    mixer_adapter_build::adapter("protos/recorded.proto");
    mixer_adapter_build::adapter("protos/probe.proto");
    mixer_adapter_build::adapter("protos/blocker.proto");
    mixer_adapter_build::adapter("protos/bystander.proto");
    mixer_adapter_build::adapter("protos/careless.proto");
    mixer_adapter_build::template("protos/ownergen.proto");
    mixer_adapter_build::template("../../examples/tagcheck/template.proto");
}
