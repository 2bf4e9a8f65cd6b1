//! The rules of the API, as sentences and as limits, for the server, `validate` and the parsers alike.
//!
//! Each sentence completes "the value …", so that a message can be read by itself.

use crate::model::pool::MAX_ADDRESSES_PER_NODE;

/// A pool has a family.
pub const ONE_FAMILY: &str = "must have ipv4, ipv6 or both";
/// A family that was declared stays.
pub const FAMILY_STAYS: &str =
    "can't be removed, because nodes may hold blocks of this family: set its cidrs to Cordoned instead";
/// The size of the blocks under a name never changes.
pub const BLOCK_SIZE_OF_NAME: &str = "is immutable in a pool with podIPPool, because maskSize of a CiliumPodIPPool \
     is: create a pool with another podIPPool";
/// A pool with a name has blocks of one size.
pub const ONE_SIZE_OF_NAME: &str = "must not be set in a pool with podIPPool, because a CiliumPodIPPool has one \
     maskSize";
/// Order of the two bounds of a size.
pub const LARGEST_WITHIN_SMALLEST: &str = "must not be greater than smallest: both are prefix lengths";
/// The name under which blocks are published never changes.
pub const POD_IP_POOL_FIXED: &str = "is immutable, because blocks are published under this name: create \
     another pool for another name";
/// The name of a CiliumPodIPPool.
pub const POD_IP_POOL: &str = "must be the name of a CiliumPodIPPool: a DNS subdomain of at most 253 \
     characters that does not start with nodeipam.io-";
/// Text and family of IPv4 prefixes.
pub const IPV4_CIDR: &str = "must be an IPv4 CIDR such as 10.0.0.0/24";
/// Text and family of IPv6 prefixes.
pub const IPV6_CIDR: &str = "must be an IPv6 CIDR such as fd00:10::/64, not IPv4-mapped and without a zone";
/// The one way to write a prefix.
pub const CANONICAL_CIDR: &str = "must be written masked and in canonical form (no host bits, no leading \
     zeros, IPv6 in the form of RFC 5952)";
/// Ranges that no pod can use.
pub const USABLE_CIDR: &str =
    "must not overlap unspecified, loopback, link-local or multicast addresses: pods can't use them";
/// The bound of `blockSize` for the claim of a block. Each address of a claim is an entry of its CiliumNode.
pub const BLOCK_BOUND: &str = "must be a block from IPv4 /16 to /32 or IPv6 /64 to /128";
/// Blocks must fit into ranges.
pub const BLOCK_FITS: &str = "must each be at least as large as a block: the prefix length must not exceed \
     blockSize";
/// Ranges of one pool are disjoint.
pub const NO_OVERLAP: &str = "must not overlap each other";
/// First grant within the limit.
pub const INITIAL_WITHIN_MAX: &str = "must not be larger than maxBlocks";
/// Hysteresis between growing and shrinking.
pub const USED_BELOW_ABOVE: &str =
    "must be less than expand.usedAbove: otherwise a node gets and loses the same block again and again";
/// Form of durations.
pub const DURATION_PATTERN: &str = "^([0-9]+(h|m|s))+$";
/// Bound of durations.
pub const DURATION: &str = "must be a duration of at most 8760h (one year): whole numbers with h, m or s, such \
     as 30s, 5m or 1h30m; without days, fractions, signs or spaces";
/// `In` and `NotIn` compare with something.
pub const OPERATOR_WITH_VALUES: &str = "must not be empty for the operators In and NotIn";
/// `Exists` and `DoesNotExist` compare with nothing.
pub const OPERATOR_WITHOUT_VALUES: &str = "must be empty for the operators Exists and DoesNotExist";
/// Syntax of label keys.
pub const LABEL_KEY: &str = "must be a label key: an optional DNS prefix of at most 253 characters and `/`; \
     then at most 63 letters, digits, `-`, `_` or `.`, with a letter or digit first and last";
/// The same where one rule covers several keys.
pub const LABEL_KEYS: &str = "must have keys that are label keys: an optional DNS prefix of at most 253 \
     characters and `/`; then at most 63 letters, digits, `-`, `_` or `.`, with a letter or digit first and \
     last";
/// Syntax of label values.
pub const LABEL_VALUE: &str = "must be a label value: empty, or at most 63 letters, digits, `-`, `_` or `.`, \
     with a letter or digit first and last";

/// A standard community.
pub const COMMUNITY: &str = "must be a standard community ASN:VALUE, such as 64512:100: two numbers from 0 to 65535 \
     without leading zeros";
/// The maximum number of communities of a pool.
pub const MAX_COMMUNITIES: u32 = 16;

/// The claim's name is the lock on the block.
pub const NAME_IS_CIDR: &str =
    "must be the CIDR: 10.0.0.32-27 for 10.0.0.32/27, IPv6 exploded with `-` in place of `:` and `/`";
/// The name under which a claim is published, and the CiliumNode that it was made for, are fixed when it is created.
pub const FIXED_WHEN_CREATED: &str = "is immutable, and can be neither added nor removed";
/// The block, the pool, the node and the excluded addresses of a claim are fixed when it is created.
pub const IMMUTABLE: &str = "is immutable";
/// Excluded addresses as text.
pub const EXCLUDED_TEXT: &str = "must be an address or a masked CIDR in canonical form";
/// Excluded addresses lie in the block.
pub const EXCLUDED_INSIDE: &str = "must lie in cidr";
/// A claim has a reason when it leaves its node.
pub const REASON_WITH_STATE: &str = "must be set in the states Releasing and Cooling and in no other state";
/// A drain is tied to one CiliumNode.
pub const CILIUM_NODE_UID_WITH_STATE: &str =
    "must be set in the state Draining, and must not be in the state Held";
/// A drain does not change its CiliumNode.
pub const CILIUM_NODE_UID_FIXED: &str = "must not change while the state is Draining";
/// Only a returning node changes the uid.
pub const NODE_UID_WITH_HELD: &str = "may change only in a write with the state Held";
/// The table of states.
pub const TRANSITION: &str = "must follow the table of states: Held to Draining or Releasing; Draining to Held \
     or Releasing (Reclaimed, NodeGone); Releasing to Cooling with the same reason, to Held, or with Reclaimed \
     to Draining; Cooling to Held";

/// The prefix of names of ours, which no name of a CiliumPodIPPool may have.
pub const OURS: &str = "nodeipam.io-";
/// The highest priority; the lowest is its negative.
pub const MAX_PRIORITY: i32 = 1_000_000_000;
/// Blocks of one family that a pool may allow a node.
pub const MAX_BLOCKS_PER_NODE: u32 = 4096;
/// The maximum number of CIDRs in one family of a pool; a pairwise rule over more exceeds the server's cost budget.
pub const MAX_CIDRS: u32 = 64;
/// The maximum number of entries of `blockSizes` in one family of a pool.
pub const MAX_SIZED: u32 = 16;
/// The maximum number of addresses of `headroom`.
pub const MAX_HEADROOM: u32 = MAX_ADDRESSES_PER_NODE;
/// The maximum number of exclusions in one family of a pool.
pub const MAX_EXCLUDES: u32 = 64;
/// The longest label prefix, `/` and name.
pub const MAX_LABEL_KEY: u32 = 253 + 1 + 63;
/// The longest label prefix: a DNS subdomain.
pub const MAX_LABEL_PREFIX: usize = 253;
/// The maximum number of labels, and of expressions, of a selector.
pub const MAX_SELECTOR_TERMS: u32 = 32;
/// The maximum number of values of one expression.
pub const MAX_SELECTOR_VALUES: u32 = 64;
/// Longest text of a duration.
pub const MAX_DURATION_TEXT: u32 = 32;
/// Longest duration: a block that cools for more than a year was forgotten.
pub const MAX_DURATION_SECONDS: u64 = 8760 * 3600;
/// The smallest value of `perNode.maxAddresses`: an agent takes router, health and ingress addresses
/// before the first pod (`docs/cilium.md`, Start).
pub const MIN_ADDRESSES_PER_NODE: u32 = 4;
/// The longest text of a range in a pool. A CIDR is shorter, so a range in another notation, such as
/// `10.0.0.0-10.0.0.255`, is refused with the reason. With a longer limit the rules exceed the server's cost budget.
pub const MAX_RANGE_TEXT: u32 = 64;
/// The longest IPv6 CIDR: eight groups of four and `/128`.
pub const MAX_IPV6_CIDR_TEXT: u32 = 43;
/// The maximum number of entries of `excluded`: every second address of the largest block; of more, some would merge.
pub const MAX_EXCLUDED: u32 = MAX_ADDRESSES_PER_NODE / 2;

/// Ranges that no pod can use: RFC 1122 section 3.2.1.3, RFC 3927, RFC 5771.
pub const UNUSABLE_IPV4: [&str; 4] = ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4"];
/// Ranges that no pod can use: RFC 4291 sections 2.5.2, 2.5.3, 2.5.5, 2.5.6 and 2.7.
pub const UNUSABLE_IPV6: [&str; 3] = ["::/64", "fe80::/10", "ff00::/8"];
