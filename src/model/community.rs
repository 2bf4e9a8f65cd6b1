//! A standard community of BGP: two numbers of 16 bits, written `ASN:VALUE`.

use std::fmt;

/// A standard community.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Community(u32);

impl Community {
    /// The community of both numbers in one, as it is sent.
    #[must_use]
    pub const fn of_number(number: u32) -> Self {
        Self(number)
    }

    /// Both numbers in one, as it is sent.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The community that is written so: two decimal numbers up to 65535, without leading zeros.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (high, low) = text.split_once(':')?;
        let half = |text: &str| text.parse::<u16>().ok().filter(|number| number.to_string() == text);
        Some(Self(u32::from(half(high)?) << 16 | u32::from(half(low)?)))
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 >> 16, self.0 & 0xffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_community_is_two_numbers_of_16_bits() {
        for text in ["0:0", "64512:100", "65535:65535"] {
            assert_eq!(Community::parse(text).map(|read| read.to_string()).as_deref(), Some(text));
        }
        assert_eq!(Community::parse("1:2").map(Community::number), Some(0x0001_0002));
        for text in ["", "1", "1:", ":1", "65536:1", "1:65536", "01:1", "+1:1", "1:2:3", "-1:1", " 1:1"] {
            assert_eq!(Community::parse(text), None, "{text}");
        }
    }
}
