//! What is shown: pools, nodes and scenes as values that follow from the number of nodes.
//!
//! The sizes are chosen so that in every run zone a spills over and zone c runs full, whatever the number.

use serde_json::json;

use crate::scene::{Action, Goal, Scene};
use crate::support::agent::Make;
use crate::support::objects::{NodeSpec, PoolSpec};

/// The label by which pools choose nodes.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The prefix length of a block.
const BLOCK_SIZE: u8 = 27;

/// The pool whose nodes go on with [`SPARE`] when it is full.
pub(crate) const SPILLING: &str = "zone-a";
/// The pool of the same nodes with the lower priority.
pub(crate) const SPARE: &str = "zone-a-spare";
/// The pool that has fewer blocks than nodes.
pub(crate) const FULL: &str = "zone-c";
/// The pool that is made for the nodes that [`FULL`] can't serve.
pub(crate) const RELIEF: &str = "zone-c-more";

/// The pool that is made by mistake.
pub(crate) const MISTAKE: &str = "mistake";
/// The pool of the nodes with Cilium's own agents.
const OF_REAL: &str = "zone-b";

/// The label of the nodes with Cilium's own agents, by which [`MISTAKE`] selects them.
const AGENT: &str = "example.com/agent";

/// Addresses that an agent takes for itself: router and health.
const OWN: usize = 2;

/// When a node gets a further block: above so many percent used.
pub(crate) const USED_ABOVE: usize = 80;
/// The other threshold: fewer free addresses than that.
pub(crate) const FREE_BELOW: usize = 8;

/// Pods per node: few, many within one block, many for one block, and many for two.
const LOW: usize = 6;
const WITHIN_ONE: usize = 16;
const BEYOND_ONE: usize = 24;
const BEYOND_TWO: usize = 50;
const BEYOND_THREE: usize = 76;

/// Blocks per node when all scenes have been played.
pub(crate) const BLOCKS_AT_END: usize = 3;

/// A node that joins, and what runs on it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) node: NodeSpec,
    pub(crate) make: Make,
}

/// Everything that is to be shown.
pub(crate) struct Script {
    pub(crate) members: Vec<Member>,
    /// Played once, in this order.
    pub(crate) scenes: Vec<Scene>,
    /// Played again and again afterwards, until the person who watches has seen enough.
    pub(crate) encore: Vec<Scene>,
    /// How many nodes have to wait for [`RELIEF`].
    pub(crate) n_waiting: usize,
    n_imitated: usize,
}

impl Script {
    /// A script with so many imitated agents.
    pub(crate) fn new(n_imitated: usize) -> Self {
        let members = members(n_imitated);
        let n_nodes = members.len();
        let n_in = |zone: &str| members.iter().filter(|member| member.node.labels[ZONE] == zone).count();
        let (a, b, c) = (n_in("a"), n_in("b"), n_in("c"));
        // Enough for one block each and never for two.
        let a_blocks = a.next_power_of_two();
        // Enough for half of the nodes at least, and never for all.
        let c_blocks = c.next_power_of_two() / 2;
        let n_waiting = c - c_blocks;
        let plenty = |nodes: usize| 4 * nodes.next_power_of_two();

        let pools = vec![
            pool(SPILLING, "a", 100, "10.1.0.0", a_blocks),
            pool(SPARE, "a", 50, "10.2.0.0", plenty(a)),
            pool(OF_REAL, "b", 100, "10.3.0.0", plenty(b)),
            pool(FULL, "c", 100, "10.4.0.0", c_blocks),
        ];
        let relief = pool(RELIEF, "c", 100, "10.5.0.0", plenty(c));
        let mut scenes = vec![
            Scene {
                title: format!(
                    "An administrator declares pools for three zones, in blocks of /{BLOCK_SIZE}: 30 addresses for pods. \
                     Zone a has a spare pool of lower priority."
                ),
                until: vec![Goal::Pools(pools.len())],
                action: Action::DeclarePools(pools.clone()),
            },
            Scene {
                title: "The controller starts, with the rights that its manifests give it.".to_owned(),
                action: Action::StartController,
                until: vec![Goal::PoolsReady(pools.len())],
            },
            Scene {
                title: format!(
                    "{n_nodes} nodes join and get one block each. Zone c has {c} nodes and pool {FULL} only {c_blocks} \
                     blocks, so {n_waiting} nodes must wait."
                ),
                action: Action::JoinNodes,
                until: vec![
                    Goal::Served(n_nodes - n_waiting),
                    Goal::Waiting { pool: FULL.to_owned(), nodes: n_waiting },
                ],
            },
            Scene {
                title: format!(
                    "An administrator adds pool {RELIEF} for zone c: who waits is served at once."
                ),
                action: Action::Relieve(relief),
                until: vec![Goal::Served(n_nodes)],
            },
            load_scene(
                &format!(
                    "Load rises to {WITHIN_ONE} pods per node, {} of 30 addresses with the agent's own: one block is enough.",
                    WITHIN_ONE + OWN
                ),
                Action::Load(WITHIN_ONE),
                n_nodes,
                (WITHIN_ONE, 1),
            ),
            load_scene(
                &format!(
                    "Load rises to {BEYOND_ONE} pods per node, {} of 30: above the threshold ({USED_ABOVE} % used, or fewer \
                     than {FREE_BELOW} free), so each gets a second block. {SPILLING} has only {a_blocks} for {a} nodes: \
                     when it is full, {SPARE} goes on.",
                    BEYOND_ONE + OWN
                ),
                Action::Load(BEYOND_ONE),
                n_nodes,
                (BEYOND_ONE, 2),
            ),
        ];
        scenes.extend(mishaps(n_nodes, n_imitated / 6));
        // The relief is a pool too.
        scenes.extend(undoing(n_imitated, pools.len() + 1));
        scenes.extend(taking_back(n_imitated));
        scenes.push(Scene {
            title: "The status of the pools comes to agree with what the nodes carry.".to_owned(),
            action: Action::Watch,
            until: vec![Goal::StatusAgrees],
        });
        Self { encore: encore(n_nodes), members, scenes, n_waiting, n_imitated }
    }

    /// All nodes.
    pub(crate) fn n_nodes(&self) -> usize {
        self.members.len()
    }

    /// What is about to be shown.
    pub(crate) fn opening(&self) -> String {
        format!(
            "cilium-node-ipam demo: a cluster of {} nodes, {} with imitated agents and {} with Cilium's own. Ctrl-C ends it.",
            self.n_nodes(),
            self.n_imitated,
            self.n_nodes() - self.n_imitated
        )
    }
}

/// The controller dies while the load rises, and another one goes on; nodes leave and return.
fn mishaps(n_nodes: usize, n_lost: usize) -> Vec<Scene> {
    vec![
        load_scene(
            "The controller is killed (SIGKILL). Agents and pods go on with what their CiliumNodes carry.",
            Action::KillController,
            n_nodes,
            (BEYOND_ONE, 2),
        ),
        load_scene(
            &format!(
                "Load rises to {BEYOND_TWO} pods per node: above the threshold again, and nobody hands out blocks."
            ),
            Action::Load(BEYOND_TWO),
            n_nodes,
            (BEYOND_TWO, 2),
        ),
        load_scene(
            "A new controller starts, learns from the API what there is, and gives each node its third block.",
            Action::StartController,
            n_nodes,
            (BEYOND_TWO, BLOCKS_AT_END),
        ),
        Scene {
            title: format!(
                "{n_lost} machines are lost, and their nodes deleted. Their blocks cool: nobody else gets them yet."
            ),
            action: Action::LoseNodes(n_lost),
            until: vec![Goal::Nodes(n_nodes - n_lost), Goal::Cooling(BLOCKS_AT_END * n_lost)],
        },
        Scene {
            title: format!(
                "The {n_lost} nodes return under their names, and get back the blocks that they had."
            ),
            action: Action::ReturnNodes(n_lost),
            until: vec![
                Goal::Served(n_nodes),
                Goal::Cooling(0),
                Goal::Hold { nodes: n_nodes, blocks: BLOCKS_AT_END },
            ],
        },
        load_scene(
            "Their pods are started anew.",
            Action::Load(BEYOND_TWO),
            n_nodes,
            (BEYOND_TWO, BLOCKS_AT_END),
        ),
        load_scene(
            &format!("Load falls to {BEYOND_ONE} pods per node. Blocks stay where they are."),
            Action::Load(BEYOND_ONE),
            n_nodes,
            (BEYOND_ONE, BLOCKS_AT_END),
        ),
    ]
}

/// Nodes take blocks of a pool that was made by mistake, and the pool is deleted.
fn undoing(n_imitated: usize, n_pools: usize) -> Vec<Scene> {
    let mistake = PoolSpec::new(MISTAKE)
        .select(AGENT, "cilium")
        .ipv4(BLOCK_SIZE, &["10.9.0.0/24"])
        .with("priority", 200)
        .with("reclaim", json!({"mode": "Disabled"}))
        .with("reuseAfter", "1s");
    let n_nodes = n_imitated + REAL_AGENTS;
    vec![
        Scene {
            title: format!(
                "The Pods of Cilium's own agents on {REAL_AGENTS} nodes are reported: what these use is known now."
            ),
            action: Action::ReportAgents,
            until: vec![Goal::Nodes(n_nodes)],
        },
        Scene {
            title: format!(
                "An administrator makes a mistake: pool {MISTAKE} selects these nodes too, with the highest priority."
            ),
            action: Action::DeclarePools(vec![mistake]),
            until: vec![Goal::Pools(n_pools + 1), Goal::PoolsReady(n_pools + 1)],
        },
        real_scene(
            &format!(
                "Load rises to {BEYOND_THREE} pods on each of them: they take their fourth block of {MISTAKE}."
            ),
            Action::LoadReal(BEYOND_THREE),
            n_imitated,
            (BEYOND_THREE, BLOCKS_AT_END + 1),
        ),
        real_scene(
            &format!("Load falls to {BEYOND_ONE} pods there. No block is taken back from nodes."),
            Action::LoadReal(BEYOND_ONE),
            n_imitated,
            (BEYOND_ONE, BLOCKS_AT_END + 1),
        ),
        Scene {
            title: format!(
                "The administrator deletes {MISTAKE}. Its blocks leave with the consent of the agents, when no pod is in \
                 them, and the pool goes."
            ),
            action: Action::DeletePool(MISTAKE.to_owned()),
            until: vec![Goal::Pools(n_pools), Goal::Hold { nodes: n_nodes, blocks: BLOCKS_AT_END }],
        },
    ]
}

/// Blocks that nodes don't need go back, and the nodes take others when they do.
fn taking_back(n_imitated: usize) -> Vec<Scene> {
    let edit = |reclaim, n_pods| Action::Edit {
        pool: OF_REAL.to_owned(),
        spec: json!({"reclaim": reclaim, "reuseAfter": "1s"}),
        n_pods,
    };
    vec![
        real_scene(
            &format!(
                "An administrator lets {OF_REAL} take back what nodes don't need, and load falls to {WITHIN_ONE} pods on the \
                 nodes with Cilium's own agents: one of their blocks goes back."
            ),
            edit(json!({"mode": "Enabled", "after": "2s"}), WITHIN_ONE),
            n_imitated,
            (WITHIN_ONE, 2),
        ),
        real_scene(
            &format!("Load rises there to {BEYOND_TWO} pods: they take a third block again."),
            Action::LoadReal(BEYOND_TWO),
            n_imitated,
            (BEYOND_TWO, BLOCKS_AT_END),
        ),
        real_scene(
            &format!(
                "That is turned off again, and load falls to {BEYOND_ONE} pods: blocks stay where they are."
            ),
            edit(json!({"mode": "Disabled"}), BEYOND_ONE),
            n_imitated,
            (BEYOND_ONE, BLOCKS_AT_END),
        ),
    ]
}

/// A scene at whose end each node with Cilium's own agent has so many pods and blocks; the others have what
/// [`mishaps`] leaves them.
fn real_scene(title: &str, action: Action, n_imitated: usize, (n_pods, blocks): (usize, usize)) -> Scene {
    let used = n_imitated * (BEYOND_ONE + OWN) + REAL_AGENTS * (n_pods + OWN);
    let nodes = if blocks == BLOCKS_AT_END { n_imitated + REAL_AGENTS } else { REAL_AGENTS };
    Scene { title: title.to_owned(), action, until: vec![Goal::Used(used), Goal::Hold { nodes, blocks }] }
}

/// The load goes down and up. Blocks stay where they are.
fn encore(n_nodes: usize) -> Vec<Scene> {
    let load = |verb: &str, n_pods| {
        let title = format!("Load {verb} to {n_pods} pods per node; three blocks are enough.");
        load_scene(&title, Action::Load(n_pods), n_nodes, (n_pods, BLOCKS_AT_END))
    };
    vec![load("falls", LOW), load("rises", BEYOND_ONE), load("rises", BEYOND_TWO), load("falls", BEYOND_ONE)]
}

/// A scene at whose end each node has so many pods, and at least so many blocks.
fn load_scene(title: &str, action: Action, n_nodes: usize, (n_pods, blocks): (usize, usize)) -> Scene {
    let until = vec![Goal::Used(n_nodes * (n_pods + OWN)), Goal::Hold { nodes: n_nodes, blocks }];
    Scene { title: title.to_owned(), action, until }
}

/// How many nodes run Cilium's own agent. Each is a process of some 90 MB.
const REAL_AGENTS: usize = 3;

/// The nodes, spread over the zones; Cilium's own agents run in zone b, where nothing is scarce.
fn members(n_imitated: usize) -> Vec<Member> {
    let node = |name: String, zone: &str| NodeSpec::new(name).label(ZONE, zone);
    let imitated = (0..n_imitated).map(|number| Member {
        node: node(format!("node-{:04}", number + 1), ["a", "b", "c"][number % 3]),
        make: Make::Fake,
    });
    let real = (1..=REAL_AGENTS).map(|number| Member {
        node: node(format!("real-{number}"), "b").label(AGENT, "cilium"),
        make: Make::Real,
    });
    imitated.chain(real).collect()
}

/// A pool of so many blocks, a power of two, from `base` on.
fn pool(name: &str, zone: &str, priority: i32, base: &str, blocks: usize) -> PoolSpec {
    let length = u32::from(BLOCK_SIZE) - blocks.ilog2();
    PoolSpec::new(name)
        .select(ZONE, zone)
        .ipv4(BLOCK_SIZE, &[&format!("{base}/{length}")])
        .with("priority", priority)
        .with("expand", json!({"usedAbove": USED_ABOVE, "freeBelow": FREE_BELOW}))
        // The load falls only for show: what a node got stays there.
        .with("reclaim", json!({"mode": "Disabled"}))
}
