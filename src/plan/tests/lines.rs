//! The objects of a cluster in lines: `pool NAME CIDR|none BLOCKSIZE [younger] [invalid] [deleting] [cordoned]
//! [draining] [reclaim=enabled|dry-run] [zone=Z] [exclude=CIDR] [communities=LIST] [maxBlocks=N] [maxAddresses=N]
//! [freeBelow=N] [reuseAfterNodeLoss=SECONDS] [sized=SIZE:PREFIX,…] [had=SIZES] [byMaxPods=HEADROOM:SMALLEST-LARGEST]
//! [@REVISION]` (it reclaims after 10 m, below 40 %), `node NAME UID
//! [created=SECOND] [zone=Z] [label=KEY=VALUE…] [has=CIDRS] [annotated=CIDRS] [alias=CIDRS] [later-than=REVISION]
//! [malformed] [own=CIDR] [deleting] [taint=KEY] [holds[=UID]] [shows=REASON] [maxPods=N] [@REVISION]`, `ciliumnode NAME
//! @REVISION [CIDR…]
//! [used=N|CIDRS|unknown] [ping=STATE] [recreated] [own=CIDR] [deleting] [malformed] [need=N] [has=CIDRS]
//! [others=CIDRS] [asked=REVISION] [operator=ERROR] (multi-pool: `mars` has the others) [agents=ADDRESS] [fenced=CIDRS]
//! [owner=ADDRESS:OWNER] [marked=CIDRS] [ready=CIDRS] [refused=CIDRS] [released=CIDRS] [off=CIDRS] [bare]
//! [manager=NAME[@SECOND]]` (one that is `bare` has no pool; of others all addresses of the CIDRs but those that are `off` are
//! in the pool, and those of `own` are the node's; claims are created for a CiliumNode that is not `recreated`), `claim
//! CIDR NODE UID STATE[/REASON] @REVISION [deleting] [finalizer=FOREIGN] [of=POOL] [for=UID] [excluded=CIDRS]`,
//! `unreadable KIND NAME [CIDR…] [of=NODE] [in=POOL] @REVISION`, `agent NODE RELEASE|none [named=NAME] [restarts=N]
//! [deleting] [ended] [unready]` (a Pod of Cilium's agent; they are all listed), or `joined …`, which is short for
//! several lines ([`written_out`]).

use super::*;
use crate::model::availability::Availability;
use crate::model::community::Community;
use crate::model::pool::{ByMaxPods, SizedNodes};
use crate::model::status::{BlockSizes, SizeCounts};
use crate::publisher::Publisher;
use crate::publisher::crd::Crd;
use crate::publisher::mode::Publishers;
use crate::publisher::multi_pool::{Bgp, MultiPool};
use crate::publisher::static_mode::{ClusterPool, Kubernetes, NodeField, Static};

pub(super) fn object(line: &str) -> Object {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[0] {
        "pool" => pool(&words),
        "node" => Object::Node(Node {
            name: words[1].into(),
            uid: words[2].into(),
            revision: Revision::of(number(&words, "@", 1).into()),
            created: Timestamp::from_second(number(&words, "created=", 0).into()).unwrap(),
            deleting: words.contains(&"deleting"),
            taints: value(&words, "taint=").map(str::to_owned).into_iter().collect(),
            labels: zone(&words)
                .map(|zone| ("zone".to_owned(), zone))
                .into_iter()
                .chain(labels(&words))
                .collect(),
            addresses: own(&words)
                .into_iter()
                .map(|address| NodeAddress { kind: AddressKind::Internal, address })
                .collect(),
            pod_cidrs: value(&words, "has=").into_iter().flat_map(cidrs).collect(),
            later_than: value(&words, "later-than=").map(|text| Revision::parse(text).unwrap()),
            malformed: malformed(&words, "spec.podCIDRs[9]"),
            annotated: annotated(&words),
            malformed_annotations: Vec::new(),
            former_mode_ignored: value(&words, "ignores=").map(Into::into),
            growth_hold: value(&words, "holds=")
                .or_else(|| words.contains(&"holds").then_some(""))
                .map(Into::into),
            max_pods: value(&words, "maxPods=").map(|text| text.parse().unwrap()),
            availability: value(&words, "shows=").and_then(|reason| {
                Availability::ALL.into_iter().find(|availability| availability.as_str() == reason)
            }),
        }),
        "unreadable" => unreadable(&words),
        "ciliumnode" => cilium_node(&words),
        "claim" => claim(&words),
        other => panic!("no object: {other}"),
    }
}

/// The lines that a line is short for: `joined NAME @REVISION [CIDR…] [WORD…]` is a node, a CiliumNode of these words,
/// and a claim of each of its CIDRs. The claims are older by ten revisions.
pub(super) fn written_out(line: &str) -> Vec<String> {
    let Some(carrier) = line.strip_prefix("joined ") else { return vec![line.to_owned()] };
    let words: Vec<&str> = carrier.split_whitespace().collect();
    let blocks = words.iter().filter_map(|word| word.parse::<Cidr>().ok());
    let claims = (revision(&words).number() - 10..).zip(blocks);
    let claims = claims.map(|(revision, block)| format!("claim {block} {} 1 Held @{revision}", words[0]));
    [format!("node {} 1", words[0]), format!("ciliumnode {carrier}")].into_iter().chain(claims).collect()
}

/// The mode in these words: `none`, or that of `cilium-config`, and those of further modes after `+`. With
/// `operator=CIDR` cilium-operator has this range.
pub(super) fn mode(text: &str) -> Mode {
    let mut parts = text.split(" + ");
    let Some(of_all) = parts.next().filter(|first| *first != "none") else {
        return Mode::Passive("of a test".to_owned());
    };
    let others = parts.map(publisher).map(|other| (other.ipam_mode(), Ok(other))).collect();
    let words: Vec<&str> = of_all.split_whitespace().collect();
    let ranges = value(&words, "operator=").map(|listed| cidrs(listed).collect()).unwrap_or_default();
    Mode::Active(Publishers::from(publisher(of_all)).beside(others, ranges))
}

/// A publisher in these words: `crd|multi-pool|cluster-pool|kubernetes [v4] [v6] [bgp] [annotate] [annotations]`. With
/// `annotate` agents read the annotations of their Nodes, with `annotations` these are written.
fn publisher(text: &str) -> Publisher {
    let words: Vec<&str> = text.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    let families = [("v4", Family::V4), ("v6", Family::V6)]
        .into_iter()
        .filter(|(word, _)| has(word))
        .map(|(_, of)| of)
        .collect();
    match words[0] {
        "crd" => Publisher::Crd(Crd { families, infrastructure: vec!["router"] }),
        "multi-pool" => Publisher::MultiPool(MultiPool {
            families,
            default_pool: "default".into(),
            bgp: if has("bgp") { Bgp::On } else { Bgp::Off },
        }),
        "cluster-pool" => Publisher::ClusterPool(Static::new(families, ClusterPool)),
        "kubernetes" => {
            let writes = if has("annotations") { NodeField::Annotations } else { NodeField::Spec };
            let of_node = Kubernetes { writes, agents_read_annotations: has("annotate") };
            Publisher::Kubernetes(Static::new(families, of_node))
        }
        other => panic!("no mode: {other}"),
    }
}

fn labels(words: &[&str]) -> impl Iterator<Item = (String, String)> {
    let labels = words.iter().filter_map(|word| word.strip_prefix("label=")?.split_once('='));
    labels.map(|(key, value)| (key.to_owned(), value.to_owned()))
}

/// The Pod of an agent.
pub(super) fn agent(line: &str) -> AgentPod {
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

pub(super) fn revision(words: &[&str]) -> Revision {
    Revision::of(value(words, "@").expect("an object has a revision").parse().unwrap())
}

/// CIDRs that are separated by commas.
pub(super) fn cidrs(listed: &str) -> impl Iterator<Item = Cidr> {
    listed.split(',').map(|text| text.parse().unwrap())
}

pub(super) fn addresses(block: Cidr) -> Vec<IpAddr> {
    AddressSet::from_iter([block]).iter().collect()
}

/// The addresses of `own=`.
fn own(words: &[&str]) -> Vec<IpAddr> {
    value(words, "own=").into_iter().flat_map(cidrs).flat_map(addresses).collect()
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
pub(super) fn value<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(key))
}

/// What could not be read of an object that is `malformed`.
pub(super) fn malformed(words: &[&str], field: &str) -> Vec<Malformed> {
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

/// `big:24`: nodes with the label `size` of this value get blocks of this prefix length.
fn sized(text: &str) -> SizedNodes {
    let (size, prefix) = text.split_once(':').unwrap();
    let selector = [("size".to_owned(), size.to_owned())].into_iter().collect();
    SizedNodes { selector, block_prefix: prefix.parse().unwrap() }
}

/// `2:28-24`: a headroom of 2, and blocks from /28 to /24.
fn by_max_pods(text: &str) -> ByMaxPods {
    let (headroom, sizes) = text.split_once(':').unwrap();
    let (smallest, largest) = sizes.split_once('-').unwrap();
    ByMaxPods {
        headroom: headroom.parse().unwrap(),
        smallest: smallest.parse().unwrap(),
        largest: largest.parse().unwrap(),
    }
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
    let cidrs = range.into_iter().map(|range| (range, state)).collect();
    let ranges = Ranges {
        sized: value(words, "sized=").into_iter().flat_map(|text| text.split(',')).map(sized).collect(),
        by_max_pods: value(words, "byMaxPods=").map(by_max_pods),
        exclude: value(words, "exclude=").map(|cidr| cidr.parse().unwrap()).into_iter().collect(),
        ..Ranges::of_blocks(words[3].parse().unwrap(), cidrs)
    };
    // The sizes that the pool had before.
    let had = value(words, "had=").into_iter().flat_map(|text| text.split(','));
    let counts = had.map(|size| (size.parse().unwrap(), SizeCounts::default())).collect();
    let sizes = [(family, BlockSizes { counts, largest_free: None })].into();
    let pool = Pool {
        name: words[1].into(),
        uid: words[1].into(),
        created: Timestamp::from_second(words.contains(&"younger").into()).unwrap(),
        deleting: words.contains(&"deleting"),
        priority: 0,
        selector: zone(words).map(|zone| ("zone".to_owned(), zone)).into_iter().collect(),
        pod_ip_pool: value(words, "under=").map(Into::into),
        families: [(family, ranges)].into(),
        first_last: if words.contains(&"inner") { FirstLast::Excluded } else { FirstLast::Offered },
        per_node: PerNode {
            initial_blocks: 1,
            max_blocks: number(words, "maxBlocks=", 4),
            max_addresses: number(words, "maxAddresses=", 1024),
        },
        expand: Expand { used_above: 80, free_below: number(words, "freeBelow=", 2) },
        reclaim: Reclaim { mode: reclaim, used_below: 40, after: Duration::from_secs(600) },
        reuse_after: Duration::from_secs(300),
        reuse_after_node_loss: Duration::from_secs(number(words, "reuseAfterNodeLoss=", 3600).into()),
        communities: value(words, "communities=")
            .into_iter()
            .flat_map(|text| text.split(','))
            .map(|text| Community::parse(text).unwrap())
            .collect(),
    };
    Object::Pool(PoolObject {
        name: pool.name.clone(),
        uid: pool.uid.clone(),
        revision: Revision::of(number(words, "@", 1).into()),
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
        status: PoolStatus { sizes, ..PoolStatus::default() },
        transitions: BTreeMap::new(),
        waits_since: BTreeMap::new(),
        history: BTreeMap::new(),
    })
}

fn cilium_node(words: &[&str]) -> Object {
    let pod_cidrs: Vec<Cidr> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let pool: AddressSet = pod_cidrs.iter().copied().collect();
    let used = match value(words, "used=") {
        Some("unknown") => None,
        Some(listed) if listed.contains('/') => Some(cidrs(listed).collect()),
        count => Some(pool.iter().take(count.map_or(0, |count| count.parse().unwrap())).collect()),
    };
    let mut marks: BTreeMap<IpAddr, ReleaseMark> = match value(words, "ping=") {
        Some("marked") => [(QUERY_ADDRESS, ReleaseMark::Marked)].into(),
        Some(_) => [(QUERY_ADDRESS, ReleaseMark::DoNotRelease)].into(),
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
    let mut owners = AddressMap::default();
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
        created: Timestamp::from_second(number(words, "created=", 0).into()).unwrap(),
        deleting: words.contains(&"deleting"),
        addresses: own(words),
        crd: if words.contains(&"bare") {
            CrdFields { pod_cidrs, ..CrdFields::default() }
        } else {
            CrdFields { pod_cidrs, pool, owners, used, marks, ..CrdFields::default() }
        },
        pools: multi_pool::fields(words),
        operator: value(words, "manager=").map(|named| {
            let (manager, at) = named.split_once('@').map_or((named, None), |(name, at)| (name, Some(at)));
            let at = at.map(|second| Timestamp::from_second(second.parse().unwrap()).unwrap());
            OperatorWrite { manager: manager.to_owned(), at }
        }),
        malformed: malformed(words, "spec.ipam.podCIDRs[9]"),
    })
}

fn claim(words: &[&str]) -> Object {
    let state = match words[4] {
        "Held" => ClaimState::Held,
        "Draining" => ClaimState::Draining(format!("cn-{}", words[2]).into()),
        "Releasing/NodeGone" => ClaimState::Releasing(Reason::NodeGone),
        "Releasing/Reclaimed" => ClaimState::Releasing(Reason::Reclaimed),
        "Cooling/Unused" => ClaimState::Cooling(Reason::Unused),
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
        excluded: value(words, "excluded=").map(|listed| cidrs(listed).collect()).unwrap_or_default(),
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
        finalizers: vec![value(words, "finalizer=").unwrap_or(Claim::FINALIZER).to_owned()],
        status: crate::model::status::ClaimStatus::default(),
    })
}
