//! The reading of a NodeIPPool object: its declaration, its status, and the ranges that it keeps if it can't be read.
//!
//! Reads each part by itself, so that one part in the form of another version does not hide the others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::{NodeIPPool, NodeIPPoolSpec, NodeIPPoolStatus, Pools, reserved, status};
use crate::model::kind::Kind;
use crate::model::names::{PoolName, Uid};
use crate::model::observation::{InvalidPool, Object, PoolObject};
use crate::model::pool::{Pool, Reservation};
use crate::model::revision::{Custom, Revision};
use crate::wire::watched::{Meta, Wire};
use crate::wire::{GROUP, VERSION};

/// The parts of a pool. Another version may have written each of them in another form.
#[derive(Deserialize)]
struct Parts {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl Wire for Pools {
    const KIND: Kind = Kind::Pool;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
    const PLURAL: &'static str = "nodeippools";
    type Store = Custom;

    /// A declaration that can't be read is a value too. A status that can't be read counts as none: it is ours, and is
    /// written anew.
    fn read(json: &str, meta: &Meta, revision: Revision<Custom>) -> Result<Object, String> {
        let Parts { metadata, spec, status } =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        let status = serde_json::from_value::<NodeIPPoolStatus>(status).unwrap_or_default();
        let (name, uid): (PoolName, Uid) = (meta.name.as_str().into(), meta.uid.as_str().into());
        let generation = metadata.generation.unwrap_or_default();
        let finalizers = metadata.finalizers.clone().unwrap_or_default();
        let pool = pool(metadata, &spec).map_err(|findings| InvalidPool {
            findings,
            reserved: Reservation {
                name: name.clone(),
                uid: uid.clone(),
                created: meta.created(),
                cidrs: reserved::ranges(&spec),
            },
        });
        Ok(Object::Pool(PoolObject {
            name,
            uid,
            revision,
            generation,
            deleting: meta.is_deleting(),
            finalizers,
            pool,
            transitions: status
                .conditions
                .iter()
                .map(|condition| (condition.type_.clone(), condition.last_transition_time.0))
                .collect(),
            waits_since: status::read_waits(&status),
            history: status::read_history(&status),
            status: status::read_status(&status),
        }))
    }
}

/// The pool as declared, or every rule that it breaks.
fn pool(metadata: ObjectMeta, spec: &Value) -> Result<Pool, Vec<String>> {
    let spec = NodeIPPoolSpec::deserialize(spec).map_err(|error| vec![format!("spec: {error}")])?;
    Pool::try_from(&NodeIPPool { metadata, spec, status: None })
        .map_err(|invalid| invalid.errors.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use crate::model::observation::{Object, PoolObject};
    use crate::net::cidr::Family;
    use crate::wire::pool::Pools;
    use crate::wire::watched::tests::read;

    /// A mistake in a pool must not change the blocks that others may give: it keeps every range in it that can be
    /// read.
    #[test]
    fn a_pool_that_cannot_be_read_reserves_the_ranges_in_it() {
        let check = |spec: &str, expected: &str| {
            let object = read::<Pools>(&format!(
                r#"{{"metadata":{{"name":"p","uid":"u","resourceVersion":"7","creationTimestamp":"1970-01-01T00:00:09Z",
                     "generation":3,"finalizers":["f"],"annotations":{{"a":"10.9.0.0/24"}}}},
                    "spec":{spec},"status":{{"conditions":"of another form"}}}}"#
            ));
            let Object::Pool(object) = object else { panic!("{object:?}") };
            assert_eq!((object.generation, object.finalizers.as_slice()), (3, &["f".to_owned()][..]));
            let read = match object.pool {
                Ok(pool) => format!("{:?}", pool.families[&Family::V4].cidrs.keys()),
                Err(invalid) => {
                    let reserved = invalid.reserved;
                    assert_eq!((reserved.name.as_str(), reserved.uid.as_str()), ("p", "u"));
                    assert_eq!(reserved.created.as_second(), 9);
                    format!("{}; reserved {:?}", invalid.findings.join("; "), reserved.cidrs)
                }
            };
            assert_eq!(read, expected);
        };
        check(r#"{"ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.1.0.0/24"}]}}"#, "[10.1.0.0/24]");
        // A value that breaks a rule, and one of another type.
        check(
            r#"{"priority":2000000000,"ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.1.0.0/24"},{"cidr":"10.1.0.0/25"}]}}"#,
            "spec.ipv4.cidrs: \"10.1.0.0/25\": must not overlap each other; it overlaps 10.1.0.0/24; \
             spec.priority: 2000000000: must be between -1000000000 and 1000000000; reserved {10.1.0.0/24, 10.1.0.0/25}",
        );
        check(
            r#"{"ipv4":{"blockSize":"28","cidrs":[{"cidr":"10.1.0.0/24"}],"exclude":["10.1.0.0/28"]}}"#,
            "spec: invalid type: string \"28\", expected i32; reserved {10.1.0.0/24}",
        );
        // Ranges in forms that this version does not know; one of them is no range.
        check(
            r#"{"ipv4":{"cidrs":{"10.1.0.0/24":{},"ten":{}}},"ipv6":{"cidrs":["fd00::1/64","fd00::/129"]}}"#,
            "spec: invalid type: map, expected a sequence; reserved {10.1.0.0/24, fd00::/64}",
        );
        // A range that no pool may have would keep all others from serving.
        for range in ["0.0.0.0/0", "0.0.0.0/1", "127.0.0.0/24", "::/0", "::ffff:0.0.0.0/96", "fc00::/6"] {
            let object = read::<Pools>(&format!(
                r#"{{"metadata":{{"name":"p","resourceVersion":"7"}},"spec":{{"ipv4":{{"cidrs":[{{"cidr":"{range}"}},"10.1.0.0/24"]}}}}}}"#
            ));
            let Object::Pool(PoolObject { pool: Err(invalid), .. }) = object else { panic!("{object:?}") };
            assert_eq!(format!("{:?}", invalid.reserved.cidrs), "{10.1.0.0/24}", "{range}");
        }
        check("null", "spec: invalid type: null, expected struct NodeIPPoolSpec; reserved {}");
    }
}
