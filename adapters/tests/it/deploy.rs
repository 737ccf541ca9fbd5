//! The files of deploy/: what can be shown without a container runtime, a cluster and a booted systemd.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{Server, binary, debian, run};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{Namespace, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value as Json, json};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn deploy() -> PathBuf {
    root().join("deploy")
}

/// A manifest of `kubernetes`.
fn manifest(name: &str) -> Json {
    manifest_in("kubernetes", name)
}

/// A manifest, which has only fields of Kubernetes' API: what its types do not know would not be written again.
fn manifest_in(folder: &str, name: &str) -> Json {
    let text = fs::read_to_string(deploy().join(folder).join(name)).unwrap();
    let manifest: Json = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let written = match manifest["kind"].as_str().unwrap() {
        "Deployment" => written::<Deployment>(&manifest),
        "HorizontalPodAutoscaler" => written::<HorizontalPodAutoscaler>(&manifest),
        "Namespace" => written::<Namespace>(&manifest),
        "NetworkPolicy" => written::<NetworkPolicy>(&manifest),
        "PodDisruptionBudget" => written::<PodDisruptionBudget>(&manifest),
        "Service" => written::<Service>(&manifest),
        "StatefulSet" => written::<StatefulSet>(&manifest),
        "ServiceAccount" => written::<ServiceAccount>(&manifest),
        // Kustomize's own, which only its program reads.
        "Kustomization" => return manifest,
        kind => panic!("{name}: unknown kind {kind}"),
    };
    assert_eq!(written, manifest, "{name}");
    manifest
}

/// Reads a manifest as a type of the API, and writes it again.
fn written<T: DeserializeOwned + Serialize>(manifest: &Json) -> Json {
    serde_json::to_value(T::deserialize(manifest).unwrap()).unwrap()
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap_or_else(|| panic!("{json}"))
}

fn items(json: &Json) -> &[Json] {
    json.as_array().unwrap_or_else(|| panic!("{json}"))
}

fn files(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(deploy().join(folder)).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.path().is_file());
    files.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn kustomize_reads_every_manifest_and_configuration() {
    let kustomization = manifest("kustomization.yaml");
    let resources = items(&kustomization["resources"]).iter().map(text);
    let mut listed: BTreeSet<String> = resources.map(str::to_owned).collect();
    listed.insert("kustomization.yaml".to_owned());
    assert_eq!(listed, files("kubernetes"));
    let [config] = items(&kustomization["configMapGenerator"]) else { panic!("one ConfigMap is expected") };
    let named: BTreeSet<String> =
        files("kubernetes/config").iter().map(|name| format!("config/{name}")).collect();
    assert_eq!(
        items(&config["files"]).iter().map(|name| text(name).to_owned()).collect::<BTreeSet<_>>(),
        named
    );

    let pod = &manifest("deployment.yaml")["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["configMap"]["name"], config["name"]);
    assert_eq!(pod["containers"][0]["image"], kustomization["images"][0]["name"]);
    assert_eq!(manifest("namespace.yaml")["metadata"]["name"], kustomization["namespace"]);
}

#[test]
fn the_manifests_refer_to_each_other() {
    let deployment = manifest("deployment.yaml");
    let service = manifest("service.yaml");
    let budget = manifest("poddisruptionbudget.yaml");
    let scaler = manifest("horizontalpodautoscaler.yaml");
    let policy = manifest("networkpolicy.yaml");
    let template = &deployment["spec"]["template"];
    let pod = &template["spec"];
    let labels = &template["metadata"]["labels"];
    assert!(labels.as_object().is_some_and(|labels| !labels.is_empty()), "{labels}");
    for selector in [
        &deployment["spec"]["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &budget["spec"]["selector"]["matchLabels"],
        &policy["spec"]["podSelector"]["matchLabels"],
        &pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    let target = &scaler["spec"]["scaleTargetRef"];
    assert_eq!(
        [&target["name"], &target["kind"], &target["apiVersion"]],
        [&deployment["metadata"]["name"], &deployment["kind"], &deployment["apiVersion"]]
    );
    assert_eq!(pod["serviceAccountName"], manifest("serviceaccount.yaml")["metadata"]["name"]);
    // One pod can always go.
    let replicas = |limit: &str| scaler["spec"][limit].as_u64().unwrap();
    assert!(replicas("minReplicas") > budget["spec"]["maxUnavailable"].as_u64().unwrap());
    assert!(replicas("maxReplicas") >= replicas("minReplicas"));

    let container = &pod["containers"][0];
    let ports: BTreeMap<&str, &Json> =
        items(&container["ports"]).iter().map(|port| (text(&port["name"]), &port["containerPort"])).collect();
    for port in items(&service["spec"]["ports"]) {
        assert_eq!(ports[text(&port["targetPort"])], &port["port"]);
    }
    for rule in items(&policy["spec"]["ingress"]) {
        assert!(!items(&rule["from"]).is_empty(), "a rule without `from` allows everybody");
        assert!(items(&rule["ports"]).iter().all(|port| ports.contains_key(text(&port["port"]))));
    }
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert_eq!(ports[text(&container[probe]["httpGet"]["port"])], 15014);
    }
    assert_eq!(container["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
}

#[test]
fn several_servers_count_in_the_redis_beside_them() {
    let folder = "kubernetes-redis";
    let kustomization = manifest_in(folder, "kustomization.yaml");
    let mut listed: BTreeSet<String> =
        items(&kustomization["resources"]).iter().map(|name| text(name).to_owned()).collect();
    assert!(listed.remove("../kubernetes"));
    listed.insert("kustomization.yaml".to_owned());
    assert_eq!(listed, files(folder));
    let [redis, service, policy] = ["statefulset", "service", "networkpolicy"]
        .map(|kind| manifest_in(folder, &format!("redis-{kind}.yaml")));
    let labels = &redis["spec"]["template"]["metadata"]["labels"];
    for selector in [
        &redis["spec"]["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &policy["spec"]["podSelector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    assert_eq!(redis["spec"]["serviceName"], service["metadata"]["name"]);
    // The servers may connect to Redis, and only they.
    let servers = &manifest("deployment.yaml")["spec"]["selector"];
    assert_eq!(
        items(&policy["spec"]["ingress"]),
        [json!({"from": [{"podSelector": servers}], "ports": [{"port": "redis"}]})]
    );
    let patches = items(&kustomization["patches"]).iter().map(|patch| {
        let operations: Json = serde_saphyr::from_str(text(&patch["patch"])).unwrap();
        assert_eq!(
            manifest(&format!("{}.yaml", text(&patch["target"]["kind"]).to_lowercase()))["metadata"]["name"],
            patch["target"]["name"]
        );
        operations
    });
    let egress = json!({"to": [{"podSelector": {"matchLabels": labels}}], "ports": [{"port": service["spec"]["ports"][0]["port"]}]});
    let expected = [
        json!([{"op": "replace", "path": "/spec/minReplicas", "value": 3}]),
        json!([{"op": "add", "path": "/spec/egress/-", "value": egress}]),
    ];
    assert_eq!(patches.collect::<Vec<_>>(), expected);
    let config = deploy().join(folder).join("config");
    let limits = fs::read_to_string(config.join("limits.yaml")).unwrap();
    let url = format!(
        "url: redis://{}:{}\n",
        text(&service["metadata"]["name"]),
        service["spec"]["ports"][0]["port"]
    );
    assert!(limits.contains(&url), "{limits}");
    let ran = run(&["validate", config.to_str().unwrap()]);
    assert!(ran.code == 0 && ran.stdout.ends_with(": 0 errors, 0 warnings\n"), "{ran:?}");
}

#[test]
fn the_pod_has_no_rights_that_it_does_not_need() {
    let deployment = manifest("deployment.yaml");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(manifest("serviceaccount.yaml")["automountServiceAccountToken"], false);
    assert_eq!(pod["automountServiceAccountToken"], false);
    let context = &pod["securityContext"];
    let user = context["runAsUser"].as_u64().unwrap();
    assert!(context["runAsNonRoot"] == true && user > 0);
    assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
    for container in items(&pod["containers"]) {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
        assert!(container["resources"]["limits"]["memory"].is_string());
        assert!(items(&container["volumeMounts"]).iter().all(|mount| mount["readOnly"] == true));
    }
    // The image runs as the same user.
    let image = fs::read_to_string(deploy().join("Dockerfile")).unwrap();
    assert!(image.contains(&format!("\nUSER {user}:{}\n", context["runAsGroup"])), "{image}");
}

/// A duration of flags in whole seconds.
fn seconds(text: &str) -> u64 {
    text.strip_suffix('s').unwrap().parse().unwrap()
}

#[test]
fn a_server_with_the_arguments_of_the_pod_becomes_ready() {
    let deployment = manifest("deployment.yaml");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let config = deploy().join("kubernetes/config").display().to_string();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("tokens"), "operator s3cret\n").unwrap();
    let secret = directory.path().display().to_string();
    let arguments = items(&container["args"]).iter().map(|argument| {
        let argument = text(argument).replace(text(&container["volumeMounts"][0]["mountPath"]), &config);
        let argument = argument.replace(text(&container["volumeMounts"][1]["mountPath"]), &secret);
        argument.replace("=0.0.0.0:9091", "=127.0.0.1:0").replace("=0.0.0.0:15014", "=127.0.0.1:0")
    });
    let arguments: Vec<String> = arguments.collect();
    let mut serve = binary();
    serve.args(&arguments).env(text(&container["env"][0]["name"]), "127.0.0.1:0");
    let (server, _) = Server::spawn(&mut serve);
    server.until(text(&container["readinessProbe"]["httpGet"]["path"]), "200 OK");
    server.until(text(&container["livenessProbe"]["httpGet"]["path"]), "200 OK");
    server.until("/metrics", "200 OK");
    for path in ["/", "/status", "/decisions", "/explain?request.path=/"] {
        assert!(server.get(path).starts_with("HTTP/1.1 401 "), "{path}");
    }
    let token = directory.path().join("tokens").display().to_string();
    let explained = run(&["decisions", "--admin", &server.admin, "--token-file", &token]);
    assert_eq!(explained.code, 0, "{explained:?}");

    let grace = arguments.iter().find_map(|argument| argument.strip_prefix("--grace=")).unwrap();
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= seconds(grace) + 2);
}

#[test]
fn the_configuration_of_the_pod_has_no_faults() {
    let ran = run(&["validate", deploy().join("kubernetes/config").to_str().unwrap()]);
    assert!(ran.code == 0 && ran.stdout.ends_with(": 0 errors, 0 warnings\n"), "{ran:?}");
}

#[test]
fn the_image_starts_the_server_with_flags_that_exist_and_is_built_of_all_that_cargo_needs() {
    let image = fs::read_to_string(deploy().join("Dockerfile")).unwrap();
    let command = image.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let command: Vec<String> = serde_json::from_str(command).unwrap();
    let help = run(&[&command[0], "--help"]).stdout;
    for flag in command.iter().filter(|word| word.starts_with("--")) {
        assert!(help.split_whitespace().any(|word| word == flag), "there is no flag {flag}");
    }

    let ignored = fs::read_to_string(deploy().join("Dockerfile.dockerignore")).unwrap();
    let sent: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for path in &sent {
        assert!(root().join(path).exists(), "there is no {path}");
    }
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Json = serde_json::from_slice(&metadata.stdout).unwrap();
    for package in metadata["packages"].as_array().unwrap() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let manifest = manifest.strip_prefix(root()).unwrap();
        assert!(
            sent.iter().any(|path| manifest.starts_with(path)),
            "{} is not sent to the build",
            manifest.display()
        );
    }
}

#[test]
fn the_unit_is_hardened_and_its_command_exists() {
    let unit = fs::read_to_string(deploy().join("systemd/mixer-adapter.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/mixer-adapter "));
    let mut words = start.unwrap().split(' ');
    let help = run(&[words.next().unwrap(), "--help"]).stdout;
    for flag in words.filter(|word| word.starts_with("--")) {
        assert!(help.split_whitespace().any(|word| word == flag), "there is no flag {flag}");
    }

    let Some(program) = debian::program("systemd-analyze", "systemd") else { return };
    let ran = Command::new(program)
        .args(["security", "--no-pager", "--offline=true", "--threshold=20"])
        .arg(deploy().join("systemd/mixer-adapter.service"))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}

#[test]
fn a_release_has_an_archive_an_inventory_and_checksums() {
    let directory = tempfile::tempdir().unwrap();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let program = directory.path().join("program");
    let script = "#!/bin/sh\ncase $1 in\nman) mkdir -p $3 && echo page > $3/mixer-adapter.1 ;;\ncompletions) echo $2 ;;\n*) echo packed ;;\nesac\n";
    fs::write(&program, script).unwrap();
    let output = directory.path().join("files");
    let pack = || {
        let ran = Command::new(deploy().join("release"))
            .arg("--output")
            .arg(&output)
            .arg("--binary")
            .arg(&program)
            .arg(&target)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        fs::read_to_string(output.join("SHA256SUMS")).unwrap()
    };
    let sums = pack();
    assert_eq!(sums, pack(), "equal input makes equal archives");
    let script = "sha256sum --check --quiet SHA256SUMS && tar xzf mixer-adapter-*.tar.gz \
                  && mixer-adapter-*/mixer-adapter && cd mixer-adapter-*/ && find * -type f | sort";
    let ran =
        Command::new("sh").args(["-c", script]).env("LC_ALL", "C").current_dir(&output).output().unwrap();
    let files = [
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "completions/mixer-adapter.bash",
        "completions/mixer-adapter.fish",
        "completions/mixer-adapter.zsh",
        "man/man1/mixer-adapter.1",
        "mixer-adapter",
        "mixer-adapter.service",
    ];
    let printed = format!("packed\n{}\n", files.join("\n"));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), printed, "{ran:?}");

    let name = files_with(&output, ".cdx.json");
    let sbom: Json = serde_json::from_str(&fs::read_to_string(name).unwrap()).unwrap();
    let components = sbom["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    let ring = named("ring").unwrap();
    let version = ring["version"].as_str().unwrap();
    assert_eq!(ring["purl"], format!("pkg:cargo/ring@{version}"));
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    assert!(lock.contains(ring["hashes"][0]["content"].as_str().unwrap()));
    // Of tests, of builds, and of other systems.
    for absent in ["criterion", "protox", "prost-build", "windows-sys"] {
        assert!(named(absent).is_none(), "{absent} is not part of the program");
    }
    let refs: BTreeSet<&str> =
        components.iter().map(|component| component["bom-ref"].as_str().unwrap()).collect();
    assert_eq!(refs.len(), components.len(), "every component has a reference of its own");
    for dependency in sbom["dependencies"].as_array().unwrap() {
        let on = dependency["dependsOn"].as_array().unwrap();
        assert!(on.iter().all(|name| refs.contains(name.as_str().unwrap())), "{dependency}");
    }
}

fn files_with(folder: &Path, end: &str) -> PathBuf {
    let mut paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.to_str().unwrap().ends_with(end)).unwrap()
}

/// What the chart renders from values or with the name of the release, in place of these lines of the manifests.
const RENDERED: [&str; 5] = [
    "app.kubernetes.io/name: mixer-adapter",
    "image: mixer-adapter",
    "name: mixer-adapter-config",
    "secretName: mixer-adapter-admin",
    "terminationGracePeriodSeconds: 15",
];

/// What the chart has in addition.
const CHART_ONLY: [&str; 4] = ["imagePullSecrets:", "labels:", "nodeSelector:", "tolerations:"];

/// Returns the lines of YAML that are the same in each rendering.
fn fixed_lines(yaml: &str) -> BTreeSet<&str> {
    yaml.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.contains("{{"))
        .collect()
}

#[test]
fn the_chart_deploys_what_the_manifests_deploy() {
    let chart = deploy().join("helm");
    let read = |path: PathBuf| fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let values_text = read(chart.join("values.yaml"));
    let values: Json = serde_saphyr::from_str(&values_text).unwrap();
    let value_lines = fixed_lines(&values_text);
    let value = regex::Regex::new(r"\{\{ \.Values\.([A-Za-z.]+) \}\}").unwrap();
    let used = regex::Regex::new(r"\.Values\.([A-Za-z.]+)").unwrap();
    let find = |path: &str| {
        values.pointer(&format!("/{}", path.replace('.', "/"))).unwrap_or_else(|| panic!("no value {path}"))
    };
    let templates = files("helm/templates");
    for name in &templates {
        let template = read(chart.join("templates").join(name));
        for path in used.captures_iter(&template) {
            find(&path[1]);
        }
        let Ok(manifest) = fs::read_to_string(deploy().join("kubernetes").join(name)) else { continue };
        let rendered = value.replace_all(&template, |path: &regex::Captures<'_>| {
            find(&path[1]).as_str().map_or_else(|| find(&path[1]).to_string(), str::to_owned)
        });
        let rendered = rendered.replace("{{ .Release.Name }}", "mixer-adapter");
        let (chart, manifest) = (fixed_lines(&rendered), fixed_lines(&manifest));
        let added: Vec<_> = chart.difference(&manifest).filter(|line| !CHART_ONLY.contains(line)).collect();
        let is_rendered = |line: &&&str| RENDERED.contains(line) || value_lines.contains(*line);
        let missing: Vec<_> = manifest.difference(&chart).filter(|line| !is_rendered(line)).collect();
        assert!(added.is_empty() && missing.is_empty(), "{name}: more {added:?}, less {missing:?}");
    }
    // All manifests but those of the namespace, which helm creates.
    let manifests = files("kubernetes");
    let without: Vec<&String> = manifests.difference(&templates).collect();
    assert_eq!(without, ["kustomization.yaml", "namespace.yaml"]);

    let schema: Json = serde_json::from_str(&read(chart.join("values.schema.json"))).unwrap();
    let keys = |json: &Json| json.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let mut known = keys(&schema["properties"]);
    // Helm's own.
    known.remove("global");
    assert_eq!(known, keys(&values));
}
