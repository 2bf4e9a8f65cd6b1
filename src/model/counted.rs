//! A number with its noun, as messages say it.

use std::fmt;

/// `1 block`, `2 blocks`, `1 address`, `0 addresses`: the number and the noun in the form that it asks for.
///
/// `noun` is the singular of a regular noun; before it there may be other words, as in `ipv4 block`.
pub fn counted<N: Copy + fmt::Display + PartialEq + From<u8>>(n: N, noun: &str) -> String {
    if n == N::from(1) {
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
}
