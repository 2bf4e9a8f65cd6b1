//! Tests of decisions as text: a small cluster goes in, and what to do for one node comes out.

mod annotations;
mod cluster_pool;
mod freeze;
mod growth;
mod kubernetes;
mod leaving;
mod lost_claims;
mod multi_pool;
mod no_effect;
mod overlap;
mod pod_ip_pools;
mod pools;
mod publication;
mod reasons;
mod reclaim;
mod releases;
mod usage;
mod wakeups;
mod whole;
mod wide;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::{CiliumNodeOrigin, Policy, ReclaimPolicy, node};
use crate::model::agent::{AgentNews, AgentPod, ContainerStart, PodsOnNode};
use crate::model::carrier::CarrierChange;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::crd::{CrdFields, FENCE, ReleaseMark};
use crate::model::freeze::{Freeze, Switch};
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::node::{Annotated, CiliumNode, Malformed, Node, NodeAddress};
use crate::model::observation::{InvalidPool, Listing, Object, Observation, PoolObject, Unreadable};
use crate::model::outcome::{Answer, Outcome, Presence, Seen};
use crate::model::plan::{NodePlan, PoolPlan, Scope, Verdict, Wait};
use crate::model::pool::{
    Expand, FirstLast, PerNode, Pool, RangeState, Ranges, Reclaim, ReclaimMode, Reservation,
};
use crate::model::request::{ClaimChange, ClaimUpdate, Read, Request, Target, Write};
use crate::model::revision::{AnyRevision, Revision};
use crate::model::status::{ConditionType, PoolStatus};
use crate::model::time::{Now, Timestamp};
use crate::model::transitions::State;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::crd::{Crd, PROBE_ADDRESS};
use crate::publisher::{Mode, Publisher};
use crate::view::block_event::{self, listed};
use crate::view::conditions;
use crate::world::World;
use crate::world::gather::Gathering;

/// The revision up to which every list of a fixture shows the store.
const LISTED: u64 = 100;

/// A cluster in lines:
/// `pool NAME CIDR|none BLOCKSIZE [younger] [invalid] [deleting] [cordoned] [draining] [reclaim=enabled|dry-run] [zone=Z]
/// [exclude=CIDR] [maxBlocks=N] [maxAddresses=N] [freeBelow=N] [@REVISION]` (it reclaims after 10 m, below 40 %),
/// `node NAME UID [zone=Z] [has=CIDRS] [annotated=CIDRS] [alias=CIDRS] [later-than=REVISION] [malformed] [own=CIDR] [deleting] [@REVISION]`,
/// `ciliumnode NAME @REVISION [CIDR…] [used=N|CIDRS|unknown] [ping=STATE] [recreated] [own=CIDR] [deleting] [malformed]
/// [need=N] [has=CIDRS] [others=CIDRS] [asked=REVISION] [operator=ERROR] (multi-pool: `mars` has the others)
/// [agents=ADDRESS] [fenced=CIDRS] [owner=ADDRESS:OWNER] [marked=CIDRS] [ready=CIDRS] [refused=CIDRS] [released=CIDRS] [off=CIDRS]
/// [bare] [manager=NAME]` (one that is `bare` has no pool; of others all
/// addresses of the CIDRs but those that are `off` are in the pool, and those of `own` are the node's; claims are created
/// for a CiliumNode that is not `recreated`),
/// `claim CIDR NODE UID STATE[/REASON] @REVISION [deleting] [finalizer=FOREIGN] [of=POOL] [for=UID]`,
/// `unreadable KIND NAME [CIDR…] [of=NODE] [in=POOL] @REVISION`,
/// `agent NODE RELEASE|none [named=NAME] [restarts=N] [deleting] [ended] [unready]` (a Pod of Cilium's agent;
/// they are all listed).
#[derive(Clone)]
struct Cluster {
    world: World,
    now: Now,
    in_flight: Vec<Request>,
}

impl Cluster {
    fn of(text: &str) -> Self {
        Self::running(&[Family::V4], text)
    }

    /// A cluster whose agents run these families.
    fn running(families: &[Family], text: &str) -> Self {
        let families = families.iter().copied().collect();
        Self::served_by(Publisher::Crd(Crd { families, infrastructure: vec!["router"] }), text)
    }

    /// A cluster in the mode of this publisher.
    fn served_by(publisher: Publisher, text: &str) -> Self {
        Self::in_mode(Mode::Active(publisher), text)
    }

    fn in_mode(mode: Mode, text: &str) -> Self {
        let mut listings: BTreeMap<Kind, Vec<Object>> = BTreeMap::new();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let (agents, objects): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("agent "));
        for line in objects {
            let object = object(line);
            listings.entry(object.kind()).or_default().push(object);
        }
        let mut gathering = Gathering::default();
        gathering.set_mode(mode);
        gathering.set_freeze(Freeze::default());
        for kind in Kind::AS_LISTED {
            let objects = listings.remove(&kind).unwrap_or_default();
            gathering.observe(Observation::Listed(Listing {
                kind,
                at_least: AnyRevision::of(kind, LISTED),
                at_most: AnyRevision::of(kind, LISTED),
                objects,
            }));
        }
        gathering.observe_agents(AgentNews::Listed(agents.into_iter().map(agent).collect()));
        let world = gathering.complete().expect("every kind is listed");
        Self {
            world,
            now: Now { uptime: Duration::from_secs(1000), wall: Timestamp::default() },
            in_flight: Vec::new(),
        }
    }

    /// A watch shows the object in this line.
    fn observe(&mut self, line: &str) {
        self.world.observe(Observation::Applied(Box::new(object(line))));
        assert_eq!(self.world.check(), []);
    }

    /// Something is told of the agents' Pods.
    fn observe_agents(&mut self, news: AgentNews) {
        self.world.observe_agents(news);
        assert_eq!(self.world.check(), []);
    }

    fn delete(&mut self, kind: Kind, name: &str, revision: u64) {
        self.world.observe(Observation::Deleted {
            kind,
            name: name.to_owned(),
            revision: AnyRevision::of(kind, revision),
        });
        assert_eq!(self.world.check(), []);
    }

    fn pass(&mut self, seconds: u64) {
        self.now.uptime += Duration::from_secs(seconds);
        self.now.wall += Duration::from_secs(seconds);
        self.world.advance(self.now);
    }

    fn plan(&self, name: &str) -> NodePlan {
        let policy = Policy::DEFAULT;
        let plan = node(&self.world, &NodeName::from(name), policy, self.now);
        self.check_moves(&plan);
        plan
    }

    /// Every move of a claim is one of the table of states.
    fn check_moves(&self, plan: &NodePlan) {
        for request in plan.requests() {
            let Request::Write(Write::UpdateClaim(update)) = request else { continue };
            let known = self.world.claim(update.cidr).expect("only claims that are known are moved");
            let from = State::from(&known.claim.state);
            let to = from.after(&update.change).unwrap_or_else(|| panic!("{request} from {from}"));
            let is_kept = update.change == ClaimChange::Keep;
            assert!(is_kept || from.moves().contains(&to), "{from} to {to:?}");
        }
    }

    /// Decides for every node that is due, until none is left, and returns them; what is decided is then in flight.
    fn drain(&mut self) -> Vec<String> {
        let mut decided = Vec::new();
        while let Some(node) = self.world.next_node().cloned() {
            decided.push(node.to_string());
            let plan = self.plan(node.as_str());
            self.begin(&plan);
        }
        decided
    }

    /// Checks the plan of a node; its requests are then in flight.
    #[track_caller]
    fn expect(&mut self, name: &str, expected: &str) {
        let plan = self.plan(name);
        assert_eq!(rendered(&plan), expected);
        assert_eq!(plan, self.plan(name), "equal worlds, equal plans");
        self.begin(&plan);
    }

    /// The request about `target` that is in flight ends, and its answer shows `seen`.
    #[track_caller]
    fn settle(&mut self, target: &Target, seen: Seen) {
        let place = self.in_flight.iter().position(|request| request.target() == *target);
        let request = self.in_flight.remove(place.expect("a request about it is in flight"));
        self.finish(request, seen);
    }

    /// A node whose block has cooled is asked for once more, and is gone.
    #[track_caller]
    fn confirm_loss(&mut self, name: &str) {
        let plan = self.plan(name);
        let [Request::Read(Read::Node(node, as_of))] = plan.requests() else {
            panic!("{}", rendered(&plan));
        };
        let (target, as_of) = (Target::Node(node.clone()), *as_of);
        self.begin(&plan);
        self.settle(&target, found(Presence::Gone, as_of.number()));
    }

    /// A request ends, and its answer shows `seen`.
    fn finish(&mut self, request: Request, seen: Seen) {
        self.world.finish(Outcome { request, answer: Answer::Done, seen }, self.now);
    }

    /// Of these requests, the writes to claims, CiliumNodes and finalizers that begin although writes are frozen.
    fn held_back(&self, requests: &[Request]) -> Vec<String> {
        let is_frozen = self.world.freeze().is_on(Switch::Writes);
        let moves_addresses = |request: &&Request| match request {
            Request::Write(Write::PoolStatus(_)) | Request::Read(_) => false,
            Request::Write(_) => true,
        };
        requests.iter().filter(|_| is_frozen).filter(moves_addresses).map(ToString::to_string).collect()
    }

    /// The requests of the plan are sent.
    fn begin(&mut self, plan: &NodePlan) {
        self.world.begin(plan, self.now);
        self.in_flight.extend(plan.requests().iter().cloned());
    }
}

/// The answer to a read of a Node whose claims are known as of this revision.
fn found(presence: Presence, as_of: u64) -> Seen {
    Seen::Node { as_of: Revision::of(as_of), read_at: Revision::of(u64::MAX), presence }
}

fn rendered(plan: &NodePlan) -> String {
    let mut parts: Vec<String> = plan.requests().iter().map(ToString::to_string).collect();
    let unmet = plan.unmet.iter().filter(|_| plan.scope == Scope::Whole);
    parts.extend(unmet.map(|unmet| format!("unmet: {unmet}")));
    parts.extend(plan.findings.iter().map(|finding| format!("finding: {}", finding.kind.as_str())));
    match plan.verdict {
        Verdict::Wait(Wait::Capacity) | Verdict::Act(_) | Verdict::AtRest => {}
        Verdict::Wait(wait) => parts.push(format!("waits: {wait}")),
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
}

fn object(line: &str) -> Object {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[0] {
        "pool" => pool(&words),
        "node" => Object::Node(Node {
            name: words[1].into(),
            uid: words[2].into(),
            revision: words
                .iter()
                .find_map(|word| word.strip_prefix('@'))
                .map_or(Revision::of(1), |revision| Revision::of(revision.parse().unwrap())),
            deleting: words.contains(&"deleting"),
            labels: zone(&words).map(|zone| ("zone".to_owned(), zone)).into_iter().collect(),
            addresses: own(&words)
                .into_iter()
                .map(|address| NodeAddress { kind: "InternalIP".to_owned(), address })
                .collect(),
            pod_cidrs: value(&words, "has=").into_iter().flat_map(cidrs).collect(),
            later_than: value(&words, "later-than=").map(|text| Revision::parse(text).unwrap()),
            malformed: malformed(&words, "spec.podCIDRs[9]"),
            annotated: annotated(&words),
            malformed_annotations: Vec::new(),
        }),
        "unreadable" => unreadable(&words),
        "ciliumnode" => cilium_node(&words),
        "claim" => claim(&words),
        other => panic!("no object: {other}"),
    }
}

/// The Pod of an agent.
fn agent(line: &str) -> AgentPod {
    let words: Vec<&str> = line.split_whitespace().collect();
    let name = value(&words, "named=").map_or_else(|| format!("cilium-{}", words[1]), ToOwned::to_owned);
    AgentPod {
        uid: format!("uid-{name}").into(),
        name: name.into(),
        node: words[1].into(),
        deleting: words.contains(&"deleting"),
        ended: words.contains(&"ended"),
        ready: !words.contains(&"unready"),
        started: Some(ContainerStart {
            at: Timestamp::default(),
            n_restarts: number(&words, "restarts=", 0),
        }),
        release: words[2].parse().ok(),
    }
}

fn revision(words: &[&str]) -> Revision {
    let found = words.iter().find_map(|word| word.strip_prefix('@'));
    Revision::of(found.expect("an object has a revision").parse().unwrap())
}

/// CIDRs that are separated by commas.
fn cidrs(listed: &str) -> impl Iterator<Item = Cidr> {
    listed.split(',').map(|text| text.parse().unwrap())
}

fn addresses(block: Cidr) -> Vec<IpAddr> {
    AddressSet::from_iter([block]).iter().collect()
}

/// The addresses of `own=`.
fn own(words: &[&str]) -> Vec<IpAddr> {
    let cidr = words.iter().find_map(|word| word.strip_prefix("own="));
    let cidr: Option<Cidr> = cidr.map(|cidr| cidr.parse().unwrap());
    cidr.into_iter().flat_map(|cidr| AddressSet::from_iter([cidr]).iter().collect::<Vec<_>>()).collect()
}

fn unreadable(words: &[&str]) -> Object {
    let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == words[1]).expect("a kind");
    let unreadable = Unreadable {
        name: words[2].to_owned(),
        revision: Some(AnyRevision::of(kind, revision(words).number())),
        node: value(words, "of=").map(Into::into),
        pool: value(words, "in=").map(Into::into),
        reason: "odd".to_owned(),
        addresses: words.iter().filter_map(|word| word.parse::<Cidr>().ok()).collect(),
    };
    Object::Unreadable(kind, unreadable)
}

/// The value behind `key`.
fn value<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(key))
}

/// What could not be read of an object that is `malformed`.
fn malformed(words: &[&str], field: &str) -> Vec<Malformed> {
    let odd = Malformed { field: field.to_owned(), value: "odd".to_owned() };
    Some(odd).filter(|_| words.contains(&"malformed")).into_iter().collect()
}

/// The value of `zone=`.
fn zone(words: &[&str]) -> Option<String> {
    value(words, "zone=").map(ToOwned::to_owned)
}

/// The annotations of a Node: as agents of this release find them, and as earlier ones do.
fn annotated(words: &[&str]) -> Vec<Annotated> {
    let of =
        |word, key| value(words, word).into_iter().flat_map(cidrs).map(move |cidr| Annotated { key, cidr });
    of("annotated=", "network.cilium.io/pod-cidr").chain(of("alias=", "io.cilium.network.pod-cidr")).collect()
}

/// The number behind `key`, or the default.
fn number(words: &[&str], key: &str, default: u32) -> u32 {
    value(words, key).map_or(default, |number| number.parse().unwrap())
}

fn pool(words: &[&str]) -> Object {
    let state = match () {
        () if words.contains(&"cordoned") => RangeState::Cordoned,
        () if words.contains(&"draining") => RangeState::Draining,
        () => RangeState::Active,
    };
    let reclaim = match value(words, "reclaim=") {
        Some("enabled") => ReclaimMode::Enabled,
        Some("dry-run") => ReclaimMode::DryRun,
        _ => ReclaimMode::Disabled,
    };
    let range: Option<Cidr> = (words[2] != "none").then(|| words[2].parse().unwrap());
    let family = range.map_or(Family::V4, Cidr::family);
    let ranges = Ranges {
        block_prefix: words[3].parse().unwrap(),
        cidrs: range.into_iter().map(|range| (range, state)).collect(),
        exclude: value(words, "exclude=").map(|cidr| cidr.parse().unwrap()).into_iter().collect(),
    };
    let pool = Pool {
        name: words[1].into(),
        uid: words[1].into(),
        created: Timestamp::from_second(words.contains(&"younger").into()).unwrap(),
        deleting: words.contains(&"deleting"),
        priority: 0,
        selector: zone(words).map(|zone| ("zone".to_owned(), zone)).into_iter().collect(),
        pod_ip_pool: value(words, "under=").map(Into::into),
        families: [(family, ranges)].into(),
        first_last: FirstLast::Offered,
        per_node: PerNode {
            initial_blocks: 1,
            max_blocks: number(words, "maxBlocks=", 4),
            max_addresses: number(words, "maxAddresses=", 1024),
        },
        expand: Expand { used_above: 80, free_below: number(words, "freeBelow=", 2) },
        reclaim: Reclaim { mode: reclaim, used_below: 40, after: Duration::from_secs(600) },
        reuse_after: Duration::from_secs(300),
        reuse_after_node_loss: Duration::from_secs(number(words, "reuseAfterNodeLoss=", 3600).into()),
    };
    Object::Pool(PoolObject {
        name: pool.name.clone(),
        uid: pool.uid.clone(),
        revision: if words.iter().any(|word| word.starts_with('@')) {
            revision(words)
        } else {
            Revision::of(1)
        },
        deleting: pool.deleting,
        finalizers: Vec::new(),
        pool: if words.contains(&"invalid") {
            Err(InvalidPool {
                findings: vec!["of no known form".to_owned()],
                reserved: Reservation {
                    name: pool.name,
                    uid: pool.uid,
                    created: pool.created,
                    cidrs: range.into_iter().collect(),
                },
            })
        } else {
            Ok(pool)
        },
        generation: 1,
        status: PoolStatus::default(),
        transitions: BTreeMap::new(),
    })
}

fn cilium_node(words: &[&str]) -> Object {
    let pod_cidrs: Vec<Cidr> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let pool: AddressSet = pod_cidrs.iter().copied().collect();
    let used = match words.iter().find_map(|word| word.strip_prefix("used=")) {
        Some("unknown") => None,
        Some(listed) if listed.contains('/') => Some(cidrs(listed).collect()),
        count => Some(pool.iter().take(count.map_or(0, |count| count.parse().unwrap())).collect()),
    };
    let mut marks: BTreeMap<IpAddr, ReleaseMark> =
        match words.iter().find_map(|word| word.strip_prefix("ping=")) {
            Some("marked") => [(PROBE_ADDRESS, ReleaseMark::Marked)].into(),
            Some(_) => [(PROBE_ADDRESS, ReleaseMark::DoNotRelease)].into(),
            None => BTreeMap::new(),
        };
    let mut pool = pool;
    for (key, mark) in [
        ("marked=", ReleaseMark::Marked),
        ("ready=", ReleaseMark::Ready),
        ("refused=", ReleaseMark::DoNotRelease),
        ("released=", ReleaseMark::Released),
    ] {
        let of_blocks = value(words, key).into_iter().flat_map(cidrs);
        marks.extend(of_blocks.flat_map(addresses).map(|address| (address, mark)));
    }
    let mut owners = BTreeMap::new();
    for block in value(words, "fenced=").into_iter().flat_map(cidrs) {
        owners.extend(addresses(block).into_iter().map(|address| (address, FENCE.to_owned())));
    }
    if let Some((address, owner)) = value(words, "owner=").and_then(|text| text.split_once(':')) {
        owners.insert(address.parse().unwrap(), owner.to_owned());
    }
    for block in value(words, "off=").into_iter().flat_map(cidrs) {
        pool.remove_cidr(block);
    }
    Object::CiliumNode(CiliumNode {
        name: words[1].into(),
        uid: format!("cn-{}{}", words[1], if words.contains(&"recreated") { "-again" } else { "" }).into(),
        revision: revision(words),
        deleting: words.contains(&"deleting"),
        addresses: own(words),
        crd: if words.contains(&"bare") {
            CrdFields { pod_cidrs, ..CrdFields::default() }
        } else {
            CrdFields { pod_cidrs, pool, owners, used, marks, ..CrdFields::default() }
        },
        pools: multi_pool::fields(words),
        operator: value(words, "manager=").map(ToOwned::to_owned),
        malformed: malformed(words, "spec.ipam.podCIDRs[9]"),
    })
}

fn claim(words: &[&str]) -> Object {
    let state = match words[4] {
        "Held" => ClaimState::Held,
        "Draining" => ClaimState::Draining(format!("cn-{}", words[2]).into()),
        "Releasing/NodeGone" => ClaimState::Releasing(Reason::NodeGone),
        "Releasing/Reclaimed" => ClaimState::Releasing(Reason::Reclaimed),
        "Releasing/Unused" => ClaimState::Releasing(Reason::Unused),
        "Cooling/NodeGone" => ClaimState::Cooling(Reason::NodeGone),
        "Cooling/Reclaimed" => ClaimState::Cooling(Reason::Reclaimed),
        other => panic!("no state: {other}"),
    };
    Object::Claim(Claim {
        cidr: words[1].parse().unwrap(),
        pool: value(words, "of=").unwrap_or("p").into(),
        node: words[2].into(),
        node_uid: words[3].into(),
        pod_ip_pool: value(words, "under=").map(Into::into),
        withheld: AddressSet::new(),
        state,
        since: Timestamp::default(),
        created_for: match value(words, "for=") {
            Some("nobody") => None,
            carrier => Some(carrier.map_or_else(|| format!("cn-{}", words[2]), ToOwned::to_owned).into()),
        },
        uid: format!("uid-{}", words[1]).into(),
        revision: revision(words),
        created: Timestamp::from_second(number(words, "created=", 0).into()).unwrap(),
        deleting: words.contains(&"deleting"),
        finalizers: match words.iter().find_map(|word| word.strip_prefix("finalizer=")) {
            Some(finalizer) => vec![finalizer.to_owned()],
            None => vec![Claim::FINALIZER.to_owned()],
        },
        drain: None,
    })
}
