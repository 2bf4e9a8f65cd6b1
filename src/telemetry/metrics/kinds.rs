//! Names of decisions, inputs, requests, outcomes and flows of blocks, as values of labels.

use crate::model::claim::Reason;
use crate::model::outcome::{Answer, Effect, Outcome};
use crate::model::request::{Read, Request, Write};
use crate::model::stable_names;
use crate::model::status::Need;

stable_names! {
    /// The subject of a decision.
    pub enum Decision {
        /// A node.
        Node => "node",
        /// The object of a pool.
        Pool => "pool",
        /// The routes of all nodes.
        Routes => "routes",
    }
}

stable_names! {
    /// The kind of an input.
    pub enum InputKind {
        /// A list of a kind.
        Listed => "listed",
        /// An object that appeared or changed.
        Applied => "applied",
        /// An object that was deleted.
        Deleted => "deleted",
        /// Cilium's configuration.
        Mode => "mode",
        /// The freeze.
        Freeze => "freeze",
        /// The Pods of Cilium's agents.
        Agents => "agents",
        /// CiliumPodIPPools.
        PodIpPools => "pod_ip_pools",
        /// FRRConfigurations and FRRNodeStates.
        Frr => "frr",
        /// Changes of the table of a GoBGP daemon.
        Gobgp => "gobgp",
        /// CiliumNodeConfigs.
        NodeConfigs => "node_configs",
        /// The definitions of pools and claims.
        Definitions => "definitions",
        /// The lead of this process.
        Leadership => "leadership",
        /// The outcome of a request.
        Finished => "finished",
    }
}

stable_names! {
    /// The kind of a request.
    pub enum RequestKind {
        /// A claim is created.
        CreateClaim => "claim",
        /// A claim is moved or deleted.
        UpdateClaim => "move_claim",
        /// Blocks are written onto a CiliumNode.
        Publish => "publish",
        /// A later version of a CiliumNode is written, without a change of its content.
        BumpVersion => "touch",
        /// A usage query is sent to an agent.
        UsageQuery => "usage_query",
        /// One step of removing blocks from a CiliumNode.
        Withdraw => "withdraw",
        /// A CiliumNode is created.
        CreateCiliumNode => "create_ciliumnode",
        /// The status of a pool is written.
        PoolStatus => "pool_status",
        /// The finalizers of a pool are written.
        PoolFinalizers => "pool_finalizers",
        /// The status of a claim is written.
        ClaimStatus => "claim_status",
        /// The condition of a Node is written.
        NodeCondition => "node_condition",
        /// A CiliumPodIPPool is created or completed.
        PodIpPool => "pod_ip_pool",
        /// An FRRConfiguration is created, replaced or deleted.
        Frr => "frr_configuration",
        /// All claims of a node are read.
        ReadClaimsOf => "confirm_claims",
        /// A claim is read.
        ReadClaim => "read_claim",
        /// A CiliumNode is read.
        ReadCiliumNode => "read_ciliumnode",
        /// A Node is read.
        ReadNode => "read_node",
        /// The Pods of a node are read.
        ReadPodsOf => "read_pods",
    }
}

stable_names! {
    /// The outcome of a request.
    pub(super) enum OutcomeKind {
        /// It was applied or answered.
        Done => "done",
        /// The server accepted it, and the object does not show it.
        NoEffect => "no_effect",
        /// Another writer was faster.
        Conflict => "conflict",
        /// The server refused it.
        Refused => "refused",
        /// There was no answer that says whether it was applied.
        Unknown => "unknown",
    }
}

stable_names! {
    /// Why a node got a block.
    pub enum GrantReason {
        /// It had no addresses.
        First => "first",
        /// It needed more.
        Growth => "growth",
        /// Its CiliumNode had the block already, without a claim.
        Adopted => "adopted",
    }
}

stable_names! {
    /// Why a pool got a block back.
    pub enum ReturnReason {
        /// The agent of its node consented.
        Reclaimed => "reclaimed",
        /// Its Node and its CiliumNode are gone.
        NodeGone => "node_gone",
        /// It was never published, or a user gave it up.
        Unused => "unused",
    }
}

impl From<&Request> for RequestKind {
    fn from(request: &Request) -> Self {
        match request {
            Request::Write(Write::CreateClaim(_)) => Self::CreateClaim,
            Request::Write(Write::UpdateClaim(_)) => Self::UpdateClaim,
            Request::Write(Write::Publish(_)) => Self::Publish,
            Request::Write(Write::BumpVersion(_)) => Self::BumpVersion,
            Request::Write(Write::UsageQuery(_)) => Self::UsageQuery,
            Request::Write(Write::Withdraw(_)) => Self::Withdraw,
            Request::Write(Write::CreateCiliumNode(_)) => Self::CreateCiliumNode,
            Request::Write(Write::PoolStatus(_)) => Self::PoolStatus,
            Request::Write(Write::PoolFinalizers(_)) => Self::PoolFinalizers,
            Request::Write(Write::ClaimStatus(_)) => Self::ClaimStatus,
            Request::Write(Write::NodeCondition(_)) => Self::NodeCondition,
            Request::Write(Write::PodIpPool(_)) => Self::PodIpPool,
            Request::Write(Write::Frr(_)) => Self::Frr,
            Request::Read(Read::ClaimsOf(_)) => Self::ReadClaimsOf,
            Request::Read(Read::Claim(..)) => Self::ReadClaim,
            Request::Read(Read::CiliumNode(_)) => Self::ReadCiliumNode,
            Request::Read(Read::Node(..)) => Self::ReadNode,
            Request::Read(Read::PodsOf(..)) => Self::ReadPodsOf,
        }
    }
}

impl From<&Outcome> for OutcomeKind {
    fn from(outcome: &Outcome) -> Self {
        match outcome.answer {
            Answer::Done => match outcome.effect() {
                Effect::Shown => Self::Done,
                Effect::Missing => Self::NoEffect,
            },
            Answer::Conflict(_) => Self::Conflict,
            Answer::Refused(..) => Self::Refused,
            Answer::Unknown(_) => Self::Unknown,
        }
    }
}

impl From<Reason> for ReturnReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Reclaimed => Self::Reclaimed,
            Reason::NodeGone => Self::NodeGone,
            Reason::Unused => Self::Unused,
        }
    }
}

impl From<Need> for GrantReason {
    fn from(need: Need) -> Self {
        match need {
            Need::First => Self::First,
            Need::Growth => Self::Growth,
        }
    }
}
