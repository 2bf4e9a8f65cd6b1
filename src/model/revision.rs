//! Revisions of objects, each typed by its store: only revisions of one store can be compared.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;

use super::kind::Kind;

/// A store whose revisions can be compared with each other (KEP-5504), but not with those of another store.
pub trait Store:
    fmt::Debug + Clone + Copy + PartialEq + Eq + PartialOrd + Ord + Send + Sync + 'static
{
    /// The revision as one of this store; `None` if it is of another.
    fn of_any(revision: AnyRevision) -> Option<Revision<Self>>;

    /// The revision as one of any store.
    fn into_any(revision: Revision<Self>) -> AnyRevision;
}

/// The store of custom resources. Claims, pools and CiliumNodes share it; the safety rules 4 and 8 of
/// `docs/invariants.md` rely on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Custom {}

/// The store of the core group: Nodes may live in another etcd (`--etcd-servers-overrides`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Core {}

/// A revision of one store. It is never zero, because no object has revision zero.
///
/// ```
/// use cilium_node_ipam::model::revision::{Core, Custom, Revision};
///
/// let claim: Revision<Custom> = Revision::parse("17").unwrap();
/// assert!(claim < Revision::of(18));
/// assert_eq!(Revision::<Core>::parse("0"), None);
/// // `claim < Revision::<Core>::of(18)` does not compile: a Node's revision says nothing about a claim.
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision<S = Custom> {
    number: NonZeroU64,
    store: PhantomData<S>,
}

impl<S> Revision<S> {
    /// The revision with this number.
    #[must_use]
    pub const fn new(number: NonZeroU64) -> Self {
        Self { number, store: PhantomData }
    }

    /// The revision with this number, for literals.
    ///
    /// # Panics
    ///
    /// If the number is zero.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        Self::new(NonZeroU64::new(number).expect("a revision is not zero"))
    }

    /// Reads a `metadata.resourceVersion`; `None` if it is not a positive integer.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self::new)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number.get()
    }
}

impl<S> fmt::Display for Revision<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.number, f)
    }
}

/// A revision together with its store, for code that treats all kinds alike. Two revisions of different stores are
/// neither equal nor ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnyRevision {
    /// Of the store of custom resources.
    Custom(Revision),
    /// Of the store of the core group.
    Core(Revision<Core>),
}

impl AnyRevision {
    /// A revision of the store of this kind.
    #[must_use]
    pub const fn new(kind: Kind, number: NonZeroU64) -> Self {
        match kind {
            Kind::Node => Self::Core(Revision::new(number)),
            Kind::CiliumNode | Kind::Pool | Kind::Claim => Self::Custom(Revision::new(number)),
        }
    }

    /// A revision of the store of this kind, for literals.
    ///
    /// # Panics
    ///
    /// If the number is zero.
    #[must_use]
    pub const fn of(kind: Kind, number: u64) -> Self {
        Self::new(kind, NonZeroU64::new(number).expect("a revision is not zero"))
    }

    /// The revision as one of this store; `None` if it is of another.
    #[must_use]
    pub fn within<S: Store>(self) -> Option<Revision<S>> {
        S::of_any(self)
    }
}

impl<S: Store> From<Revision<S>> for AnyRevision {
    fn from(revision: Revision<S>) -> Self {
        S::into_any(revision)
    }
}

impl PartialOrd for AnyRevision {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (Self::Custom(one), Self::Custom(other)) => one.partial_cmp(other),
            (Self::Core(one), Self::Core(other)) => one.partial_cmp(other),
            (Self::Custom(_), Self::Core(_)) | (Self::Core(_), Self::Custom(_)) => None,
        }
    }
}

impl fmt::Display for AnyRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Custom(revision) => fmt::Display::fmt(revision, f),
            Self::Core(revision) => fmt::Display::fmt(revision, f),
        }
    }
}

impl Store for Custom {
    fn of_any(revision: AnyRevision) -> Option<Revision<Self>> {
        match revision {
            AnyRevision::Custom(revision) => Some(revision),
            AnyRevision::Core(_) => None,
        }
    }

    fn into_any(revision: Revision<Self>) -> AnyRevision {
        AnyRevision::Custom(revision)
    }
}

impl Store for Core {
    fn of_any(revision: AnyRevision) -> Option<Revision<Self>> {
        match revision {
            AnyRevision::Core(revision) => Some(revision),
            AnyRevision::Custom(_) => None,
        }
    }

    fn into_any(revision: Revision<Self>) -> AnyRevision {
        AnyRevision::Core(revision)
    }
}
