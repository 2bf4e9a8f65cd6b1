//! The strict reading of a pool: every rule of the API once more, on typed values.
//!
//! The server may be older than the rules, and a rule of the schema may be lost in a migration: the core relies on this
//! reading. Reports every broken rule, not only the first, at the field where the server reports it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube_core::Selector;

use super::{ByMaxPods, NodeIPPool, NodeSelector, Operator, Ranges, SizedNodes, forms};
use crate::model::community::Community;
use crate::model::counted::counted;
use crate::model::names::PodIpPoolName;
use crate::model::pool::{
    self as domain, Expand, FirstLast, MAX_ADDRESSES_PER_NODE, PerNode, Pool, Reclaim, widest_block,
};
use crate::net::cidr::{Cidr, CidrError, Family};
use crate::wire::{FieldError, InvalidObject, labels, rules};

impl TryFrom<&NodeIPPool> for Pool {
    type Error = InvalidObject;

    fn try_from(pool: &NodeIPPool) -> Result<Self, Self::Error> {
        let mut reader = Reader { errors: Vec::new() };
        let read = reader.pool(pool);
        match read {
            Some(read) if reader.errors.is_empty() => Ok(read),
            _ => Err(InvalidObject { errors: reader.errors }),
        }
    }
}

/// Collects the broken rules while it reads.
struct Reader {
    errors: Vec<FieldError>,
}

impl Reader {
    fn refuse<V: serde::Serialize + ?Sized>(&mut self, field: impl Into<String>, value: &V, rule: &str) {
        self.errors.push(FieldError::new(field, value, rule));
    }

    fn missing(&mut self, field: &str, rule: &str) {
        self.errors.push(FieldError::absent(field, rule));
    }

    fn pool(&mut self, pool: &NodeIPPool) -> Option<Pool> {
        let (metadata, spec) = (&pool.metadata, &pool.spec);
        let name = metadata.name.as_deref().filter(|name| !name.is_empty());
        if name.is_none() {
            self.missing("metadata.name", "must be set");
        }
        let uid = metadata.uid.as_deref().filter(|uid| !uid.is_empty());
        if uid.is_none() {
            self.missing("metadata.uid", "must be set by the server");
        }
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        if created.is_none() {
            self.missing("metadata.creationTimestamp", "must be set by the server");
        }

        let selector = self.selector("spec.nodeSelector", spec.node_selector.as_ref());
        let mut families = BTreeMap::new();
        for (family, ranges) in [(Family::V4, &spec.ipv4), (Family::V6, &spec.ipv6)] {
            if let Some(read) = ranges.as_ref().and_then(|ranges| self.ranges(family, ranges)) {
                families.insert(family, read);
            }
        }
        if spec.ipv4.is_none() && spec.ipv6.is_none() {
            self.missing("spec", rules::ONE_FAMILY);
        }
        let is_name = |name: &&String| labels::is_subdomain(name) && !name.starts_with(rules::OURS);
        if let Some(name) = spec.pod_ip_pool.as_ref().filter(|name| !is_name(name)) {
            self.refuse("spec.podIPPool", name, rules::POD_IP_POOL);
        }
        let most = rules::MAX_PRIORITY;
        if !(-most..=most).contains(&spec.priority) {
            self.refuse("spec.priority", &spec.priority, &format!("must be between -{most} and {most}"));
        }
        for (family, ranges) in [(Family::V4, &spec.ipv4), (Family::V6, &spec.ipv6)] {
            let has_sizes =
                |ranges: &&Ranges| !ranges.block_sizes.is_empty() || ranges.block_size_by_max_pods.is_some();
            if let Some(ranges) = ranges.as_ref().filter(has_sizes).filter(|_| spec.pod_ip_pool.is_some()) {
                self.refuse(
                    format!("spec.{family}.blockSizes"),
                    &ranges.block_sizes,
                    rules::ONE_SIZE_OF_NAME,
                );
            }
        }
        let per_node = self.per_node(&spec.per_node);
        let expand = Expand {
            used_above: self.count("spec.expand.usedAbove", spec.expand.used_above, 1, 100),
            free_below: self.count(
                "spec.expand.freeBelow",
                spec.expand.free_below,
                0,
                MAX_ADDRESSES_PER_NODE,
            ),
        };
        let reclaim = Reclaim {
            mode: spec.reclaim.mode.into(),
            used_below: self.count("spec.reclaim.usedBelow", spec.reclaim.used_below, 0, 99),
            after: self.duration("spec.reclaim.after", &spec.reclaim.after),
        };
        if spec.reclaim.used_below >= spec.expand.used_above {
            self.refuse("spec.reclaim.usedBelow", &spec.reclaim.used_below, rules::USED_BELOW_ABOVE);
        }
        let communities = self.communities(spec.routes.as_ref());
        let reuse_after = self.duration("spec.reuseAfter", &spec.reuse_after);
        let reuse_after_node_loss = self.duration("spec.reuseAfterNodeLoss", &spec.reuse_after_node_loss);
        Some(Pool {
            name: name?.into(),
            uid: uid?.into(),
            created: created?,
            deleting: metadata.deletion_timestamp.is_some(),
            priority: spec.priority,
            selector: selector?,
            pod_ip_pool: spec.pod_ip_pool.as_deref().map(PodIpPoolName::from),
            families,
            first_last: if spec.allow_first_last_ips { FirstLast::Offered } else { FirstLast::Excluded },
            per_node,
            expand,
            reclaim,
            communities,
            reuse_after,
            reuse_after_node_loss,
        })
    }

    fn communities(&mut self, wire: Option<&super::Routes>) -> BTreeSet<Community> {
        let texts = wire.map(|routes| &routes.communities[..]).unwrap_or_default();
        self.limit("spec.routes.communities", texts.len(), rules::MAX_COMMUNITIES);
        let mut communities = BTreeSet::new();
        for (index, text) in texts.iter().enumerate() {
            match Community::parse(text) {
                Some(community) => drop(communities.insert(community)),
                None => self.refuse(format!("spec.routes.communities[{index}]"), text, rules::COMMUNITY),
            }
        }
        communities
    }

    fn per_node(&mut self, wire: &super::PerNode) -> PerNode {
        let per_node = PerNode {
            initial_blocks: self.count(
                "spec.perNode.initialBlocks",
                wire.initial_blocks,
                1,
                rules::MAX_BLOCKS_PER_NODE,
            ),
            max_blocks: self.count("spec.perNode.maxBlocks", wire.max_blocks, 1, rules::MAX_BLOCKS_PER_NODE),
            max_addresses: self.count(
                "spec.perNode.maxAddresses",
                wire.max_addresses,
                rules::MIN_ADDRESSES_PER_NODE,
                MAX_ADDRESSES_PER_NODE,
            ),
        };
        if wire.initial_blocks > wire.max_blocks {
            self.refuse("spec.perNode.initialBlocks", &wire.initial_blocks, rules::INITIAL_WITHIN_MAX);
        }
        per_node
    }

    /// A number that can't be negative. A refused one becomes 0, which is never used.
    fn count(&mut self, field: &str, value: i32, least: u32, most: u32) -> u32 {
        match u32::try_from(value) {
            Ok(count) if (least..=most).contains(&count) => count,
            Ok(_) | Err(_) => {
                self.refuse(field, &value, &format!("must be between {least} and {most}"));
                0
            }
        }
    }

    /// `humantime` reads more than the API allows (spaces, other units), so the form is checked first.
    fn duration(&mut self, field: &str, text: &str) -> Duration {
        let simple = text.len() <= rules::MAX_DURATION_TEXT as usize
            && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'h' | b'm' | b's'));
        let longest = Duration::from_secs(rules::MAX_DURATION_SECONDS);
        match humantime::parse_duration(text) {
            Ok(duration) if simple && duration <= longest && text != "0" => duration,
            Ok(_) | Err(_) => {
                self.refuse(field, text, rules::DURATION);
                Duration::ZERO
            }
        }
    }

    fn ranges(&mut self, family: Family, wire: &Ranges) -> Option<domain::Ranges> {
        let at = format!("spec.{family}");
        let block_prefix = self.prefix(&format!("{at}.blockSize"), wire.block_size, family);
        let sized = self.sized(&at, &wire.block_sizes, family);
        let by_max_pods =
            wire.block_size_by_max_pods.as_ref().and_then(|wire| self.by_max_pods(&at, wire, family));

        self.limit(&format!("{at}.cidrs"), wire.cidrs.len(), rules::MAX_CIDRS);
        self.limit(&format!("{at}.exclude"), wire.exclude.len(), rules::MAX_EXCLUDES);
        let mut cidrs = BTreeMap::new();
        for (index, range) in wire.cidrs.iter().enumerate() {
            let field = format!("{at}.cidrs[{index}]");
            let Some(cidr) = self.cidr(&format!("{field}.cidr"), &range.cidr, family) else { continue };
            if let Some(unusable) = unusable(family).find(|unusable| unusable.overlaps(cidr)) {
                let rule = format!("{}; it overlaps {unusable}", rules::USABLE_CIDR);
                self.refuse(format!("{field}.cidr"), &range.cidr, &rule);
            }
            if let Some(size) = block_prefix.filter(|size| cidr.prefix_len() > *size) {
                let larger = cidr.enlarged(cidr.prefix_len() - size);
                let rule = format!(
                    "{}; write {larger}, or set blockSize to {}",
                    rules::BLOCK_FITS,
                    cidr.prefix_len()
                );
                self.refuse(format!("{at}.cidrs"), &range.cidr, &rule);
            }
            if cidrs.contains_key(&cidr) {
                self.refuse(field, &range.cidr, "must not be listed twice");
                continue;
            }
            if let Some(other) = cidrs.keys().find(|other: &&Cidr| other.overlaps(cidr)) {
                let rule = format!("{}; it overlaps {other}", rules::NO_OVERLAP);
                self.refuse(format!("{at}.cidrs"), &range.cidr, &rule);
            }
            cidrs.insert(cidr, range.state.unwrap_or_default().into());
        }
        let mut exclude = Vec::new();
        for (index, text) in wire.exclude.iter().enumerate() {
            let field = format!("{at}.exclude[{index}]");
            match self.cidr(&field, text, family) {
                Some(cidr) if exclude.contains(&cidr) => self.refuse(field, text, "must not be listed twice"),
                Some(cidr) => exclude.push(cidr),
                None => {}
            }
        }
        Some(domain::Ranges { block_prefix: block_prefix?, sized, by_max_pods, cidrs, exclude })
    }

    /// A prefix length of blocks; `None` for one that is refused.
    fn prefix(&mut self, field: &str, value: i32, family: Family) -> Option<u8> {
        let size = self.count(field, value, widest_block(family).into(), family.bits().into());
        u8::try_from(size).ok().filter(|size| *size > 0)
    }

    fn sized(&mut self, at: &str, wire: &[SizedNodes], family: Family) -> Vec<domain::SizedNodes> {
        self.limit(&format!("{at}.blockSizes"), wire.len(), rules::MAX_SIZED);
        let mut sized = Vec::new();
        for (index, entry) in wire.iter().enumerate() {
            let field = format!("{at}.blockSizes[{index}]");
            let selector = self.selector(&format!("{field}.nodeSelector"), Some(&entry.node_selector));
            let block_prefix = self.prefix(&format!("{field}.blockSize"), entry.block_size, family);
            if let (Some(selector), Some(block_prefix)) = (selector, block_prefix) {
                sized.push(domain::SizedNodes { selector, block_prefix });
            }
        }
        sized
    }

    fn by_max_pods(&mut self, at: &str, wire: &ByMaxPods, family: Family) -> Option<domain::ByMaxPods> {
        let at = format!("{at}.blockSizeByMaxPods");
        let headroom = self.count(&format!("{at}.headroom"), wire.headroom, 0, rules::MAX_HEADROOM);
        let smallest = self.prefix(&format!("{at}.smallest"), wire.smallest, family);
        let largest = self.prefix(&format!("{at}.largest"), wire.largest, family);
        if wire.largest > wire.smallest {
            self.refuse(format!("{at}.largest"), &wire.largest, rules::LARGEST_WITHIN_SMALLEST);
        }
        Some(domain::ByMaxPods { headroom, smallest: smallest?, largest: largest? })
    }

    fn limit(&mut self, field: &str, found: usize, most: u32) {
        if u32::try_from(found).map_or(true, |found| found > most) {
            self.refuse(field, &found, &format!("must have at most {}", counted(most, "item")));
        }
    }

    fn cidr(&mut self, field: &str, text: &str, family: Family) -> Option<Cidr> {
        // An IPv4-mapped IPv6 prefix is IPv4 on the number line and IPv6 as text: in neither family.
        let text_family = if text.contains(':') { Family::V6 } else { Family::V4 };
        let of_family = |cidr: Cidr| cidr.family() == family && text_family == family;
        match text.parse::<Cidr>() {
            Ok(cidr) if of_family(cidr) => Some(cidr),
            refused => {
                let rule = match (refused, family) {
                    (Err(CidrError::NotCanonical { canonical, .. }), _) if of_family(canonical) => {
                        rules::CANONICAL_CIDR
                    }
                    (_, Family::V4) => rules::IPV4_CIDR,
                    (_, Family::V6) => rules::IPV6_CIDR,
                };
                let form = forms::of_range(text, family).map(|form| format!("; {form}")).unwrap_or_default();
                self.refuse(field, text, &format!("{rule}{form}"));
                None
            }
        }
    }

    fn selector(&mut self, at: &str, wire: Option<&NodeSelector>) -> Option<Selector> {
        let Some(wire) = wire else { return Some(Selector::default()) };
        self.limit(&format!("{at}.matchLabels"), wire.match_labels.len(), rules::MAX_SELECTOR_TERMS);
        self.limit(
            &format!("{at}.matchExpressions"),
            wire.match_expressions.len(),
            rules::MAX_SELECTOR_TERMS,
        );
        for (key, value) in &wire.match_labels {
            if !labels::is_key(key) {
                self.refuse(format!("{at}.matchLabels"), key, rules::LABEL_KEYS);
            }
            if !labels::is_value(value) {
                self.refuse(format!("{at}.matchLabels.{key}"), value, rules::LABEL_VALUE);
            }
        }
        let mut requirements = Vec::new();
        for (index, requirement) in wire.match_expressions.iter().enumerate() {
            let at = format!("{at}.matchExpressions[{index}]");
            if !labels::is_key(&requirement.key) {
                self.refuse(format!("{at}.key"), &requirement.key, rules::LABEL_KEY);
            }
            self.limit(&format!("{at}.values"), requirement.values.len(), rules::MAX_SELECTOR_VALUES);
            for (index, value) in requirement.values.iter().enumerate() {
                if !labels::is_value(value) {
                    self.refuse(format!("{at}.values[{index}]"), value, rules::LABEL_VALUE);
                }
            }
            let (operator, compares) = match requirement.operator {
                Operator::In => ("In", true),
                Operator::NotIn => ("NotIn", true),
                Operator::Exists => ("Exists", false),
                Operator::DoesNotExist => ("DoesNotExist", false),
            };
            if compares && requirement.values.is_empty() {
                self.refuse(format!("{at}.values"), &requirement.values, rules::OPERATOR_WITH_VALUES);
            }
            if !compares && !requirement.values.is_empty() {
                self.refuse(format!("{at}.values"), &requirement.values, rules::OPERATOR_WITHOUT_VALUES);
            }
            requirements.push(LabelSelectorRequirement {
                key: requirement.key.clone(),
                operator: operator.into(),
                values: Some(requirement.values.clone()),
            });
        }
        let selector = LabelSelector {
            match_labels: Some(wire.match_labels.clone()),
            match_expressions: Some(requirements),
        };
        match Selector::try_from(selector) {
            Ok(selector) => Some(selector),
            Err(error) => {
                self.refuse(at, wire, &error.to_string());
                None
            }
        }
    }
}

/// The ranges of the family that no pod can use.
pub(super) fn unusable(family: Family) -> impl Iterator<Item = Cidr> {
    let ranges: &[&str] = match family {
        Family::V4 => &rules::UNUSABLE_IPV4,
        Family::V6 => &rules::UNUSABLE_IPV6,
    };
    ranges.iter().filter_map(|range| range.parse().ok())
}
