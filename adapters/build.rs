//! Generates the configuration of each adapter.

fn main() {
    mixer_adapter_build::adapter("denier/config.proto");
    mixer_adapter_build::adapter("memquota/config.proto");
    mixer_adapter_build::adapter("stdio/config.proto");
    mixer_adapter_build::adapter("list/config.proto");
    mixer_adapter_build::adapter("noop/config.proto");
    mixer_adapter_build::adapter("prometheus/config.proto");
}
