//! Names that people and their alerts rely on: an enum whose variants are the names, and the list of all of them.
//!
//! A name that is published once is kept. `docs/operations.md` has an entry for each; a test compares.

/// Makes an enum whose stable names are its variants'.
macro_rules! stable_names {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }
    };
}

pub(crate) use stable_names;
