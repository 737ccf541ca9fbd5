//! The list of templates of an adapter.

use mixer_adapter_core::{
    Adapter, AdapterError, Check, Context, Handle,
    adapter::{Config, Templates as _},
    framework::{CallInfo, TemplateVisitor},
    proto::{Any, QuotaRequest},
    template::{InvalidAnswerError, MalformedRequestError, Response, Template, Variety},
};
use mixer_adapter_templates::ListEntry;

/// The name of each template.
const NAMES: [&str; 32] = [
    "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11", "t12", "t13", "t14", "t15",
    "t16", "t17", "t18", "t19", "t20", "t21", "t22", "t23", "t24", "t25", "t26", "t27", "t28", "t29", "t30",
    "t31",
];

/// A template with the messages of `listentry`.
struct Numbered<const N: usize>;

impl<const N: usize> Template for Numbered<N> {
    const NAME: &'static str = NAMES[N];
    const VARIETY: Variety = ListEntry::VARIETY;
    const PACKAGE: &'static str = ListEntry::PACKAGE;
    const METHOD: &'static str = ListEntry::METHOD;
    const DESCRIPTOR: &'static [u8] = ListEntry::DESCRIPTOR;
    const GENERATED: () = ();
    type Request = <ListEntry as Template>::Request;
    type Response = <ListEntry as Template>::Response;
    type Instance = <ListEntry as Template>::Instance;
    type Type = <ListEntry as Template>::Type;
    type Input = <ListEntry as Template>::Input;
    type Answer = <ListEntry as Template>::Answer;
    type Context = <ListEntry as Template>::Context;

    fn take_adapter_config(request: &mut Self::Request) -> Option<Any> {
        ListEntry::take_adapter_config(request)
    }

    fn instance_names(request: &Self::Request) -> impl Iterator<Item = &str> {
        ListEntry::instance_names(request)
    }

    fn split(
        request: Self::Request,
        info: CallInfo,
    ) -> Result<(Self::Input, Self::Context), MalformedRequestError> {
        ListEntry::split(request, info)
    }

    fn request(
        instances: impl Iterator<Item = Self::Instance>,
        dedup_id: String,
        quota_request: Option<QuotaRequest>,
    ) -> Self::Request {
        ListEntry::request(instances, dedup_id, quota_request)
    }

    fn respond(context: Self::Context, answer: Check) -> Result<Response, InvalidAnswerError> {
        ListEntry::respond(context, answer)
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Params {}

impl Config for Params {
    const NAME: &'static str = "test.Params";
    const DESCRIPTOR: &'static [u8] = &[];
    const GENERATED: () = ();
}

struct Many;

type T<const NUMBER: usize> = Numbered<NUMBER>;

impl Adapter for Many {
    const NAME: &str = "many";
    const DESCRIPTION: &str = "Serves many templates.";
    type Config = Params;
    type Templates = (
        T<0>,
        T<1>,
        T<2>,
        T<3>,
        T<4>,
        T<5>,
        T<6>,
        T<7>,
        T<8>,
        T<9>,
        T<10>,
        T<11>,
        T<12>,
        T<13>,
        T<14>,
        T<15>,
        T<16>,
        T<17>,
        T<18>,
        T<19>,
        T<20>,
        T<21>,
        T<22>,
        T<23>,
        T<24>,
        T<25>,
        T<26>,
        T<27>,
        T<28>,
        T<29>,
        T<30>,
        T<31>,
    );

    async fn open(_: Params, _: Context) -> Result<Self, AdapterError> {
        Ok(Self)
    }
}

impl<const NUMBER: usize> Handle<Numbered<NUMBER>> for Many {
    async fn handle(&self, _: <ListEntry as Template>::Input) -> Result<Check, AdapterError> {
        Ok(Check::allow())
    }
}

#[test]
fn an_adapter_may_serve_32_templates() {
    struct Names(Vec<&'static str>);

    impl TemplateVisitor<Many> for Names {
        fn template<T: Template>(&mut self)
        where
            Many: Handle<T>,
        {
            self.0.push(T::NAME);
        }
    }

    let mut names = Names(Vec::new());
    <Many as Adapter>::Templates::visit(&mut names);
    assert_eq!(names.0, NAMES);
}
