//! The script of the demo: pools, nodes and scenes as values that follow from the number of nodes.
//!
//! The sizes are chosen so that in every run zone a spills over and zone c runs full, with any number of nodes.

use std::time::Duration;

use serde_json::json;

use crate::mode::{Growth, Mode};
use crate::scene::{Action, Goal, Scene};
use crate::support::agent::Make;
use crate::support::objects::{NodeSpec, PoolSpec};

/// The label by which pools choose nodes.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The prefix length of a block.
pub(crate) const BLOCK_SIZE: u8 = 27;
/// How many addresses of a block go to pods and agents.
pub(crate) const PER_BLOCK: usize = 30;

/// The pool whose nodes get blocks of [`SPARE`] when it is full.
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

/// When a node gets a further block: above this percentage of used addresses.
pub(crate) const USED_ABOVE: usize = 80;
/// The other threshold: fewer free addresses than this.
pub(crate) const FREE_BELOW: usize = 8;

/// Pods per node: none, few, many within one block, beyond one block, and beyond two. In multi-pool mode, agents ask
/// for their used addresses in steps of 8, and for one more step. So they too ask for another block before the pods
/// need it.
const NONE: usize = 0;
const LOW: usize = 6;
const WITHIN_ONE: usize = 14;
const BEYOND_ONE: usize = 24;
const BEYOND_TWO: usize = 50;
const BEYOND_THREE: usize = 80;
const STEP: usize = 8;

/// Blocks per node when all scenes have been played in a mode in which nodes grow.
const GROWN: usize = 3;

/// How long a scene may take in multi-pool mode. There Cilium's own agent looks after its pools once per minute, so it
/// asks and answers late. It gets one usage query after the other for the blocks that it has released.
pub(crate) const WHILE_AGENTS_ANSWER: Duration = Duration::from_secs(240);

/// A node that joins, and the make of its agent.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) node: NodeSpec,
    pub(crate) make: Make,
}

/// Everything that the demo will show.
pub(crate) struct Script {
    pub(crate) mode: Mode,
    pub(crate) members: Vec<Member>,
    /// Played once, in this order.
    pub(crate) items: Vec<Item>,
    /// Played again and again afterwards, until the person who watches has seen enough.
    pub(crate) encore: Vec<Scene>,
    /// How many nodes have to wait for [`RELIEF`].
    pub(crate) n_waiting: usize,
    n_imitated: usize,
}

/// A scene, or why one is left out.
pub(crate) enum Item {
    Scene(Scene),
    LeftOut(String),
}

impl From<Scene> for Item {
    fn from(scene: Scene) -> Self {
        Self::Scene(scene)
    }
}

impl Script {
    /// A script with this many imitated agents.
    pub(crate) fn new(mode: Mode, n_imitated: usize) -> Self {
        let members = members(n_imitated);
        let n_nodes = members.len();
        let n_in = |zone: &str| members.iter().filter(|member| member.node.labels[ZONE] == zone).count();
        let (a, b, c) = (n_in("a"), n_in("b"), n_in("c"));
        // Enough for half of the nodes at least, and never for all.
        let too_few = |nodes: usize| nodes.next_power_of_two() / 2;
        let a_blocks = match mode.growth() {
            // Enough for one block each and never for two.
            Growth::ByUse | Growth::ByRequest => a.next_power_of_two(),
            Growth::Never => too_few(a),
        };
        let c_blocks = too_few(c);
        let n_waiting = c - c_blocks;
        let plenty = |nodes: usize| 4 * nodes.next_power_of_two();

        let pool = |name, zone, priority, base, blocks| pool(mode, name, zone, priority, base, blocks);
        let pools = vec![
            pool(SPILLING, "a", 100, "10.1.0.0", a_blocks),
            pool(SPARE, "a", 50, "10.2.0.0", plenty(a)),
            pool(OF_REAL, "b", 100, "10.3.0.0", plenty(b)),
            pool(FULL, "c", 100, "10.4.0.0", c_blocks),
        ];
        // The relief is a pool too.
        let n_pools = pools.len() + 1;
        let relief = pool(RELIEF, "c", 100, "10.5.0.0", plenty(c));
        let load = Load { mode, n_nodes };
        let mut items: Vec<Item> = beginning(pools, relief, n_nodes, (c, c_blocks)).map(Item::from).into();
        items.push(load.scene(
            &format!(
                "Load rises to {WITHIN_ONE} pods per node, {} of {PER_BLOCK} addresses with the agent's own: one block is \
                 enough.",
                WITHIN_ONE + OWN
            ),
            Action::Load(WITHIN_ONE),
            (WITHIN_ONE, 1),
        ));
        let n_lost = n_imitated / 6;
        match mode.growth() {
            Growth::ByUse => {
                items.push(growing(load, a_blocks, a));
                items.extend(mishaps(load, n_lost));
                items.push(load.scene(
                    &format!("Load falls to {BEYOND_ONE} pods per node. Blocks stay where they are."),
                    Action::Load(BEYOND_ONE),
                    (BEYOND_ONE, GROWN),
                ));
                items.extend(undoing(n_imitated, n_pools).map(Item::from));
                items.extend(taking_back(n_imitated).map(Item::from));
            }
            Growth::ByRequest => {
                items.push(growing(load, a_blocks, a));
                items.extend(mishaps(load, n_lost));
                items.push(Item::LeftOut(mode.without_undoing()));
                items.extend(giving_back(load));
            }
            Growth::Never => {
                items.push(Item::LeftOut(mode.without_growth()));
                items.extend(mishaps_of_static(load, n_lost));
                items.push(Item::LeftOut(mode.without_undoing()));
                items.push(Item::LeftOut(mode.without_taking_back()));
            }
        }
        if mode.growth() == Growth::ByRequest {
            for item in &mut items {
                if let Item::Scene(scene) = item {
                    scene.patience = WHILE_AGENTS_ANSWER;
                }
            }
        }
        items.push(Item::Scene(Scene::new(
            "The status of the pools comes to agree with what the nodes carry.",
            Action::Watch,
            vec![Goal::StatusAgrees],
        )));
        Self { mode, encore: encore(load), members, items, n_waiting, n_imitated }
    }

    /// Blocks per node when all scenes have been played.
    pub(crate) fn blocks_at_end(&self) -> usize {
        match self.mode.growth() {
            Growth::ByUse | Growth::ByRequest => GROWN,
            Growth::Never => 1,
        }
    }

    /// All nodes.
    pub(crate) fn n_nodes(&self) -> usize {
        self.members.len()
    }

    /// The introduction to the demo.
    pub(crate) fn opening(&self) -> String {
        format!(
            "cilium-node-ipam demo, Cilium in mode {}: a cluster of {} nodes, {} with imitated agents and {} with Cilium's \
             own. Ctrl-C ends it.",
            self.mode,
            self.n_nodes(),
            self.n_imitated,
            self.n_nodes() - self.n_imitated
        )
    }
}

/// Pools are declared, the controller starts, and nodes join. Some of them have to wait for a further pool.
fn beginning(
    pools: Vec<PoolSpec>,
    relief: PoolSpec,
    n_nodes: usize,
    (c, c_blocks): (usize, usize),
) -> [Scene; 4] {
    let n_pools = pools.len();
    let n_waiting = c - c_blocks;
    [
        Scene::new(
            format!(
                "An administrator declares pools for three zones, in blocks of /{BLOCK_SIZE}: {PER_BLOCK} addresses for \
                 pods. Zone a has a spare pool of lower priority."
            ),
            Action::DeclarePools(pools),
            vec![Goal::Pools(n_pools)],
        ),
        Scene::new(
            "The controller starts, with the rights that its manifests give it.",
            Action::StartController,
            vec![Goal::PoolsReady(n_pools)],
        ),
        Scene::new(
            format!(
                "{n_nodes} nodes join and get one block each. Zone c has {c} nodes and pool {FULL} only {c_blocks} \
                 blocks, so {n_waiting} nodes must wait."
            ),
            Action::JoinNodes,
            vec![
                Goal::Served(n_nodes - n_waiting),
                Goal::Waiting { pool: FULL.to_owned(), nodes: n_waiting },
                Goal::Reported("Exhausted"),
                Goal::Reported("BlocksPublished"),
            ],
        ),
        Scene::new(
            format!("An administrator adds pool {RELIEF} for zone c: who waits is served at once."),
            Action::Relieve(relief),
            vec![Goal::Served(n_nodes)],
        ),
    ]
}

/// Nodes get their second block, and where a pool is full they get it from the next.
fn growing(load: Load, a_blocks: usize, a: usize) -> Item {
    let why = match load.mode.growth() {
        Growth::ByUse => {
            format!("above the threshold ({USED_ABOVE} % used, or fewer than {FREE_BELOW} free)")
        }
        Growth::ByRequest | Growth::Never => {
            format!("agents ask for {} addresses", asked(BEYOND_ONE))
        }
    };
    load.scene(
        &format!(
            "Load rises to {BEYOND_ONE} pods per node, {} of {PER_BLOCK}: {why}, so each gets a second block. {SPILLING} has \
             only {a_blocks} for {a} nodes: when it is full, {SPARE} goes on.",
            BEYOND_ONE + OWN
        ),
        Action::Load(BEYOND_ONE),
        (BEYOND_ONE, 2),
    )
}

/// The controller dies while the load rises, and another one takes over; nodes leave and return.
fn mishaps(load: Load, n_lost: usize) -> Vec<Item> {
    let mut items = vec![
        load.scene(
            "The controller is killed (SIGKILL). Agents and pods go on with what their CiliumNodes carry.",
            Action::KillController,
            (BEYOND_ONE, 2),
        ),
        load.scene_alone(
            &format!("Load rises to {BEYOND_TWO} pods per node: they need more again, and nobody hands out blocks."),
            Action::Load(BEYOND_TWO),
            (BEYOND_TWO, 2),
        ),
        load.scene(
            "A new controller starts, learns from the API what there is, and gives each node its third block.",
            Action::StartController,
            (BEYOND_TWO, GROWN),
        ),
    ];
    items.extend(losing(load, n_lost, (BEYOND_TWO, GROWN)).map(Item::from));
    match load.mode.growth() {
        Growth::ByUse => {
            let title = "Their pods are started anew.";
            items.push(load.scene(title, Action::Load(BEYOND_TWO), (BEYOND_TWO, GROWN)));
        }
        Growth::ByRequest | Growth::Never => {
            let mut until = load.said_after_return(n_lost, (BEYOND_TWO, BEYOND_ONE));
            until.push(Goal::Enough(load.n_nodes));
            items.push(Item::Scene(Scene::new(
                format!(
                    "{BEYOND_ONE} pods are started on each of them: they ask for their second block again."
                ),
                Action::LoadFirst { nodes: n_lost, n_pods: BEYOND_ONE },
                until,
            )));
            let title = format!("And {BEYOND_TWO}, as everywhere.");
            items.push(load.scene(&title, Action::Load(BEYOND_TWO), (BEYOND_TWO, GROWN)));
        }
    }
    items
}

/// The same, where nodes never grow.
fn mishaps_of_static(load: Load, n_lost: usize) -> Vec<Item> {
    let mut items = vec![
        load.scene(
            "The controller is killed (SIGKILL). Agents and pods go on with the CIDRs that they have read.",
            Action::KillController,
            (WITHIN_ONE, 1),
        ),
        load.scene(
            &format!(
                "Load rises to {BEYOND_ONE} pods per node, {} of {PER_BLOCK}: the block of a node is for its life.",
                BEYOND_ONE + OWN
            ),
            Action::Load(BEYOND_ONE),
            (BEYOND_ONE, 1),
        ),
        load.scene(
            "A new controller starts, learns from the API what there is, and has nothing to do.",
            Action::StartController,
            (BEYOND_ONE, 1),
        ),
    ];
    items.extend(losing(load, n_lost, (BEYOND_ONE, 1)).map(Item::from));
    items.push(load.scene("Their pods are started anew.", Action::Load(BEYOND_ONE), (BEYOND_ONE, 1)));
    items
}

/// Machines are lost, and their nodes return.
fn losing(load: Load, n_lost: usize, (n_pods, blocks): (usize, usize)) -> [Scene; 2] {
    let n_nodes = load.n_nodes;
    let mut returned = vec![Goal::Served(n_nodes), Goal::Cooling(0)];
    let after = match load.mode.growth() {
        Growth::ByUse | Growth::Never => {
            returned.push(Goal::Hold { nodes: n_nodes, blocks });
            ""
        }
        Growth::ByRequest => {
            returned.extend(load.said_after_return(n_lost, (n_pods, NONE)));
            " Their agents, which have no pods yet, give back what they don't need."
        }
    };
    [
        Scene::new(
            format!(
                "{n_lost} machines are lost, and their nodes deleted. Their blocks cool: nobody else gets them yet."
            ),
            Action::LoseNodes(n_lost),
            vec![Goal::Nodes(n_nodes - n_lost), Goal::Cooling(blocks * n_lost)],
        ),
        Scene::new(
            format!(
                "The {n_lost} nodes return under their names, and get back the blocks that they had.{after}"
            ),
            Action::ReturnNodes(n_lost),
            returned,
        ),
    ]
}

/// Agents release the blocks that they don't need, and ask for blocks again.
fn giving_back(load: Load) -> Vec<Item> {
    let n_nodes = load.n_nodes;
    // The addresses of the agent itself may be in two blocks.
    let most_then = OWN;
    let falls = Scene::new(
        "Load falls to no pods. Agents give back blocks in which nothing is left; each says so once more when it is \
         asked, and then the block is free.",
        Action::Load(NONE),
        vec![
            Goal::Asked(n_nodes * asked(NONE)),
            Goal::Enough(n_nodes),
            Goal::GivenBack { nodes: n_nodes, at_most: most_then },
        ],
    );
    vec![
        Item::Scene(falls),
        load.scene(
            &format!("Load rises to {BEYOND_ONE} pods per node: they ask for a second block again."),
            Action::Load(BEYOND_ONE),
            (BEYOND_ONE, 2),
        ),
        load.scene(
            &format!("Load rises to {BEYOND_TWO} pods per node: they ask for a third."),
            Action::Load(BEYOND_TWO),
            (BEYOND_TWO, GROWN),
        ),
    ]
}

/// Nodes take blocks of a pool that was made by mistake, and the pool is deleted.
fn undoing(n_imitated: usize, n_pools: usize) -> [Scene; 5] {
    let mistake = PoolSpec::new(MISTAKE)
        .select(AGENT, "cilium")
        .ipv4(BLOCK_SIZE, &["10.9.0.0/24"])
        .with("priority", 200)
        .with("reclaim", json!({"mode": "Disabled"}))
        .with("reuseAfter", "1s");
    let n_nodes = n_imitated + REAL_AGENTS;
    [
        Scene::new(
            format!(
                "The Pods of Cilium's own agents on {REAL_AGENTS} nodes are reported: what these use is known now."
            ),
            Action::ReportAgents,
            vec![Goal::Nodes(n_nodes)],
        ),
        Scene::new(
            format!(
                "An administrator makes a mistake: pool {MISTAKE} selects these nodes too, with the highest priority."
            ),
            Action::DeclarePools(vec![mistake]),
            vec![Goal::Pools(n_pools + 1), Goal::PoolsReady(n_pools + 1)],
        ),
        real_scene(
            &format!(
                "Load rises to {BEYOND_THREE} pods on each of them: they take their fourth block of {MISTAKE}."
            ),
            Action::LoadReal(BEYOND_THREE),
            n_imitated,
            (BEYOND_THREE, GROWN + 1),
        ),
        real_scene(
            &format!("Load falls to {BEYOND_ONE} pods there. No block is taken back from nodes."),
            Action::LoadReal(BEYOND_ONE),
            n_imitated,
            (BEYOND_ONE, GROWN + 1),
        ),
        Scene::new(
            format!(
                "The administrator deletes {MISTAKE}. Its blocks leave with the consent of the agents, when no pod is in \
                 them, and the pool goes."
            ),
            Action::DeletePool(MISTAKE.to_owned()),
            vec![Goal::Pools(n_pools), Goal::Hold { nodes: n_nodes, blocks: GROWN }],
        ),
    ]
}

/// Surplus blocks are reclaimed, and the nodes get others when they need them.
fn taking_back(n_imitated: usize) -> [Scene; 3] {
    let edit = |reclaim, n_pods| Action::Edit {
        pool: OF_REAL.to_owned(),
        spec: json!({"reclaim": reclaim, "reuseAfter": "1s"}),
        n_pods,
    };
    [
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
            (BEYOND_TWO, GROWN),
        ),
        real_scene(
            &format!(
                "That is turned off again, and load falls to {BEYOND_ONE} pods: blocks stay where they are."
            ),
            edit(json!({"mode": "Disabled"}), BEYOND_ONE),
            n_imitated,
            (BEYOND_ONE, GROWN),
        ),
    ]
}

/// A scene at whose end each node with Cilium's own agent has this many pods and blocks; the others keep those of the
/// scenes before.
fn real_scene(title: &str, action: Action, n_imitated: usize, (n_pods, blocks): (usize, usize)) -> Scene {
    let used = n_imitated * (BEYOND_ONE + OWN) + REAL_AGENTS * (n_pods + OWN);
    let nodes = if blocks == GROWN { n_imitated + REAL_AGENTS } else { REAL_AGENTS };
    Scene::new(title, action, vec![Goal::Used(used), Goal::Hold { nodes, blocks }])
}

/// The load falls and rises.
fn encore(load: Load) -> Vec<Scene> {
    let scene = |verb: &str, n_pods, blocks: &str| {
        let title = format!("Load {verb} to {n_pods} pods per node; {blocks}.");
        Scene::new(title, Action::Load(n_pods), load.use_of(n_pods))
    };
    match load.mode.growth() {
        Growth::ByUse | Growth::ByRequest => {
            let blocks = if load.mode == Mode::Crd {
                "three blocks are enough"
            } else {
                "agents ask for what they need"
            };
            [("falls", LOW), ("rises", BEYOND_ONE), ("rises", BEYOND_TWO), ("falls", BEYOND_ONE)]
                .map(|(verb, n_pods)| scene(verb, n_pods, blocks))
                .into()
        }
        Growth::Never => [("falls", LOW), ("rises", BEYOND_ONE)]
            .map(|(verb, n_pods)| scene(verb, n_pods, "one block is for life"))
            .into(),
    }
}

/// The addresses that an agent in multi-pool mode asks for with this many pods.
fn asked(n_pods: usize) -> usize {
    ((n_pods + OWN).div_ceil(STEP) + 1) * STEP
}

/// The load of the nodes, and how it is seen.
#[derive(Clone, Copy)]
struct Load {
    mode: Mode,
    n_nodes: usize,
}

impl Load {
    /// A scene at whose end each node has this many pods, and exactly this many blocks, which are enough for its agent.
    fn scene(self, title: &str, action: Action, (n_pods, blocks): (usize, usize)) -> Item {
        let mut until = self.use_of(n_pods);
        until.push(Goal::Hold { nodes: self.n_nodes, blocks });
        Scene::new(title, action, until).into()
    }

    /// The same, while no controller gives agents the addresses that they ask for.
    fn scene_alone(self, title: &str, action: Action, (n_pods, blocks): (usize, usize)) -> Item {
        let mut until = self.said(n_pods);
        until.push(Goal::Hold { nodes: self.n_nodes, blocks });
        Scene::new(title, action, until).into()
    }

    /// The goals of this many pods on each node, with any blocks.
    fn use_of(self, n_pods: usize) -> Vec<Goal> {
        let mut until = self.said(n_pods);
        if self.mode.growth() == Growth::ByRequest {
            until.push(Goal::Enough(self.n_nodes));
        }
        until
    }

    /// The addresses that agents ask for when this many nodes have returned and have another number of pods than the
    /// others.
    fn said_after_return(self, n_lost: usize, (others, returned): (usize, usize)) -> Vec<Goal> {
        vec![Goal::Asked((self.n_nodes - n_lost) * asked(others) + n_lost * asked(returned))]
    }

    /// The goals that agents report with this many pods on each node. Where a node has one block they report nothing.
    fn said(self, n_pods: usize) -> Vec<Goal> {
        match self.mode.growth() {
            Growth::ByUse => vec![Goal::Used(self.n_nodes * (n_pods + OWN))],
            Growth::ByRequest => vec![Goal::Asked(self.n_nodes * asked(n_pods))],
            Growth::Never => Vec::new(),
        }
    }
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

/// A pool of this many blocks, a power of two, from `base` on.
fn pool(mode: Mode, name: &str, zone: &str, priority: i32, base: &str, blocks: usize) -> PoolSpec {
    let length = u32::from(BLOCK_SIZE) - blocks.ilog2();
    let pool = PoolSpec::new(name)
        .select(ZONE, zone)
        .ipv4(BLOCK_SIZE, &[&format!("{base}/{length}")])
        .with("priority", priority);
    match mode.growth() {
        Growth::ByUse => pool
            .with("expand", json!({"usedAbove": USED_ABOVE, "freeBelow": FREE_BELOW}))
            // The load falls only for show: a node keeps the blocks that it got.
            .with("reclaim", json!({"mode": "Disabled"})),
        // Blocks that agents release are free at once.
        Growth::ByRequest => pool.with("reuseAfter", "1s"),
        Growth::Never => pool,
    }
}
