//! The remedies for a full pool, in words for a person. Knows no pool.

/// The remedies for a full pool, the most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Remedy {
    /// Nodes were deleted, and their CiliumNodes were not.
    DeleteCarriers,
    /// Blocks cool.
    Wait,
    /// CiliumNodes have addresses without a claim in most blocks.
    RemoveForeign,
    /// Objects that can't be read take most blocks.
    CorrectUnreadable,
    /// Addresses of nodes themselves, or excluded ones, take most blocks.
    LeaveNodeNetwork,
    /// An older pool has the ranges.
    RemoveOverlap,
    /// Nodes have them.
    AddCidr,
}

impl Remedy {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::DeleteCarriers => "delete the CiliumNodes of deleted nodes once their machines are off",
            Self::Wait => "cooling blocks return without action; add a CIDR to serve nodes earlier",
            Self::RemoveForeign => {
                "remove CIDRs without a claim from the CiliumNodes once no pod uses them, or add a CIDR"
            }
            Self::CorrectUnreadable => "correct the unreadable objects, or add a CIDR",
            Self::LeaveNodeNetwork => "add a CIDR outside of the network of the nodes",
            Self::RemoveOverlap => "remove the range from one of the two pools",
            Self::AddCidr => "add a CIDR",
        }
    }
}
