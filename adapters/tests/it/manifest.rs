//! The resources that `manifest` prints, read as a real Mixer reads them
//! (docs/behaviour/configuration.md#template-and-adapter-resources).

use std::collections::BTreeSet;

use crate::support::run;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost_reflect::DescriptorPool;
use serde_json::{Value as Json, json};

fn resources(arguments: &[&str]) -> Vec<Json> {
    let ran = run(&[&["manifest"], arguments].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_saphyr::from_multiple(&ran.stdout).unwrap()
}

fn of_kind<'a>(resources: &'a [Json], kind: &str) -> Vec<&'a Json> {
    resources.iter().filter(|resource| resource["kind"] == kind).collect()
}

fn named<'a>(resources: &'a [Json], kind: &str, name: &str) -> &'a Json {
    of_kind(resources, kind).into_iter().find(|resource| resource["metadata"]["name"] == name).unwrap()
}

fn bytes(base64: &Json) -> Vec<u8> {
    STANDARD.decode(base64.as_str().unwrap()).unwrap()
}

/// A pool with the messages that are built into a real Mixer.
fn known_to_mixer() -> DescriptorPool {
    let all = DescriptorPool::decode(mixer_adapter::proto::DESCRIPTORS).unwrap();
    let mut pool = DescriptorPool::new();
    let mixers = |name: &str| name.starts_with("google/") || name.starts_with("mixer/adapter/model/");
    for file in all.files().filter(|file| mixers(file.name())) {
        pool.decode_file_descriptor_proto(&file.encode_to_vec()[..]).unwrap();
    }
    pool
}

fn adapters() -> Vec<Json> {
    run(&["adapters", "--json"]).json().as_array().unwrap().clone()
}

#[test]
fn every_adapter_and_each_of_its_templates_once_is_a_resource() {
    let resources = resources(&[]);
    for resource in &resources {
        assert_eq!(resource["apiVersion"], "config.istio.io/v1alpha2");
        assert_eq!(resource["metadata"]["namespace"], "istio-system");
    }
    let names = |kind| -> Vec<String> {
        let names = of_kind(&resources, kind).into_iter().map(|resource| &resource["metadata"]["name"]);
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let adapters = adapters();
    let expected: Vec<&str> = adapters.iter().map(|adapter| adapter["name"].as_str().unwrap()).collect();
    assert_eq!(names("adapter"), expected);
    let templates = names("template");
    assert_eq!(templates.len(), templates.iter().collect::<BTreeSet<_>>().len(), "{templates:?}");
    for adapter in of_kind(&resources, "adapter") {
        assert_eq!(adapter["spec"]["session_based"], false);
        for template in adapter["spec"]["templates"].as_array().unwrap() {
            assert!(templates.contains(&template.as_str().unwrap().to_owned()), "{template} of {adapter}");
        }
    }
}

#[test]
fn each_template_has_what_mixer_looks_for() {
    let templates = resources(&[]).into_iter().filter(|resource| resource["kind"] == "template");
    for template in templates {
        let name = template["metadata"]["name"].as_str().unwrap();
        let mut pool = known_to_mixer();
        let before: BTreeSet<String> = pool.files().map(|file| file.name().to_owned()).collect();
        pool.decode_file_descriptor_set(&bytes(&template["spec"]["descriptor"])[..]).unwrap();
        let option = |option| {
            let extension = format!("istio.mixer.adapter.model.v1beta1.{option}");
            pool.get_extension_by_name(&extension).unwrap()
        };
        let variety = option("template_variety");
        let new = pool.files().filter(|file| !before.contains(file.name()));
        let mut files: Vec<_> = new.filter(|file| file.options().has_extension(&variety)).collect();
        assert_eq!(files.len(), 1, "{name}: one file with template_variety");
        let file = files.remove(0);
        let option = file.options().get_extension(&option("template_name")).into_owned();
        assert_eq!(option.as_str(), Some(name));
        let services: Vec<_> =
            file.services().filter(|service| service.name().starts_with("Handle")).collect();
        assert_eq!(services.len(), 1, "{name}");
        assert!(file.messages().any(|message| message.name() == "InstanceMsg"), "{name}");
    }
}

#[test]
fn the_descriptor_of_listentry_is_below_3_kb() {
    let resources = resources(&["denier"]);
    let listentry = bytes(&named(&resources, "template", "listentry")["spec"]["descriptor"]);
    assert!(listentry.len() < 3000, "{} bytes; Istio's own was 100 kB", listentry.len());
}

#[test]
fn each_adapter_has_a_configuration_with_params() {
    for adapter in of_kind(&resources(&[]), "adapter") {
        let pool = DescriptorPool::decode(&bytes(&adapter["spec"]["config"])[..]).unwrap();
        let name = &adapter["metadata"]["name"];
        assert!(pool.all_messages().any(|message| message.name() == "Params"), "{name}");
    }
}

#[test]
fn flags_are_in_the_resources() {
    let resources = resources(&["denier", "--namespace", "123", "--session-based"]);
    assert!(resources.iter().all(|resource| resource["metadata"]["namespace"] == "123"));
    assert_eq!(of_kind(&resources, "adapter").len(), 1);
    assert_eq!(named(&resources, "adapter", "denier")["spec"]["session_based"], true);
}

#[test]
fn the_example_cannot_crash_a_mixer() {
    let resources = resources(&["--handler-example", "--address", "a.example.com:1"]);
    let adapters = adapters();
    assert_eq!(of_kind(&resources, "handler").len(), adapters.len());
    for handler in of_kind(&resources, "handler") {
        assert_eq!(handler["spec"]["params"], json!({}));
        assert_eq!(handler["spec"]["connection"], json!({"address": "a.example.com:1"}));
        named(&resources, "adapter", handler["spec"]["adapter"].as_str().unwrap());
    }
    for instance in of_kind(&resources, "instance") {
        assert_eq!(instance["spec"]["params"], json!({}));
        named(&resources, "template", instance["spec"]["template"].as_str().unwrap());
    }
    let templates = adapters.iter().map(|adapter| adapter["templates"].as_array().unwrap().len());
    assert_eq!(of_kind(&resources, "instance").len(), templates.sum::<usize>());
    for rule in of_kind(&resources, "rule") {
        assert!(rule["spec"]["match"].as_str().unwrap().contains("destination.service.host =="));
        for action in rule["spec"]["actions"].as_array().unwrap() {
            named(&resources, "handler", action["handler"].as_str().unwrap());
            named(&resources, "instance", action["instances"][0].as_str().unwrap());
        }
    }
}

#[test]
fn invalid_arguments_are_refused() {
    for (arguments, expected) in [
        (
            ["manifest", "denyer", "--handler-example"],
            "unknown adapter `denyer`; did you mean `denier`? this program has ",
        ),
        (["manifest", "--namespace", "Istio"], "a namespace has at most 63 lower-case letters"),
        (["manifest", "--address", "9091"], "write HOST:PORT"),
    ] {
        let ran = run(&arguments);
        assert!(ran.code == 2 && ran.stdout.is_empty() && ran.stderr.contains(expected), "{ran:?}");
    }
}
