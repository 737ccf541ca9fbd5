use super::Handle;
use crate::template::Template;

/// A tuple of 1 to 32 templates, each handled by the adapter: `(ListEntry, Quota)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of templates",
    note = "`type Templates` is a tuple of 1 to 32 templates, such as `(ListEntry,)` or `(ListEntry, Quota)`; \
            an adapter with more of them is split into several"
)]
pub trait Templates<A> {
    /// Calls the visitor for each template, in order.
    #[doc(hidden)]
    fn visit(visitor: &mut impl TemplateVisitor<A>);
}

/// A function over the templates of an adapter.
#[doc(hidden)]
pub trait TemplateVisitor<A> {
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
