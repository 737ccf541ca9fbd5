//! Packages that `include_proto!` includes: several in one module, as many templates as an adapter may have, and one that is not there.

use std::process::Command;

use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Code, Context, Handle, adapter::Config as _, proto::CheckResult,
    template::Template,
};
use test_adapters::params::bystander::Params;

use crate::support::{Client, Serving, any};

/// Denies everything, with the name of the template.
struct Many;

macro_rules! numbered {
    ($($package:literal $module:ident $template:ident,)*) => {
        $(
            mod $module {
                mixer_adapter::include_proto!($package);
            }

            impl Handle<$module::$template> for Many {
                async fn handle(&self, instance: Call<$module::InstanceMsg>) -> Result<Check, AdapterError> {
                    Ok(Check::deny(Code::PermissionDenied, format!("{} {}", $package, instance.text)))
                }
            }
        )*

        impl Adapter for Many {
            const NAME: &str = "many";
            const DESCRIPTION: &str = "Denies everything, with the name of the template.";
            type Config = Params;
            type Templates = ($($module::$template,)*);

            async fn open(_: Params, _: Context) -> Result<Self, AdapterError> {
                Ok(Self)
            }
        }

        /// Calls each template, and returns the expected and the actual text of its denial.
        async fn call_all(client: &Client) -> Vec<(String, String)> {
            let mut texts = Vec::new();
            $({
                let mut request = <$module::$template as Template>::Request::default();
                let text = "a text".to_owned();
                request.instance = Some($module::InstanceMsg { text, ..Default::default() });
                request.adapter_config = any(&Params::default());
                let answer: CheckResult = client.call($module::$template::METHOD, &request).await.unwrap();
                texts.push((format!("{} a text", $package), answer.status.unwrap().message));
            })*
            texts
        }
    };
}

numbered! {
    "numberedaa" numberedaa Numberedaa,
    "numberedab" numberedab Numberedab,
    "numberedac" numberedac Numberedac,
    "numberedad" numberedad Numberedad,
    "numberedae" numberedae Numberedae,
    "numberedaf" numberedaf Numberedaf,
    "numberedag" numberedag Numberedag,
    "numberedah" numberedah Numberedah,
    "numberedai" numberedai Numberedai,
    "numberedaj" numberedaj Numberedaj,
    "numberedak" numberedak Numberedak,
    "numberedal" numberedal Numberedal,
    "numberedam" numberedam Numberedam,
    "numberedan" numberedan Numberedan,
    "numberedao" numberedao Numberedao,
    "numberedap" numberedap Numberedap,
    "numberedaq" numberedaq Numberedaq,
    "numberedar" numberedar Numberedar,
    "numberedas" numberedas Numberedas,
    "numberedat" numberedat Numberedat,
    "numberedau" numberedau Numberedau,
    "numberedav" numberedav Numberedav,
    "numberedaw" numberedaw Numberedaw,
    "numberedax" numberedax Numberedax,
    "numbereday" numbereday Numbereday,
    "numberedaz" numberedaz Numberedaz,
    "numberedba" numberedba Numberedba,
    "numberedbb" numberedbb Numberedbb,
    "numberedbc" numberedbc Numberedbc,
    "numberedbd" numberedbd Numberedbd,
    "numberedbe" numberedbe Numberedbe,
    "numberedbf" numberedbf Numberedbf,
}

#[tokio::test]
async fn each_of_32_templates_of_an_adapter_is_served() {
    let serving = Serving::start(|adapters| adapters.add::<Many>()).await;
    let texts = call_all(&serving.connect().await).await;
    assert_eq!(texts.len(), 32);
    for (expected, actual) in texts {
        assert_eq!(actual, expected);
    }
}

/// A configuration and a template.
mod several {
    mixer_adapter::include_proto!("test.bystander");
    mixer_adapter::include_proto!("example.ownergen");
}

#[test]
fn a_module_includes_several_packages() {
    assert_eq!(several::Params::NAME, "test.bystander.Params");
    assert_eq!(several::OwnerGen::NAME, "ownergen");
}

/// Compiles the macro alone, with what build.rs sets, and returns the error.
fn include(packages: Option<&str>) -> String {
    let library = include_str!("../../../../crates/core/src/lib.rs");
    let (_, definition) = library.split_once("#[macro_export]\nmacro_rules! include_proto {").unwrap();
    let (definition, _) = definition.split_once("\n}\n").unwrap();
    let source =
        format!("macro_rules! include_proto {{{definition}\n}}\ninclude_proto!(\"test.blocked\");\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lib.rs");
    std::fs::write(&file, source).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--crate-type", "lib", "--emit", "metadata", "--out-dir"]).arg(folder.path()).arg(&file);
    rustc.env_remove("MIXER_ADAPTER_PACKAGES").envs(packages.map(|names| ("MIXER_ADAPTER_PACKAGES", names)));
    let ran = rustc.output().unwrap();
    assert!(!ran.status.success());
    String::from_utf8(ran.stderr).unwrap()
}

#[test]
fn the_error_of_a_package_that_is_not_there_names_those_that_are() {
    let error = include(Some(env!("MIXER_ADAPTER_PACKAGES")));
    let expected = "error: build.rs does not generate the package \"test.blocked\"; mixer_adapter_build::adapter and \
                    mixer_adapter_build::template generate here: ";
    let names = error.lines().next().unwrap().strip_prefix(expected).unwrap_or_else(|| panic!("{error}"));
    for name in ["\"test.blocker\"", "\"example.ownergen\""] {
        assert!(names.split(", ").any(|named| named == name), "{names}");
    }
    let error = include(None);
    let expected = "error: build.rs generates no package; call mixer_adapter_build::adapter in it\n";
    assert!(error.starts_with(expected), "{error}");
}
