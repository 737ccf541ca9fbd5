//! `version`: the source and the features of the build.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::Args;
use serde::Serialize;

use super::{output_args::OutputArgs, program};
use crate::build_info;
use mixer_adapter_host::handler::Adapters;

/// Print the version, the commit, the build, its features and the versions of its adapters
#[derive(Debug, Args)]
pub(super) struct Version {
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Build {
    version: &'static str,
    /// The version of the framework.
    framework: &'static str,
    /// Only of release builds from a checkout.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    profile: &'static str,
    target: &'static str,
    compiler: &'static str,
    features: Vec<&'static str>,
    /// The adapters and their versions, empty where they have none.
    adapters: BTreeMap<&'static str, String>,
}

impl Version {
    pub(super) fn run(self, adapters: &Adapters) -> anyhow::Result<()> {
        let adapters = adapters.iter().map(|adapter| {
            (adapter.name, adapter.version.as_ref().map(ToString::to_string).unwrap_or_default())
        });
        let build = Build {
            version: program::current().version,
            framework: build_info::VERSION,
            commit: Some(build_info::COMMIT).filter(|commit| !commit.is_empty()),
            profile: build_info::PROFILE,
            target: build_info::TARGET,
            compiler: build_info::COMPILER,
            features: build_info::features(),
            adapters: adapters.collect(),
        };
        self.output.print(&build, || text(&build))
    }
}

fn text(build: &Build) -> String {
    let Build { version, framework, commit, profile, target, compiler, features, adapters } = build;
    let mut text = format!("{} {version}\n", program::name());
    let adapters: Vec<String> =
        adapters.iter().map(|(name, version)| format!("{name} {version}").trim_end().to_owned()).collect();
    let _ = write!(
        text,
        "commit: {}\nbuild: {profile}, {target}, {compiler}\nframework: mixer-adapter {framework}\nfeatures: {}\nadapters: {}\n",
        commit.unwrap_or("unknown"),
        features.join(", "),
        adapters.join(", ")
    );
    text
}
