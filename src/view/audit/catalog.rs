//! The checks of an audit: the stable id of each, its severity, a title and the remedy.
//!
//! An id that was published once is kept, and is never used for another check. `docs/reference/checks.md` has a section per id,
//! and a test compares the two.

use crate::model::finding::FindingKind;
use crate::model::stable_names;

stable_names! {
    /// How serious a violation is, the worst first.
    pub enum Severity {
        /// Pods lose traffic, or can't start, now or after the next restart of an agent.
        Error => "error",
        /// It harms under a further condition.
        Warning => "warning",
        /// A fact that explains something. The exit code stays 0.
        Info => "info",
    }
}

/// Makes the enum of checks from a table: variant, id, severity, title, remedy.
macro_rules! checks {
    ($($variant:ident $id:literal $severity:ident $title:literal $remedy:literal;)+) => {
        /// A check, in the order of the ids.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each variant has a title")]
        pub enum Check {
            $($variant,)+
        }

        impl Check {
            /// Every check.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// The stable id.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$variant => $id,)+
                }
            }

            /// How serious a violation is.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$variant => Severity::$severity,)+
                }
            }

            /// The check in a sentence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$variant => $title,)+
                }
            }

            /// The remedy for an administrator.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$variant => $remedy,)+
                }
            }
        }
    };
}

impl Check {
    /// The check that a finding violates. Its severity is that of the finding in every command.
    ///
    /// # Panics
    ///
    /// If the table of findings names an id that no check has, which a test of the documents rules out.
    #[must_use]
    pub fn of(kind: FindingKind) -> Self {
        let found = Self::ALL.into_iter().find(|check| check.id() == kind.check_id());
        found.expect("the table of findings names checks")
    }
}

checks! {
    ClaimOverlaps "NIP0101" Error
        "A claim overlaps another claim, or addresses on a carrier."
        "Find both with `who CIDR`, and remove the one that no pod uses.";
    BothPublished "NIP0102" Error
        "Two claims overlap, and both are published."
        "Drain one of the nodes, turn its machine off, and delete its Node and CiliumNode.";
    PoolsOverlap "NIP0103" Warning
        "Two pools declare the same addresses."
        "The older pool keeps them. Remove the range from the younger pool.";
    ClaimWithoutPool "NIP0104" Info
        "The pool of a claim does not exist, or does not declare the block."
        "Nothing: the node keeps the block, and the block cools after the node is deleted.";
    ClaimUnpublished "NIP0201" Warning
        "A node holds a block, and its carrier does not have it."
        "If a controller is running, `why NODE` shows the cause.";
    RangeWithoutClaim "NIP0202" Warning
        "A carrier has addresses of a pool without a claim."
        "Remove them from it once no pod uses them, or add them to `exclude` of the pool.";
    RangeOutsidePools "NIP0203" Info
        "A carrier has a block outside of every pool, without a claim."
        "Declare the range in a pool, or remove it from the carrier once no pod uses it.";
    CooledAndCarried "NIP0204" Error
        "A block cools, and its node still has it."
        "Drain the node before the block has cooled: another node may get the same addresses.";
    NodeOfClaimMissing "NIP0205" Warning
        "The Node of a claim does not exist, and its carrier keeps the block."
        "Delete the CiliumNode when the machine is off.";
    CarriedTwice "NIP0206" Error
        "Two nodes have the same addresses on their carriers."
        "Drain the node without the claim, and remove the addresses from its carrier.";
    UsedOutsideClaims "NIP0301" Error
        "An agent uses addresses of a pool without a claim of its node."
        "Delete the pods with these addresses, or drain the node.";
    PodOutsideClaims "NIP0302" Error
        "A Pod has an address of a pool, and no claim has it: another CNI gave it."
        "Exclude the range of the other CNI in the pool until its last Pod is deleted.";
    PodInForeignClaim "NIP0303" Error
        "A Pod has an address in a block of another node."
        "Delete the Pod. If it returns there, find the other CNI or allocator of its node.";
    PodAddressTwice "NIP0304" Error
        "Two Pods have the same address."
        "Delete the Pod whose node does not hold the block.";
    PodOfFormerMode "NIP0305" Error
        "A Pod has an address of another mode of Cilium, and loses its network when its agent starts in the present mode."
        "Do not restart the agent. Set the former mode again and let the controller claim the range first, or recreate \
         the Pod.";
    PodCidrOfOtherNode "NIP0401" Warning
        "The podCIDR of a Node overlaps a block of another node."
        "Stop kube-controller-manager from allocating (`--allocate-node-cidrs=false`), and recreate the Node.";
    PodCidrWithoutClaim "NIP0402" Warning
        "The podCIDR of a Node is in a pool, and the node has no claim of it."
        "Exclude it in the pool if cloud routes or another CNI use it.";
    PodCidrOutsidePools "NIP0403" Info
        "The podCIDR of a Node is outside of every pool."
        "Nothing, if neither routes nor another CNI use it.";
    InternalIpTwice "NIP0404" Error
        "Two Nodes have the same InternalIP, and one of them has no other of the family."
        "Set `--node-ip` of kubelet to an address of the machine itself, not to a virtual one such as that of kube-vip. \
         Delete a Node only if its machine is gone.";
    FirstBlockStray "NIP0405" Info
        "The first block of a node is of a pool that does not select the node any more."
        "Nothing, or drain and recreate the node: it keeps its first block as long as it lives.";
    FurtherBlockStray "NIP0406" Info
        "A further block of a node is of a pool that does not select the node any more."
        "Nothing: with `reclaim.mode: Enabled` of the pool the block returns when the node does not need it.";
    InternalIpVirtual "NIP0407" Info
        "Two Nodes have the same InternalIP beside others."
        "Nothing, if the address moves between machines, as that of kube-vip does.";
    MaxPods "NIP0408" Warning
        "kubelet allows more pods on a node than the node can ever have addresses for."
        "Lower `maxPods` of kubelet, or raise `perNode` of the pool. A node with one block for its life needs a pool \
         with larger blocks, and gets such a block when it is recreated.";
    ServiceRange "NIP0501" Error
        "A pool contains addresses of Services."
        "Add the range of the Services to `exclude` of the pool.";
    NodeAddresses "NIP0502" Warning
        "A pool contains addresses of nodes themselves."
        "Add the network of the nodes to `exclude` of the pool.";
    LoadBalancerRange "NIP0503" Error
        "A pool contains addresses of load balancers, or external addresses of Services."
        "Add them to `exclude` of the pool, or give the load balancer and the Services other addresses.";
    DeviceRange "NIP0504" Error
        "A pool contains addresses of a CiliumResourceIPPool."
        "Add the range to `exclude` of the pool, or remove it from the CiliumResourceIPPool.";
    StaleMarks "NIP0601" Warning
        "A block that stays with its node has marks of the release handshake."
        "Nothing, if a controller is running: it removes them. Else the agent does not use these addresses.";
    OtherWriter "NIP0602" Warning
        "Another writer has set fields that only the controller sets."
        "Find the writer, and stop it: `kubectl get KIND NAME -o yaml --show-managed-fields`.";
    SecondAllocator "NIP0603" Error
        "Another allocator also gives addresses to a node."
        "Run `cilium-node-ipam explain SecondAllocator`.";
    ClaimBeingDeleted "NIP0604" Warning
        "Another writer deletes a claim that belongs to a node."
        "Nothing: the finalizer keeps it. Do not remove the finalizer.";
    DefinitionOld "NIP0701" Error
        "A CustomResourceDefinition is older than this program."
        "cilium-node-ipam crd | kubectl apply --server-side -f -";
    Unreadable "NIP0702" Error
        "An object or a field of it is unreadable."
        "Correct the field.";
    DefinitionDeleted "NIP0703" Error
        "A CustomResourceDefinition is being deleted or is missing."
        "Start no controller. Run `cilium-node-ipam explain DefinitionDeleted`, and follow its steps.";
    NodeFinding "NIP0801" Error
        "The planner reports a finding about a node or its blocks."
        "Run `cilium-node-ipam explain NAME` with the name of the finding.";
    PoolFinding "NIP0802" Warning
        "The planner reports a finding about a pool, a route or a write."
        "Run `cilium-node-ipam explain NAME` with the name of the finding.";
    WaitFinding "NIP0803" Info
        "A node or a block waits."
        "Run `cilium-node-ipam explain NAME` with the name of the finding.";
}
