//! Paths in the API of GoBGP 4: those that the exporter sends, and those that a list or an event shows.
//!
//! Talks to no daemon. The types are generated from the used part of GoBGP's definitions (`api.proto`); a test compares
//! them (`tests/it/gobgp_api.rs`). A path is the exporter's own if it was added by the API with the exporter's path
//! identifier.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::community::Community;
use crate::model::gobgp::{BestPath, Rib, RibPath};
use crate::net::cidr::{Cidr, Family};

#[allow(missing_docs, clippy::pedantic, reason = "it is generated from GoBGP's definitions")]
#[rustfmt::skip]
pub mod api;

use api::attribute::Attr;
use api::family::{Afi, Safi};
use api::nlri::Nlri as NlriKind;
use api::watch_event_request::table::{Filter, filter};
use api::watch_event_request::{Peer, Table};
use api::watch_event_response::Event;

/// The methods of GoBGP that the exporter calls, as gRPC names them.
pub mod method {
    /// Adds a path.
    pub const ADD_PATH: &str = "/api.GoBgpService/AddPath";
    /// Withdraws a path.
    pub const DELETE_PATH: &str = "/api.GoBgpService/DeletePath";
    /// Lists paths.
    pub const LIST_PATH: &str = "/api.GoBgpService/ListPath";
    /// Follows changes.
    pub const WATCH_EVENT: &str = "/api.GoBgpService/WatchEvent";
}

/// `IGP`: the prefixes are inside the network.
const ORIGIN_IGP: u32 = 0;

/// The identifier that marks the exporter's paths. GoBGP does not announce it, unless a peer asks for several paths per
/// prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathId(pub u32);

impl PathId {
    /// The default: a number that no other program has by chance.
    pub const DEFAULT: Self = Self(1_852_403_041);
}

/// The request that adds a path at this second of the wall clock, from which GoBGP shows its age.
#[must_use]
pub fn add(prefix: Cidr, path: &RibPath, id: PathId, second: i64) -> api::AddPathRequest {
    let mut added = path_of(prefix, path.next_hop, id);
    added.age = Some(api::Timestamp { seconds: second, nanos: 0 });
    if !path.communities.is_empty() {
        let communities = path.communities.iter().map(|community| community.number()).collect();
        added.pattrs.push(attribute(Attr::Communities(api::CommunitiesAttribute { communities })));
    }
    api::AddPathRequest { table_type: api::TableType::Global.into(), path: Some(added) }
}

/// The request that withdraws the exporter's path of a prefix. GoBGP demands a next hop there too, and ignores it.
#[must_use]
pub fn withdraw(prefix: Cidr, id: PathId) -> api::DeletePathRequest {
    let hop = match prefix.family() {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    api::DeletePathRequest {
        table_type: api::TableType::Global.into(),
        family: Some(family_of(prefix.family())),
        path: Some(path_of(prefix, hop, id)),
    }
}

/// The request that lists all paths of a family.
#[must_use]
pub fn list(family: Family) -> api::ListPathRequest {
    api::ListPathRequest { table_type: api::TableType::Global.into(), family: Some(family_of(family)) }
}

/// The request for all changes of best paths. GoBGP first shows the sessions of its peers; changes from then on are
/// events.
#[must_use]
pub fn watch() -> api::WatchEventRequest {
    let filters = vec![Filter { r#type: filter::Type::Best.into() }];
    api::WatchEventRequest { peer: Some(Peer {}), table: Some(Table { filters }) }
}

/// The best paths that an event shows, without those of peers.
#[must_use]
pub fn best_paths(event: &api::WatchEventResponse, id: PathId) -> Vec<(Cidr, BestPath)> {
    let Some(Event::Table(table)) = &event.event else { return Vec::new() };
    let local = table.paths.iter().filter(|path| path.neighbor_ip.is_empty());
    let best = |path: &api::Path| {
        if path.is_withdraw {
            BestPath::None
        } else if path.identifier == id.0 {
            BestPath::Own(read(path))
        } else {
            BestPath::Other
        }
    };
    local.filter_map(|path| Some((prefix_of(path)?, best(path)))).collect()
}

/// Enters the paths of one prefix, as a list shows them.
pub fn enter(destination: &api::Destination, id: PathId, rib: &mut Rib) {
    let local = destination.paths.iter().filter(|path| path.neighbor_ip.is_empty());
    for path in local {
        // A path of another writer whose prefix can't be that of a block does not matter.
        let Some(prefix) = prefix_of(path).or_else(|| destination.prefix.parse().ok()) else { continue };
        if path.identifier == id.0 {
            rib.own.insert(prefix, read(path));
        } else {
            rib.others.insert(prefix);
        }
    }
}

fn family_of(family: Family) -> api::Family {
    let afi = match family {
        Family::V4 => Afi::Ip,
        Family::V6 => Afi::Ip6,
    };
    api::Family { afi: afi.into(), safi: Safi::Unicast.into() }
}

fn nlri_of(prefix: Cidr) -> api::Nlri {
    let prefix = api::IpAddressPrefix {
        prefix_len: prefix.prefix_len().into(),
        prefix: prefix.first_address().to_string(),
    };
    api::Nlri { nlri: Some(NlriKind::Prefix(prefix)) }
}

fn attribute(attr: Attr) -> api::Attribute {
    api::Attribute { attr: Some(attr) }
}

fn path_of(prefix: Cidr, hop: IpAddr, id: PathId) -> api::Path {
    let hop = match prefix.family() {
        Family::V4 => Attr::NextHop(api::NextHopAttribute { next_hop: hop.to_string() }),
        Family::V6 => Attr::MpReach(api::MpReachNlriAttribute {
            family: Some(family_of(prefix.family())),
            next_hops: vec![hop.to_string()],
            nlris: vec![nlri_of(prefix)],
        }),
    };
    let origin = Attr::Origin(api::OriginAttribute { origin: ORIGIN_IGP });
    api::Path {
        nlri: Some(nlri_of(prefix)),
        pattrs: vec![attribute(origin), attribute(hop)],
        family: Some(family_of(prefix.family())),
        identifier: id.0,
        ..api::Path::default()
    }
}

fn prefix_of(path: &api::Path) -> Option<Cidr> {
    let Some(NlriKind::Prefix(prefix)) = path.nlri.as_ref()?.nlri.as_ref() else { return None };
    Cidr::containing(prefix.prefix.parse().ok()?, prefix.prefix_len.try_into().ok()?)
}

fn read(path: &api::Path) -> Result<RibPath, String> {
    let attributes = || path.pattrs.iter().filter_map(|attribute| attribute.attr.as_ref());
    let hops: Vec<&String> = attributes()
        .flat_map(|attr| match attr {
            Attr::NextHop(hop) => vec![&hop.next_hop],
            Attr::MpReach(reach) => reach.next_hops.iter().collect(),
            Attr::Origin(_) | Attr::Communities(_) => Vec::new(),
        })
        .collect();
    let [hop] = hops[..] else { return Err(format!("it has {} next hops", hops.len())) };
    let next_hop = hop.parse().map_err(|_| format!("its next hop is `{hop}`"))?;
    let communities = attributes().flat_map(|attr| match attr {
        Attr::Communities(found) => found.communities.clone(),
        Attr::NextHop(_) | Attr::MpReach(_) | Attr::Origin(_) => Vec::new(),
    });
    Ok(RibPath { next_hop, communities: communities.map(Community::of_number).collect() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ID: PathId = PathId(7);

    fn listed(paths: Vec<api::Path>) -> Rib {
        let mut rib = Rib::default();
        enter(&api::Destination { prefix: "10.0.0.0/26".to_owned(), paths }, ID, &mut rib);
        rib
    }

    #[test]
    fn a_path_is_read_as_it_was_sent() {
        for (prefix, hop) in [("10.0.0.0/26", "192.0.2.1"), ("fd00:1::/120", "fd00::1")] {
            let communities: BTreeSet<_> = Community::parse("64512:100").into_iter().collect();
            let path = RibPath { next_hop: hop.parse().unwrap(), communities };
            let prefix: Cidr = prefix.parse().unwrap();
            let sent = add(prefix, &path, ID, 5).path.unwrap();
            let rib = listed(vec![sent]);
            assert_eq!(rib, Rib { own: [(prefix, Ok(path))].into(), others: BTreeSet::new() });
        }
    }

    #[test]
    fn paths_of_other_writers_are_told_apart_and_those_of_peers_do_not_count() {
        let sent = |id| path_of("10.0.0.0/26".parse().unwrap(), "192.0.2.1".parse().unwrap(), id);
        let of_peer = api::Path { neighbor_ip: "192.0.2.9".to_owned(), ..sent(ID) };
        assert_eq!(listed(vec![of_peer]), Rib::default());
        let rib = listed(vec![sent(PathId(0))]);
        assert!(rib.own.is_empty() && rib.others.len() == 1, "{rib:?}");
    }

    #[test]
    fn events_show_whose_path_is_the_best_one() {
        let sent = |id| path_of("10.0.0.0/26".parse().unwrap(), "192.0.2.1".parse().unwrap(), id);
        let of_peer = api::Path { neighbor_ip: "192.0.2.9".to_owned(), ..sent(ID) };
        let withdrawn = api::Path { is_withdraw: true, ..sent(ID) };
        let paths = vec![sent(ID), of_peer, sent(PathId(0)), withdrawn];
        let event = api::WatchEventResponse {
            event: Some(Event::Table(api::watch_event_response::TableEvent { paths })),
        };
        let best: Vec<BestPath> = best_paths(&event, ID).into_iter().map(|(_, best)| best).collect();
        let own = RibPath { next_hop: "192.0.2.1".parse().unwrap(), communities: BTreeSet::new() };
        assert_eq!(best, [BestPath::Own(Ok(own)), BestPath::Other, BestPath::None]);
        assert_eq!(best_paths(&api::WatchEventResponse::default(), ID), []);
    }

    #[test]
    fn an_own_path_without_one_next_hop_is_known_as_one_that_is_wrong() {
        let mut path = path_of("10.0.0.0/26".parse().unwrap(), "192.0.2.1".parse().unwrap(), ID);
        path.pattrs.clear();
        let rib = listed(vec![path]);
        assert!(rib.own.values().all(Result::is_err) && rib.own.len() == 1, "{rib:?}");
    }
}
