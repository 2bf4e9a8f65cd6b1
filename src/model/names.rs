//! Newtypes for names and uids, so that no two of them can be confused, and lists of names for a person.

use std::fmt;
use std::sync::Arc;

macro_rules! name {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name! {
    /// The name of a Node, which is also the name of its CiliumNode.
    NodeName
}
name! {
    /// The name of a NodeIPPool.
    PoolName
}
name! {
    /// The name of a CiliumPodIPPool. In the mode multi-pool a CiliumNode lists its CIDRs by this name.
    PodIpPoolName
}
name! {
    /// The name of an FRRConfiguration, in the namespace of frr-k8s.
    FrrName
}
name! {
    /// The name of a Pod of Cilium's agent, in the namespace of the agents.
    PodName
}
name! {
    /// The uid of an object. An object that is recreated under the same name has another uid.
    Uid
}

/// How many names a message lists before it counts the others.
pub const MAX_LISTED: usize = 10;

/// The names for a person: the first ten, and how many more there are.
#[must_use]
pub fn ten_of<T: fmt::Display>(names: impl IntoIterator<Item = T>) -> String {
    let mut names = names.into_iter();
    let listed: Vec<String> = names.by_ref().take(MAX_LISTED).map(|name| name.to_string()).collect();
    match names.count() {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_names_are_counted() {
        assert_eq!(ten_of(["a", "b"]), "a, b");
        assert_eq!(ten_of(0..10), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9");
        assert_eq!(ten_of(0..12), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more");
    }
}
