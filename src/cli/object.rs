//! Names of objects in arguments, as kubectl takes them: `NAME`, or `TYPE/NAME` as `kubectl get -o name` prints it.

/// The name of a Node, or of its CiliumNode, which has the same.
pub(super) fn node(text: &str) -> Result<String, String> {
    name(text, "a node", &["node", "nodes", "no", "ciliumnode", "ciliumnodes", "cn", "ciliumn"])
}

/// The name of a NodeIPPool.
pub(super) fn pool(text: &str) -> Result<String, String> {
    name(text, "a pool", &["nodeippool", "nodeippools", "nip"])
}

/// The name of a NodeIPBlock.
pub(super) fn claim(text: &str) -> Result<String, String> {
    name(text, "a claim", &["nodeipblock", "nodeipblocks", "nib"])
}

/// The name behind one of these types. A type may have its group behind it, and no name has a slash.
fn name(text: &str, what: &str, types: &[&str]) -> Result<String, String> {
    let Some((kind, name)) = text.split_once('/') else { return Ok(text.to_owned()) };
    let plain = kind.split('.').next().unwrap_or_default().to_ascii_lowercase();
    if !types.contains(&plain.as_str()) {
        return Err(format!("`{text}` is not {what}: it must be NAME or {}/NAME", types[0]));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_its_type() {
        for text in ["a", "nip/a", "nodeippool/a", "nodeippools.nodeipam.io/a", "NodeIPPool/a"] {
            assert_eq!(pool(text).as_deref(), Ok("a"), "{text}");
        }
        assert_eq!(node("no/n1").as_deref(), Ok("n1"));
        assert_eq!(node("ciliumnode.cilium.io/n1").as_deref(), Ok("n1"));
        assert_eq!(claim("nib/10.0.0.0-28").as_deref(), Ok("10.0.0.0-28"));
        assert!(pool("node/a").is_err_and(|error| error.contains("NAME or nodeippool/NAME")));
    }
}
