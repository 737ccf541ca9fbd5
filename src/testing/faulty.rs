//! An adapter with a fault injected into each of its calls, to observe the effect on the framework.

use std::marker::PhantomData;

use mixer_adapter_core::{
    adapter::{Adapter, AdapterError, Context, Handle, Templates},
    framework::TemplateVisitor,
    template::Template,
};

/// The fault of a call, before it reaches the adapter.
pub(super) trait FaultyBehavior: Send + Sync + 'static {
    fn inject() -> impl Future<Output = ()> + Send;
}

/// The call panics.
pub(super) enum Panics {}

impl FaultyBehavior for Panics {
    async fn inject() {
        // Without the message of a panic on stderr, since the adapter has no defect.
        std::panic::resume_unwind(Box::new("injected by the compliance suite"));
    }
}

/// The call never returns.
pub(super) enum Hangs {}

impl FaultyBehavior for Hangs {
    async fn inject() {
        std::future::pending::<()>().await;
    }
}

pub(super) struct Faulty<A, F> {
    adapter: A,
    fault: PhantomData<fn() -> F>,
}

impl<A: Adapter<S>, S: Send + Sync + 'static, F: FaultyBehavior> Adapter<S> for Faulty<A, F> {
    const NAME: &'static str = A::NAME;
    const DESCRIPTION: &'static str = A::DESCRIPTION;
    const BLOCKING: bool = A::BLOCKING;
    type Config = A::Config;
    type Templates = Forwarded<A, S>;

    async fn open(config: A::Config, context: Context<S>) -> Result<Self, AdapterError> {
        Ok(Self { adapter: A::open(config, context).await?, fault: PhantomData })
    }

    async fn close(self) {
        self.adapter.close().await;
    }
}

impl<A: Handle<T>, T: Template, F: FaultyBehavior> Handle<T> for Faulty<A, F> {
    async fn handle(&self, call: T::Input) -> Result<T::Answer, AdapterError> {
        F::inject().await;
        self.adapter.handle(call).await
    }
}

/// The templates of the wrapped adapter.
pub(super) struct Forwarded<A, S>(PhantomData<fn() -> (A, S)>);

impl<A: Adapter<S>, S, F: FaultyBehavior> Templates<Faulty<A, F>> for Forwarded<A, S> {
    fn visit(visitor: &mut impl TemplateVisitor<Faulty<A, F>>) {
        A::Templates::visit(&mut Forward { visitor, fault: PhantomData::<fn() -> F> });
    }
}

struct Forward<'a, V, F> {
    visitor: &'a mut V,
    fault: PhantomData<fn() -> F>,
}

impl<A, F: FaultyBehavior, V: TemplateVisitor<Faulty<A, F>>> TemplateVisitor<A> for Forward<'_, V, F> {
    fn template<T: Template>(&mut self)
    where
        A: Handle<T>,
    {
        self.visitor.template::<T>();
    }
}
