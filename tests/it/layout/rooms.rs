//! The floors: the list of rooms, and the rule that each names only those below it.

use super::Finding;
use super::scope::{ModulePath, Target};
use super::source::Sources;

/// The rooms of `src` from the bottom, and the purpose of each. `src/lib.rs` declares them in the same order.
pub(super) const ROOMS: [(&str, &str); 14] = [
    ("net", "CIDRs, and sets and indexes of addresses."),
    (
        "model",
        "The vocabulary of all that decide: objects, observations, requests, outcomes, plans, findings.",
    ),
    ("ledger", "Which addresses there are to give, and who occupies them."),
    ("publisher", "All that is true of one mode of Cilium only."),
    ("world", "Takes in observations and outcomes, indexes and paces them, and decides nothing."),
    ("view", "What is told about the world: tallies, conditions, snapshots, block events."),
    ("plan", "The decisions."),
    ("forecast", "The future of a world, computed by the same decisions."),
    ("routes", "The prefixes that each node announces, and the writes by which it does."),
    ("wire", "The Kubernetes objects: their types, rules and schemas, and the conversion into the model."),
    ("page", "Views as pages for a browser: HTML and SVG."),
    ("telemetry", "What an operator sees of a process: metrics, readiness, event reasons, logs."),
    ("controller", "Everything that talks to an API server, and the loop."),
    ("cli", "The commands and their arguments."),
];

const UPWARDS: &str = "a room names only the rooms below it";
const UNKNOWN: &str = "every directory of `src` is a room in the table of rooms";
const ABSENT: &str = "every room in the table of rooms is a directory of `src`";
const ORDER: &str = "`lib.rs` declares the rooms of the table, in their order, and no other module";
const ORPHAN: &str = "a source that no `mod` declares is neither compiled nor checked";

/// The floor of a room; the bottom is 0.
fn floor(room: &str) -> Option<usize> {
    ROOMS.iter().position(|(name, _)| *name == room)
}

/// Where the directories and `lib.rs` differ from the table of rooms.
pub(super) fn differences(sources: &Sources) -> Vec<Finding> {
    let of_directory = |name: &str, rule| Finding::of_file(&format!("src/{name}"), name, rule);
    let unknown = sources.directories.iter().filter(|name| floor(name).is_none());
    let absent = ROOMS.iter().filter(|(name, _)| !sources.directories.contains(*name));
    let mut found: Vec<Finding> = unknown.map(|name| of_directory(name, UNKNOWN)).collect();
    found.extend(absent.map(|(name, _)| of_directory(name, ABSENT)));
    found.extend(sources.orphans.iter().map(|file| Finding::of_file(file, file, ORPHAN)));
    if !sources.rooms.iter().eq(ROOMS.iter().map(|(name, _)| name)) {
        found.push(Finding::of_file("src/lib.rs", &sources.rooms.join(", "), ORDER));
    }
    found
}

/// Every name that leads from a room to one above it. Tests may name any room.
pub(super) fn upward_names(sources: &Sources) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in sources.files() {
        let Some(own) = source.room().and_then(floor) else { continue };
        for name in source.names.iter().filter(|name| !name.in_test) {
            let Target::Inside { through, .. } = sources.target(name) else { continue };
            let is_above = |module: &ModulePath| floor(&module[0]).is_none_or(|floor| floor > own);
            if through.iter().any(is_above) {
                found.push(Finding::new(&source.file, name.line, &name.written.join("::"), UPWARDS));
            }
        }
    }
    found
}

#[test]
fn a_name_that_leads_upwards_is_found() {
    let above = "pub struct World; pub mod gather { pub fn listed() {} }";
    for (source, expected) in [
        ("use crate::world::World;", "1: crate::world::World"),
        (
            "use crate::{net::cidr::Cidr,\n    world::{self, World}};",
            "2: crate::world, 2: crate::world::World",
        ),
        ("pub use crate::world::*;", "1: crate::world::*"),
        ("use super::world::World as Earth;", "1: super::world::World"),
        ("mod inner {\n    use super::super::world::World;\n}", "2: super::super::world::World"),
        ("use crate as root;\nfn f(_: root::world::World) {}", "2: root::world::World"),
        ("use super::*;\nfn f(_: world::World) {}", "2: world::World"),
        ("fn f() {\n    self::super::world::gather::listed();\n}", "2: self::super::world::gather::listed"),
        ("fn f(w: Vec<crate::world::World>) {}", "1: crate::world::World"),
        ("impl From<crate::world::World> for u8 {}", "1: crate::world::World"),
        (
            "fn f() {\n    format!(\"{}\", crate::world::gather::listed());\n}",
            "2: crate::world::gather::listed",
        ),
        ("stable_names! { x => [crate::world::{World}] }", "1: crate::world::World"),
        ("macro_rules! m { () => { $crate::world::World } }", "1: crate::world::World"),
        ("#[serde(with = \"crate::world::gather\")]\nstruct X;", "1: crate::world::gather"),
        ("#[cfg(any(test, unix))]\nuse crate::world::World;", "2: crate::world::World"),
    ] {
        let sources = Sources::of_texts(&[("model/mod.rs", source), ("world/mod.rs", above)]);
        let found = upward_names(&sources);
        assert!(found.iter().all(|finding| finding.file == "src/model/mod.rs" && finding.rule == UPWARDS));
        let shown: Vec<String> =
            found.iter().map(|found| format!("{}: {}", found.line, found.named)).collect();
        assert_eq!(shown.join(", "), expected, "{source}");
    }
}

#[test]
fn names_below_and_names_in_tests_are_allowed() {
    for source in [
        "use crate::net::cidr::Cidr;",
        "use crate::model::claim::Claim;\nuse std::world::World;",
        "//! [`crate::world::World`]\nconst TEXT: &str = \"crate::world::World\"; // crate::world::World",
        "fn f(world: u8, x: X) -> u8 { x.world::<u8>(); world }",
        "#[cfg(test)]\nmod tests { use crate::world::World; }",
        "#[cfg(test)]\nuse crate::world::World;",
        "#[cfg(all(test, unix))]\nfn f(_: crate::world::World) {}",
        "impl X {\n    #[cfg(test)]\n    fn f(_: crate::world::World) {}\n}",
        "#[cfg(test)]\nmod examples;",
        "use ::world::World;",
        "pub(in crate::model) struct X;",
    ] {
        let sources = Sources::of_texts(&[
            ("net/mod.rs", "pub mod cidr { pub struct Cidr; }"),
            ("model/mod.rs", &format!("{source}\npub mod claim;")),
            ("model/claim.rs", "pub struct Claim;"),
            ("model/examples.rs", "use crate::world::World;"),
            ("world/mod.rs", "pub struct World;"),
        ]);
        assert_eq!(upward_names(&sources), [], "{source}");
    }
}

#[test]
fn a_difference_between_the_table_and_the_rooms_is_found() {
    let mut texts: Vec<(String, String)> =
        ROOMS.iter().map(|(room, _)| (format!("{room}/mod.rs"), String::new())).collect();
    let in_order: Vec<String> = ROOMS.iter().map(|(room, _)| format!("pub mod {room};")).collect();
    texts.push(("lib.rs".to_owned(), in_order.join("\n") + "\n#[cfg(test)]\nmod docs;\n"));
    texts.push(("docs.rs".to_owned(), String::new()));
    let shown = |texts: &[(String, String)]| {
        let texts: Vec<(&str, &str)> = texts.iter().map(|(file, text)| (&**file, &**text)).collect();
        differences(&Sources::of_texts(&texts)).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(shown(&texts), [""; 0]);

    let mut swapped = texts.clone();
    let root = swapped.iter_mut().find(|(file, _)| file == "lib.rs").expect("it was put there");
    root.1 = root
        .1
        .replace("mod net;", "mod x;")
        .replace("mod model;", "mod net;")
        .replace("mod x;", "mod model;");
    let order = "model, net, ledger, publisher, world, view, plan, forecast, routes, wire, page, telemetry, controller, cli";
    assert_eq!(shown(&swapped), [format!("src/lib.rs:1: `{order}`: {ORDER}")]);

    let mut other = texts.clone();
    other.retain(|(file, _)| file != "cli/mod.rs");
    other.push(("attic/mod.rs".to_owned(), String::new()));
    other.push(("net/lost.rs".to_owned(), String::new()));
    let root = other.iter_mut().find(|(file, _)| file == "lib.rs").expect("it was put there");
    root.1 = root.1.replace("mod cli;", "mod attic;");
    let order = "net, model, ledger, publisher, world, view, plan, forecast, routes, wire, page, telemetry, controller, attic";
    assert_eq!(
        shown(&other),
        [
            format!("src/attic:1: `attic`: {UNKNOWN}"),
            format!("src/cli:1: `cli`: {ABSENT}"),
            format!("src/net/lost.rs:1: `src/net/lost.rs`: {ORPHAN}"),
            format!("src/lib.rs:1: `{order}`: {ORDER}"),
        ]
    );
}
