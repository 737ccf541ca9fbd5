//! An adapter with as many templates as it may have, each of which is called over gRPC.
#![allow(clippy::unwrap_used)]

#[path = "../../it/support/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports)]
mod support;

use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Code, Context, Handle, proto::CheckResult, template::Template,
};
use support::{Client, Serving, any};
use test_adapters::params::bystander::Params;

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
