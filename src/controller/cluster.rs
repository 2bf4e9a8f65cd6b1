//! A cluster of a test: objects as a server has them, and the world that they make.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::model::claim::Claim;
use crate::model::freeze::Freeze;
use crate::model::kind::Kind;
use crate::model::observation::{Listing, Object, Observation, PoolObject};
use crate::model::plan::NodePlan;
use crate::model::revision::AnyRevision;
use crate::model::time::{Now, Timestamp};
use crate::net::cidr::Family;
use crate::plan::{self, Policy};
use crate::publisher::Publisher;
use crate::publisher::crd::Crd;
use crate::publisher::mode::Mode;
use crate::wire::watched::{Watched, Wire};
use crate::wire::{CiliumNodes, Claims, Nodes, Pools};
use crate::world::World;
use crate::world::gather::Gathering;

/// The revision of the lists, and of every object in them.
const LISTED: u64 = 100;

/// A cluster whose agents run IPv4.
pub(super) struct Cluster {
    pub(super) world: World,
    pub(super) now: Now,
    revision: u64,
}

impl Cluster {
    /// One of these objects, in Cilium's mode crd.
    pub(super) fn of(objects: &[&Value]) -> Self {
        let families = [Family::V4].into();
        Self::served_by(Publisher::Crd(Crd { families, infrastructure: vec!["router"] }), objects)
    }

    /// One of these objects, in the mode of this publisher.
    pub(super) fn served_by(publisher: Publisher, objects: &[&Value]) -> Self {
        let mut listed: BTreeMap<Kind, Vec<Object>> = BTreeMap::new();
        for object in objects {
            listed.entry(kind_of(object)).or_default().push(read(object, LISTED));
        }
        let mut gathering = Gathering::default();
        gathering.set_mode(Mode::from(publisher));
        gathering.set_freeze(Freeze::default());
        for kind in Kind::AS_LISTED {
            let revision = AnyRevision::of(kind, LISTED);
            let objects = listed.remove(&kind).unwrap_or_default();
            let listing = Listing { kind, at_least: revision, at_most: revision, objects };
            gathering.observe(Observation::Listed(listing));
        }
        Self {
            world: gathering.complete().expect("every kind is listed"),
            now: Now { uptime: Duration::from_secs(1000), wall: Timestamp::default() },
            revision: LISTED,
        }
    }

    /// A watch shows this object in a new version.
    pub(super) fn shows(&mut self, object: &Value) {
        self.revision += 1;
        self.world.observe(Observation::Applied(Box::new(read(object, self.revision))));
    }

    /// A watch shows that this object was deleted.
    pub(super) fn loses(&mut self, object: &Value) {
        self.revision += 1;
        let (kind, name) = (kind_of(object), object["metadata"]["name"].as_str().unwrap().to_owned());
        let revision = AnyRevision::of(kind, self.revision);
        self.world.observe(Observation::Deleted { kind, name, revision });
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now.uptime += time;
        self.world.advance(self.now);
    }

    /// The plan for a node.
    pub(super) fn plan(&self, node: &str) -> NodePlan {
        plan::node(&self.world, &node.into(), Policy::DEFAULT, self.now)
    }
}

/// A pool `p` with this `spec`.
pub(super) fn pool(spec: &Value) -> Value {
    json!({
        "kind": "NodeIPPool",
        "metadata": {
            "name": "p", "uid": "uid-p", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": [PoolObject::FINALIZER],
        },
        "spec": spec,
    })
}

/// The `spec` of a pool that cuts blocks of 16 addresses out of one range.
pub(super) fn ranges(cidr: &str) -> Value {
    json!({ "ipv4": { "blockSize": 28, "cidrs": [{ "cidr": cidr }] } })
}

pub(super) fn node(name: &str) -> Value {
    json!({ "kind": "Node", "metadata": { "name": name, "uid": format!("uid-{name}") } })
}

/// A CiliumNode with this `spec.ipam`.
pub(super) fn cilium_node(name: &str, ipam: &Value) -> Value {
    json!({
        "kind": "CiliumNode",
        "metadata": { "name": name, "uid": format!("cn-{name}") },
        "spec": { "ipam": ipam },
        "status": { "ipam": { "used": {} } },
    })
}

/// A claim of pool `p` that a node holds.
pub(super) fn claim(cidr: &str, node: &str) -> Value {
    json!({
        "kind": "NodeIPBlock",
        "metadata": {
            "name": cidr.replace('/', "-"), "uid": format!("uid-{cidr}"),
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": [Claim::FINALIZER],
        },
        "spec": {
            "cidr": cidr, "pool": "p", "node": node, "nodeUID": format!("uid-{node}"), "state": "Held",
            "since": "2026-01-01T00:00:00Z", "createdForCiliumNodeUID": format!("cn-{node}"),
        },
    })
}

fn kind_of(object: &Value) -> Kind {
    let name = object["kind"].as_str().unwrap();
    Kind::ALL.into_iter().find(|kind| kind.as_str() == name).expect("it is one of the kinds")
}

/// The object in this version, as a watch reads it.
fn read(object: &Value, revision: u64) -> Object {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = revision.to_string().into();
    match kind_of(&object) {
        Kind::Pool => read_as::<Pools>(&object),
        Kind::Node => read_as::<Nodes>(&object),
        Kind::Claim => read_as::<Claims>(&object),
        Kind::CiliumNode => read_as::<CiliumNodes>(&object),
    }
}

fn read_as<W: Wire>(object: &Value) -> Object {
    serde_json::from_str::<Watched<W>>(&object.to_string()).unwrap().into_object()
}
