/// Adds a setter for each field, so that settings of another crate can be chained:
/// `ServerOptions::default().max_connections(10)`.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($settings:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        impl $settings {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}

pub use crate::setters;
