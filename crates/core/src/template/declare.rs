/// Implements `Template` in the shape of the variety. Generated code calls this once per template.
///
/// The messages (`InstanceMsg`, `Type`, `OutputMsg`, the request) must be in the scope of the call.
#[doc(hidden)]
#[macro_export]
macro_rules! declare_template {
    (
        $(#[$doc:meta])*
        $variety:ident $template:ident {
            name: $name:literal,
            package: $package:literal,
            method: $method:literal,
            descriptor: $descriptor:expr,
            comments: $comments:expr,
            request: $request:ident,
            response: $response:ty $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $template {}

        impl $crate::template::Template for $template {
            const NAME: &'static str = $name;
            const VARIETY: $crate::template::Variety = $crate::template::Variety::$variety;
            const PACKAGE: &'static str = $package;
            const METHOD: &'static str = $method;
            const DESCRIPTOR: &'static [u8] = $descriptor;
            const COMMENTS: &'static str = $comments;
            const GENERATED: () = ();

            type Request = $request;
            type Response = $response;
            type Instance = InstanceMsg;
            type Type = Type;

            fn take_adapter_config(request: &mut $request) -> Option<$crate::proto::Any> {
                request.adapter_config.take()
            }

            $crate::declare_template!(@ $variety $request);
        }
    };

    (@ Check $request:ident) => {
        $crate::declare_template!(@one_instance $request, $crate::Check, check => Check(check.into(), None));
    };

    (@ CheckWithOutput $request:ident) => {
        $crate::declare_template!(@one_instance $request, ($crate::Check, OutputMsg), (check, output) =>
            Check(check.into(), Some($crate::prost::Message::encode_to_vec(&output).into())));
    };

    (@ AttributeGenerator $request:ident) => {
        $crate::declare_template!(@one_instance $request, OutputMsg, answer =>
            Encoded($crate::prost::Message::encode_to_vec(&answer).into()));
    };

    (@ Report $request:ident) => {
        type Input = $crate::Call<Vec<InstanceMsg>>;
        type Answer = ();
        type Context = ();
        fn instance_names(request: &$request) -> impl Iterator<Item = &str> {
            request.instances.iter().map(|instance| instance.name.as_str())
        }
        fn request(
            instances: impl Iterator<Item = InstanceMsg>,
            dedup_id: String,
            _: Option<$crate::proto::QuotaRequest>,
        ) -> $request {
            $request { instances: instances.collect(), adapter_config: None, dedup_id }
        }
        fn split(
            request: $request,
            mut info: $crate::framework::CallInfo,
        ) -> Result<(Self::Input, ()), $crate::template::MalformedRequestError> {
            info.dedup_id = request.dedup_id;
            Ok(($crate::Call::with_info(request.instances, (), info), ()))
        }
        fn respond((): (), (): ()) -> Result<$crate::template::Response, $crate::template::InvalidAnswerError> {
            Ok($crate::template::Response::default())
        }
    };

    (@ Quota $request:ident) => {
        type Input = $crate::Call<InstanceMsg, $crate::QuotaRequest>;
        type Answer = $crate::Grant;
        type Context = $crate::framework::QuotaContext;
        fn instance_names(request: &$request) -> impl Iterator<Item = &str> {
            request.instance.iter().map(|instance| instance.name.as_str())
        }
        fn request(
            mut instances: impl Iterator<Item = InstanceMsg>,
            dedup_id: String,
            quota_request: Option<$crate::proto::QuotaRequest>,
        ) -> $request {
            $request { instance: instances.next(), adapter_config: None, dedup_id, quota_request }
        }
        fn split(
            request: $request,
            mut info: $crate::framework::CallInfo,
        ) -> Result<(Self::Input, Self::Context), $crate::template::MalformedRequestError> {
            info.dedup_id.clone_from(&request.dedup_id);
            let instance = request.instance.ok_or($crate::template::MalformedRequestError::NoInstance)?;
            let (request, context) =
                $crate::framework::QuotaContext::new(&instance.name, request.quota_request, request.dedup_id)?;
            Ok(($crate::Call::with_info(instance, request, info), context))
        }
        fn respond(context: Self::Context, answer: $crate::Grant) -> Result<$crate::template::Response, $crate::template::InvalidAnswerError> {
            context.respond(answer).map($crate::template::Response::Quota)
        }
    };

    (@one_instance $request:ident, $answer:ty, $given:pat => $kind:ident($($part:expr),+)) => {
        type Input = $crate::Call<InstanceMsg>;
        type Answer = $answer;
        type Context = ();
        fn instance_names(request: &$request) -> impl Iterator<Item = &str> {
            request.instance.iter().map(|instance| instance.name.as_str())
        }
        fn request(
            mut instances: impl Iterator<Item = InstanceMsg>,
            dedup_id: String,
            _: Option<$crate::proto::QuotaRequest>,
        ) -> $request {
            $request { instance: instances.next(), adapter_config: None, dedup_id }
        }
        fn split(
            request: $request,
            mut info: $crate::framework::CallInfo,
        ) -> Result<(Self::Input, ()), $crate::template::MalformedRequestError> {
            let instance = request.instance.ok_or($crate::template::MalformedRequestError::NoInstance)?;
            info.dedup_id = request.dedup_id;
            Ok(($crate::Call::with_info(instance, (), info), ()))
        }
        fn respond((): (), $given: Self::Answer) -> Result<$crate::template::Response, $crate::template::InvalidAnswerError> {
            Ok($crate::template::Response::$kind($($part),+))
        }
    };
}
