//! The reasons of Kubernetes events, their tones, and the outcome of each event.

use crate::model::finding::{FindingKind, Reported, Tone};
use crate::model::stable_names;

/// Makes the reasons of events from a table: the name, its tone, and the action of the controller.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident: $tone:ident $action:literal;)+) => {
        /// The reasons of events.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum EventReason {
            $($(#[$doc])* $variant,)+
            /// A finding, under its own name.
            Finding(FindingKind),
        }

        impl EventReason {
            /// Every reason that an event can have.
            pub fn all() -> impl Iterator<Item = Self> {
                let reported = FindingKind::ALL.into_iter().filter(|kind| kind.reported() != Reported::Never);
                [$(Self::$variant),+].into_iter().chain(reported.map(Self::Finding))
            }

            /// The stable name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                    Self::Finding(kind) => kind.as_str(),
                }
            }

            pub(crate) const fn tone(self) -> Tone {
                match self {
                    $(Self::$variant => Tone::$tone,)+
                    Self::Finding(kind) => match kind.reported() {
                        Reported::Each(tone) | Reported::Grouped(tone) => tone,
                        Reported::Never => Tone::Warning,
                    },
                }
            }

            /// The action of the controller, which the API of events requires.
            pub(crate) const fn action(self) -> &'static str {
                match self {
                    $(Self::$variant => $action,)+
                    Self::Finding(FindingKind::WriteFailed) => "Write",
                    Self::Finding(_) => "Plan",
                }
            }
        }
    };
}

reasons! {
    /// New blocks were published for the Node, and its agent may use them.
    BlocksPublished: Normal "Publish";
    /// The Node came back and keeps its blocks.
    BlocksReturned: Normal "Hold";
    /// The Node could not get enough addresses for its agent to start, and gave back the blocks that it had got.
    BlocksGivenBack: Warning "Release";
    /// Blocks of the Node start draining: they are surplus, or their pool drains.
    BlocksDraining: Normal "Drain";
    /// Draining blocks stay on the Node: it needs them, or the agent still uses them.
    BlocksKept: Normal "Hold";
    /// Blocks were reclaimed from the Node with the consent of its agent.
    BlocksReclaimed: Normal "TakeOff";
    /// No pool of the Node has a free block.
    NoCapacity: Warning "Claim";
    /// The pool has no free block any more.
    Exhausted: Warning "Report";
    /// The pool has free blocks again.
    CapacityReturned: Normal "Report";
    /// The pool shares addresses with an older one and does not get them.
    Overlapping: Warning "Report";
    /// The pool can't be read.
    InvalidPool: Warning "Report";
    /// The controller is passive: the pool gives no blocks.
    Passive: Warning "Report";
    /// Writes or reclaim were frozen.
    Frozen: Warning "Report";
    /// Nothing is frozen any more.
    FreezeEnded: Normal "Report";
    /// The API server forbids a write for the Node or the pool.
    WriteForbidden: Warning "Write";
    /// The API server forbids the controller to list or watch a kind.
    ReadForbidden: Warning "Watch";
}

stable_names! {
    /// The outcome of an event.
    pub enum EventFate {
        /// The API server has created it.
        Created => "created",
        /// An event of the same reason on the same object about the same was created less than five minutes ago.
        Suppressed => "suppressed",
        /// Too many events were waiting to be sent.
        Dropped => "dropped",
        /// The API server refused it or did not answer.
        Failed => "failed",
    }
}
