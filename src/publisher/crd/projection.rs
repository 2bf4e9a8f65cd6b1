//! The projection of a node's claims onto its CiliumNode: the additions of a patch (safety rule 5).
//!
//! It is the difference to one version of the CiliumNode, so every replica can compute it at any time. It only ever
//! adds: an address leaves `pool` only through the release handshake. Which claims may be published is decided in
//! `crate::plan`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::handshake::in_handshake;
use crate::model::carrier::CarrierChange;
use crate::model::claim::Claim;
use crate::model::crd::{CrdChange, CrdFields, FENCE, FormerCrd};
use crate::model::node::CiliumNode;
use crate::model::request::Publication;
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

/// The additions after which `cilium_node` shows all of `claims`; `None` if it already does.
///
/// `former` has the content of the CiliumNode before this one, if this process saw it. The agent still uses the
/// addresses and the order of that one, so the new one gets both again.
///
/// `podCIDRs` keeps its order and only grows at its last place, because the datapath uses the first CIDR of each
/// family as the primary one. A family without a CIDR gets its primary block now.
///
/// The lowest addresses of that block are reserved for the agent itself. So they are never in a block that leaves the
/// node later (`docs/cilium.md`, Owners). For the same reason claims that `is_draining` names come last.
#[must_use]
pub(super) fn difference(
    cilium_node: &CiliumNode,
    claims: &[&Claim],
    is_draining: &dyn Fn(&Claim) -> bool,
    infrastructure: &[&'static str],
    former: Option<&FormerCrd>,
) -> Option<Publication> {
    let fields = &cilium_node.crd;
    let mut ordered = claims.to_vec();
    ordered.sort_by_key(|claim| (is_draining(claim), publishing_order(claim, former)));

    let added: Vec<Cidr> =
        ordered.iter().map(|claim| claim.cidr).filter(|cidr| !fields.pod_cidrs.contains(cidr)).collect();
    let mut entries = BTreeMap::new();
    for claim in &ordered {
        entries.extend(missing_entries(fields, claim).iter().map(|address| (address, None)));
    }
    let unfenced: AddressSet = ordered
        .iter()
        .flat_map(|claim| fields.owners.entries_in(claim.cidr))
        .filter(|(address, owner)| *owner == FENCE && fields.pool.contains(*address))
        .map(|(address, _)| address)
        .collect();
    if added.is_empty() && entries.is_empty() && unfenced.is_empty() {
        return None;
    }
    for family in Family::ALL {
        let has_primary = fields.pod_cidrs.iter().any(|cidr| cidr.family() == family);
        let primary = ordered.iter().find(|claim| claim.cidr.family() == family);
        // If the claim was not created for this CiliumNode, an earlier one may have carried its block, and the
        // addresses may be in use.
        if let (false, Some(primary)) = (has_primary, primary)
            && primary.created_for.as_ref() == Some(&cilium_node.uid)
            && !may_have_addresses(cilium_node, primary.cidr)
            && former.is_none_or(|former| former.pod_cidrs.iter().all(|cidr| !cidr.overlaps(primary.cidr)))
        {
            reserve_for_infrastructure(primary.cidr, infrastructure, &mut entries);
        } else {
            restore_owners(family, former, infrastructure, &mut entries);
        }
    }
    let mut pod_cidrs = fields.pod_cidrs.clone();
    pod_cidrs.extend(&added);
    let lacked_entries =
        |claim: &&&Claim| claim.cidr.entries_in(&entries).next().is_some() || unfenced.intersects(claim.cidr);
    let completed = ordered.iter().filter(lacked_entries).map(|claim| claim.cidr);
    Some(Publication {
        node: cilium_node.name.clone(),
        uid: cilium_node.uid.clone(),
        revision: cilium_node.revision.into(),
        completed: completed.filter(|cidr| !added.contains(cidr)).collect(),
        n_addresses: entries.len() + usize::try_from(unfenced.len()).unwrap_or(usize::MAX),
        added,
        change: CarrierChange::Crd(CrdChange::Blocks { pod_cidrs, entries, unfenced }),
    })
}

/// The order in which claims are appended: first those of the former CiliumNode in its order, then the oldest. So the
/// claims alone can restore the order if the CiliumNode was lost.
fn publishing_order(claim: &Claim, former: Option<&FormerCrd>) -> (usize, Timestamp, Cidr) {
    let place = former.and_then(|former| former.pod_cidrs.iter().position(|cidr| claim.cidr == *cidr));
    (place.unwrap_or(usize::MAX), claim.created, claim.cidr)
}

/// The addresses that the claim offers and `pool` lacks. An address in a release handshake is not added: as long as its
/// mark is there, the agent would not give it to a pod anyway (`docs/cilium.md`, Release handshake).
fn missing_entries(fields: &CrdFields, claim: &Claim) -> AddressSet {
    let mut missing = claim.offered();
    missing.remove_all(&fields.pool.within(claim.cidr));
    for address in in_handshake(fields, claim.cidr) {
        missing.remove(address);
    }
    missing
}

/// Whether the agent has addresses of its own in the family of a block, or uses addresses of the block. Another writer
/// may have emptied the CiliumNode since. A reserved address that a pod has would be given out twice.
fn may_have_addresses(cilium_node: &CiliumNode, block: Cidr) -> bool {
    let own = cilium_node.crd.own.iter().chain(cilium_node.pools.own.iter());
    let mut families = own.map(|(address, _)| Family::of(address));
    families.any(|family| family == block.family())
        || cilium_node.crd.used.as_ref().is_some_and(|used| used.intersects(block))
}

/// Gives an owner to each of the lowest new entries of the primary block. Only new entries get an owner: an address
/// that was in `pool` before may be in use. The agent gives an owned address to its owner without checking that.
fn reserve_for_infrastructure(
    primary: Cidr,
    infrastructure: &[&'static str],
    entries: &mut BTreeMap<IpAddr, Option<&'static str>>,
) {
    let within = primary.entries_in(entries).map(|(address, _)| *address);
    let lowest: Vec<IpAddr> = within.take(infrastructure.len()).collect();
    for (address, kept_for) in lowest.into_iter().zip(infrastructure) {
        entries.insert(address, Some(kept_for));
    }
}

/// Gives new entries of a family the owners that they had on the former CiliumNode.
fn restore_owners(
    family: Family,
    former: Option<&FormerCrd>,
    infrastructure: &[&'static str],
    entries: &mut BTreeMap<IpAddr, Option<&'static str>>,
) {
    let owners = former.into_iter().flat_map(|former| former.owners.iter());
    for (address, owner) in owners.filter(|(address, _)| Family::of(*address) == family) {
        if let Some(entry) = entries.get_mut(&address) {
            *entry = infrastructure.iter().copied().find(|kept_for| kept_for == owner);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::claim::ClaimState;
    use crate::model::multi_pool::PoolsFields;
    use crate::model::revision::Revision;

    /// A claim that does not offer the first address of its block.
    pub(in super::super) fn claim(cidr: &str, created: i64) -> Claim {
        let cidr: Cidr = cidr.parse().unwrap();
        Claim {
            cidr,
            pool: "p".into(),
            node: "n".into(),
            node_uid: "nu".into(),
            pod_ip_pool: None,
            excluded: [cidr.first_address()].into_iter().collect(),
            state: ClaimState::Held,
            since: Timestamp::default(),
            created_for: Some("u".into()),
            uid: "cu".into(),
            revision: Revision::of(1),
            created: Timestamp::from_second(created).unwrap(),
            deleting: false,
            finalizers: Vec::new(),
            status: crate::model::status::ClaimStatus::default(),
        }
    }

    fn cilium_node(pod_cidrs: &[&str], pool: &[&str]) -> CiliumNode {
        CiliumNode {
            name: "n".into(),
            uid: "u".into(),
            revision: Revision::of(7),
            created: Timestamp::default(),
            deleting: false,
            addresses: Vec::new(),
            crd: CrdFields {
                pod_cidrs: pod_cidrs.iter().map(|text| text.parse().unwrap()).collect(),
                pool: pool.iter().map(|text| text.parse::<IpAddr>().unwrap()).collect(),
                ..CrdFields::default()
            },
            pools: PoolsFields::default(),
            operator: None,
            malformed: Vec::new(),
        }
    }

    fn check(cilium_node: &CiliumNode, claims: &[Claim], expected: &str) {
        check_after(None, cilium_node, claims, expected);
    }

    fn check_after(former: Option<&FormerCrd>, cilium_node: &CiliumNode, claims: &[Claim], expected: &str) {
        let claims: Vec<&Claim> = claims.iter().collect();
        // The pool of draining blocks in these tests.
        let is_draining = |claim: &Claim| claim.pool.as_str() == "draining";
        let shown = difference(cilium_node, &claims, &is_draining, &["router", "health"], former).map_or(
            "nothing".to_owned(),
            |publication| {
                let CarrierChange::Crd(CrdChange::Blocks { pod_cidrs, entries, unfenced }) =
                    publication.change
                else {
                    unreachable!()
                };
                let cidrs: Vec<String> = pod_cidrs.iter().map(ToString::to_string).collect();
                let entries: Vec<String> = entries
                    .iter()
                    .map(|(address, owner)| {
                        owner.map_or(address.to_string(), |owner| format!("{address}={owner}"))
                    })
                    .collect();
                let unfenced: Vec<String> = unfenced.iter().map(|address| format!("-{address}")).collect();
                format!("{} | {}", cidrs.join(" "), [entries, unfenced].concat().join(" "))
            },
        );
        assert_eq!(shown, expected);
    }

    #[test]
    fn first_blocks_come_with_addresses_kept_for_the_agent() {
        check(
            &cilium_node(&[], &[]),
            &[claim("10.0.0.4/30", 1), claim("fd00::8/126", 1)],
            "10.0.0.4/30 fd00::8/126 | 10.0.0.5=router 10.0.0.6=health 10.0.0.7 fd00::9=router fd00::a=health fd00::b",
        );
    }

    #[test]
    fn growth_appends_and_keeps_nothing() {
        check(
            &cilium_node(&["10.0.0.4/30"], &["10.0.0.5", "10.0.0.6", "10.0.0.7"]),
            &[claim("10.0.0.4/30", 1), claim("10.0.0.0/30", 2)],
            "10.0.0.4/30 10.0.0.0/30 | 10.0.0.1 10.0.0.2 10.0.0.3",
        );
    }

    #[test]
    fn an_equal_projection_writes_nothing() {
        check(
            &cilium_node(&["10.0.0.4/30"], &["10.0.0.5", "10.0.0.6", "10.0.0.7"]),
            &[claim("10.0.0.4/30", 1)],
            "nothing",
        );
    }

    #[test]
    fn what_is_not_ours_stays_where_it_is() {
        check(
            &cilium_node(&["192.168.0.0/24"], &["192.168.0.9"]),
            &[claim("10.0.0.4/30", 1)],
            "192.168.0.0/24 10.0.0.4/30 | 10.0.0.5 10.0.0.6 10.0.0.7",
        );
    }

    #[test]
    fn the_oldest_claim_is_the_primary_one_again() {
        check(
            &cilium_node(&[], &[]),
            &[claim("10.0.0.0/30", 2), claim("10.0.0.4/30", 1)],
            "10.0.0.4/30 10.0.0.0/30 | 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.5=router 10.0.0.6=health 10.0.0.7",
        );
    }

    #[test]
    fn a_recreated_ciliumnode_shows_what_the_one_before_did() {
        let former = FormerCrd {
            pod_cidrs: vec!["10.0.0.4/30".parse().unwrap(), "10.0.0.0/30".parse().unwrap()],
            owners: [("10.0.0.6".parse().unwrap(), "router".to_owned())].into_iter().collect(),
        };
        check_after(
            Some(&former),
            &cilium_node(&[], &[]),
            &[claim("10.0.0.0/30", 0), claim("10.0.0.4/30", 0)],
            "10.0.0.4/30 10.0.0.0/30 | 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.5 10.0.0.6=router 10.0.0.7",
        );
    }

    /// A machine that booted anew takes its addresses by their owners, so the draining block has none.
    #[test]
    fn a_new_primary_block_comes_before_a_draining_one_that_the_former_ciliumnode_had() {
        let former = FormerCrd {
            pod_cidrs: vec!["10.0.0.4/30".parse().unwrap()],
            owners: [("10.0.0.6".parse().unwrap(), "router".to_owned())].into_iter().collect(),
        };
        let draining = Claim { pool: "draining".into(), ..claim("10.0.0.4/30", 0) };
        for former in [None, Some(&former)] {
            check_after(
                former,
                &cilium_node(&[], &[]),
                &[draining.clone(), claim("10.0.0.0/30", 9)],
                "10.0.0.0/30 10.0.0.4/30 | \
                 10.0.0.1=router 10.0.0.2=health 10.0.0.3 10.0.0.5 10.0.0.6 10.0.0.7",
            );
        }
    }

    #[test]
    fn a_block_that_stays_after_all_loses_its_fence_and_no_other_owner() {
        let mut fenced = cilium_node(&["10.0.0.4/30"], &["10.0.0.5", "10.0.0.6", "10.0.0.7"]);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let owner = |text, owner: &str| (address(text), owner.to_owned());
        fenced.crd.owners = [owner("10.0.0.5", FENCE), owner("10.0.0.6", "ns/pod"), owner("10.0.0.7", FENCE)]
            .into_iter()
            .collect();
        check(&fenced, &[claim("10.0.0.4/30", 1)], "10.0.0.4/30 | -10.0.0.5 -10.0.0.7");
        // That of a block of which nothing may be published stays.
        check(&fenced, &[], "nothing");
    }

    /// Another writer has emptied the CiliumNode.
    #[test]
    fn nothing_is_kept_in_a_block_that_the_agent_may_use() {
        let plain = "10.0.0.4/30 | 10.0.0.5 10.0.0.6 10.0.0.7";
        let claims = [claim("10.0.0.4/30", 0)];
        let mut used = cilium_node(&[], &[]);
        used.crd.used = Some(["10.0.0.5/32".parse::<Cidr>().unwrap()].into_iter().collect());
        check(&used, &claims, plain);
        // The router may be in another block, and an agent has one router of each family.
        let mut with_router = cilium_node(&[], &[]);
        with_router.pools.own.insert("10.9.0.1".parse().unwrap(), "router");
        check(&with_router, &claims, plain);
        let mut of_other_family = cilium_node(&[], &[]);
        of_other_family.pools.own.insert("fd00::1".parse().unwrap(), "router");
        check(&of_other_family, &claims, "10.0.0.4/30 | 10.0.0.5=router 10.0.0.6=health 10.0.0.7");
    }

    #[test]
    fn nothing_is_kept_in_blocks_that_a_running_agent_may_know() {
        for created_for in [None, Some("another".into())] {
            let claim = Claim { created_for, ..claim("10.0.0.4/30", 0) };
            check(&cilium_node(&[], &[]), &[claim], "10.0.0.4/30 | 10.0.0.5 10.0.0.6 10.0.0.7");
        }
    }
}
