//! How blocks leave a CiliumNode whose agent runs. They are fenced, the agent releases each address, and only then
//! they are removed (`docs/cilium.md`, Owners, Release handshake).
//!
//! The CiliumNode alone shows the next step for a block, so every replica that reads it can continue. Keeps one
//! invariant: an address is removed from `pool` only in a version in which the agent's own answer releases it and
//! nothing uses it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::handshake::QUERY_ADDRESS;
use crate::model::carrier::CarrierChange;
use crate::model::claim::Claim;
use crate::model::crd::{CrdChange, CrdFields, FENCE, MarkChange, ReleaseMark};
use crate::model::node::CiliumNode;
use crate::model::request::{Withdrawal, WithdrawalStep};
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::publisher::answer::{Drain, Leaving, Stays};

/// Why a published block can't start draining; `Ok` if it can.
pub(super) fn may_leave(fields: &CrdFields, claim: &Claim) -> Result<(), Stays> {
    must_stay(fields, claim)?;
    // The block would be closed for the life of the node, and no other block of the node would leave meanwhile.
    if let Some((address, purpose)) = fields.own.entries_in(claim.cidr).next() {
        return Err(Stays::AgentsOwnUntilRejoin(address, purpose));
    }
    if let Some((address, _)) = claim.cidr.entries_in(&fields.marks).next() {
        return Err(Stays::Marked(*address));
    }
    Ok(())
}

/// Why a block stays on its CiliumNode even if its agent would release it.
fn must_stay(fields: &CrdFields, claim: &Claim) -> Result<(), Stays> {
    let cidr = claim.cidr;
    let primary = fields.pod_cidrs.iter().find(|listed| listed.family() == cidr.family());
    if primary == Some(&cidr) {
        return Err(Stays::Primary);
    }
    let entries = fields.pool.within(cidr);
    if !fields.pod_cidrs.contains(&cidr) || entries != claim.offered() {
        return Err(Stays::Incomplete);
    }
    if let Some((address, owner)) = fields.owners.entries_in(cidr).find(|(_, owner)| *owner != FENCE) {
        return Err(Stays::Owned(address, owner.clone()));
    }
    if fields.pool.len() - entries.len() < u128::from(fields.min_allocate) {
        return Err(Stays::MinAllocate(fields.min_allocate));
    }
    Ok(())
}

/// The progress of a block whose claim is Draining.
pub(super) fn drain(fields: &CrdFields, claim: &Claim) -> Drain {
    if let Err(stays) = must_stay(fields, claim) {
        return Drain::Stays(stays);
    }
    let entries = fields.pool.within(claim.cidr);
    let used = fields.used.as_ref().map(|used| used.within(claim.cidr)).unwrap_or_default();
    let marks: BTreeMap<IpAddr, ReleaseMark> =
        claim.cidr.entries_in(&fields.marks).map(|(address, mark)| (*address, *mark)).collect();
    let is_fenced = entries.iter().all(|address| fields.is_fenced(address));
    let Some((first, _)) = marks.first_key_value() else {
        return if is_fenced { Drain::Closed(used) } else { Drain::Open };
    };
    if let Some((address, _)) = marks.iter().find(|(_, mark)| **mark == ReleaseMark::DoNotRelease) {
        return Drain::Stays(Stays::Refused(*address));
    }
    let is_ours =
        |address: IpAddr| matches!(marks.get(&address), Some(ReleaseMark::Marked | ReleaseMark::Ready));
    if !is_fenced || marks.len() as u128 != entries.len() || !entries.iter().all(is_ours) {
        return Drain::Stays(Stays::Marked(*first));
    }
    if let Some(address) = used.iter().next() {
        return Drain::Stays(Stays::Used(address));
    }
    if marks.values().all(|mark| *mark == ReleaseMark::Ready) { Drain::Consented } else { Drain::Asked }
}

/// The progress of a block whose claim is Releasing because its agent has released it.
pub(super) fn leaving(cilium_node: &CiliumNode, claim: &Claim) -> Leaving {
    match shown(&cilium_node.crd, claim) {
        Leaving::NoConsent if cilium_node.revision <= claim.revision => Leaving::NotSeen,
        shown => shown,
    }
}

fn shown(fields: &CrdFields, claim: &Claim) -> Leaving {
    let entries = fields.pool.within(claim.cidr);
    let mut marks = claim.cidr.entries_in(&fields.marks).map(|(_, mark)| *mark).peekable();
    let is_used = fields.used.as_ref().is_some_and(|used| used.intersects(claim.cidr));
    let is_listed = fields.pod_cidrs.contains(&claim.cidr);
    // A restored store may show the block as absent while its agent keeps using it.
    if entries.is_empty() && !is_listed && !is_used {
        return if marks.peek().is_none() {
            Leaving::Off
        } else if marks.all(|mark| mark == ReleaseMark::Released) {
            Leaving::Confirmed
        } else {
            Leaving::LeftOver
        };
    }
    let consents = |address: IpAddr| {
        fields.is_fenced(address)
            && matches!(fields.marks.get(&address), Some(ReleaseMark::Ready | ReleaseMark::Released))
    };
    if is_used || !entries.iter().all(consents) {
        return Leaving::NoConsent;
    }
    let is_released = |address: IpAddr| fields.marks.get(&address) == Some(&ReleaseMark::Released);
    if entries.iter().all(is_released) { Leaving::Removable } else { Leaving::Consented }
}

/// The addresses of a block whose marks the agent will not remove by itself. The block stays, or is removed already.
pub(super) fn stale_marks(fields: &CrdFields, cidr: Cidr) -> impl Iterator<Item = IpAddr> + '_ {
    let is_stale = |address: IpAddr, mark: ReleaseMark| {
        // The agent removes a released one that has left the pool.
        mark != ReleaseMark::Released || fields.pool.contains(address)
    };
    cidr.entries_in(&fields.marks)
        .filter(move |(address, mark)| is_stale(**address, **mark))
        .map(|(address, _)| *address)
}

/// The write of a step for these blocks; `None` where it would change nothing.
pub(super) fn step(cilium_node: &CiliumNode, step: WithdrawalStep, blocks: &[Cidr]) -> Option<Withdrawal> {
    let fields = &cilium_node.crd;
    let entries = || -> AddressSet {
        let mut entries = AddressSet::new();
        for block in blocks {
            entries.extend_with(&fields.pool.within(*block));
        }
        entries
    };
    let change = match step {
        WithdrawalStep::Fence => {
            let open = entries().iter().filter(|address| !fields.is_fenced(*address)).collect();
            CrdChange::Fence(open)
        }
        WithdrawalStep::Mark => {
            let asked = entries();
            let question = fields.marks.contains_key(&QUERY_ADDRESS).then_some(QUERY_ADDRESS);
            let mut marks: BTreeMap<IpAddr, MarkChange> =
                asked.iter().map(|address| (address, MarkChange::Ask)).collect();
            // The query is answered, and the answer has served its purpose.
            marks.extend(question.map(|address| (address, MarkChange::Remove)));
            CrdChange::Marks(marks)
        }
        WithdrawalStep::Confirm => {
            let of_blocks = blocks.iter().flat_map(|block| block.entries_in(&fields.marks));
            let ready = of_blocks.filter(|(_, mark)| **mark == ReleaseMark::Ready);
            CrdChange::Marks(ready.map(|(address, _)| (*address, MarkChange::Release)).collect())
        }
        WithdrawalStep::Remove => CrdChange::Remove {
            pod_cidrs: fields.pod_cidrs.iter().copied().filter(|cidr| !blocks.contains(cidr)).collect(),
            blocks: blocks.to_vec(),
            entries: entries(),
        },
        WithdrawalStep::Clear => {
            let stale = blocks.iter().flat_map(|block| stale_marks(fields, *block));
            CrdChange::Marks(stale.map(|address| (address, MarkChange::Remove)).collect())
        }
    };
    if change.is_shown_by(fields, &[]) {
        return None;
    }
    Some(Withdrawal {
        node: cilium_node.name.clone(),
        uid: cilium_node.uid.clone(),
        revision: cilium_node.revision.into(),
        step,
        blocks: blocks.to_vec(),
        change: CarrierChange::Crd(change),
    })
}

/// Whether an address of this CiliumNode is being released: it has any mark except that of a usage query.
pub(super) fn is_in_handshake(fields: &CrdFields) -> bool {
    fields.marks.keys().any(|address| *address != QUERY_ADDRESS)
}

#[cfg(test)]
mod tests {
    use super::super::projection;
    use super::*;
    use crate::net::address_map::AddressMap;

    const BLOCK: &str = "10.0.0.8/30";

    fn claim() -> Claim {
        Claim { excluded: AddressSet::new(), ..projection::tests::claim(BLOCK, 0) }
    }

    /// The fields of a CiliumNode with a primary block and the block of the claim: `fence=` and a number of its
    /// entries, `owner=` of its first, `own=` if that is the agent's, `used=` and a number, `marks=` and a letter per
    /// entry (Marked, Ready, Do-not-release, reLeased), `off` where it has left the pool.
    fn fields(text: &str) -> CrdFields {
        let block: Cidr = BLOCK.parse().unwrap();
        let primary: Cidr = "10.0.0.0/30".parse().unwrap();
        let addresses: Vec<IpAddr> = AddressSet::from_iter([block]).iter().collect();
        let value = |key: &str| text.split_whitespace().find_map(|word| word.strip_prefix(key));
        let count = |key: &str| value(key).map_or(0, |count| count.parse().unwrap());
        let is_off = text.contains("off");
        let mut owners: AddressMap<String> =
            addresses.iter().take(count("fence=")).map(|address| (*address, FENCE.to_owned())).collect();
        owners.extend(value("owner=").map(|owner| (addresses[0], owner.to_owned())));
        let marks = value("marks=").unwrap_or_default().chars().map(|letter| match letter {
            'M' => ReleaseMark::Marked,
            'R' => ReleaseMark::Ready,
            'D' => ReleaseMark::DoNotRelease,
            'L' => ReleaseMark::Released,
            _ => ReleaseMark::Unknown,
        });
        CrdFields {
            pod_cidrs: [primary].into_iter().chain((!is_off).then_some(block)).collect(),
            pool: [primary].into_iter().chain((!is_off).then_some(block)).collect(),
            owners,
            min_allocate: u32::try_from(count("min=")).unwrap(),
            used: Some(addresses.iter().copied().take(count("used=")).collect()),
            own: addresses.iter().copied().zip(value("own=").map(|_| "router")).collect(),
            marks: addresses.iter().copied().zip(marks).collect(),
        }
    }

    #[test]
    fn a_block_that_drains_tells_its_next_step() {
        for (text, expected) in [
            ("", "open"),
            ("fence=3", "open"),
            ("used=2", "open"),
            ("fence=4", "closed, 0 used"),
            ("fence=4 used=2", "closed, 2 used"),
            ("fence=4 marks=MMMM", "asked"),
            ("fence=4 marks=RRRM", "asked"),
            ("fence=4 marks=RRRR", "consented"),
            ("fence=4 marks=RRRR used=1", "10.0.0.8 is in use"),
            ("fence=4 marks=RDRR", "the agent keeps 10.0.0.9"),
            ("fence=4 marks=MMM", "10.0.0.8 has a release mark of another drain"),
            ("fence=4 marks=RRRL", "10.0.0.8 has a release mark of another drain"),
            ("fence=4 marks=RRR?", "10.0.0.8 has a release mark of another drain"),
            ("fence=3 marks=RRRR", "10.0.0.8 has a release mark of another drain"),
            ("fence=4 owner=ns/pod", "10.0.0.8 is reserved for ns/pod"),
            ("fence=4 min=5", "spec.ipam.min-allocate is 5, and the node would have fewer addresses"),
            ("off", "the CiliumNode does not match its claim"),
        ] {
            let found = match drain(&fields(text), &claim()) {
                Drain::Open => "open".to_owned(),
                Drain::Closed(used) => format!("closed, {} used", used.len()),
                Drain::Asked => "asked".to_owned(),
                Drain::Consented => "consented".to_owned(),
                Drain::Stays(stays) => stays.to_string(),
            };
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn a_block_that_leaves_tells_its_next_step() {
        for (text, expected) in [
            ("fence=4 marks=RRRR", Leaving::Consented),
            ("fence=4 marks=RLRR", Leaving::Consented),
            ("fence=4 marks=LLLL", Leaving::Removable),
            ("fence=4 marks=LLLL used=1", Leaving::NoConsent),
            ("fence=4 marks=RRRM", Leaving::NoConsent),
            ("fence=4 marks=RRRD", Leaving::NoConsent),
            ("fence=4 marks=RRR", Leaving::NoConsent),
            ("fence=3 marks=RRRR", Leaving::NoConsent),
            ("fence=4 marks=RRRR owner=ns/pod", Leaving::NoConsent),
            ("off marks=LLLL", Leaving::Confirmed),
            ("off marks=LL", Leaving::Confirmed),
            ("off marks=LRLL", Leaving::LeftOver),
            ("off", Leaving::Off),
            ("off used=1", Leaving::NoConsent),
        ] {
            assert_eq!(shown(&fields(text), &claim()), expected, "{text}");
        }
    }

    #[test]
    fn some_blocks_never_begin_to_leave() {
        let shown = |text: &str| match may_leave(&fields(text), &claim()) {
            Ok(()) => "may leave".to_owned(),
            Err(stays) => stays.to_string(),
        };
        assert_eq!(shown("used=3"), "may leave");
        assert_eq!(shown("fence=2"), "may leave");
        assert_eq!(shown("marks=D"), "10.0.0.8 has a release mark of another drain");
        assert_eq!(shown("owner=router"), "10.0.0.8 is reserved for router");
        assert_eq!(
            shown("used=3 own=1"),
            "the agent uses 10.0.0.8 for its router until the node rejoins, with a reboot: cilium-node-ipam migrate \
             rejoin NODE"
        );
        let primary = CrdFields { pod_cidrs: vec![claim().cidr], ..fields("") };
        assert_eq!(may_leave(&primary, &claim()), Err(Stays::Primary));
        let mut lacks_one = fields("");
        lacks_one.pool.remove("10.0.0.9".parse().unwrap());
        assert_eq!(may_leave(&lacks_one, &claim()), Err(Stays::Incomplete));
    }

    #[test]
    fn marks_of_blocks_that_stay_are_stale_and_released_ones_that_left_are_the_agents() {
        let stale = |text: &str| stale_marks(&fields(text), claim().cidr).count();
        assert_eq!(stale("marks=MRDL"), 4);
        assert_eq!(stale("off marks=MRDL"), 3);
    }
}
