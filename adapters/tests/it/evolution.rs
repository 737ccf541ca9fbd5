//! Configuration of another version of the API: fields that are not known, and fields that are deprecated.

use std::{fs, path::Path};

use crate::support::{Server, binary, run};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mixer_adapter::prost::Message as _;
use mixer_adapter_config::proto::istio::policy::v1beta1::{Action, Rule};

const SAMPLE: &str = include_str!("../../config/sample.yaml");

/// The sample with one more rule, whose bytes have a field 99, as a newer API may have.
fn newer(directory: &Path) {
    let actions = vec![Action {
        handler: "closed-paths".to_owned(),
        instances: vec!["path".to_owned()],
        ..Action::default()
    }];
    let mut rule = Rule { r#match: "false".to_owned(), actions, ..Rule::default() }.encode_to_vec();
    rule.extend([0x98, 0x06, 0x01]);
    let value = STANDARD.encode(rule);
    let newer = format!(
        "\n---\nkind: rule\nmetadata: {{name: newer, namespace: istio-system}}\n\
         spec: {{\"@type\": type.googleapis.com/istio.policy.v1beta1.Rule, value: {value}}}\n"
    );
    fs::write(directory.join("config.yaml"), format!("{SAMPLE}{newer}")).unwrap();
}

fn source(directory: &Path) -> Server {
    let ports = ["source", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"];
    Server::spawn(binary().args(ports).arg(directory)).0
}

#[test]
fn an_unknown_field_is_reported_with_its_version_and_path_and_refused_on_request() {
    let directory = tempfile::tempdir().unwrap();
    newer(directory.path());
    let source = source(directory.path());
    let url = format!("mcp://{}", source.grpc);
    let unknown = "newer.rule.istio-system: field 99 is unknown in this version of istio.policy.v1beta1.Rule";

    let warns = Server::start(&["--config", &url]);
    warns.until("/config", unknown);
    warns.until("/metrics", "mixer_adapter_config_updates_total{result=\"applied\"} 1");

    let ignores = Server::start(&["--config", &url, "--unknown-fields", "ignore"]);
    ignores.until("/metrics", "mixer_adapter_config_updates_total{result=\"applied\"} 1");
    ignores.until("/config", "\"faults\":[]");

    let _refuses = Server::start(&["--config", &url, "--unknown-fields", "refuse"]);
    // The source hears which resource, and why.
    source.until(
        "/config",
        "istio-system/newer: field 99 is unknown in this version of istio.policy.v1beta1.Rule",
    );
}

/// A handler whose params use a deprecated field of its adapter's configuration.
fn deprecated(directory: &Path) {
    let proto =
        "syntax = \"proto3\"; package shop.v1; message Params { string old = 1 [deprecated = true]; }";
    fs::write(directory.join("shop.proto"), proto).unwrap();
    let mut compiler = protox::Compiler::new([directory]).unwrap();
    compiler.include_imports(true).open_file("shop.proto").unwrap();
    let descriptor = STANDARD.encode(compiler.encode_file_descriptor_set());
    let text = format!(
        "kind: adapter\nmetadata: {{name: shop}}\nspec: {{session_based: false, templates: [], config: {descriptor}}}\n---\n\
         kind: handler\nmetadata: {{name: h}}\nspec: {{adapter: shop, params: {{old: x}}, connection: {{address: \"127.0.0.1:1\"}}}}\n"
    );
    fs::write(directory.join("config.yaml"), text).unwrap();
}

#[test]
fn a_deprecated_field_is_reported_counted_and_refused_on_request() {
    let directory = tempfile::tempdir().unwrap();
    deprecated(directory.path());
    let path = directory.path().to_str().unwrap();
    let told = "h.handler.istio-system: spec.params.old: is deprecated in shop.v1.Params";

    let warns = Server::start(&["--config", path]);
    warns.until("/config", told);
    warns.until("/metrics", USED);

    let validated = run(&["validate", path, "--deprecated-fields", "refuse"]);
    assert!(validated.code == 1 && validated.stdout.contains("1 error"), "as `serve` decides: {validated:?}");
    assert_eq!(run(&["validate", path]).code, 0);
    let refuses = Server::start(&["--config", path, "--deprecated-fields", "refuse"]);
    refuses.until("/metrics", "mixer_adapter_config_updates_total{result=\"rejected\"} 1");
    refuses.until("/config", told);
    assert!(!refuses.get("/metrics").contains(USED));
}

const USED: &str = "\nmixer_adapter_deprecated_feature_use_total{field=\"shop.v1.Params.old\"} 1\n";

/// A handler of an adapter elsewhere whose configuration has this version, and a field that was deprecated in 1.4.
fn marked(directory: &Path, version: &str) {
    let proto = format!(
        "syntax = \"proto3\"; package shop.v1; import \"mixer_adapter/versioning/v1/versioning.proto\";
         option (mixer_adapter.versioning.v1.file).version = \"{version}\";
         message Params {{ string old = 1 [deprecated = true, (mixer_adapter.versioning.v1.field).deprecated_since = \"1.4\"]; }}"
    );
    fs::write(directory.join("shop.proto"), proto).unwrap();
    let config = mixer_adapter_build::ConfigProto::open(directory.join("shop.proto")).unwrap();
    let descriptor = STANDARD.encode(config.descriptor_set());
    let text = format!(
        "kind: adapter\nmetadata: {{name: shop}}\nspec: {{session_based: false, templates: [], config: {descriptor}}}\n---\n\
         kind: handler\nmetadata: {{name: h}}\nspec: {{adapter: shop, params: {{old: x}}, connection: {{address: \"127.0.0.1:1\"}}}}\n"
    );
    fs::write(directory.join("config.yaml"), text).unwrap();
}

#[test]
fn a_deprecated_field_warns_then_fails_unless_it_is_allowed_by_name_and_then_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let names = directory.path().join("allowed.txt");
    fs::write(&names, "shop.v1.Params.old\n").unwrap();
    let file = format!("@{}", names.display());
    let path = directory.path().to_str().unwrap();
    let (warned, fatal, gone) = (
        "is deprecated in shop.v1.Params: a coming version will not have it",
        "is deprecated in shop.v1.Params: the next version will not have it; until then shop.v1.Params.old can be allowed by this name",
        "is deprecated in shop.v1.Params: it was to be gone by this version",
    );
    for (version, allow, is_loaded, reason) in [
        ("1.4.2", None, true, warned),
        ("1.5.0", None, false, fatal),
        ("1.5.0", Some("shop.v1.Params.other"), false, fatal),
        ("1.5.0", Some("shop.v1.Params.old"), true, fatal),
        ("1.5.0", Some(&*file), true, fatal),
        ("1.6.0", Some("shop.v1.Params.old"), false, gone),
    ] {
        marked(directory.path(), version);
        let mut arguments = vec!["--config", path];
        arguments.extend(allow.iter().flat_map(|name| ["--allow-deprecated", name]));
        let server = Server::start(&arguments);
        let result = if is_loaded { "applied" } else { "rejected" };
        server.until("/metrics", &format!("mixer_adapter_config_updates_total{{result=\"{result}\"}} 1"));
        server.until("/config", &format!("h.handler.istio-system: spec.params.old: {reason}"));
        assert_eq!(server.get("/metrics").contains(USED), is_loaded, "{version}, allowed: {allow:?}");
        assert_eq!(server.get("/readyz").starts_with("HTTP/1.1 200"), is_loaded, "{version}");
    }
}

#[test]
fn deprecated_fields_are_fatal_by_default_and_the_flag_opts_out() {
    let directory = tempfile::tempdir().unwrap();
    marked(directory.path(), "1.5.0");
    let path = directory.path().to_str().unwrap();
    let fatal = Server::start(&["--config", path]);
    fatal.until("/metrics", "mixer_adapter_config_updates_total{result=\"rejected\"} 1");
    let warned = Server::start(&["--config", path, "--deprecated-fields", "warn"]);
    warned.until("/metrics", "mixer_adapter_config_updates_total{result=\"applied\"} 1");
}

/// A layer of the runtime that allows the field, or not.
fn layer(directory: &Path, allowed: bool) {
    let text = format!(
        "resources:\n- '@type': type.googleapis.com/envoy.service.runtime.v3.Runtime\n  name: deprecations\n  layer:\n    \
         'mixer_adapter.deprecated_features:shop.v1.Params.old': {allowed}\n"
    );
    let written = directory.join("runtime.tmp");
    fs::write(&written, text).unwrap();
    fs::rename(written, directory.join("runtime.yaml")).unwrap();
}

#[test]
fn a_runtime_layer_pushed_as_rtds_allows_a_deprecated_field_by_name() {
    let (rules, layers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    marked(rules.path(), "1.5.0");
    let path = rules.path().to_str().unwrap();
    let is_refused = "spec.params.old: is deprecated in shop.v1.Params";
    for scheme in ["xds", "xds+delta"] {
        layer(layers.path(), false);
        let source = source(layers.path());
        let runtime = format!("{scheme}://{}?collections=runtime", source.grpc);
        let arguments = ["--config", path, "--config", &runtime];
        let server = Server::start(&arguments);
        server.until("/config", is_refused);
        assert!(server.get("/readyz").starts_with("HTTP/1.1 503"), "a layer is not a configuration");
        layer(layers.path(), true);
        server.until("/metrics", USED);
        server.until("/readyz", "200");
        // What is in use cannot be forbidden: the server of the layer learns why.
        layer(layers.path(), false);
        source.until("/config", is_refused);
    }
}
