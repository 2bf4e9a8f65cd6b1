//! Names that people and their alerts rely on: an enum, the name of each variant, and the list of all of them.
//!
//! A name that is published once is kept. `docs/operations.md` has an entry for each; a test compares.

/// Makes an enum with a stable name for each variant: its own, or the text behind `=>`.
///
/// A macro of ours and not `strum` 0.28, whose `VariantArray` and `IntoStaticStr` would do the same: that is two more
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
            /// Every one of them.
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
