//! Startup taints: those that a Node has until its labels are complete.
//!
//! Knows no objects: keys of taints, and the prefixes that select them.

use super::printable::printable;

/// The prefixes of the keys of startup taints that are always known.
pub const KNOWN: &[&str] = &[
    // A cloud controller manager removes it after it has set the zone and the region.
    "node.cloudprovider.kubernetes.io/uninitialized",
    // Cluster API removes it after it has copied the labels of the Machine.
    "node.cluster.x-k8s.io/uninitialized",
    // Karpenter removes it after it has copied the labels of the NodeClaim.
    "karpenter.sh/unregistered",
];

/// Taints that stay until pods can run, so until the node has addresses.
const WAIT_FOR_ADDRESSES: [&str; 4] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/network-unavailable",
    "node.cilium.io/agent-not-ready",
    // Those of the Node Readiness Controller.
    "readiness.k8s.io/",
];

/// The first of these prefixes that the key of a taint has.
#[must_use]
pub fn first_of(prefixes: &'static [&'static str], taints: &[String]) -> Option<&'static str> {
    prefixes.iter().find(|prefix| taints.iter().any(|key| key.starts_with(**prefix))).copied()
}

/// Refuses a prefix for which a node would wait until it has addresses.
///
/// # Errors
///
/// The taint for which it would wait, in words.
pub fn checked(prefix: &str) -> Result<String, String> {
    if prefix.is_empty() || prefix.contains([',', ' ']) {
        return Err("must be the key of a taint, or its first characters".to_owned());
    }
    let selects = |key: &&&str| key.starts_with(prefix) || prefix.starts_with(**key);
    match WAIT_FOR_ADDRESSES.iter().find(selects) {
        Some(key) => Err(format!(
            "{} selects {key}, which stays until the node has addresses, so the node would wait in vain",
            printable(prefix)
        )),
        None => Ok(prefix.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taint_is_one_of_startup_if_its_key_begins_with_a_prefix() {
        let check = |keys: &[&str], expected| {
            let taints: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
            assert_eq!(first_of(KNOWN, &taints), expected, "{keys:?}");
        };
        check(&[], None);
        check(&["node.kubernetes.io/not-ready", "karpenter.sh/disrupted"], None);
        check(&["a", "karpenter.sh/unregistered"], Some("karpenter.sh/unregistered"));
        check(&["node.cluster.x-k8s.io/uninitialized"], Some("node.cluster.x-k8s.io/uninitialized"));
    }

    #[test]
    fn a_taint_that_stays_until_the_node_has_addresses_is_refused() {
        for prefix in ["node.kubernetes.io/", "node.kubernetes.io/not-ready", "node.cilium.io/agent", "n"] {
            let why = checked(prefix).unwrap_err();
            assert!(why.contains("would wait in vain"), "{why}");
        }
        assert!(checked("readiness.k8s.io/nodeipam.io").unwrap_err().contains("readiness.k8s.io/"));
        assert!(checked("").unwrap_err().contains("key of a taint"));
        assert!(checked("a,b").is_err());
        for prefix in KNOWN.iter().chain(&["example.com/labels", "node.kubernetes.io/out-of-service"]) {
            assert_eq!(checked(prefix), Ok((*prefix).to_owned()));
        }
    }
}
