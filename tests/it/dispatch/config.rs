//! The configuration of a case: files with placeholders for descriptors and for the addresses of adapters.

use std::{collections::BTreeMap, path::PathBuf, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mixer_adapter::template::STANDARD as TEMPLATES;
use mixer_adapter_config::{ConfigSet, ValidationError, parse};
use prost_reflect::DescriptorPool;

pub(crate) fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/dispatch")
}

/// The descriptor sets of the templates and the adapter that the cases configure, with all imports.
static DESCRIPTORS: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let protos = data().join("config/protos");
    let names =
        std::fs::read_dir(&protos).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let compile = |name: String| {
        let includes = [protos.clone(), PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("proto")];
        let mut compiler = protox::Compiler::new(includes).unwrap();
        compiler.include_imports(true).open_file(&name).unwrap();
        (name.trim_end_matches(".proto").to_owned(), compiler.encode_file_descriptor_set())
    };
    names.map(compile).collect()
});

/// Every message that the cases' templates and adapters have.
pub(crate) static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let mut pool = crate::protos::mixer();
    for set in DESCRIPTORS.values() {
        pool.decode_file_descriptor_set(set.as_slice()).unwrap();
    }
    pool
});

/// The resources of a case. An adapter called `b1` has `b1:1` for an address.
pub(crate) fn resources(
    files: &[String],
    standard: &[String],
    backends: &[String],
) -> (ConfigSet, Vec<ValidationError>) {
    let mut resources = Vec::new();
    let mut faults = Vec::new();
    let mut texts: Vec<String> =
        files.iter().map(|file| std::fs::read_to_string(data().join(file)).unwrap()).collect();
    texts.extend(standard.iter().map(|name| standard_template(name)));
    for text in texts {
        let mut text = text;
        for (name, set) in &*DESCRIPTORS {
            text = text.replace(&format!("${{descriptor:{name}}}"), &STANDARD.encode(set));
        }
        for backend in backends {
            text = text.replace(&format!("${{{backend}}}"), &format!("{backend}:1"));
        }
        let parsed = parse(&text, "case.yaml", "default");
        resources.extend(parsed.resources);
        faults.extend(parsed.faults);
    }
    let (set, found) = ConfigSet::of(resources);
    faults.extend(found);
    (set, faults)
}

fn standard_template(name: &str) -> String {
    let (_, descriptor) = TEMPLATES.iter().find(|(known, _)| *known == name).unwrap();
    let descriptor = STANDARD.encode(descriptor);
    format!(
        "apiVersion: config.istio.io/v1alpha2\nkind: template\nmetadata:\n  name: {name}\n  namespace: istio-system\n\
         spec:\n  descriptor: {descriptor}\n"
    )
}
