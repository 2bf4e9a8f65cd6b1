//! Enums of the API that have the same variants as an enum of the model, and their conversion in both directions.
//!
//! There are two types because the one of the API derives its schema, and values of the model are not a format.

/// Converts two enums with the same variants into each other.
macro_rules! mirror {
    ($wire:ty, $model:ty { $($variant:ident),+ }) => {
        impl From<$model> for $wire {
            fn from(value: $model) -> Self {
                match value {
                    $(<$model>::$variant => Self::$variant,)+
                }
            }
        }

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
