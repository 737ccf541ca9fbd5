//! The files of deploy/: what can be shown without a container runtime, a cluster and a booted systemd.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value as Json;
use support::{Server, binary, debian, run};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn deploy() -> PathBuf {
    root().join("deploy")
}

fn manifest<T: DeserializeOwned>(name: &str) -> T {
    let text = fs::read_to_string(deploy().join("kubernetes").join(name)).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The part of Kubernetes' API that the manifests use, strictly: an unknown field is an error. The crate k8s-openapi has all of it, but
/// changes the features of serde_json, so that `cargo run` and `cargo test` would not share what they compile.
mod api {
    #![allow(dead_code, reason = "read to be checked")]

    use super::{BTreeMap, Deserialize, Json};

    pub(super) type Labels = BTreeMap<String, String>;

    macro_rules! objects {
        ($($name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
            #[derive(Deserialize, Debug)]
            #[serde(rename_all = "camelCase", deny_unknown_fields)]
            pub(super) struct $name { $($(#[$attribute])* pub(super) $field: $type),* }
        )*};
    }

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Object<T> {
        #[serde(rename = "apiVersion")]
        pub(super) api_version: String,
        pub(super) kind: String,
        pub(super) metadata: Metadata,
        pub(super) spec: T,
    }

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Metadata {
        pub(super) name: Option<String>,
        #[serde(default)]
        pub(super) labels: Labels,
    }

    #[derive(Deserialize, Debug)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    pub(super) struct NetworkPolicyPeer {
        pub(super) namespace_selector: Selector,
    }

    #[derive(Deserialize, Debug)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    pub(super) struct NetworkPolicyRule {
        #[serde(default)]
        pub(super) from: Vec<NetworkPolicyPeer>,
        #[serde(default)]
        pub(super) to: Vec<NetworkPolicyPeer>,
        pub(super) ports: Vec<NetworkPolicyPort>,
    }

    objects! {
        Selector { match_labels: Labels }
        Namespace { api_version: String, kind: String, metadata: Metadata }
        ServiceAccount { api_version: String, kind: String, metadata: Metadata, automount_service_account_token: bool }
        DeploymentSpec { selector: Selector, strategy: Strategy, template: PodTemplate }
        Strategy { r#type: String, rolling_update: RollingUpdate }
        RollingUpdate { max_unavailable: u32, max_surge: u32 }
        PodTemplate { metadata: Metadata, spec: PodSpec }
        PodSpec {
            service_account_name: String, automount_service_account_token: bool, enable_service_links: bool,
            termination_grace_period_seconds: u64, security_context: PodSecurityContext,
            topology_spread_constraints: Vec<TopologySpreadConstraint>, containers: Vec<Container>, volumes: Vec<Volume>,
        }
        PodSecurityContext { run_as_non_root: bool, run_as_user: u32, run_as_group: u32, seccomp_profile: SeccompProfile }
        SeccompProfile { r#type: String }
        TopologySpreadConstraint { max_skew: u32, topology_key: String, when_unsatisfiable: String, label_selector: Selector }
        Container {
            name: String, image: String, args: Vec<String>, env: Vec<EnvVar>, ports: Vec<ContainerPort>,
            startup_probe: Probe, readiness_probe: Probe, liveness_probe: Probe, resources: Resources,
            security_context: SecurityContext, volume_mounts: Vec<VolumeMount>,
        }
        EnvVar { name: String, value: String }
        ContainerPort { name: String, container_port: u16 }
        Probe { http_get: HttpGet, period_seconds: Option<u32>, timeout_seconds: Option<u32>, failure_threshold: Option<u32> }
        HttpGet { path: String, port: String }
        Resources { requests: Labels, limits: Labels }
        SecurityContext { allow_privilege_escalation: bool, read_only_root_filesystem: bool, capabilities: Capabilities }
        Capabilities { drop: Vec<String> }
        VolumeMount { name: String, mount_path: String, read_only: bool }
        Volume { name: String, config_map: ConfigMapSource }
        ConfigMapSource { name: String }
        ServiceSpec { selector: Labels, #[serde(rename = "clusterIP")] cluster_ip: String, ports: Vec<ServicePort> }
        ServicePort { name: String, port: u16, target_port: String, app_protocol: Option<String> }
        PodDisruptionBudgetSpec { max_unavailable: u32, selector: Selector }
        HorizontalPodAutoscalerSpec {
            scale_target_ref: ScaleTarget, min_replicas: u32, max_replicas: u32, metrics: Vec<Metric>, behavior: Behavior,
        }
        ScaleTarget { api_version: String, kind: String, name: String }
        Metric { r#type: String, resource: ResourceMetric }
        ResourceMetric { name: String, target: MetricTarget }
        MetricTarget { r#type: String, average_utilization: u32 }
        Behavior { scale_down: ScalingRules }
        ScalingRules { stabilization_window_seconds: u32 }
        NetworkPolicySpec {
            pod_selector: Selector, policy_types: Vec<String>, ingress: Vec<NetworkPolicyRule>, egress: Vec<NetworkPolicyRule>,
        }
        NetworkPolicyPort { port: Json, protocol: Option<String> }
        Kustomization {
            api_version: String, kind: String, namespace: String, resources: Vec<String>, config_map_generator: Vec<ConfigMap>,
            generator_options: GeneratorOptions, images: Vec<Image>,
        }
        ConfigMap { name: String, files: Vec<String> }
        GeneratorOptions { disable_name_suffix_hash: bool }
        Image { name: String, new_name: String, new_tag: String }
    }
}

fn files(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(deploy().join(folder)).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.path().is_file());
    files.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn kustomize_reads_every_manifest_and_configuration() {
    let kustomization: api::Kustomization = manifest("kustomization.yaml");
    let mut listed: BTreeSet<String> = kustomization.resources.into_iter().collect();
    listed.insert("kustomization.yaml".to_owned());
    assert_eq!(listed, files("kubernetes"));
    let [config] = &kustomization.config_map_generator[..] else { panic!("one ConfigMap is expected") };
    let named: BTreeSet<String> =
        files("kubernetes/config").iter().map(|name| format!("config/{name}")).collect();
    assert_eq!(config.files.iter().cloned().collect::<BTreeSet<_>>(), named);

    let deployment: api::Object<api::DeploymentSpec> = manifest("deployment.yaml");
    let pod = deployment.spec.template.spec;
    assert_eq!(pod.volumes[0].config_map.name, config.name);
    assert_eq!(pod.containers[0].image, kustomization.images[0].name);
    let namespace: api::Namespace = manifest("namespace.yaml");
    assert_eq!(namespace.metadata.name, Some(kustomization.namespace));
}

#[test]
fn the_manifests_refer_to_each_other() {
    let deployment: api::Object<api::DeploymentSpec> = manifest("deployment.yaml");
    let service: api::Object<api::ServiceSpec> = manifest("service.yaml");
    let budget: api::Object<api::PodDisruptionBudgetSpec> = manifest("poddisruptionbudget.yaml");
    let scaler: api::Object<api::HorizontalPodAutoscalerSpec> = manifest("horizontalpodautoscaler.yaml");
    let policy: api::Object<api::NetworkPolicySpec> = manifest("networkpolicy.yaml");
    let account: api::ServiceAccount = manifest("serviceaccount.yaml");
    let kinds = [
        (&deployment.api_version, &deployment.kind, "apps/v1", "Deployment"),
        (&service.api_version, &service.kind, "v1", "Service"),
        (&budget.api_version, &budget.kind, "policy/v1", "PodDisruptionBudget"),
        (&scaler.api_version, &scaler.kind, "autoscaling/v2", "HorizontalPodAutoscaler"),
        (&policy.api_version, &policy.kind, "networking.k8s.io/v1", "NetworkPolicy"),
        (&account.api_version, &account.kind, "v1", "ServiceAccount"),
    ];
    for (version, kind, expected_version, expected_kind) in kinds {
        assert_eq!((version.as_str(), kind.as_str()), (expected_version, expected_kind));
    }

    let template = deployment.spec.template;
    let labels = &template.metadata.labels;
    let selectors = [
        &deployment.spec.selector.match_labels,
        &service.spec.selector,
        &budget.spec.selector.match_labels,
        &policy.spec.pod_selector.match_labels,
        &template.spec.topology_spread_constraints[0].label_selector.match_labels,
    ];
    assert!(!labels.is_empty() && selectors.iter().all(|selector| *selector == labels), "{selectors:?}");
    assert_eq!(Some(&scaler.spec.scale_target_ref.name), deployment.metadata.name.as_ref());
    assert_eq!(scaler.spec.scale_target_ref.api_version, deployment.api_version);
    assert_eq!(Some(template.spec.service_account_name), account.metadata.name);
    // One pod can always go.
    assert!(scaler.spec.min_replicas > budget.spec.max_unavailable);
    assert!(scaler.spec.max_replicas >= scaler.spec.min_replicas);

    let container = &template.spec.containers[0];
    let ports: BTreeMap<&str, u16> =
        container.ports.iter().map(|port| (port.name.as_str(), port.container_port)).collect();
    for port in &service.spec.ports {
        assert_eq!(ports[port.target_port.as_str()], port.port);
    }
    for rule in &policy.spec.ingress {
        assert!(!rule.from.is_empty(), "a rule without `from` allows everybody");
        assert!(rule.ports.iter().all(|port| ports.contains_key(port.port.as_str().unwrap())));
    }
    for probe in [&container.startup_probe, &container.readiness_probe, &container.liveness_probe] {
        assert_eq!(ports[probe.http_get.port.as_str()], 15014);
    }
    assert_eq!(container.volume_mounts[0].name, template.spec.volumes[0].name);
}

#[test]
fn the_pod_has_no_rights_that_it_does_not_need() {
    let account: api::ServiceAccount = manifest("serviceaccount.yaml");
    let deployment: api::Object<api::DeploymentSpec> = manifest("deployment.yaml");
    let pod = deployment.spec.template.spec;
    assert!(!account.automount_service_account_token && !pod.automount_service_account_token);
    assert!(pod.security_context.run_as_non_root && pod.security_context.run_as_user > 0);
    assert_eq!(pod.security_context.seccomp_profile.r#type, "RuntimeDefault");
    for container in &pod.containers {
        let context = &container.security_context;
        assert!(!context.allow_privilege_escalation && context.read_only_root_filesystem);
        assert_eq!(context.capabilities.drop, ["ALL"]);
        assert!(container.resources.limits.contains_key("memory"));
        assert!(container.volume_mounts.iter().all(|mount| mount.read_only));
    }
    // The image runs as the same user.
    let image = fs::read_to_string(deploy().join("Dockerfile")).unwrap();
    let user = pod.security_context.run_as_user;
    assert!(image.contains(&format!("\nUSER {user}:{}\n", pod.security_context.run_as_group)), "{image}");
}

/// A duration of flags in whole seconds.
fn seconds(text: &str) -> u64 {
    text.strip_suffix('s').unwrap().parse().unwrap()
}

#[test]
fn a_server_with_the_arguments_of_the_pod_becomes_ready() {
    let deployment: api::Object<api::DeploymentSpec> = manifest("deployment.yaml");
    let pod = deployment.spec.template.spec;
    let container = &pod.containers[0];
    let config = deploy().join("kubernetes/config").display().to_string();
    let arguments = container.args.iter().map(|argument| {
        let argument = argument.replace(&container.volume_mounts[0].mount_path, &config);
        argument.replace("=0.0.0.0:9091", "=127.0.0.1:0").replace("=0.0.0.0:15014", "=127.0.0.1:0")
    });
    let arguments: Vec<String> = arguments.collect();
    let mut serve = binary();
    serve.args(&arguments).env(&container.env[0].name, "127.0.0.1:0");
    let (server, _) = Server::spawn(&mut serve);
    server.until(&container.readiness_probe.http_get.path, "200 OK");
    server.until(&container.liveness_probe.http_get.path, "200 OK");

    let grace = arguments.iter().find_map(|argument| argument.strip_prefix("--grace=")).unwrap();
    assert!(pod.termination_grace_period_seconds >= seconds(grace) + 2);
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
