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

/// Declares settings with public fields, each with its default and a [setter](setters).
#[doc(hidden)]
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        pub struct $settings:ident { $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr),+ $(,)? }
    ) => {
        $(#[$attribute])*
        pub struct $settings {
            $($(#[$doc])* pub $field: $type,)+
        }

        impl Default for $settings {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        $crate::setters!($settings { $($field: $type),+ });
    };
}

pub use crate::{setters, settings};
