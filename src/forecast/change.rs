//! A change of a cluster that a person considers, applied to a world.
//!
//! Reports every change that the API server would refuse. It does not know the consequences of a change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::revision;
use crate::model::claim::Claim;
use crate::model::counted::counted;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName, Uid};
use crate::model::node::Node;
use crate::model::observation::{Object, Observation, PoolObject};
use crate::model::pool::{Pool, RangeState};
use crate::model::revision::Revision;
use crate::model::status::PoolStatus;
use crate::model::time::Timestamp;
use crate::net::cidr::{Cidr, Family};
use crate::world::World;

/// A change that a person considers.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A pool is created, or replaced by this declaration. Its uid and time of creation do not count.
    Pool(Box<Pool>),
    /// A pool is deleted.
    DeletePool(PoolName),
    /// CIDRs of pools get another state.
    State(Ranges, RangeState),
    /// A Node gets labels; one without a value is removed.
    Relabel(NodeName, BTreeMap<String, Option<String>>),
    /// So many nodes with these labels join.
    AddNodes(usize, BTreeMap<String, String>),
    /// Each node uses this percentage of its addresses.
    Use(u8),
}

/// CIDRs that pools declare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// All of one pool.
    Of(PoolName),
    /// All within this range.
    Within(Cidr),
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(pool) => write!(f, "pool {pool}"),
            Self::Within(range) => fmt::Display::fmt(range, f),
        }
    }
}

impl Ranges {
    /// Whether the block of a claim lies in them.
    #[must_use]
    pub fn has(&self, claim: &Claim) -> bool {
        match self {
            Self::Of(pool) => claim.pool == *pool,
            Self::Within(range) => range.family() == claim.cidr.family() && range.covers(claim.cidr),
        }
    }

    /// The CIDRs with their states, by pool. There is at least one.
    pub fn of(&self, world: &World) -> Result<BTreeMap<PoolName, BTreeMap<Cidr, RangeState>>, Impossible> {
        let mut found: BTreeMap<PoolName, BTreeMap<Cidr, RangeState>> = BTreeMap::new();
        if let Self::Of(name) = self
            && world.pool_object(name).is_none()
        {
            return Err(Impossible::NoPool(name.clone()));
        }
        for pool in world.readable_pools() {
            for (declared, state) in pool.families.values().flat_map(|ranges| &ranges.cidrs) {
                let is_meant = match self {
                    Self::Of(name) => *name == pool.name,
                    // Both families share one number line.
                    Self::Within(range) if range.family() != declared.family() => false,
                    Self::Within(range) if declared.covers(*range) && declared != range => {
                        return Err(Impossible::PartOfRange(*range, *declared, pool.name.clone()));
                    }
                    Self::Within(range) => range.covers(*declared),
                };
                if is_meant {
                    found.entry(pool.name.clone()).or_default().insert(*declared, *state);
                }
            }
        }
        match (self, found.is_empty()) {
            (_, false) => Ok(found),
            (Self::Of(name), true) => Err(Impossible::Unreadable(name.clone())),
            (Self::Within(range), true) => Err(Impossible::NoRange(*range)),
        }
    }
}

/// Why a change is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// The pool does not exist.
    #[error("NodeIPPool {0} does not exist: kubectl get nip")]
    NoPool(PoolName),
    /// The pool can't be read, or has no CIDR.
    #[error("NodeIPPool {0} has no CIDR that can be read: kubectl describe nip {0}")]
    Unreadable(PoolName),
    /// The Node does not exist.
    #[error("Node {0} does not exist: kubectl get nodes")]
    NoNode(NodeName),
    /// No pool declares a CIDR within the range.
    #[error("no pool has a CIDR within {0}: kubectl get nip -o yaml")]
    NoRange(Cidr),
    /// A pool declares a CIDR that the range only touches.
    #[error(
        "{0} is a part of the CIDR {1} of pool {2}, and a state is that of a whole CIDR: split {1} in the pool first"
    )]
    PartOfRange(Cidr, Cidr, PoolName),
    /// The server refuses another block size.
    #[error(
        "the block size of pool {0} is immutable (/{1}, and the file has /{2}): create another pool for another \
         size"
    )]
    BlockSize(PoolName, u8, u8),
    /// The server refuses to remove a family.
    #[error("pool {0} has {1}, which can't be removed: keep the family and drain its CIDRs")]
    FamilyRemoved(PoolName, Family),
    /// Agents report no use.
    #[error("a node has one block for its life in the mode {0}: more use brings no other block")]
    NoGrowth(&'static str),
    /// The server refuses another name.
    #[error("podIPPool of pool {0} is immutable: create another pool")]
    PodIpPool(PoolName),
}

impl Change {
    /// Applies the change to a world.
    pub fn apply(&self, world: &mut World, created: Timestamp) -> Result<(), Impossible> {
        match self {
            Self::Pool(pool) => replace(world, pool, created),
            Self::DeletePool(name) => {
                let object = existing(world, name)?;
                let pool = object.pool.map(|pool| Pool { deleting: true, ..pool });
                show(world, Object::Pool(PoolObject { deleting: true, pool, ..object }));
                Ok(())
            }
            Self::State(ranges, state) => set_state(world, ranges, *state),
            Self::Relabel(name, labels) => {
                let mut node = world.node(name).cloned().ok_or_else(|| Impossible::NoNode(name.clone()))?;
                for (key, value) in labels {
                    match value {
                        Some(value) => node.labels.insert(key.clone(), value.clone()),
                        None => node.labels.remove(key),
                    };
                }
                show(world, Object::Node(node));
                Ok(())
            }
            Self::Use(percent) => raise_use(world, *percent, |_| true),
            Self::AddNodes(n_nodes, labels) => {
                let names: Vec<NodeName> = new_names(world, "new").take(*n_nodes).collect();
                for name in &names {
                    join(world, name, labels, created);
                }
                Ok(())
            }
        }
    }

    /// The consequences that can't be undone, a sentence each.
    #[must_use]
    pub fn final_effects(&self, world: &World) -> Vec<String> {
        let held = |pool: &PoolName| world.claims_of_pool(pool).count();
        match self {
            Self::DeletePool(pool) => vec![format!(
                "deleting pool {pool} can't be undone: it gives no blocks from then on, and exists until its {} \
                 are free",
                counted(held(pool), "block")
            )],
            Self::State(ranges, RangeState::Draining) => vec![format!(
                "blocks of {ranges} that have left their nodes do not come back; `Active` stops the drain of all \
                 others"
            )],
            Self::Pool(pool) => match world.pool(&pool.name) {
                Some(_) => Vec::new(),
                None => {
                    vec![format!("the new pool {} can't lose a family, nor change its podIPPool", pool.name)]
                }
            },
            Self::Relabel(node, _) => match world.claims_of(node).count() {
                0 => Vec::new(),
                n_blocks => {
                    vec![format!("node {node} keeps its {} with other labels", counted(n_blocks, "block"))]
                }
            },
            Self::AddNodes(..) | Self::Use(_) | Self::State(_, RangeState::Active | RangeState::Cordoned) => {
                Vec::new()
            }
        }
    }
}

/// A Node joins, and its agent creates its CiliumNode.
pub(super) fn join(
    world: &mut World,
    name: &NodeName,
    labels: &BTreeMap<String, String>,
    created: Timestamp,
) {
    let revision_of_nodes = world.position(Kind::Node).unwrap_or(Revision::of(1));
    let uid = Uid::from(format!("supposed-{name}"));
    let node = Node::joining(name.clone(), uid, revision_of_nodes, created, labels.clone());
    let cilium_node = world.reader().joining(&node, revision(world, Kind::CiliumNode));
    show(world, Object::Node(node));
    show(world, Object::CiliumNode(cilium_node));
}

/// Names of nodes that do not exist, such as `new-1`.
pub(super) fn new_names(world: &World, prefix: &str) -> impl Iterator<Item = NodeName> + use<> {
    let taken: BTreeSet<NodeName> = world.nodes().map(|node| node.name.clone()).collect();
    let names = (1u32..).map({
        let prefix = prefix.to_owned();
        move |number| NodeName::from(format!("{prefix}-{number}"))
    });
    names.filter(move |name| !taken.contains(name))
}

fn show(world: &mut World, object: Object) {
    world.observe(Observation::Applied(Box::new(object)));
}

fn existing(world: &World, name: &PoolName) -> Result<PoolObject, Impossible> {
    world.pool_object(name).cloned().ok_or_else(|| Impossible::NoPool(name.clone()))
}

fn replace(world: &mut World, pool: &Pool, created: Timestamp) -> Result<(), Impossible> {
    let Some(object) = world.pool_object(&pool.name).cloned() else {
        let uid = Uid::from(format!("supposed-{}", pool.name));
        show(
            world,
            Object::Pool(PoolObject {
                name: pool.name.clone(),
                uid: uid.clone(),
                revision: revision(world, Kind::Pool),
                deleting: false,
                finalizers: vec![PoolObject::FINALIZER.to_owned()],
                pool: Ok(Pool { uid, created, deleting: false, ..pool.clone() }),
                generation: 1,
                status: PoolStatus::default(),
                transitions: BTreeMap::new(),
                waits_since: BTreeMap::new(),
                history: BTreeMap::new(),
            }),
        );
        return Ok(());
    };
    let created = match &object.pool {
        Ok(before) => {
            check_update(before, pool)?;
            before.created
        }
        Err(invalid) => invalid.reserved.created,
    };
    let pool = Pool { uid: object.uid.clone(), created, deleting: object.deleting, ..pool.clone() };
    show(world, Object::Pool(PoolObject { pool: Ok(pool), ..object }));
    Ok(())
}

/// The rules of the server that compare a pool with its earlier declaration.
fn check_update(before: &Pool, after: &Pool) -> Result<(), Impossible> {
    for (family, ranges) in &before.families {
        match after.families.get(family) {
            None => return Err(Impossible::FamilyRemoved(before.name.clone(), *family)),
            Some(later) if later.block_prefix != ranges.block_prefix && after.pod_ip_pool.is_some() => {
                let name = before.name.clone();
                return Err(Impossible::BlockSize(name, ranges.block_prefix, later.block_prefix));
            }
            Some(_) => {}
        }
    }
    if before.pod_ip_pool != after.pod_ip_pool {
        return Err(Impossible::PodIpPool(before.name.clone()));
    }
    Ok(())
}

/// The agents of these nodes use this percentage of their addresses.
pub(super) fn raise_use(
    world: &mut World,
    percent: u8,
    is_meant: impl Fn(&NodeName) -> bool,
) -> Result<(), Impossible> {
    let names: Vec<NodeName> = world.nodes().map(|node| node.name.clone()).collect();
    for name in names.iter().filter(|name| is_meant(name)) {
        let Some(cilium_node) = world.cilium_node(name) else { continue };
        let reader = world.reader_of(name);
        let Some(supposed) = reader.using(cilium_node, percent) else {
            return Err(Impossible::NoGrowth(reader.ipam_mode().as_str()));
        };
        show(world, Object::CiliumNode(supposed));
    }
    Ok(())
}

fn set_state(world: &mut World, ranges: &Ranges, state: RangeState) -> Result<(), Impossible> {
    for (name, cidrs) in ranges.of(world)? {
        let mut object = existing(world, &name)?;
        let families = object.pool.iter_mut().flat_map(|pool| pool.families.values_mut());
        for (declared, before) in families.flat_map(|ranges| &mut ranges.cidrs) {
            if cidrs.contains_key(declared) {
                *before = state;
            }
        }
        show(world, Object::Pool(object));
    }
    Ok(())
}
