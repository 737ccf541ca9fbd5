//! `new`: the crate of a new adapter.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value as Json, json};

use super::template;
use mixer_adapter_core::framework::{
    dynamic::{DescriptorSet, DynamicTemplate},
    name::is_valid_name,
    suggest::suggestion,
};
use mixer_adapter_templates::STANDARD;

/// Write the crate of a new adapter, which builds, passes its tests and serves
#[derive(Debug, Args)]
pub(super) struct New {
    /// Name of the crate and of the adapter, and the folder to create
    #[arg(value_name = "NAME")]
    name: String,

    /// Template that the adapter handles
    #[arg(long, value_name = "TEMPLATE", default_value = "listentry")]
    template: String,

    /// Handle a template of its own, a check with output
    #[arg(long, conflicts_with = "template")]
    own_template: bool,

    /// Write a library that programs can bundle, with a program that serves it
    #[arg(long)]
    lib: bool,

    /// Source tree of mixer-adapter, the dependency of the crate [default: where this program was built]
    ///
    /// The crates of mixer-adapter are not published yet. If the source tree exists, the crate depends on it by its path; otherwise on the
    /// version of this program, which a registry must have.
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
}

/// The source tree that this program was built from.
const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// The crates that may be dependencies, with their folders in the source tree.
const CRATES: [(&str, &str); 4] = [
    ("mixer-adapter", ""),
    ("mixer-adapter-build", "build"),
    ("mixer-adapter-core", "crates/core"),
    ("mixer-adapter-templates", "templates"),
];

/// Names that crates cannot have: keywords, folders of cargo, and crates that adapters depend on.
const RESERVED: &str = "abstract alloc as async await become box break build const continue core crate deps do dyn else \
    enum examples extern false final fn for gen if impl in incremental let loop macro match mod move mut override priv \
    proc-macro pub ref return self static std struct super test tokio tracing trait true try type typeof unsafe unsized \
    use virtual where while yield";

impl New {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let is_reserved =
            self.name.starts_with("mixer-adapter") || RESERVED.split(' ').any(|name| name == self.name);
        if is_reserved || !is_valid_name(&self.name) {
            let reason = if is_reserved {
                "is reserved"
            } else {
                "is not the name of a crate: up to 63 lower-case letters, digits and `-`, of which the first is a letter"
            };
            anyhow::bail!(usage!("`{}` {reason}", self.name));
        }
        let (values, source) = self.values()?;
        let folder = Path::new(&self.name);
        fs::create_dir(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
        for (path, text) in self.files() {
            let path = folder.join(path);
            let rendered = template::render(&[("file", text)], "file", &values)?;
            let written =
                path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, rendered));
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(workspace) = workspace() {
            super::print_error(&format!(
                "warning: {} is a workspace, and cargo refuses crates below it that it does not name: add the folder to its `members` or `exclude`, or move it elsewhere",
                workspace.display()
            ));
        }
        let dependency = match source {
            Some(source) => format!("the source tree {}", source.display()),
            None => format!("version {} of the registry", env!("CARGO_PKG_VERSION")),
        };
        Ok(super::print(&format!(
            "Wrote the crate {0}. It depends on mixer-adapter: {dependency}.\n\n  cd {0}\n  cargo test\n  cargo run -- serve\n",
            self.name
        ))?)
    }

    /// Returns the files of the crate with their templates.
    fn files(&self) -> Vec<(&'static str, &'static str)> {
        let adapter = include_str!("adapter.rs.j2");
        let mut files = vec![
            (".github/workflows/ci.yml", include_str!("ci.yml.j2")),
            (".gitignore", include_str!("gitignore.j2")),
            ("Cargo.toml", include_str!("Cargo.toml.j2")),
            ("Dockerfile", include_str!("Dockerfile.j2")),
            ("README.md", include_str!("README.md.j2")),
            ("build.rs", include_str!("build.rs.j2")),
            ("config.proto", include_str!("config.proto.j2")),
            ("rustfmt.toml", include_str!("rustfmt.toml.j2")),
            ("sample.yaml", include_str!("sample.yaml.j2")),
        ];
        if self.lib {
            files.extend([("src/lib.rs", adapter), ("src/main.rs", include_str!("main.rs.j2"))]);
        } else {
            files.push(("src/main.rs", adapter));
        }
        if self.own_template {
            files.push(("template.proto", include_str!("template.proto.j2")));
        }
        files
    }

    /// Returns the values of the templates, and the source tree to depend on.
    fn values(&self) -> anyhow::Result<(Json, Option<PathBuf>)> {
        let source = self.source()?;
        let dependencies =
            CRATES.map(|(name, folder)| (name.to_owned(), dependency(source.as_deref(), folder)));
        let Chosen { marker, template, variety } = self.template()?;
        let identifier = self.name.replace('-', "_");
        let description = match (&*variety, &*template) {
            ("report", _) => "Counts the instances of reports.",
            ("quota", _) => "Limits the amount of each quota request.",
            ("attribute generator", _) => "Generates the namespaces of workloads.",
            (_, "apikey") => "Denies the API keys on a list.",
            (_, "authorization") => "Denies the users on a list.",
            (_, "checknothing") => "Denies every request while it is closed.",
            _ => "Denies the values on a list.",
        };
        let values = json!({
            "name": self.name,
            "package": identifier,
            "crate": identifier,
            "core": if self.lib { "mixer_adapter_core" } else { "mixer_adapter" },
            "marker": marker,
            "path": if self.own_template { format!("template::{marker}") } else { marker },
            "module": template,
            "template": template,
            "variety": variety,
            "description": description,
            "own": self.own_template,
            "lib": self.lib,
            "rust": env!("CARGO_PKG_RUST_VERSION"),
            "source": source,
            "dependencies": serde_json::Map::from_iter(dependencies),
        });
        Ok((values, source))
    }

    fn template(&self) -> anyhow::Result<Chosen> {
        if self.own_template {
            let words = self.name.split('-').filter_map(|word| word.split_at_checked(1));
            let marker: String = words.map(|(first, rest)| first.to_uppercase() + rest).collect();
            let marker = marker.replace(|c: char| !c.is_ascii_alphabetic(), "") + "Check";
            let (template, variety) = (marker.to_lowercase(), "check with output".to_owned());
            return Ok(Chosen { marker, template, variety });
        }
        let known = STANDARD.iter().find(|(name, _)| *name == self.template);
        let Some((name, descriptor)) = known else {
            let names: Vec<&str> = STANDARD.iter().map(|(name, _)| *name).collect();
            let hint = suggestion(&self.template, &names);
            anyhow::bail!(usage!("unknown template `{}`; {hint}", self.template));
        };
        let template = DynamicTemplate::new(&DescriptorSet::decode(*descriptor)?)?;
        // The method is named after the type: HandleListEntry.
        let marker = template.method().rsplit("Handle").next().unwrap_or_default().to_owned();
        Ok(Chosen { marker, template: (*name).to_owned(), variety: template.variety().to_string() })
    }

    /// Returns the source tree to depend on; `None` for the registry.
    fn source(&self) -> anyhow::Result<Option<PathBuf>> {
        let is_source =
            |tree: &Path| CRATES.iter().all(|(_, folder)| tree.join(folder).join("Cargo.toml").is_file());
        let Some(given) = &self.source else {
            return Ok(Some(PathBuf::from(SOURCE)).filter(|tree| is_source(tree)));
        };
        if !is_source(given) {
            anyhow::bail!(usage!("{} is not the source tree of mixer-adapter", given.display()));
        }
        Ok(Some(fs::canonicalize(given)?))
    }
}

/// Returns the place of a crate in a manifest: its folder in the source tree, or its version in the registry.
fn dependency(source: Option<&Path>, folder: &str) -> Json {
    let Some(source) = source else { return format!("version = \"{}\"", env!("CARGO_PKG_VERSION")).into() };
    // Without a slash at the end.
    let path: PathBuf = source.join(folder).components().collect();
    format!("path = {}", template::quoted(&path.to_string_lossy())).into()
}

/// Returns the manifest of the workspace in which the current folder is.
fn workspace() -> Option<PathBuf> {
    let folder = std::env::current_dir().ok()?;
    let mut manifests = folder.ancestors().map(|folder| folder.join("Cargo.toml"));
    manifests.find(|manifest| {
        let text = fs::read_to_string(manifest).unwrap_or_default();
        text.lines().any(|line| line.trim_start().starts_with("[workspace"))
    })
}

/// The template that the adapter handles.
struct Chosen {
    /// The name of its Rust type, `ListEntry`.
    marker: String,
    /// Its name, which its module has, too.
    template: String,
    variety: String,
}
