use super::{Access, Config, ConfigErrors, Faults, InferredTypes};

/// A valid configuration of an adapter, parsed once from its message: what [`parse`](Self::parse) proves is passed to
/// [`Adapter::open`](super::Adapter::open).
///
/// Each generated `Params` is its own settings, with which an adapter begins. Others are a type of the adapter:
///
/// ```
/// use std::time::Duration;
/// use mixer_adapter_core::adapter::{Faults, Settings};
/// # use mixer_adapter_core::{adapter::Config, prost_types};
/// # #[derive(Clone, PartialEq, mixer_adapter_core::prost::Message)]
/// # #[prost(prost_path = "mixer_adapter_core::prost")]
/// # struct Params {
/// #     #[prost(message, optional, tag = "1")] interval: Option<prost_types::Duration>,
/// #     #[prost(string, tag = "2")] url: String,
/// # }
/// # impl Config for Params {
/// #     const NAME: &'static str = "example.Params";
/// #     const DESCRIPTOR: &'static [u8] = &[];
/// #     const GENERATED: () = ();
/// # }
///
/// struct Polling {
///     url: http::Uri,
///     interval: Duration,
/// }
///
/// impl Settings for Polling {
///     type Params = Params; // generated
///
///     fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
///         let interval = faults.duration("interval", params.interval);
///         let interval = interval.range(Duration::from_secs(1)..=Duration::from_secs(3600)).or(Duration::from_secs(30));
///         Some(Self { url: faults.url("url", &params.url).required()?, interval })
///     }
/// }
///
/// let params = Params { url: "ftp://example.com".to_owned(), ..Params::default() };
/// let faults = Faults::parse::<Polling>(params).err().unwrap();
/// assert_eq!(faults.to_string(), r#"url: "ftp://example.com" is not a URL; write it like "https://host/path""#);
/// ```
pub trait Settings: Sized + Send + Sync + 'static {
    /// The message `Params` of the adapter's config.proto.
    type Params: Config;

    /// Parses a message, and adds its errors to `faults`. Returns `None` if a fault leaves no value; a value with faults is
    /// refused, too.
    ///
    /// Called when a configuration is validated, and again before a handler is opened. It must not open anything.
    fn parse(params: Self::Params, faults: &mut Faults<'_>) -> Option<Self>;
}

impl<C: Config> Settings for C {
    type Params = C;

    fn parse(params: C, _: &mut Faults<'_>) -> Option<C> {
        Some(params)
    }
}

impl Faults<'_> {
    /// Parses a configuration that may reach everything, for a test.
    ///
    /// # Errors
    /// All faults of the configuration.
    pub fn parse<C: Settings>(params: C::Params) -> Result<C, ConfigErrors> {
        let (types, access) = (InferredTypes::default(), Access::unrestricted());
        Faults::new(&types, &access).settings(params)
    }

    /// Parses a configuration.
    ///
    /// # Errors
    /// All faults of the configuration.
    pub fn settings<C: Settings>(&mut self, params: C::Params) -> Result<C, ConfigErrors> {
        let settings = C::parse(params, self);
        self.take_errors().into_result()?;
        settings.ok_or_else(|| ConfigErrors::single("params", "the adapter refuses them without a reason"))
    }
}
