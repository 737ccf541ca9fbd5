use super::{Adapter, Handle};
use crate::template::Template;

/// A tuple of 1 to 32 templates, each handled by the adapter: `(ListEntry, Quota)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of templates",
    note = "`type Templates` is a tuple of 1 to 32 templates, such as `(ListEntry,)` or `(ListEntry, Quota)`; \
            an adapter with more of them is split into several"
)]
pub trait Templates<A: Adapter> {
    /// Calls the visitor for each template, in order.
    #[doc(hidden)]
    fn visit(visitor: &mut impl TemplateVisitor<A>);
}

/// A function over the templates of an adapter.
#[doc(hidden)]
pub trait TemplateVisitor<A: Adapter> {
    /// Visits one template.
    fn template<T: Template>(&mut self)
    where
        A: Handle<T>;
}

/// Implements the trait for tuples of these templates, and of fewer.
macro_rules! tuples {
    () => {};
    ($first:ident $($other:ident)*) => {
        impl<A, $first, $($other),*> Templates<A> for ($first, $($other,)*)
        where
            A: Handle<$first> $(+ Handle<$other>)*,
            $first: Template,
            $($other: Template,)*
        {
            fn visit(visitor: &mut impl TemplateVisitor<A>) {
                visitor.template::<$first>();
                $(visitor.template::<$other>();)*
            }
        }
        tuples!($($other)*);
    };
}

tuples!(T1 T2 T3 T4 T5 T6 T7 T8 T9 T10 T11 T12 T13 T14 T15 T16 T17 T18 T19 T20 T21 T22 T23 T24 T25 T26 T27 T28 T29 T30 T31 T32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AdapterError, Check,
        adapter::Config,
        proto::Any,
        template::{InvalidAnswerError, ListEntry, MalformedRequestError, Variety},
    };

    /// The name of each template.
    const NAMES: [&str; 32] = [
        "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11", "t12", "t13", "t14", "t15",
        "t16", "t17", "t18", "t19", "t20", "t21", "t22", "t23", "t24", "t25", "t26", "t27", "t28", "t29",
        "t30", "t31",
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

        fn split(request: Self::Request) -> Result<(Self::Input, Self::Context), MalformedRequestError> {
            ListEntry::split(request)
        }

        fn respond(context: Self::Context, answer: Check) -> Result<Self::Response, InvalidAnswerError> {
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

        async fn open(_: Params) -> Result<Self, AdapterError> {
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
}
