//! Newtypes for names and uids, so that no two of them can be confused, and lists of names for a person.

use std::cmp::Ordering;
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

/// The same, sorted as a person sorts names with numbers.
#[must_use]
pub fn ten_by_number<T: fmt::Display>(names: impl IntoIterator<Item = T>) -> String {
    let mut names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    names.sort_by(|one, other| by_number(one, other));
    ten_of(names)
}

/// The order of two names for a person: numbers in them count as numbers, so `node-2` is before `node-10`.
#[must_use]
pub fn by_number(one: &str, other: &str) -> Ordering {
    runs(one).cmp(runs(other)).then_with(|| one.cmp(other))
}

/// A part of a name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Run<'a> {
    /// The number of its digits, and the digits.
    Number(usize, &'a [u8]),
    Text(&'a [u8]),
}

fn runs(name: &str) -> impl Iterator<Item = Run<'_>> {
    let runs = name.as_bytes().chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit());
    runs.map(|run| {
        if !run[0].is_ascii_digit() {
            return Run::Text(run);
        }
        let n_zeros = run.iter().take_while(|digit| **digit == b'0').count();
        Run::Number(run.len() - n_zeros, &run[n_zeros..])
    })
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

    #[test]
    fn numbers_in_names_are_sorted_as_numbers() {
        assert_eq!(
            ten_by_number(["node-10", "node-2", "b", "node-02", "1", "node"]),
            "1, b, node, node-02, node-2, node-10"
        );
        assert_eq!(
            ten_by_number(["10.3.0.112-28", "10.3.0.16-28", "9.9.9.9-32"]),
            "9.9.9.9-32, 10.3.0.16-28, 10.3.0.112-28"
        );
        assert_eq!(by_number("a1b2", "a1b10"), Ordering::Less);
        assert_eq!(by_number("99999999999999999999", "100000000000000000000"), Ordering::Less);
    }
}
