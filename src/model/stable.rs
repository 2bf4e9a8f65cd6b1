//! A macro for enums whose variants have names that people and their alerts rely on.
//!
//! A name that was published once is kept. The pages of `docs/reference` have an entry for each, and a test compares the two.

/// Makes an enum with a stable name for each variant: the name of the variant, or the text after `=>`.
///
/// `strum` 0.28 with `VariantArray` and `IntoStaticStr` would do the same. It was not chosen because it would add two
/// crates for these thirty lines.
macro_rules! stable_names {
    (@name $variant:ident) => { stringify!($variant) };
    (@name $variant:ident $name:literal) => { $name };
    (
        $(#[$meta:meta])* $vis:vis enum $enum:ident { $($(#[$doc:meta])* $variant:ident $(=> $name:literal)?,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        $vis enum $enum {
            $($(#[$doc])* $variant,)+
        }

        impl $enum {
            /// Every variant.
            $vis const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// The stable name.
            #[must_use]
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $crate::model::stable_names!(@name $variant $($name)?),)+
                }
            }
        }
    };
}

pub(crate) use stable_names;
