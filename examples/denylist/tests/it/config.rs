//! Configurations written for one version of the adapter are read by the next.

mixer_adapter_versioning::baseline!("config.proto");
