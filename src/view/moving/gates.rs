//! The next step of a node that moves, and its gates: the facts that must hold before it.

use super::{Before, Move, Moves, Runs, State};
use crate::model::claim::{Claim, ClaimState};
use crate::model::counted::counted;
use crate::model::freeze::Switch;
use crate::model::installation::Seen;
use crate::model::names::{NodeName, PodName, ten_of};
use crate::model::node::{HOLD_GROWTH, Node};
use crate::model::node_config::Relabelling;
use crate::net::cidr::Cidr;
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::support::{Reclaiming, Support};
use crate::view::departures::departures_of;
use crate::view::rejoin::{Rejoin, rejoins};

/// A fact that must hold before a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// The fact, in a sentence.
    pub text: String,
    /// The remedy, if the gate is closed; `None` if it is open.
    pub remedy: Option<String>,
}

impl Gate {
    /// Whether the step may be made, as far as this fact is concerned.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.remedy.is_none()
    }
}

/// The next step of a person with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Change a label, and hold the growth of the node.
    Label(Relabelling, Before),
    /// Delete the Pod of the agent.
    Restart(PodName, Before),
    /// Wait until this has happened.
    Await(&'static str),
    /// No longer hold the growth of the node.
    Commit,
    /// Boot the machine with an empty CiliumNode, so that a first block can leave.
    Rejoin(Rejoin),
    /// Find the cause, and remove it.
    Act(String),
}

/// The direction of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the mode crd.
    Forth,
    /// Back to a mode with one block of each family.
    Back,
}

impl Step {
    /// In a few words.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::Rest => "-".to_owned(),
            Self::Label(change, _) => format!("label {change}"),
            Self::Restart(pod, _) => format!("delete Pod {pod}"),
            Self::Await(what) => format!("wait: {what}"),
            Self::Commit => "commit".to_owned(),
            Self::Rejoin(rejoin) => format!("rejoin, so that {} leaves", ten_of(&rejoin.blocks)),
            Self::Act(what) => what.clone(),
        }
    }

    /// The commands by which a person makes the step, if there are any.
    #[must_use]
    pub fn commands(&self, node: &NodeName, cilium_namespace: &str) -> Vec<String> {
        match self {
            Self::Label(change, before) => vec![
                format!("kubectl annotate node {node} --overwrite {HOLD_GROWTH}={before}"),
                format!("kubectl label node {node} --overwrite {change}"),
            ],
            Self::Restart(pod, before) => vec![
                format!("kubectl annotate node {node} --overwrite {HOLD_GROWTH}={before}"),
                format!("kubectl -n {cilium_namespace} delete pod {pod}"),
            ],
            Self::Commit => vec![format!("kubectl annotate node {node} {HOLD_GROWTH}-")],
            Self::Rejoin(rejoin) => rejoin.commands(),
            Self::Rest | Self::Await(_) | Self::Act(_) => Vec::new(),
        }
    }

    /// Whether the step, or the one after it, is made by the controller.
    #[must_use]
    pub fn needs_controller(&self) -> bool {
        match self {
            Self::Label(..) | Self::Rejoin(_) => true,
            Self::Await(what) => [FIRST_BLOCK, ADDRESSES].contains(what),
            Self::Rest | Self::Restart(..) | Self::Commit | Self::Act(_) => false,
        }
    }

    /// The cost of the step, a sentence each. Of the other steps the gates have it.
    #[must_use]
    pub fn costs(&self) -> Vec<String> {
        match self {
            Self::Rejoin(rejoin) => rejoin.costs(),
            Self::Rest
            | Self::Label(..)
            | Self::Restart(..)
            | Self::Await(_)
            | Self::Commit
            | Self::Act(_) => Vec::new(),
        }
    }
}

/// The next step of a node in this direction, and its gates.
#[must_use]
pub fn next_step(moves: &Moves<'_>, node: &Node, found: &Move, direction: Direction) -> (Step, Vec<Gate>) {
    let gates = Gates { moves, node, found };
    match direction {
        Direction::Forth => gates.forth(),
        Direction::Back => gates.back(),
    }
}

/// The waits for the controller.
const FIRST_BLOCK: &str = "the node gets its first block";
const ADDRESSES: &str = "the controller writes the addresses of its blocks onto its CiliumNode";

/// The step with a node that would lose pods by a restart of its agent.
const DO_NOT_RESTART: &str = "its agent must not restart: pods would lose their network";

struct Gates<'a> {
    moves: &'a Moves<'a>,
    node: &'a Node,
    found: &'a Move,
}

impl Gates<'_> {
    fn forth(&self) -> (Step, Vec<Gate>) {
        let found = self.found;
        match (found.state, &found.mode) {
            (State::Blocked, Err(why)) => (Step::Act(why.clone()), Vec::new()),
            (State::Blocked, Ok(IpamMode::Crd)) => {
                (Step::Act(DO_NOT_RESTART.to_owned()), vec![self.pods(), self.map()])
            }
            // In the mode crd its agent finds all of its blocks again.
            (State::Blocked, Ok(_)) => {
                self.labelled(vec![self.map(), self.claims(), self.pods(), self.agent()])
            }
            (State::New, _) => (Step::Await(FIRST_BLOCK), Vec::new()),
            (State::Committed, _) => match self.rejoin() {
                Some(rejoin) => (Step::Rejoin(rejoin), vec![self.consent(), self.thaw(), self.reclaim()]),
                None => (Step::Rest, Vec::new()),
            },
            (State::Moved, _) => (Step::Commit, Vec::new()),
            (State::Claimed, Ok(IpamMode::Crd)) => (Step::Await(ADDRESSES), vec![self.thaw()]),
            (State::Foreign, Ok(IpamMode::Crd)) => (
                Step::Act("set the former mode again, and make claims of its blocks".to_owned()),
                vec![self.claims()],
            ),
            (State::Foreign | State::Claimed | State::Back, _) => self.labelled(vec![
                self.claims(),
                self.families(),
                self.widths(),
                self.pods(),
                self.agent(),
                self.drains(),
                self.thaw(),
            ]),
            (State::Prepared, _) => match (found.runs, found.agent_pods.first()) {
                (Runs::Since, _) if found.use_is_old() => (
                    Step::Await(
                        "its agent reports its use, which was there before: the next pod there changes it",
                    ),
                    Vec::new(),
                ),
                (Runs::Since, _) => (Step::Await("its agent reports its use"), Vec::new()),
                (Runs::Nothing, _) | (_, None) => (Step::Await("its agent starts"), Vec::new()),
                (Runs::Before | Runs::Unnamed | Runs::Unknown, Some((pod, uid))) => {
                    let gates = vec![self.map(), self.pods(), self.own(), self.agent(), self.drains()];
                    let before = Before { pod: Some(uid.clone()), used: found.used_before };
                    (Step::Restart(pod.clone(), before), gates)
                }
            },
        }
    }

    /// The step to the mode crd by a label, after these gates.
    fn labelled(&self, mut gates: Vec<Gate>) -> (Step, Vec<Gate>) {
        let wanted = self.moves.world.relabelling(self.node, |mode| mode == IpamMode::Crd);
        gates.push(Self::label(wanted.is_some()));
        let before = Before { pod: None, used: self.found.used };
        let step = match wanted {
            Some(change) => Step::Label(change, before),
            None => Step::Act("create a CiliumNodeConfig with `ipam: crd`".to_owned()),
        };
        (step, gates)
    }

    fn back(&self) -> (Step, Vec<Gate>) {
        let found = self.found;
        match (&found.mode, found.runs, found.agent_pods.first()) {
            (Err(why), ..) => (Step::Act(why.clone()), Vec::new()),
            (Ok(IpamMode::Crd), ..) => {
                let former = self.moves.world.publishers().ipam_mode();
                let is_former =
                    |mode: IpamMode| if former == IpamMode::Crd { mode != former } else { mode == former };
                let wanted = self.moves.world.relabelling(self.node, is_former);
                let gates =
                    vec![self.returning(), self.further(), self.drains(), Self::label(wanted.is_some())];
                let step = match wanted {
                    Some(change) => Step::Label(change, Before::default()),
                    None => Step::Act("create a CiliumNodeConfig with the former mode".to_owned()),
                };
                (step, gates)
            }
            (Ok(_), Runs::Before | Runs::Unnamed, Some((pod, uid))) => {
                let before = Before { pod: Some(uid.clone()), used: None };
                (Step::Restart(pod.clone(), before), vec![self.restart(), self.further()])
            }
            (Ok(_), Runs::Nothing | Runs::Before | Runs::Unnamed, _) if found.is_held => {
                (Step::Await("its agent starts"), Vec::new())
            }
            (Ok(_), Runs::Since, _) if self.moves.world.agent_on(&self.node.name).is_err() => {
                (Step::Await("its agent is Ready"), Vec::new())
            }
            (Ok(_), Runs::Since, _) => (Step::Commit, Vec::new()),
            (Ok(_), ..) => (Step::Rest, Vec::new()),
        }
    }

    fn rejoin(&self) -> Option<Rejoin> {
        let world = self.moves.world;
        rejoins(world, &departures_of(world, &self.node.name)).pop()
    }

    fn gate(
        name: &'static str,
        is_open: bool,
        open: String,
        closed: impl FnOnce() -> (String, String),
    ) -> Gate {
        if is_open {
            return Gate { name, text: open, remedy: None };
        }
        let (text, remedy) = closed();
        Gate { name, text, remedy: Some(remedy) }
    }

    fn claims(&self) -> Gate {
        let (unclaimed, blocks) = (&self.found.unclaimed, &self.found.blocks);
        Self::gate(
            "claims",
            unclaimed.is_empty() && !blocks.is_empty(),
            format!("{} are claims", ten_of(blocks)),
            || {
                let pool = |range: &Cidr| match self.moves.world.pools_of_block(*range).next() {
                    Some(pool) => format!("{range} (a block of pool {})", pool.name),
                    None => format!("{range} (no block of a pool)"),
                };
                (
                format!("no claim of the node: {}", ten_of(unclaimed.iter().map(pool))),
                "Create a pool with these blocks (`cilium-node-ipam migrate init`), and turn the other allocator off; \
                 `cilium-node-ipam why NODE` says why a block of a pool is no claim yet."
                    .to_owned(),
            )
            },
        )
    }

    fn families(&self) -> Gate {
        let families = self.moves.crd.families();
        let has = |family| self.found.blocks.iter().any(|block| block.family() == family);
        let missing: Vec<_> = families.iter().filter(|family| !has(**family)).collect();
        Self::gate("families", missing.is_empty(), format!("a block of {}", ten_of(families)), || {
            (
                format!("the node has no {} block, and its agent runs that family", ten_of(&missing)),
                "Give the pools of the node ranges of this family.".to_owned(),
            )
        })
    }

    fn widths(&self) -> Gate {
        let widest = |block: &&Cidr| block.prefix_len() < self.moves.crd.widest_block(block.family());
        let wide: Vec<_> = self.found.blocks.iter().filter(widest).collect();
        Self::gate("block-size", wide.is_empty(), "no block is too wide for the mode crd".to_owned(), || {
            (
                format!("{} is too wide for the mode crd, which takes /22 and /118 at most", ten_of(&wide)),
                "This node can't move with its pods: drain it, turn its machine off, delete its Node and CiliumNode, and \
                 let it join again."
                    .to_owned(),
            )
        })
    }

    fn pods(&self) -> Gate {
        let (open, closed) = match &self.found.pods {
            Err(why) => (String::new(), Some(format!("its Pods are not known: {why}"))),
            Ok((inside, outside)) if outside.is_empty() => {
                (format!("{} with addresses of its blocks", counted(*inside, "pod")), None)
            }
            Ok((_, outside)) => (
                String::new(),
                Some(format!("{} with other addresses: {}", counted(outside.len(), "pod"), ten_of(outside))),
            ),
        };
        Self::gate("pods", closed.is_none(), open, || {
            (
                closed.unwrap_or_default(),
                "These pods would lose their network: delete them, so that they start with another address."
                    .to_owned(),
            )
        })
    }

    fn own(&self) -> Gate {
        let unclaimed = &self.found.unclaimed;
        let open = "the addresses of the agent itself are in its blocks".to_owned();
        Self::gate("own-addresses", unclaimed.is_empty(), open, || {
            (
                format!("not in its blocks: {}", ten_of(unclaimed)),
                "The agent would take other addresses: let `exclude` of the pool not cover them.".to_owned(),
            )
        })
    }

    fn map(&self) -> Gate {
        let n_missing = self.found.n_missing;
        let open = "every address of its blocks is on its CiliumNode".to_owned();
        Self::gate("addresses", n_missing == 0, open, || {
            (
                format!("{} not on its CiliumNode", counted(n_missing, "address")),
                "Wait for the controller: `cilium-node-ipam why NODE`.".to_owned(),
            )
        })
    }

    fn agent(&self) -> Gate {
        let (world, name) = (self.moves.world, &self.node.name);
        let supports = world.support(name).1.map(|release| self.moves.crd.support(Some(release)));
        let is_ready = world.agent_on(name).is_ok();
        let is_open = is_ready && matches!(supports, Some(Support::Full) | None);
        Self::gate("agent", is_open, format!("Cilium {}", self.found.agent), || {
            if is_ready {
                (
                    format!("Cilium {} is too old for the mode crd", self.found.agent),
                    "Upgrade Cilium to 1.14.2 or newer.".to_owned(),
                )
            } else {
                (self.found.agent.clone(), "Repair the agent first.".to_owned())
            }
        })
    }

    /// Whether its agent can give blocks back. The agent need not run: a rejoin stops it.
    fn consent(&self) -> Gate {
        let (support, release) = self.moves.world.support(&self.node.name);
        let Some(release) = release else {
            let text = "its version is not known: agents from 1.14.2 on give blocks back, with \
                        --reclaim-unknown-agents of the controller";
            return Gate { name: "agent", text: text.to_owned(), remedy: None };
        };
        let is_open = support.reclaiming() != Reclaiming::Never;
        Self::gate("agent", is_open, format!("Cilium {release} gives blocks back"), || {
            (
                format!("Cilium {release} is too old to give a block back"),
                "Upgrade Cilium to 1.14.2 or newer.".to_owned(),
            )
        })
    }

    fn reclaim(&self) -> Gate {
        let is_open = !self.moves.world.freeze().is_on(Switch::Reclaim);
        Self::gate("reclaim", is_open, "reclaim is not frozen".to_owned(), || {
            ("reclaim is frozen".to_owned(), "`cilium-node-ipam unfreeze --reclaim` first.".to_owned())
        })
    }

    fn drains(&self) -> Gate {
        let claims = self.moves.world.claims_of(&self.node.name).map(|known| &known.claim);
        let leaves =
            |claim: &&Claim| matches!(claim.state, ClaimState::Draining(_) | ClaimState::Releasing(_));
        let leaving: Vec<Cidr> = claims.filter(leaves).map(|claim| claim.cidr).collect();
        Self::gate("drains", leaving.is_empty(), "no block is leaving the node".to_owned(), || {
            let remedy = if self.found.is_held {
                "Remove the hold until it has left: `cilium-node-ipam migrate commit NODE`."
            } else {
                "Wait until it has left."
            };
            (format!("{} is leaving the node", ten_of(&leaving)), remedy.to_owned())
        })
    }

    /// Pods that start in a further block just now have no address in the API yet.
    fn further(&self) -> Gate {
        let Move { further, n_used_further, is_cordoned, .. } = self.found;
        let is_open = further.is_empty() || (*n_used_further == 0 && *is_cordoned);
        let open = "no block of the node is left behind with pods".to_owned();
        Self::gate("further-blocks", is_open, open, || {
            let blocks = ten_of(further);
            if *n_used_further > 0 {
                (
                    format!("its agent uses {} of {blocks}", counted(*n_used_further, "address")),
                    "Cordon the Node, and delete the pods that have them.".to_owned(),
                )
            } else {
                (
                    format!("a pod may start with an address of {blocks}"),
                    "Cordon the Node: `kubectl cordon NODE`.".to_owned(),
                )
            }
        })
    }

    fn thaw(&self) -> Gate {
        let is_open = !self.moves.world.freeze().is_on(Switch::Writes);
        Self::gate("freeze", is_open, "the controller is not frozen".to_owned(), || {
            (
                "the writes of the controller are frozen".to_owned(),
                "`cilium-node-ipam unfreeze` first.".to_owned(),
            )
        })
    }

    fn label(is_there: bool) -> Gate {
        let open = "a CiliumNodeConfig gives the node the other mode by its label".to_owned();
        Self::gate("node-config", is_there, open, || {
            (
                "no CiliumNodeConfig gives the node the other mode by one label".to_owned(),
                "Create one: `cilium-node-ipam migrate init` writes it.".to_owned(),
            )
        })
    }

    fn returning(&self) -> Gate {
        let open = "every pod has an address of the node's first blocks";
        Self::lost(&self.found.lost_on_return, open, "Cordon the Node, and delete these pods.")
    }

    fn restart(&self) -> Gate {
        let remedy = "Give the node the mode crd again by its label: `cilium-node-ipam migrate next NODE`.";
        Self::lost(&self.found.lost_at_restart, "no pod loses its network by the restart", remedy)
    }

    fn lost(lost: &Seen<Vec<String>>, open: &str, remedy: &str) -> Gate {
        let is_open = lost.as_ref().is_ok_and(Vec::is_empty);
        Self::gate("pods", is_open, open.to_owned(), || match lost {
            Err(why) => {
                (format!("its Pods are not known: {why}"), "Ask for the right to list Pods.".to_owned())
            }
            Ok(lost) => (
                format!("{} would lose their network: {}", counted(lost.len(), "pod"), ten_of(lost)),
                remedy.to_owned(),
            ),
        })
    }
}
