//! CIDRs as values: parsing, canonical text, and the arithmetic of aligned blocks.
//!
//! Knows nothing of pools, nodes or Kubernetes. Keeps one invariant: a [`Cidr`] is always masked, so two equal
//! prefixes are equal values.
//!
//! Both families share one number line of 128 bits: an IPv4 address has its IPv4-mapped position on it (RFC 4291
//! section 2.5.5.2). So one type of set and one order serve both, and addresses are ordered as numbers, never as text.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

/// First position of the IPv4 addresses on the number line, `::ffff:0:0`.
const IPV4_BASE: u128 = 0xffff_0000_0000;
/// The number of bits by which an IPv4 prefix is longer on the number line.
const IPV4_SHIFT: u8 = 96;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families, in the order in which they are listed everywhere.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The number of bits of an address: 32 or 128.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The number of addresses of a CIDR with this prefix length, and 2^127 for all of IPv6.
    #[must_use]
    pub fn size_of(self, prefix_len: u8) -> u128 {
        1u128 << self.bits().saturating_sub(prefix_len).min(127)
    }

    /// Its name in flags, fields and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// The family of an address. An IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The position of an address on the number line.
#[must_use]
pub fn position(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The address at a position on the number line; the inverse of [`position`], except that an IPv4-mapped IPv6 address
/// becomes IPv4.
#[must_use]
pub fn address(position: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(position)).to_canonical()
}

/// Why a text is not a CIDR as this project writes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// The text is not a prefix.
    #[error("`{0}` is not a CIDR such as 10.0.0.0/24 or fd00::/64")]
    Malformed(String),
    /// The text is a prefix, but has host bits or is not in canonical form.
    #[error("`{text}` is not written in its masked canonical form `{canonical}`")]
    NotCanonical {
        /// The text as it was found.
        text: String,
        /// The prefix that it denotes.
        canonical: Cidr,
    },
}

/// A masked prefix of either family: a block, a range of a pool, or an exclusion.
///
/// Ordered numerically by first address. A prefix sorts directly before the prefixes that it contains.
///
/// ```
/// use cilium_node_ipam::net::cidr::Cidr;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let block: Cidr = "10.0.0.32/27".parse()?;
/// assert!(block.contains("10.0.0.40".parse()?));
/// assert_eq!(block.size(), 32);
///
/// // Each block has a buddy, with which it aggregates to one route.
/// let route = block.enlarged(1);
/// assert_eq!(block.buddy(), Some("10.0.0.0/27".parse()?));
/// assert_eq!(route.to_string(), "10.0.0.0/26");
/// assert!(route.covers(block) && !block.overlaps("10.0.0.0/27".parse()?));
///
/// // Order is numeric, not that of text.
/// assert!(block < "10.0.0.128/27".parse()?);
///
/// // Text with host bits is an error, unless it is read leniently from an object that others write.
/// assert!("10.0.0.40/27".parse::<Cidr>().is_err());
/// assert_eq!(Cidr::parse_lenient("10.0.0.40/27"), Some(block));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    first: u128,
    /// Length on the number line, 0 to 128.
    length: u8,
}

impl Cidr {
    /// The prefix of `prefix_len` bits, as counted in the address's own family, that contains `member`.
    ///
    /// `None` when the family has fewer bits than `prefix_len`.
    #[must_use]
    pub fn containing(member: IpAddr, prefix_len: u8) -> Option<Self> {
        let family = Family::of(member);
        (prefix_len <= family.bits())
            .then(|| Self::on_line(position(member), prefix_len + (128 - family.bits())))
    }

    /// The prefix that contains `member` and has `length` bits on the number line.
    fn on_line(member: u128, length: u8) -> Self {
        Self { first: member & !host_mask(length), length }
    }

    /// One address as a prefix, `/32` or `/128`.
    #[must_use]
    pub fn single(address: IpAddr) -> Self {
        Self { first: position(address), length: 128 }
    }

    /// Reads a prefix and masks it; accepts host bits and text that is not canonical. `None` when it is not a prefix.
    ///
    /// For objects that others write.
    #[must_use]
    pub fn parse_lenient(text: &str) -> Option<Self> {
        let net = text.trim().parse::<IpNet>().ok()?;
        let (member, length) = match net {
            IpNet::V4(v4) => (position(IpAddr::V4(v4.addr())), v4.prefix_len() + IPV4_SHIFT),
            IpNet::V6(v6) => (v6.addr().to_bits(), v6.prefix_len()),
        };
        Some(Self::on_line(member, length))
    }

    /// The family. A prefix so short that it covers both is IPv6.
    #[must_use]
    pub fn family(self) -> Family {
        if self.length >= IPV4_SHIFT && self.first >> 32 == IPV4_BASE >> 32 { Family::V4 } else { Family::V6 }
    }

    /// The prefix length, as counted in the family.
    #[must_use]
    pub fn prefix_len(self) -> u8 {
        self.length - (128 - self.family().bits())
    }

    /// Position of the first address.
    #[must_use]
    pub const fn first(self) -> u128 {
        self.first
    }

    /// Position of the last address.
    #[must_use]
    pub const fn last(self) -> u128 {
        self.first | host_mask(self.length)
    }

    /// How many addresses it holds; saturates at `u128::MAX` for `::/0`.
    #[must_use]
    pub const fn size(self) -> u128 {
        host_mask(self.length).saturating_add(1)
    }

    /// The first address.
    #[must_use]
    pub fn first_address(self) -> IpAddr {
        address(self.first)
    }

    /// The last address.
    #[must_use]
    pub fn last_address(self) -> IpAddr {
        address(self.last())
    }

    /// Whether the address lies in it.
    #[must_use]
    pub fn contains(self, member: IpAddr) -> bool {
        self.contains_position(position(member))
    }

    /// Whether the position lies in it.
    #[must_use]
    pub const fn contains_position(self, position: u128) -> bool {
        self.first <= position && position <= self.last()
    }

    /// The entries of `map` whose addresses lie in it, in the order of the map.
    ///
    /// A range of the map from its first to its last address would not find them. `IpAddr` sorts IPv4 before IPv6, and
    /// a prefix may start in one family and end in the other, or contain all of IPv4.
    pub fn entries_in<V>(self, map: &BTreeMap<IpAddr, V>) -> impl Iterator<Item = (&IpAddr, &V)> {
        const IPV4_LAST: u128 = IPV4_BASE | u32::MAX as u128;
        let as_ipv4 = (self.first <= IPV4_LAST && self.last() >= IPV4_BASE)
            .then(|| address(self.first.max(IPV4_BASE))..=address(self.last().min(IPV4_LAST)));
        let as_ipv6 =
            IpAddr::V6(Ipv6Addr::from_bits(self.first))..=IpAddr::V6(Ipv6Addr::from_bits(self.last()));
        as_ipv4.into_iter().chain([as_ipv6]).flat_map(|range| map.range(range))
    }

    /// Whether every address of `other` lies in it.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.contains_position(other.first)
    }

    /// Whether the two share an address. Prefixes never overlap in part: one then covers the other.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The other half of the next larger aligned prefix, with which it aggregates to one route.
    ///
    /// `None` for the prefix of length 0.
    #[must_use]
    pub fn buddy(self) -> Option<Self> {
        (self.prefix_len() > 0).then(|| Self { first: self.first ^ self.size(), length: self.length })
    }

    /// The prefix around it that is `bits` shorter, or itself when the family has no such prefix.
    #[must_use]
    pub fn enlarged(self, bits: u8) -> Self {
        if bits > self.prefix_len() { self } else { Self::on_line(self.first, self.length - bits) }
    }

    /// The prefix of the same length that contains the position `first`; it starts there if `first` is aligned.
    #[must_use]
    pub fn same_size_at(self, first: u128) -> Self {
        Self::on_line(first, self.length)
    }

    /// The fewest prefixes that together are the positions from `first` to `last`, in numeric order.
    #[must_use]
    pub fn cover_of(first: u128, last: u128) -> Vec<Self> {
        let mut cover = Vec::new();
        let mut next = first;
        loop {
            let mut length = 128u8;
            while length > 0 {
                let larger = Self { first: next, length: length - 1 };
                if next & host_mask(length - 1) != 0 || larger.last() > last {
                    break;
                }
                length -= 1;
            }
            let piece = Self { first: next, length };
            cover.push(piece);
            if piece.last() >= last {
                return cover;
            }
            next = piece.last() + 1;
        }
    }
}

/// The host bits of a prefix that has `length` bits on the number line.
const fn host_mask(length: u8) -> u128 {
    if length == 0 { u128::MAX } else { (1u128 << (128 - length)) - 1 }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first_address(), self.prefix_len())
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    /// Reads a masked prefix in canonical text, because Cilium compares prefixes as text; anything else is an error.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let cidr = Self::parse_lenient(text).ok_or_else(|| CidrError::Malformed(text.to_owned()))?;
        if cidr.to_string() == text {
            Ok(cidr)
        } else {
            Err(CidrError::NotCanonical { text: text.to_owned(), canonical: cidr })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn text_is_canonical() {
        for text in ["100.162.224.32/27", "0.0.0.0/0", "10.0.0.1/32", "fd00:10:1::40/122", "::/0"] {
            assert_eq!(cidr(text).to_string(), text);
        }
    }

    #[test]
    fn host_bits_and_odd_text_are_refused_but_readable() {
        for (text, canonical) in [
            ("10.0.0.5/24", "10.0.0.0/24"),
            ("FD00::/64", "fd00::/64"),
            ("fd00:0::/64", "fd00::/64"),
            ("010.0.0.0/8", "10.0.0.0/8"),
        ] {
            assert_eq!(
                text.parse::<Cidr>(),
                Err(CidrError::NotCanonical { text: text.into(), canonical: cidr(canonical) })
            );
            assert_eq!(Cidr::parse_lenient(text), Some(cidr(canonical)));
        }
        for text in ["", "10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/129"] {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError::Malformed(text.into())), "{text}");
        }
    }

    #[test]
    fn order_is_numeric_and_not_that_of_text() {
        // As text, 10.0.0.128/27 sorts before 10.0.0.32/27; another system breaks ties in that order.
        assert!(cidr("10.0.0.32/27") < cidr("10.0.0.128/27"));
        assert!(cidr("9.0.0.0/8") < cidr("10.0.0.0/8"));
        assert!(cidr("10.0.0.0/24") < cidr("10.0.0.0/27"));
        assert!(cidr("fd00::9/128") < cidr("fd00::10/128"));
    }

    #[test]
    fn families_do_not_mix() {
        assert_eq!(cidr("0.0.0.0/0").family(), Family::V4);
        assert_eq!(cidr("::/0").family(), Family::V6);
        assert_eq!(cidr("0.0.0.0/0").buddy(), None);
        assert!(!cidr("0.0.0.0/0").overlaps(cidr("fd00::/8")));
        assert_eq!(cidr("0.0.0.0/0").size(), 1 << 32);
    }

    /// Some prefixes end with the last IPv4 address and start outside of IPv4. As `IpAddr`s, their last address sorts
    /// before their first.
    #[test]
    fn entries_are_found_by_position_whatever_family_a_prefix_ends_in() {
        let keys =
            ["0.0.0.0", "10.0.0.5", "255.255.255.255", "::1", "::fffe:0:0", "::ffff:10.0.0.5", "fd00::1"];
        let map: BTreeMap<IpAddr, usize> =
            keys.iter().enumerate().map(|(index, text)| (text.parse().unwrap(), index)).collect();
        let prefixes = (80..=95).map(|length| Cidr::on_line(IPV4_BASE | u128::from(u32::MAX), length));
        let others =
            ["::/0", "::/64", "0.0.0.0/0", "10.0.0.0/8", "10.0.0.5/32", "::/96", "fd00::/8", "fd01::/16"];
        for prefix in prefixes.chain(others.map(cidr)) {
            let found: Vec<_> = prefix.entries_in(&map).collect();
            let expected: Vec<_> = map.iter().filter(|(member, _)| prefix.contains(**member)).collect();
            assert_eq!(found, expected, "{prefix}");
        }
    }

    fn any_cidr() -> impl Strategy<Value = Cidr> {
        prop_oneof![
            (any::<u32>(), 0u8..=32)
                .prop_map(|(bits, len)| Cidr::containing(IpAddr::V4(bits.into()), len).unwrap()),
            // The range for documentation, so that no prefix is in the IPv4-mapped part.
            (any::<u64>(), 33u8..=128).prop_map(|(bits, len)| {
                let member = (0x2001_0db8_u128 << 96) | u128::from(bits);
                Cidr::containing(address(member), len).unwrap()
            }),
        ]
    }

    proptest! {
        /// Another system computed sizes with XOR in place of a power.
        #[test]
        fn size_is_the_count_between_first_and_last(cidr in any_cidr()) {
            prop_assert_eq!(cidr.last() - cidr.first() + 1, cidr.size());
            prop_assert_eq!(cidr.size(), 1u128 << (cidr.family().bits() - cidr.prefix_len()));
            prop_assert_eq!(cidr.to_string().parse::<Cidr>().unwrap(), cidr);
        }

        #[test]
        fn buddies_are_disjoint_halves_of_one_prefix(cidr in any_cidr()) {
            if let Some(buddy) = cidr.buddy() {
                prop_assert!(!cidr.overlaps(buddy));
                prop_assert_eq!(buddy.buddy(), Some(cidr));
                prop_assert!(cidr.enlarged(1).covers(cidr) && cidr.enlarged(1).covers(buddy));
                prop_assert_eq!(cidr.enlarged(1).size(), 2 * cidr.size());
            }
        }

        #[test]
        fn cover_is_exact_ordered_and_disjoint(first in any::<u32>(), length in 0u32..100_000) {
            let (first, last) = (u128::from(first), u128::from(first) + u128::from(length));
            let cover = Cidr::cover_of(first, last);
            let mut next = first;
            for piece in &cover {
                prop_assert_eq!(piece.first(), next);
                next = piece.last() + 1;
            }
            prop_assert_eq!(next, last + 1);
        }
    }
}
