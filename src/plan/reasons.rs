//! Why a pool gives a node nothing. This is computed only on request, and names at most ten pools and the number of
//! others.

use std::collections::{BTreeMap, BTreeSet};

use kube_core::{Expression, SelectorExt};

use super::draft::Draft;
use crate::model::address_class::AddressClass;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_of};
use crate::model::observation::PoolObject;
use crate::model::plan::WhyNot;
use crate::model::pool::{Pool, RangeState};
use crate::net::cidr::Family;
use crate::world::World;

/// Notes each pool that the node can't ask, because the pool is unreadable or does not select the node.
pub(super) fn of_pools_not_asked(world: &World, node: &NodeName, draft: &mut Draft) {
    let Some(node) = world.node(node) else {
        return;
    };
    for object in world.pool_objects() {
        match &object.pool {
            Err(_) => draft.refuse(&object.name, None, || WhyNot::Invalid),
            Ok(pool) => {
                let failed = pool.selector.clone().into_iter().find(|term| !term.matches(&node.labels));
                if let Some(term) = failed {
                    draft.refuse(&object.name, None, || WhyNot::NotSelected(term.to_string()));
                }
            }
        }
    }
}

/// Why a node that needs a block of a class gets none, and the remedy, for a person.
#[must_use]
pub fn why_no_block(world: &World, node: &NodeName, class: &AddressClass) -> String {
    let (family, name) = (class.family, class.family.as_str());
    // A pool that is being deleted takes no remedy.
    let lasting: Vec<&Pool> = world.pools_for(node, class).filter(|pool| !pool.deleting).collect();
    if world.pools_for(node, class).all(|pool| !pool.families.contains_key(&family)) {
        let create = format!("create a pool with {name} ranges that selects it");
        let remedy = if lasting.is_empty() {
            create
        } else {
            let pools = ten_of(lasting.iter().map(|pool| &pool.name));
            format!("add `spec.{name}` to one of its pools, or {create}: {pools}")
        };
        return format!(
            "the agent runs {name} and needs {name} addresses, and no pool of the node has {name} ranges; {remedy}"
        );
    }
    let misfit = || lasting.iter().find_map(|pool| world.misfit_of_new_block(node, class, pool));
    if let (Some(name), Some(misfit)) = (&class.pod_ip_pool, misfit()) {
        return format!(
            "CiliumPodIPPool {name} {misfit}; the node gets no {}, because they would harm its agent; the \
             condition UnfitPodIPPool of these pools has the remedy: {}",
            class.named("blocks"),
            ten_of(lasting.iter().map(|pool| &pool.name))
        );
    }
    let pools = world.pools_for(node, class);
    let reasons =
        pools.map(|pool| format!("pool {} ({})", pool.name, why_none_of(world, node, pool, family)));
    let is_closed = |pool: &&Pool| of_no_free_block(world, pool, family) == WhyNot::Cordoned;
    let change =
        if lasting.iter().all(is_closed) { "set `state: Active` on a CIDR of" } else { "add a CIDR to" };
    let remedy = if lasting.is_empty() {
        String::new()
    } else if lasting.len() == world.pools_for(node, class).count() {
        format!("{change} one of its pools, or ")
    } else {
        format!("{change} pool {}, or ", ten_of(lasting.iter().map(|pool| &pool.name)))
    };
    format!(
        "no pool of the node has a free {}; {remedy}create a pool that selects the node: {}",
        class.named("block"),
        ten_of(reasons)
    )
}

/// Why a pool gives no block of a family to a node that asks.
fn why_none_of(world: &World, node: &NodeName, pool: &Pool, family: Family) -> String {
    let widest = world.reader_of(node).widest_block(family);
    let size = world.size_for(node, pool, family);
    match size.and_then(|size| world.ledger().free_blocks(&pool.name, family, size)) {
        None => WhyNot::NoSuchFamily.to_string(),
        Some(free) if free.grid().prefix() < widest => WhyNot::TooWide(widest).to_string(),
        Some(_) if world.operator_allocates_in(pool, family, node) => WhyNot::OperatorAllocates.to_string(),
        Some(free) if free.free_count() > 0 => {
            "no free block has a usable address or fits within perNode of the node".to_owned()
        }
        Some(_) => of_no_free_block(world, pool, family).to_string(),
    }
}

/// Why no pool selects a node, and the remedy, for a person.
#[must_use]
pub fn why_no_pool(world: &World, node: &NodeName) -> String {
    if world.n_objects(Kind::Pool) == 0 {
        return "the cluster has no pools: create a NodeIPPool".to_owned();
    }
    if let Some(carrier) = world.carrier(node).filter(|_| world.pools_of(node).next().is_some()) {
        let reader = world.reader_of(node);
        let pools = world.pools_of(node).map(|pool| match reader.pod_ip_pool_of(pool) {
            Some(name) => format!("pool {} ({name})", pool.name),
            None => format!("pool {}", pool.name),
        });
        return format!(
            "its agent asks for addresses of the Cilium pools {}; create a NodeIPPool with the missing \
             podIPPool that selects it; its pools are {}",
            ten_of(reader.requested_pools(carrier)),
            ten_of(pools)
        );
    }
    let no_labels = BTreeMap::new();
    let labels = world.node(node).map_or(&no_labels, |node| &node.labels);
    let pools = world.pool_objects();
    let pools = pools.map(|object| format!("pool {} ({})", object.name, why_not_selected(object, labels)));
    format!(
        "no pool selects it: {}; label it, or create a pool that selects it: {}",
        describe_labels(world, labels),
        ten_of(pools)
    )
}

/// The labels of a node, in this order: those that pools select by, those that people set, and those that Kubernetes
/// sets on every Node.
fn describe_labels(world: &World, labels: &BTreeMap<String, String>) -> String {
    if labels.is_empty() {
        return "it has no labels".to_owned();
    }
    let terms = world.readable_pools().flat_map(|pool| pool.selector.clone());
    let selected_by: BTreeSet<String> = terms.map(|term| key_of(&term).to_owned()).collect();
    let is_of_kubernetes = |key: &str| {
        let domain = key.split_once('/').map(|(domain, _)| domain).unwrap_or_default();
        ["kubernetes.io", "k8s.io"].iter().any(|of| domain == *of || domain.ends_with(&format!(".{of}")))
    };
    let mut labels: Vec<(&String, &String)> = labels.iter().collect();
    labels.sort_by_key(|(key, _)| (!selected_by.contains(*key), is_of_kubernetes(key)));
    format!("its labels are {}", ten_of(labels.into_iter().map(|(key, value)| format!("{key}={value}"))))
}

/// Why a pool does not select a node with these labels.
fn why_not_selected(object: &PoolObject, labels: &BTreeMap<String, String>) -> String {
    if object.deleting {
        return "is being deleted".to_owned();
    }
    let Ok(pool) = &object.pool else { return "unreadable".to_owned() };
    let Some(term) = pool.selector.clone().into_iter().find(|term| !term.matches(labels)) else {
        return "selects the node".to_owned();
    };
    let key = key_of(&term);
    match labels.get(key) {
        Some(value) => format!("needs `{term}`; the node has {key}={value}"),
        None => format!("needs `{term}`; the node has no label {key}"),
    }
}

/// The label that a term of a selector is about.
fn key_of(term: &Expression) -> &str {
    match term {
        Expression::In(key, _)
        | Expression::NotIn(key, _)
        | Expression::Equal(key, _)
        | Expression::NotEqual(key, _)
        | Expression::Exists(key)
        | Expression::DoesNotExist(key) => key,
    }
}

/// Why a pool has no free block of a family that it declares.
pub(super) fn of_no_free_block(world: &World, pool: &Pool, family: Family) -> WhyNot {
    let ranges = pool.families.get(&family);
    let is_active =
        ranges.is_some_and(|ranges| ranges.cidrs.values().any(|state| *state == RangeState::Active));
    let has_range = ranges.is_some_and(|ranges| !ranges.cidrs.is_empty());
    let has_usable = world.ledger().gives_out_of(&pool.name, family);
    let kept_by = || {
        let overlaps = world.ledger().overlaps(&pool.name).iter();
        overlaps.filter(|overlap| overlap.mine.family() == family).map(|overlap| overlap.older.clone()).next()
    };
    if pool.deleting {
        WhyNot::Deleting
    } else if has_range && !is_active {
        WhyNot::Cordoned
    } else if has_usable {
        WhyNot::Full
    } else {
        kept_by().map_or(WhyNot::Empty, WhyNot::Reserved)
    }
}
