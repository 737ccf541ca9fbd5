/// What generated code calls once per template: `impl Template` in the shape of its variety.
///
/// The messages (`InstanceMsg`, `Type`, `OutputMsg`, the request) stand in the scope of the call.
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

            type Request = $request;
            type Response = $response;
            type Instance = InstanceMsg;
            type Type = Type;

            fn take_adapter_config(request: &mut $request) -> Option<$crate::proto::Any> {
                request.adapter_config.take()
            }

            $crate::declare_template!(@ $variety $request $response);
        }
    };

    (@ Check $request:ident $response:ty) => {
        type Input = InstanceMsg;
        type Answer = $crate::Check;
        type Asked = ();
        $crate::declare_template!(@one_instance $request);
        fn respond((): (), answer: $crate::Check) -> Result<$response, $crate::template::Breach> {
            Ok(answer.into())
        }
    };

    (@ CheckWithOutput $request:ident $response:ty) => {
        type Input = InstanceMsg;
        type Answer = ($crate::Check, OutputMsg);
        type Asked = ();
        $crate::declare_template!(@one_instance $request);
        fn respond((): (), (check, output): Self::Answer) -> Result<$response, $crate::template::Breach> {
            type Response = $response;
            Ok(Response { result: Some(check.into()), output: Some(output) })
        }
    };

    (@ AttributeGenerator $request:ident $response:ty) => {
        type Input = InstanceMsg;
        type Answer = OutputMsg;
        type Asked = ();
        $crate::declare_template!(@one_instance $request);
        fn respond((): (), answer: OutputMsg) -> Result<$response, $crate::template::Breach> {
            Ok(answer)
        }
    };

    (@ Report $request:ident $response:ty) => {
        type Input = Vec<InstanceMsg>;
        type Answer = ();
        type Asked = ();
        fn instance_names(request: &$request) -> impl Iterator<Item = &str> {
            request.instances.iter().map(|instance| instance.name.as_str())
        }
        fn split(request: $request) -> Result<(Vec<InstanceMsg>, ()), $crate::template::Malformed> {
            Ok((request.instances, ()))
        }
        fn respond((): (), (): ()) -> Result<$response, $crate::template::Breach> {
            Ok(Default::default())
        }
    };

    (@ Quota $request:ident $response:ty) => {
        type Input = (InstanceMsg, $crate::QuotaArgs);
        type Answer = $crate::Grant;
        type Asked = $crate::adapter::QuotaAsked;
        fn instance_names(request: &$request) -> impl Iterator<Item = &str> {
            request.instance.iter().map(|instance| instance.name.as_str())
        }
        fn split(request: $request) -> Result<(Self::Input, Self::Asked), $crate::template::Malformed> {
            let instance = request.instance.ok_or($crate::template::Malformed::NoInstance)?;
            let (args, asked) =
                $crate::adapter::QuotaAsked::new(&instance.name, request.quota_request, request.dedup_id)?;
            Ok(((instance, args), asked))
        }
        fn respond(asked: Self::Asked, answer: $crate::Grant) -> Result<$response, $crate::template::Breach> {
            asked.respond(answer)
        }
    };

    (@one_instance $request:ident) => {
        fn instance_names(request: &$request) -> impl Iterator<Item = &str> {
            request.instance.iter().map(|instance| instance.name.as_str())
        }
        fn split(request: $request) -> Result<(InstanceMsg, ()), $crate::template::Malformed> {
            let instance = request.instance.ok_or($crate::template::Malformed::NoInstance)?;
            Ok((instance, ()))
        }
    };
}
