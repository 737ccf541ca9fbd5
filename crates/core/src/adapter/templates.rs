use super::{Adapter, Handle};
use crate::template::Template;

/// A tuple of one to twelve templates, each handled by the adapter: `(ListEntry, Quota)`.
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

macro_rules! tuples {
    ($($template:ident)*) => {
        impl<A: $(Handle<$template> +)*, $($template: Template),*> Templates<A> for ($($template,)*) {
            fn visit(visitor: &mut impl TemplateVisitor<A>) {
                $(visitor.template::<$template>();)*
            }
        }
    };
}

tuples!(T1);
tuples!(T1 T2);
tuples!(T1 T2 T3);
tuples!(T1 T2 T3 T4);
tuples!(T1 T2 T3 T4 T5);
tuples!(T1 T2 T3 T4 T5 T6);
tuples!(T1 T2 T3 T4 T5 T6 T7);
tuples!(T1 T2 T3 T4 T5 T6 T7 T8);
tuples!(T1 T2 T3 T4 T5 T6 T7 T8 T9);
tuples!(T1 T2 T3 T4 T5 T6 T7 T8 T9 T10);
tuples!(T1 T2 T3 T4 T5 T6 T7 T8 T9 T10 T11);
tuples!(T1 T2 T3 T4 T5 T6 T7 T8 T9 T10 T11 T12);
