//! Enums of the API that have the same variants as an enum of the model, and their conversion into it.
//!
//! There are two types because the one of the API derives its schema, and values of the model are not a format.

/// Converts an enum into one with the same variants.
macro_rules! mirror {
    ($wire:ty, $model:ty { $($variant:ident),+ }) => {
        impl From<$wire> for $model {
            fn from(value: $wire) -> Self {
                match value {
                    $(<$wire>::$variant => Self::$variant,)+
                }
            }
        }
    };
}

pub(super) use mirror;
