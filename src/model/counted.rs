//! A number, and a number with its noun, for messages.

use crate::model::status::MAX_COUNT;

/// A number for people: exact below 2^53-1, where counts of objects are capped; then a power of two, or a bound.
///
/// ```
/// use cilium_node_ipam::model::counted::shown;
///
/// assert_eq!(shown(16_u8), "16");
/// assert_eq!(shown(1_u128 << 64), "2^64");
/// assert_eq!(shown((1_u128 << 74) - 2), ">2^73");
/// ```
pub fn shown<N: TryInto<u128>>(n: N) -> String {
    // Only a negative number does not convert, and no count is negative.
    let n = n.try_into().unwrap_or_default();
    if n < u128::from(MAX_COUNT) {
        n.to_string()
    } else if n.is_power_of_two() {
        format!("2^{}", n.ilog2())
    } else {
        // A count of exactly MAX_COUNT was capped: 2^53 is its nearest known bound.
        format!(">2^{}", n.ilog2().max(53))
    }
}

/// `1 block`, `2 blocks`, `1 address`, `0 addresses`: the number, and the noun in the form for it.
///
/// `noun` is the singular of a regular noun; before it there may be other words, as in `ipv4 block`.
pub fn counted<N: TryInto<u128>>(n: N, noun: &str) -> String {
    let n = shown(n);
    if n == "1" {
        return format!("{n} {noun}");
    }
    let (stem, ending) = match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => (stem, "ies"),
        _ if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => (noun, "es"),
        _ => (noun, "s"),
    };
    format!("{n} {stem}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_every_other_number_plural() {
        for (noun, plural) in
            [("block", "blocks"), ("ipv4 address", "ipv4 addresses"), ("entry", "entries"), ("way", "ways")]
        {
            assert_eq!(counted(1u8, noun), format!("1 {noun}"));
            assert_eq!(counted(0usize, noun), format!("0 {plural}"));
            assert_eq!(counted(2u128, noun), format!("2 {plural}"));
        }
    }
    #[test]
    fn a_number_beyond_the_largest_count_is_shown_as_a_power_of_two() {
        let check = |n: u128, expected: &str| assert_eq!(shown(n), expected);
        check(0, "0");
        check((1 << 53) - 2, "9007199254740990");
        // A count that was capped, and its neighbours.
        check(u128::from(MAX_COUNT), ">2^53");
        check(1 << 53, "2^53");
        check((1 << 53) + 1, ">2^53");
        check(1 << 64, "2^64");
        check(1 << 74, "2^74");
        check((1 << 74) - 2, ">2^73");
        check(u128::MAX, ">2^127");
        assert_eq!(counted(1_u128 << 64, "ipv6 address"), "2^64 ipv6 addresses");
    }
}
