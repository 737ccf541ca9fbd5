//! An adapter with a fault put into each of its calls, to see what the fault does to the rest of it.

use std::{future::Future, marker::PhantomData};

use mixer_adapter_core::{
    adapter::{Adapter, AdapterError, ConfigErrors, Handle, InferredTypes, Templates},
    framework::TemplateVisitor,
    template::Template,
};

/// What goes wrong in a call, before the adapter gets it.
pub(super) trait Fault: Send + Sync + 'static {
    fn strike() -> impl Future<Output = ()> + Send;
}

/// The call panics.
pub(super) enum Panics {}

impl Fault for Panics {
    async fn strike() {
        // As a panic, without its message on stderr: nothing is wrong with the adapter.
        std::panic::resume_unwind(Box::new("told to by the compliance suite"));
    }
}

/// The call never returns.
pub(super) enum Hangs {}

impl Fault for Hangs {
    async fn strike() {
        std::future::pending().await
    }
}

pub(super) struct Faulty<A, F> {
    adapter: A,
    fault: PhantomData<fn() -> F>,
}

impl<A: Adapter, F: Fault> Adapter for Faulty<A, F> {
    const NAME: &'static str = A::NAME;
    const DESCRIPTION: &'static str = A::DESCRIPTION;
    const BLOCKING: bool = A::BLOCKING;
    type Config = A::Config;
    type Templates = Forwarded<A>;

    async fn open(config: A::Config) -> Result<Self, AdapterError> {
        Ok(Self { adapter: A::open(config).await?, fault: PhantomData })
    }

    fn validate(config: &A::Config, types: &InferredTypes) -> Result<(), ConfigErrors> {
        A::validate(config, types)
    }

    async fn close(self) {
        self.adapter.close().await;
    }
}

impl<A: Handle<T>, T: Template, F: Fault> Handle<T> for Faulty<A, F> {
    async fn handle(&self, input: T::Input) -> Result<T::Answer, AdapterError> {
        F::strike().await;
        self.adapter.handle(input).await
    }
}

/// The templates of the adapter within.
pub(super) struct Forwarded<A>(PhantomData<fn() -> A>);

impl<A: Adapter, F: Fault> Templates<Faulty<A, F>> for Forwarded<A> {
    fn visit(visitor: &mut impl TemplateVisitor<Faulty<A, F>>) {
        A::Templates::visit(&mut Forward { visitor, fault: PhantomData::<fn() -> F> });
    }
}

struct Forward<'a, V, F> {
    visitor: &'a mut V,
    fault: PhantomData<fn() -> F>,
}

impl<A: Adapter, F: Fault, V: TemplateVisitor<Faulty<A, F>>> TemplateVisitor<A> for Forward<'_, V, F> {
    fn template<T: Template>(&mut self)
    where
        A: Handle<T>,
    {
        self.visitor.template::<T>();
    }
}
