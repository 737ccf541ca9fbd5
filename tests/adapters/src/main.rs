//! A program of the probe, for tests of what a process prints.

mixer_adapter::main!(test_adapters::Probe);
