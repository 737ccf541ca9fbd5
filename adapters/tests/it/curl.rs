//! A source is read by curl alone.

use std::{fs, path::Path, process::Command};

use crate::support::{Server, binary, debian, eventually};
use serde_json::{Value as Json, json};

const PAGE: &str = include_str!("../../../docs/configuration/xds.md");

const RESOURCES: &str = "
'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: local_route
---
resources:
- {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: shop}
- {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: stock}
---
apiVersion: config.istio.io/v1alpha2
kind: rule
metadata: {name: r, namespace: ns}
spec: {match: 'true'}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: e, namespace: ns}
spec: {hosts: [a.b]}
";

fn source(directory: &Path) -> Server {
    fs::write(directory.join("resources.yaml"), RESOURCES).unwrap();
    let ports = ["source", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"];
    Server::spawn(binary().args(ports).arg(directory)).0
}

/// The output of a command of curl.
fn printed(curl: &mut Command) -> String {
    let ran = curl.output().unwrap();
    assert!(ran.status.success(), "{curl:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn curl_alone_reads_a_directory_of_resources() {
    let Some(curl) = debian::program("curl", "curl") else { return };
    let directory = tempfile::tempdir().unwrap();
    let source = source(directory.path());
    let config = || printed(Command::new(&curl).args(["-s", &format!("http://{}/config", source.admin)]));
    let collections = eventually("the directory is read", || {
        let status: Json = serde_json::from_str(&config()).unwrap();
        status["collections"].as_object().filter(|all| all.values().any(|one| one["resources"] != 0)).cloned()
    });
    let url = format!("http://{}/v3/discovery:resources", source.grpc);
    let mut read = Vec::new();
    for (collection, expected) in &collections {
        let type_url =
            if collection.contains('/') { String::new() } else { "type.googleapis.com/".to_owned() };
        let request = json!({ "type_url": type_url + collection }).to_string();
        let answer = printed(Command::new(&curl).args(["-s", "--json", &request, &url]));
        let answer: Json = serde_json::from_str(&answer).unwrap();
        let resources = answer["resources"].as_array().unwrap();
        assert_eq!(expected["resources"], resources.len(), "{collection}");
        assert_eq!(expected["version"], answer["versionInfo"], "{collection}");
        read.extend(resources.iter().map(|resource| match &resource["metadata"]["name"] {
            Json::Null => resource["name"].as_str().unwrap().to_owned(),
            name => name.as_str().unwrap().to_owned(),
        }));
    }
    read.sort();
    assert_eq!(read, ["local_route", "ns/e", "ns/r", "shop", "stock"]);
}

/// Each command is run as it is printed, except for the ports.
#[test]
fn the_commands_of_curl_in_the_documentation_answer_what_they_say() {
    if debian::program("curl", "curl").is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = source(directory.path());
    let block =
        PAGE.split("```sh\n").find(|block| block.starts_with("# The collections of the directory")).unwrap();
    let block = &block[..block.find("```").unwrap()];
    let commands: Vec<_> = block.lines().filter(|line| line.starts_with("curl ")).collect();
    let run = |command: &str| {
        let command =
            command.replace("127.0.0.1:9901", &source.grpc).replace("127.0.0.1:15014", &source.admin);
        serde_json::from_str::<Json>(&printed(Command::new("sh").args(["-c", &command]))).unwrap()
    };
    eventually("the directory is read", || {
        run(commands[0])["collections"].to_string().contains("\"resources\":2").then_some(())
    });
    let names = commands[1..].iter().map(|command| {
        let resource = &run(command)["resources"][0];
        let name = resource["name"].as_str().or(resource["metadata"]["name"].as_str());
        name.unwrap_or_else(|| panic!("{command}: {resource}")).to_owned()
    });
    assert_eq!(names.collect::<Vec<_>>(), ["local_route", "stock", "ns/r", "ns/e", "ns/e"]);
}

/// A client waits for news, and gets an answer also when there are none.
#[test]
fn curl_polls_for_news() {
    let Some(curl) = debian::program("curl", "curl") else { return };
    let directory = tempfile::tempdir().unwrap();
    let source = source(directory.path());
    let url = format!("http://{}/v3/discovery:clusters", source.grpc);
    let ask = |version: &str, wait: &str| {
        let request = json!({ "version_info": version }).to_string();
        let prefer = format!("prefer: wait={wait}");
        printed(Command::new(&curl).args([
            "-s",
            "-w",
            "%{http_code}",
            "-H",
            &prefer,
            "--json",
            &request,
            &url,
        ]))
    };
    let first =
        eventually("the clusters are read", || Some(ask("", "20")).filter(|answer| answer.contains("stock")));
    let answer: Json = serde_json::from_str(first.strip_suffix("200").unwrap()).unwrap();
    let version = answer["versionInfo"].as_str().unwrap();
    assert_eq!(ask(version, "0"), "304");
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(version, "20"));
        let new = directory.path().join(".new");
        fs::write(&new, RESOURCES.replace("name: stock", "name: stores")).unwrap();
        fs::rename(&new, directory.path().join("resources.yaml")).unwrap();
        waiting.join().unwrap()
    });
    assert!(waiting.contains("stores") && waiting.ends_with("200"), "{waiting}");
}
