//! Tests of the routes of nodes: claims and carriers in, prefixes out.

use super::*;
use crate::routes::announced;
use crate::routes::compare::exported;

/// The routes of every node, and why blocks are not announced: `a: 10.0.0.0/25; b: (10.0.0.128/26: …)`.
fn reported(cluster: &Cluster) -> String {
    let nodes = announced(&cluster.world).into_iter().map(|(node, routes)| {
        let prefixes = routes.prefixes.iter().map(ToString::to_string);
        let others = routes.not_announced.iter().map(|(block, why)| format!("({block}: {why})"));
        format!("{node}: {}", prefixes.chain(others).collect::<Vec<_>>().join(" "))
    });
    nodes.collect::<Vec<_>>().join("; ")
}

#[test]
fn a_node_announces_its_published_blocks_as_few_prefixes() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 26
        node a 1
        ciliumnode a @90 10.0.0.0/26
        claim 10.0.0.0/26 a 1 Held @80
        claim 10.0.0.64/26 a 1 Held @81",
    );
    assert_eq!(reported(&cluster), "a: 10.0.0.0/26 (10.0.0.64/26: it is not published)");
    cluster.observe("ciliumnode a @91 10.0.0.0/26 10.0.0.64/26");
    assert_eq!(reported(&cluster), "a: 10.0.0.0/25");
}

#[test]
fn a_block_is_announced_until_its_carrier_no_longer_has_it() {
    let of = |claim: &str, carried: &str| {
        reported(&Cluster::of(&format!(
            "pool p 10.0.0.0/24 26\nnode a 1\nciliumnode a @90 10.0.0.0/26 {carried}\n\
             claim 10.0.0.0/26 a 1 Held @80\nclaim 10.0.0.64/26 a 1 {claim} @81"
        )))
    };
    assert_eq!(of("Draining", "10.0.0.64/26"), "a: 10.0.0.0/26 10.0.0.64/26");
    assert_eq!(of("Releasing/Reclaimed", "10.0.0.64/26"), "a: 10.0.0.0/26 10.0.0.64/26");
    assert_eq!(of("Releasing/Reclaimed", ""), "a: 10.0.0.0/26 (10.0.0.64/26: it is not published)");
    assert_eq!(of("Cooling/Reclaimed", ""), "a: 10.0.0.0/26");
}

#[test]
fn a_node_that_is_gone_announces_nothing() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 26\njoined a @90 10.0.0.0/26");
    cluster.delete(Kind::Node, "a", 101);
    assert_eq!(reported(&cluster), "a: (10.0.0.0/26: its Node does not exist)");
}

#[test]
fn what_two_nodes_have_is_announced_for_neither() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/24 26
        node a 1
        node b 2
        ciliumnode a @90 10.0.0.0/26
        ciliumnode b @91 10.0.0.0/28 10.0.0.64/26
        claim 10.0.0.0/26 a 1 Held @80
        claim 10.0.0.0/28 b 2 Held @81
        claim 10.0.0.64/26 b 2 Held @82",
    );
    let expected = "a: (10.0.0.0/26: it overlaps 10.0.0.0/28 of node b); \
                    b: 10.0.0.64/26 (10.0.0.0/28: it overlaps 10.0.0.0/26 of node a)";
    assert_eq!(reported(&cluster), expected);
}

/// A daemon may run other networks too, such as those of Services.
#[test]
fn routes_are_exported_where_daemons_run_all_prefixes_of_their_nodes() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/24 26
        joined a @90 10.0.0.0/26
        joined b @91 10.0.0.64/26 10.0.0.192/26
        node c 1",
    );
    let routes = announced(&cluster.world);
    let shown = |running: &[(&str, &str)]| {
        let running = running.iter().map(|(node, networks)| ((*node).into(), cidrs(networks).collect()));
        let found = exported(&routes, &running.collect());
        let texts = found.iter().map(|(node, is_exported)| format!("{node} {is_exported}"));
        texts.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(shown(&[]), "");
    assert_eq!(shown(&[("a", "10.9.0.0/24"), ("b", "10.0.0.0/26")]), "", "for other writers");
    assert_eq!(shown(&[("a", "10.0.0.0/26,10.9.0.0/24")]), "a true, b false");
    let all = [("a", "10.0.0.0/26"), ("b", "10.0.0.64/26,10.0.0.192/26")];
    assert_eq!(shown(&all), "a true, b true");
    assert_eq!(shown(&[("a", "10.0.0.0/26"), ("b", "10.0.0.64/26")]), "a true, b false");
}
