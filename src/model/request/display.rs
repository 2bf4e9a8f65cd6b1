//! Requests in words: one line for a person, as `run --dry-run` prints it.

use std::fmt;

use super::{ClaimChange, QueryStep, Read, Request, WithdrawalStep, Write};
use crate::model::counted::counted;
use crate::model::status::ClaimStatus;

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(read) => fmt::Display::fmt(read, f),
            Self::Write(write) => fmt::Display::fmt(write, f),
        }
    }
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimsOf(node) => write!(f, "read the claims of node {node}"),
            Self::PodsOf(node, _) => write!(f, "read the pods of node {node}"),
            Self::Claim(cidr, node) => write!(f, "read the claim of {cidr} of node {node}"),
            Self::CiliumNode(node) => write!(f, "read CiliumNode {node}"),
            Self::Node(node, _) => write!(f, "read Node {node}"),
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateClaim(claim) => {
                write!(f, "claim {} of pool {} for node {}", claim.cidr, claim.pool, claim.node)?;
                claim.pod_ip_pool.as_ref().map_or(Ok(()), |name| write!(f, " under {name}"))
            }
            Self::Publish(publication) => {
                let added: Vec<String> = publication.added.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "publish [{}] and {} on {} {}",
                    added.join(" "),
                    counted(publication.n_addresses, "address"),
                    self.target().word(),
                    publication.node
                )
            }
            Self::UpdateClaim(update) => {
                let (cidr, node) = (update.cidr, &update.node);
                match &update.change {
                    ClaimChange::Hold(_) => write!(f, "hold {cidr} for node {node} again"),
                    ClaimChange::Keep => {
                        write!(f, "restore the finalizer of the claim of {cidr} of node {node}")
                    }
                    ClaimChange::Drain(_) => write!(f, "drain {cidr} of node {node}"),
                    ClaimChange::Release(reason) => {
                        write!(f, "release {cidr} of node {node} ({reason})")
                    }
                    ClaimChange::Cool => write!(f, "cool {cidr} of node {node}"),
                    ClaimChange::Delete => write!(f, "free {cidr} of node {node}"),
                }
            }
            Self::BumpVersion(bump) => {
                write!(f, "touch {} {} to get a later version", self.target().word(), bump.node)
            }
            Self::UsageQuery(query) => match query.step {
                QueryStep::Ask => write!(f, "send a usage query to the agent of node {}", query.node),
                QueryStep::Clear => write!(f, "clear the usage query on CiliumNode {}", query.node),
            },
            Self::Withdraw(withdrawal) => {
                let blocks: Vec<String> = withdrawal.blocks.iter().map(ToString::to_string).collect();
                let (blocks, node) = (blocks.join(" "), &withdrawal.node);
                match withdrawal.step {
                    WithdrawalStep::Fence => write!(f, "close [{blocks}] on CiliumNode {node} to new pods"),
                    WithdrawalStep::Mark => write!(f, "ask the agent of node {node} to release [{blocks}]"),
                    WithdrawalStep::Confirm => {
                        write!(f, "confirm the release of [{blocks}] to the agent of node {node}")
                    }
                    WithdrawalStep::Remove => write!(f, "remove [{blocks}] from CiliumNode {node}"),
                    WithdrawalStep::Clear => {
                        write!(f, "clear the release marks of [{blocks}] on CiliumNode {node}")
                    }
                }
            }
            Self::CreateCiliumNode(new) => write!(f, "create CiliumNode {}", new.node),
            Self::PoolStatus(write) => write!(f, "write the status of pool {}", write.pool),
            Self::PoolFinalizers(write) => {
                write!(f, "set the finalizers of pool {} to [{}]", write.pool, write.finalizers.join(" "))
            }
            Self::ClaimStatus(write) => {
                write!(f, "report on the claim of {}", write.cidr)?;
                let ClaimStatus { shown_as, until, drain } = &write.status;
                match (drain, until, shown_as) {
                    (Some(drain), ..) => write!(f, ": {}", drain.waiting_for),
                    (None, Some(until), _) => write!(f, " that it cools until {until}"),
                    (None, None, Some(word)) => write!(f, ": {}", word.as_str()),
                    (None, None, None) => f.write_str(" that its drain waits for nothing"),
                }
            }
            Self::NodeCondition(write) => write!(
                f,
                "set the condition of node {} to {} ({})",
                write.node,
                write.availability.status(),
                write.availability.as_str()
            ),
            Self::PodIpPool(write) => {
                let families = write.families.iter().map(|(family, ranges)| {
                    let cidrs: Vec<&str> = ranges.cidrs.iter().map(|range| range.cidr.as_str()).collect();
                    format!("{family} [{}] /{}", cidrs.join(" "), ranges.mask_size)
                });
                let step = if write.on.is_some() { "complete" } else { "create" };
                let families: Vec<String> = families.collect();
                write!(f, "{step} CiliumPodIPPool {} with {}", write.name, families.join(" and "))
            }
            Self::Frr(write) => write.fmt(f),
        }
    }
}
