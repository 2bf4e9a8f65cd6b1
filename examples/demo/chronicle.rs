//! The changes that the watch has shown: the nodes that crossed the threshold and then grew, and the latest news in
//! words.
//!
//! A state shows that a node has two blocks; only the order of its versions shows that it got the second one because
//! its use had grown.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kube::api::DynamicObject;

use crate::script::{FREE_BELOW, PER_BLOCK, USED_ABOVE};
use crate::shared::Shared;
use crate::support::cluster::Cluster;
use crate::support::objects::Kind;
use crate::support::views::{Claim, Published};

/// How many lines of news are kept.
const NEWS: usize = 5;

/// The chronicle, which writes itself from the shared watch.
pub(crate) struct Chronicle(Shared<Pages>);

#[derive(Default)]
struct Pages {
    /// How many blocks a node had when its use crossed the threshold.
    crossed: BTreeMap<String, usize>,
    /// Nodes that had crossed it and then got a further block.
    expanded: BTreeSet<String>,
    /// The blocks that were held again after they had cooled, by node.
    regained: BTreeMap<String, BTreeSet<String>>,
    /// The states of claims, so that each change is news once.
    claims: BTreeMap<String, String>,
    news: VecDeque<String>,
}

impl Chronicle {
    /// Writes down each change from now on.
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let pages = Shared::<Pages>::default();
        let writer = pages.clone();
        cluster.cache().subscribe(Box::new(move |kind, name, object| {
            let mut pages = writer.lock();
            match (kind, object) {
                (Kind::CiliumNode, Some(object)) => pages.cilium_node(name, object),
                (Kind::Block, Some(object)) => pages.block(object),
                (Kind::Node, None) => pages.line(format!("{name} is gone")),
                (Kind::Pool, None) => pages.line(format!("pool {name} is gone")),
                (Kind::Block, None) => pages.free(name),
                (Kind::CiliumNode, None) | (Kind::Node | Kind::Pool, Some(_)) => {}
            }
        }));
        Self(pages)
    }

    /// How many nodes got a further block after their use had crossed the threshold.
    pub(crate) fn n_expanded(&self) -> usize {
        self.0.lock().expanded.len()
    }

    /// The blocks that a node got back after they had cooled.
    pub(crate) fn regained(&self, node: &str) -> BTreeSet<String> {
        self.0.lock().regained.get(node).cloned().unwrap_or_default()
    }

    /// The latest news, oldest first.
    pub(crate) fn news(&self) -> Vec<String> {
        self.0.lock().news.iter().cloned().collect()
    }
}

impl Pages {
    fn cilium_node(&mut self, name: &str, object: &DynamicObject) {
        let published = Published::of(object);
        let n_blocks = published.pod_cidrs.len();
        if self.crossed.get(name).is_some_and(|before| n_blocks > *before) {
            self.crossed.remove(name);
            self.expanded.insert(name.to_owned());
        }
        let (capacity, used) = (published.pool.len(), published.n_used());
        let is_above = used * 100 > capacity * USED_ABOVE || capacity.saturating_sub(used) < FREE_BELOW;
        let asks_for: u64 = published.needed.values().sum();
        let asks_for_more = asks_for > (n_blocks * PER_BLOCK) as u64;
        if capacity > 0 && is_above || n_blocks > 0 && asks_for_more {
            self.crossed.insert(name.to_owned(), n_blocks);
        }
    }

    fn block(&mut self, object: &DynamicObject) {
        let Claim { name, cidr, pool, node, state, .. } = Claim::of(object);
        let before = self.claims.insert(name, state.clone());
        let line = match (before.as_deref(), state.as_str()) {
            (None, "Held") if self.crossed.contains_key(&node) => {
                format!("{node} gets one more block: {cidr} of {pool}")
            }
            (None, "Held") => format!("{node} gets a block: {cidr} of {pool}"),
            (Some("Cooling" | "Releasing"), "Held") => {
                let line = format!("{node} gets {cidr} back");
                self.regained.entry(node).or_default().insert(cidr);
                line
            }
            (Some("Held" | "Releasing"), "Cooling") => format!("{cidr} of {node} cools"),
            _ => return,
        };
        self.line(line);
    }

    fn free(&mut self, name: &str) {
        self.claims.remove(name);
        self.line(format!("block {name} is free again"));
    }

    fn line(&mut self, line: String) {
        if self.news.len() == NEWS {
            self.news.pop_front();
        }
        self.news.push_back(line);
    }
}
