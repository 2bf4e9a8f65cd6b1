//! The condition of a Node that says whether the node can give addresses to pods, as a value.

use super::stable_names;

/// The type of the condition.
pub const NODE_CONDITION: &str = "nodeipam.io/AddressesAvailable";

stable_names! {
    /// Whether a node can give addresses to pods, and the reason, which the condition names.
    pub enum Availability {
        /// It has free addresses, or it will get a block.
        Free => "AddressesFree",
        /// It has a block, and agents of this mode do not report their use, or another allocator serves the node.
        NotMeasured,
        /// It is short of addresses, and no pool of it has a free block.
        PoolExhausted,
        /// It is short of addresses, and its first pool does not allow it more.
        AtLimit,
        /// It is short of addresses, and no pool selects it.
        NoPool,
        /// It is short of addresses, and gets no block until a person acts.
        Blocked,
    }
}

impl Availability {
    /// Whether the condition is True.
    #[must_use]
    pub const fn holds(self) -> bool {
        match self {
            Self::Free | Self::NotMeasured => true,
            Self::PoolExhausted | Self::AtLimit | Self::NoPool | Self::Blocked => false,
        }
    }

    /// The message of the condition. It has no numbers, so that it changes only with the reason.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Free => "the node has free pod addresses, or will get a block",
            Self::NotMeasured => "the node has a block, and its use of addresses is not known",
            Self::PoolExhausted => {
                "the node is short of pod addresses, and no pool that selects it has a free block"
            }
            Self::AtLimit => {
                "the node is short of pod addresses, and perNode of its first pool does not allow more"
            }
            Self::NoPool => "the node is short of pod addresses, and no pool selects it",
            Self::Blocked => {
                "the node is short of pod addresses, and gets no block until an administrator acts"
            }
        }
    }

    /// The value that a condition with this status and this reason has.
    #[must_use]
    pub fn read(status: &str, reason: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().find(|known| known.as_str() == reason)?;
        (status == found.status()).then_some(found)
    }

    /// The status of the condition.
    #[must_use]
    pub const fn status(self) -> &'static str {
        if self.holds() { "True" } else { "False" }
    }
}
