//! Ranges of addresses as other systems write them, read as the CIDRs that this project writes.
//!
//! Reads only texts with one meaning, and knows nothing of pools. In objects of this project another notation than
//! that of CIDRs is an error, and its meaning is for the message.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::cidr::{Cidr, Family, address, position};

/// The addresses from one to another, both included, of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    first: u128,
    last: u128,
}

impl Span {
    /// The span between two addresses; `None` if the first is the larger one, or of the other family.
    #[must_use]
    pub fn between(first: IpAddr, last: IpAddr) -> Option<Self> {
        let (first, last) = (first.to_canonical(), last.to_canonical());
        (Family::of(first) == Family::of(last) && first <= last)
            .then(|| Self { first: position(first), last: position(last) })
    }

    /// The span that starts at this address and is as long as the prefix; `None` if the family has too few addresses.
    #[must_use]
    pub fn as_long_as(first: IpAddr, prefix: Cidr) -> Option<Self> {
        let last = position(first).checked_add(prefix.size() - 1).map(address)?;
        Self::between(first, last)
    }

    /// The family of its addresses.
    #[must_use]
    pub fn family(self) -> Family {
        Family::of(address(self.first))
    }

    /// The fewest prefixes that together are this span, in numeric order.
    #[must_use]
    pub fn cidrs(self) -> Vec<Cidr> {
        Cidr::cover_of(self.first, self.last)
    }
}

impl From<Cidr> for Span {
    fn from(cidr: Cidr) -> Self {
        Self { first: cidr.first(), last: cidr.last() }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", address(self.first), address(self.last))
    }
}

/// The address in front of the `/` of a prefix, and the prefix, in any form.
#[must_use]
pub fn address_and_prefix(text: &str) -> Option<(IpAddr, Cidr)> {
    let net = text.trim().parse::<IpNet>().ok()?;
    Some((net.addr(), Cidr::parse_lenient(text)?))
}

/// The addresses that the text means in a notation other than a CIDR.
///
/// The notations are `10.0.0.0-10.0.0.9`, `10.0.0.0..10.0.0.9`, `10.0.0.0-9`, `10.0.0.0/255.255.255.0`, `10.0.0.*` and
/// `10.0/16`, and the first two with IPv6 addresses.
#[must_use]
pub fn other_notation(text: &str) -> Option<Span> {
    let text = text.trim();
    from_to(text).or_else(|| with_netmask(text)).or_else(|| with_stars(text)).or_else(|| abbreviated(text))
}

/// The addresses of a CIDR, or those that the text means in another notation, as CIDRs.
#[must_use]
pub fn any_notation(text: &str) -> Option<Vec<Cidr>> {
    Cidr::parse_lenient(text).map(|cidr| vec![cidr]).or_else(|| other_notation(text).map(Span::cidrs))
}

fn from_to(text: &str) -> Option<Span> {
    let (first, last) = text.split_once("..").or_else(|| text.split_once(['-', '–']))?;
    let (first, last) = (first.trim(), last.trim());
    let first: IpAddr = first.parse().ok()?;
    let last = match (last.parse::<IpAddr>(), first) {
        (Ok(last), _) => last,
        // `10.0.0.5-9`: only the last number changes.
        (Err(_), IpAddr::V4(first)) => {
            let [a, b, c, _] = first.octets();
            Ipv4Addr::new(a, b, c, last.parse().ok()?).into()
        }
        (Err(_), IpAddr::V6(_)) => return None,
    };
    Span::between(first, last)
}

/// `10.0.0.0/255.255.255.0`.
fn with_netmask(text: &str) -> Option<Span> {
    let (member, mask) = text.split_once('/')?;
    let (member, mask): (Ipv4Addr, Ipv4Addr) = (member.parse().ok()?, mask.parse().ok()?);
    let length = ipnet::ipv4_mask_to_prefix(mask).ok()?;
    Cidr::containing(member.into(), length).map(Span::from)
}

/// `10.0.0.*`.
fn with_stars(text: &str) -> Option<Span> {
    let labels: Vec<&str> = text.split('.').collect();
    let stars = labels.iter().rev().take_while(|label| **label == "*").count();
    let are_all_last = text.matches('*').count() == stars;
    (labels.len() == 4 && (1..=3).contains(&stars) && are_all_last).then_some(())?;
    let member: Ipv4Addr = text.replace('*', "0").parse().ok()?;
    Cidr::containing(member.into(), u8::try_from(8 * (4 - stars)).ok()?).map(Span::from)
}

/// `10.0/16`.
fn abbreviated(text: &str) -> Option<Span> {
    let (labels, length) = text.split_once('/')?;
    let n_labels = labels.split('.').count();
    (n_labels < 4).then_some(())?;
    let member: Ipv4Addr = format!("{labels}{}", ".0".repeat(4 - n_labels)).parse().ok()?;
    Cidr::containing(member.into(), length.parse().ok()?).map(Span::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cidrs(text: &str) -> String {
        let cidrs = other_notation(text).map(Span::cidrs).unwrap_or_default();
        cidrs.iter().map(Cidr::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn other_notations_are_read_as_their_cidrs() {
        let check = |text, expected| assert_eq!(cidrs(text), expected, "{text}");
        check("192.168.0.10-192.168.0.20", "192.168.0.10/31 192.168.0.12/30 192.168.0.16/30 192.168.0.20/32");
        check("10.0.0.0..10.0.1.255", "10.0.0.0/23");
        check(" 10.0.0.0 – 10.0.0.255 ", "10.0.0.0/24");
        check("10.0.0.8-15", "10.0.0.8/29");
        check("fd00::-fd00::ffff", "fd00::/112");
        check("0.0.0.0-255.255.255.255", "0.0.0.0/0");
        check("10.0.0.0/255.255.240.0", "10.0.0.0/20");
        check("10.1.*.*", "10.1.0.0/16");
        check("10.1/16", "10.1.0.0/16");
        // No range, or more than one meaning.
        for text in [
            "",
            "-",
            "10.0.0.9-10.0.0.1",
            "10.0.0.1-fd00::",
            "10.0.0.0/24",
            "10.0.0.0",
            "a-b",
            "10.*.0.*",
            "10.0.0.0/255.0.255.0",
            "*.*.*.*",
            "fd00::1-9",
            "10.0.0.1-300",
            "10/x",
        ] {
            check(text, "");
        }
    }

    #[test]
    fn a_span_ends_with_its_family() {
        let check = |text, expected: Option<&str>| {
            let (first, prefix) = address_and_prefix(text).unwrap();
            assert_eq!(Span::as_long_as(first, prefix).map(|span| span.to_string()).as_deref(), expected);
        };
        check("192.168.100.200/28", Some("192.168.100.200 to 192.168.100.215"));
        check("255.255.255.250/28", None);
        check("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff1/124", None);
    }

    proptest! {
        #[test]
        fn the_cidrs_of_a_span_are_exactly_its_addresses(a in any::<u32>(), b in any::<u32>()) {
            let (first, last) = (Ipv4Addr::from(a.min(b)), Ipv4Addr::from(a.max(b)));
            let cidrs = other_notation(&format!("{first}-{last}")).unwrap().cidrs();
            prop_assert_eq!(cidrs[0].first_address(), IpAddr::V4(first));
            prop_assert_eq!(cidrs[cidrs.len() - 1].last_address(), IpAddr::V4(last));
            prop_assert!(cidrs.windows(2).all(|pair| pair[0].last() + 1 == pair[1].first()));
        }
    }
}
