//! Everything that can cause work, as one closed enum. Nothing else triggers work.

use crate::model::agent::AgentNews;
use crate::model::definition::DefinitionNews;
use crate::model::freeze::Freeze;
use crate::model::frr::{FrrConfigurationNews, FrrNodeStateNews};
use crate::model::gobgp::{RibNews, RibOutcome};
use crate::model::leadership::Leadership;
use crate::model::node_config::NodeConfigNews;
use crate::model::observation::Observation;
use crate::model::outcome::Outcome;
use crate::model::pod_ip_pool::PodIpPoolNews;
use crate::model::speaker::{SpeakerKind, SpeakerNews};
use crate::publisher::mode::Mode;

/// A cause of work.
#[derive(Debug)]
pub enum Input {
    /// A watch or list has shown something.
    Observed(Observation),
    /// Cilium's configuration is known, or has changed.
    Mode(Mode),
    /// The freeze is known, or has changed.
    Freeze(Freeze),
    /// The Pods of Cilium's agents are known, or can't be, or have changed.
    Agents(AgentNews),
    /// CiliumPodIPPools are known, or can't be, or have changed.
    PodIpPools(PodIpPoolNews),
    /// CiliumNodeConfigs are known, or can't be, or have changed.
    NodeConfigs(NodeConfigNews),
    /// FRRConfigurations are known, or can't be, or have changed.
    FrrConfigurations(FrrConfigurationNews),
    /// FRRNodeStates are known, or can't be, or have changed.
    FrrNodeStates(FrrNodeStateNews),
    /// Objects that make Cilium announce blocks are known, or can't be, or have changed.
    Speakers(SpeakerKind, SpeakerNews),
    /// The definition of pools or of claims is known, or has changed.
    Definition(DefinitionNews),
    /// This process leads from now on, or is on standby.
    Leadership(Leadership),
    /// A request to a GoBGP daemon has an outcome.
    Rib(RibOutcome),
    /// A GoBGP daemon shows changes of its table.
    RibNews(RibNews),
    /// A write has an outcome.
    Finished(Box<Outcome>),
}

/// How many inputs may wait. A list of 5,000 objects is one input; an agent writes at most every 15 s
/// (`docs/cilium.md`, Use), so 5,000 nodes bring some 330 per second, and this is three seconds' worth. When it is
/// full the watches wait, and the API server buffers for them.
pub const CAPACITY: usize = 1024;
