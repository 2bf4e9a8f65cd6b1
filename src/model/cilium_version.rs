//! A version of Cilium, as the tag of an image or an administrator names it.

use std::fmt;
use std::str::FromStr;

/// A version of Cilium. A suffix of the tag (`-rc.1`, `-cee.1`) is left out. Rebuilds have the code of the version, and
/// candidates nearly that; Cilium has candidates only for the first version of a minor one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CiliumVersion {
    /// The minor version that it belongs to.
    pub minor: Minor,
    /// The number of the patch version.
    pub patch: u16,
}

/// A minor version of Cilium, such as 1.14.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minor(pub u16, pub u16);

/// A text that names no version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a Cilium version: it needs three numbers, such as 1.17.8")]
pub struct NotARelease(String);

impl CiliumVersion {
    /// The version with these numbers.
    #[must_use]
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { minor: Minor(major, minor), patch }
    }

    /// The version that the reference of an image names by its tag: `quay.io/cilium/cilium:v1.17.8@sha256:…`. `None` if
    /// it has only a digest, or a tag that is no version, such as `stable`.
    #[must_use]
    pub fn of_image(reference: &str) -> Option<Self> {
        let (named, _digest) = reference.split_once('@').unwrap_or((reference, ""));
        // A colon before the last slash belongs to the port of the registry.
        let last = named.rsplit('/').next().unwrap_or(named);
        last.split_once(':')?.1.parse().ok()
    }
}

impl FromStr for CiliumVersion {
    type Err = NotARelease;

    /// Reads `1.17.8`, with or without a `v` before it and a suffix after it.
    fn from_str(text: &str) -> Result<Self, NotARelease> {
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let numbers = numbers.split(['-', '+']).next().unwrap_or(numbers);
        let mut parts = numbers.split('.').map(number);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Some(major)), Some(Some(minor)), Some(Some(patch)), None) => {
                Ok(Self::new(major, minor, patch))
            }
            _ => Err(NotARelease(text.to_owned())),
        }
    }
}

/// A number in digits alone; Rust also reads `+1`.
fn number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for CiliumVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.minor, self.patch)
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_an_image_names_its_release() {
        let digest = "sha256:0d3a4b1cf3ba2dba4bc7ba3a3a9bd5e5d5e7b0a0c7d6b3a4b1cf3ba2dba4bc7b";
        for (reference, expected) in [
            ("quay.io/cilium/cilium:v1.17.8".to_owned(), Some("1.17.8")),
            (format!("quay.io/cilium/cilium:v1.17.8@{digest}"), Some("1.17.8")),
            ("registry.example.com:5000/mirror/cilium:1.12.19".to_owned(), Some("1.12.19")),
            ("quay.io/isovalent/cilium:v1.14.2-cee.1".to_owned(), Some("1.14.2")),
            ("cilium:v1.20.0-rc.1".to_owned(), Some("1.20.0")),
            ("cilium:v1.16.3+build7".to_owned(), Some("1.16.3")),
            (format!("quay.io/cilium/cilium@{digest}"), None),
            (format!("registry.example.com:5000/cilium@{digest}"), None),
            ("registry.example.com:5000/cilium".to_owned(), None),
            ("quay.io/cilium/cilium:stable".to_owned(), None),
            ("quay.io/cilium/cilium:v1.17".to_owned(), None),
            ("quay.io/cilium/cilium:v1.17.8.9".to_owned(), None),
            ("quay.io/cilium/cilium:v1.+7.8".to_owned(), None),
            ("quay.io/cilium/cilium:v1.99999.8".to_owned(), None),
            (digest.to_owned(), None),
            (String::new(), None),
        ] {
            let found = CiliumVersion::of_image(&reference).map(|release| release.to_string());
            assert_eq!(found.as_deref(), expected, "{reference}");
        }
    }

    #[test]
    fn releases_are_ordered_by_their_numbers() {
        let release = |text: &str| text.parse::<CiliumVersion>().unwrap();
        assert!(release("1.9.30") < release("v1.12.0") && release("1.12.9") < release("1.12.10"));
        let error = "stable".parse::<CiliumVersion>().unwrap_err().to_string();
        assert_eq!(error, "`stable` is not a Cilium version: it needs three numbers, such as 1.17.8");
    }
}
