//! Files that hold responses.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use mixer_adapter_config::{Kind, ResourceName, ValidationError, source::ReloadRequests};
use mixer_adapter_streams::{SourceSettings, StreamSource, Subscription, Wanted};
use prost::Message as _;
use tempfile::TempDir;
use tokio::{sync::watch, time::timeout};

use super::messages::*;

const SOON: Duration = Duration::from_secs(20);
/// As long as a test waits for what is not to come.
const LONG: Duration = Duration::from_millis(700);

fn follow(path: &Path, collections: &[&str]) -> Subscription {
    follow_with(path, collections, ReloadRequests::default())
}

fn follow_with(path: &Path, collections: &[&str], reload: ReloadRequests) -> Subscription {
    let wanted = |name: &&str| Wanted { collection: (*name).to_owned(), required: true };
    let settings = SourceSettings::new("istio-system").collections(collections.iter().map(wanted).collect());
    StreamSource::files(path.to_owned(), &settings.reload(reload)).connect()
}

/// The next change, in short, and accepted.
async fn accept(following: &mut Subscription) -> String {
    let offer = timeout(SOON, following.changes.recv()).await.unwrap().unwrap();
    let change = offer.content();
    let named = change.resources.iter().map(|resource| format!(" {}@{}", resource.name, resource.version));
    let removed = change.removed.iter().map(|name| format!(" -{name}"));
    let told = format!("{}{}", change.collection, named.chain(removed).collect::<String>());
    offer.accept();
    told
}

async fn is_silent(following: &mut Subscription) -> bool {
    timeout(LONG, following.changes.recv()).await.is_err()
}

/// A response that holds wrapped rules, as JSON.
fn rules(texts: &[&str]) -> String {
    let rule = |text: &&str| {
        let (name, version) = text.split_once('@').unwrap();
        format!(
            r#"{{"@type": "type.googleapis.com/istio.mcp.v1alpha1.Resource", "metadata": {{"name": "{name}", "version": "{version}"}},
               "body": {{"@type": "type.googleapis.com/istio.policy.v1beta1.Rule", "match": "{version} == {version}"}}}}"#
        )
    };
    let resources: Vec<_> = texts.iter().map(rule).collect();
    format!(r#"{{"versionInfo": "1", "typeUrl": "{RULE}", "resources": [{}]}}"#, resources.join(","))
}

/// Moves a file with that content to its place.
fn moved(directory: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let (new, path) = (directory.path().join(".new"), directory.path().join(name));
    fs::write(&new, content).unwrap();
    fs::rename(&new, &path).unwrap();
    path
}

#[tokio::test]
async fn a_response_in_the_text_format_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("clusters.pb_text");
    let text = "version_info: \"7\"\nresources {\n  [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: \"a\" }\n}\n";
    fs::write(&file, text).unwrap();
    let mut following = follow(&file, &["envoy.config.cluster.v3.Cluster"]);
    assert!(accept(&mut following).await.starts_with("envoy.config.cluster.v3.Cluster a@"));
}

#[tokio::test]
async fn a_reload_reads_what_is_written_in_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = moved(&directory, "rules.json", rules(&["ns/a@1"]));
    let (reload, requests) = watch::channel(());
    let mut following = follow_with(&path, &[RULES], requests.into());
    assert_eq!(accept(&mut following).await, format!("{RULES} ns/a@1"));
    fs::write(&path, rules(&["ns/a@2"])).unwrap();
    assert!(is_silent(&mut following).await);
    reload.send(()).unwrap();
    assert_eq!(accept(&mut following).await, format!("{RULES} ns/a@2"));
}

#[tokio::test]
async fn a_file_moved_over_it_is_read_and_what_is_written_in_place_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = moved(&directory, "rules.json", rules(&["ns/a@1", "ns/b@1"]));
    let mut following = follow(&path, &[RULES]);
    assert_eq!(accept(&mut following).await, format!("{RULES} ns/a@1 ns/b@1"));
    fs::write(&path, rules(&["ns/in-place@1"])).unwrap();
    assert!(is_silent(&mut following).await);
    moved(&directory, "rules.json", rules(&["ns/a@2"]));
    assert_eq!(accept(&mut following).await, format!("{RULES} ns/a@2 -ns/b"));
    moved(&directory, "rules.json", rules(&[]));
    assert_eq!(accept(&mut following).await, format!("{RULES} -ns/a"));
}

#[tokio::test]
async fn a_bad_file_leaves_the_last_good_one_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let path = moved(&directory, "rules.json", rules(&["ns/a@1"]));
    let mut following = follow(&path, &[RULES]);
    accept(&mut following).await;
    for bad in [
        "{",
        r#"{"resources": "none"}"#,
        r#"{"resources": [{"@type": "type.googleapis.com/no.Such"}]}"#,
        "{}",
    ] {
        moved(&directory, "rules.json", bad);
    }
    assert!(is_silent(&mut following).await);
    fs::remove_file(&path).unwrap();
    assert!(is_silent(&mut following).await);
    moved(&directory, "rules.json", rules(&["ns/a@2"]));
    assert_eq!(accept(&mut following).await, format!("{RULES} ns/a@2"));
}

#[tokio::test]
async fn what_is_refused_is_offered_again_only_when_another_file_comes() {
    let directory = tempfile::tempdir().unwrap();
    let path = moved(&directory, "rules.json", rules(&["ns/a@1"]));
    let mut following = follow(&path, &[RULES]);
    let offer = timeout(SOON, following.changes.recv()).await.unwrap().unwrap();
    offer.refuse(vec![ValidationError::error("bad").of(ResourceName::new("a", Kind::Rule, "ns"))]);
    assert!(is_silent(&mut following).await);
    moved(&directory, "rules.json", rules(&["ns/a@2"]));
    assert_eq!(accept(&mut following).await, format!("{RULES} ns/a@2"));
}

/// As Kubernetes mounts a ConfigMap.
#[tokio::test]
async fn a_link_swapped_on_the_way_to_the_file_is_a_move() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for (generation, version) in [("..1", "ns/a@1"), ("..2", "ns/a@2")] {
        fs::create_dir(at(generation)).unwrap();
        fs::write(at(generation).join("rules.json"), rules(&[version])).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/rules.json", at("rules.json")).unwrap();
    let mut following = follow(&at("rules.json"), &[RULES]);
    assert_eq!(accept(&mut following).await, format!("{RULES} ns/a@1"));
    symlink("..2", at("..new")).unwrap();
    fs::rename(at("..new"), at("..data")).unwrap();
    assert_eq!(accept(&mut following).await, format!("{RULES} ns/a@2"));
}

#[tokio::test]
async fn the_files_of_a_directory_are_of_one_type_each_in_any_of_three_forms() {
    let directory = tempfile::tempdir().unwrap();
    moved(&directory, "rules.pb", whole(RULE, "n", &["ns/a@1"]).encode_to_vec());
    let yaml = "resources:\n- '@type': type.googleapis.com/istio.policy.v1beta1.Handler\n  name: bare\n  adapter: x\n";
    moved(&directory, "handlers.yaml", yaml);
    let mut following = follow(directory.path(), &[RULES, HANDLERS]);
    let mut told = [accept(&mut following).await, accept(&mut following).await];
    told.sort();
    assert_eq!(told, [format!("{HANDLERS} bare@"), format!("{RULES} ns/a@1")]);
    moved(&directory, "rules.json", rules(&["ns/b@1"]));
    assert_eq!(accept(&mut following).await, format!("{RULES} ns/b@1 -ns/a"), "the newest counts");
}
