//! The rejoin: how a node loses a first block that must leave, in a mode with primary blocks.
//!
//! A first block never drains by itself, because the agent has addresses of its own there. A machine that boots with an
//! empty CiliumNode gets another block in front. Then the old one leaves with the consent of the agent
//! ([`departures`](super::departures)).
//!
//! Knows the commands of a person, and their cost. It does not know which block a node would get.

use std::collections::BTreeMap;

use super::departures::{Departure, When};
use crate::model::names::{NodeName, ten_of};
use crate::net::cidr::Cidr;
use crate::world::World;

/// A node with blocks that leave it only by a rejoin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejoin {
    /// The node.
    pub node: NodeName,
    /// These blocks.
    pub blocks: Vec<Cidr>,
    /// Those of them that the podCIDRs of its Node name.
    pub named: Vec<Cidr>,
}

/// The nodes that must rejoin before these blocks can leave them. A node with one block for its life is not among them:
/// it must be deleted for longer than its block cools.
#[must_use]
pub fn rejoins(world: &World, departures: &[Departure]) -> Vec<Rejoin> {
    let mut found: BTreeMap<&NodeName, Rejoin> = BTreeMap::new();
    for Departure { node, cidr, when, .. } in departures {
        if !matches!(when, When::NodeRejoins(_)) {
            continue;
        }
        let new = || Rejoin { node: node.clone(), blocks: Vec::new(), named: Vec::new() };
        let rejoin = found.entry(node).or_insert_with(new);
        rejoin.blocks.push(*cidr);
        if world.claim(*cidr).is_some_and(|known| world.is_named_by_its_node(&known.claim)) {
            rejoin.named.push(*cidr);
        }
    }
    found.into_values().collect()
}

impl Rejoin {
    /// The commands of a person, in their order. The lines with `#` are for the machine.
    ///
    /// While no agent runs, nothing writes the old router address onto the new CiliumNode. An agent that finds that
    /// address takes it again.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        let node = &self.node;
        vec![
            format!("kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"),
            format!("# shut machine {node} down, or stop its kubelet and then the containers of its agent"),
            format!("kubectl wait node/{node} --for=condition=Ready=Unknown --timeout=10m"),
            format!("kubectl delete ciliumnode {node}"),
            format!("# start or reboot machine {node}"),
            format!("kubectl wait node/{node} --for=condition=Ready --timeout=30m"),
            format!("kubectl uncordon {node}"),
        ]
    }

    /// The cost, a sentence each.
    #[must_use]
    pub fn costs(&self) -> Vec<String> {
        let node = &self.node;
        let mut costs = vec![format!(
            "All pods of {node} restart, most of them on other nodes, and its machine boots once."
        )];
        if !self.named.is_empty() {
            costs.push(format!(
                "The podCIDRs of Node {node} name {}, and they can't be changed. It leaves, but no other node gets it \
                 while they name it. To free it, delete the Node too while the machine is off; the new Node lacks the \
                 labels of people.",
                ten_of(&self.named)
            ));
        }
        costs
    }
}
