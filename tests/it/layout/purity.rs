//! Purity: the rooms that decide know nothing of the outside world. That includes a Kubernetes client, an async
//! runtime, a clock, randomness, and an order that depends on hashing. Their tests comply too, so that they decide
//! alike on every run.

use super::Finding;
use super::scope::Target;
use super::source::{Source, Sources};

/// The rooms that decide: all below `wire`.
const PURE: [&str; 9] =
    ["net", "model", "ledger", "publisher", "world", "view", "plan", "forecast", "routes"];

const CLIENT: &str = "the core knows no Kubernetes client; of kube-core it uses the selectors only";
const RUNTIME: &str = "the core is not async and starts no threads";
const CLOCK: &str = "the core knows no clock; the time is given to it";
const CHANCE: &str =
    "the core decides alike in equal worlds: no randomness, no order that depends on hashing";
const OUTSIDE: &str = "the core reads and writes nothing outside of the world";

/// Words that the core does not use.
const WORDS: [(&str, &str); 42] = [
    ("kube", CLIENT),
    ("kube_client", CLIENT),
    ("kube_runtime", CLIENT),
    ("k8s_openapi", CLIENT),
    ("tokio", RUNTIME),
    ("tokio_util", RUNTIME),
    ("futures", RUNTIME),
    ("async", RUNTIME),
    ("await", RUNTIME),
    ("thread", RUNTIME),
    ("thread_local", RUNTIME),
    ("SystemTime", CLOCK),
    ("Instant", CLOCK),
    ("UNIX_EPOCH", CLOCK),
    ("rand", CHANCE),
    ("getrandom", CHANCE),
    ("thread_rng", CHANCE),
    ("HashMap", CHANCE),
    ("HashSet", CHANCE),
    ("hash_map", CHANCE),
    ("hash_set", CHANCE),
    ("RandomState", CHANCE),
    ("DefaultHasher", CHANCE),
    ("TcpStream", OUTSIDE),
    ("TcpListener", OUTSIDE),
    ("UdpSocket", OUTSIDE),
    ("UnixStream", OUTSIDE),
    ("ToSocketAddrs", OUTSIDE),
    ("File", OUTSIDE),
    ("stdin", OUTSIDE),
    ("stdout", OUTSIDE),
    ("stderr", OUTSIDE),
    ("println", OUTSIDE),
    ("print", OUTSIDE),
    ("eprintln", OUTSIDE),
    ("eprint", OUTSIDE),
    ("dbg", OUTSIDE),
    ("tracing", OUTSIDE),
    ("option_env", OUTSIDE),
    ("include_str", OUTSIDE),
    ("reqwest", OUTSIDE),
    ("axum", OUTSIDE),
];

/// Items of the standard library that the core does not use.
const ITEMS: [(&str, &str); 7] = [
    ("env", OUTSIDE),
    ("fs", OUTSIDE),
    ("io", OUTSIDE),
    ("os", OUTSIDE),
    ("process", OUTSIDE),
    ("sync::atomic", RUNTIME),
    ("task", RUNTIME),
];

/// The crate names of the standard library.
const STANDARD: [&str; 3] = ["std", "core", "alloc"];

/// Crates with the only items of them that the core uses.
const ONLY: [(&str, &[&str], &str); 2] =
    [("kube_core", &["Selector", "SelectorExt", "Expression"], CLIENT), ("jiff", &["Timestamp"], CLOCK)];

/// Everything in the rooms that decide that does not belong there.
pub(super) fn offences(sources: &Sources) -> Vec<Finding> {
    let is_pure = |source: &&Source| source.room().is_some_and(|room| PURE.contains(&room));
    let mut found = Vec::new();
    for source in sources.files().filter(is_pure) {
        for word in &source.words {
            if let Some((_, rule)) = WORDS.iter().find(|(forbidden, _)| *forbidden == word.text) {
                found.push(Finding::new(&source.file, word.line, &word.text, rule));
            }
            if word.text == "now" && word.is_in_path {
                found.push(Finding::new(&source.file, word.line, "::now", CLOCK));
            }
        }
        for name in &source.names {
            if let Target::Outside(path) = sources.target(name)
                && let Some((named, rule)) = forbidden(&path)
            {
                found.push(Finding::new(&source.file, name.line, &named, rule));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The part of a path out of the crate that the core may not take, and why.
fn forbidden(path: &[String]) -> Option<(String, &'static str)> {
    let (first, rest) = path.split_first()?;
    if let Some((_, items, rule)) = ONLY.iter().find(|(of, ..)| of == first) {
        let is_allowed = rest.first().is_some_and(|item| items.contains(&item.as_str()));
        return (!is_allowed).then(|| (path.join("::"), *rule));
    }
    let item = STANDARD.contains(&first.as_str()).then(|| rest.join("::"))?;
    let is_taken = |forbidden: &str| {
        item.strip_prefix(forbidden).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let (forbidden, rule) = ITEMS.iter().find(|(forbidden, _)| is_taken(forbidden))?;
    Some((format!("{first}::{forbidden}"), rule))
}

#[test]
fn every_forbidden_word_is_found() {
    for (word, rule) in WORDS {
        let texts = format!("// {word}\nconst TEXT: &str = \"{word}\";\n");
        let source = match word {
            "async" => "async fn f() {}".to_owned(),
            "await" => "fn f() { x.await }".to_owned(),
            _ => format!("fn f(x: {word}) {{}}"),
        };
        let sources = Sources::of_texts(&[("plan/mod.rs", &format!("{texts}{source}"))]);
        assert_eq!(offences(&sources), [Finding::new("src/plan/mod.rs", 3, word, rule)]);
        // The rooms around the core may use them all.
        let sources = Sources::of_texts(&[("wire/mod.rs", &source)]);
        assert_eq!(offences(&sources), []);
    }
    for (item, rule) in ITEMS {
        for source in [
            format!("use std::{item};"),
            format!("use std::{{x, {item}::y}};"),
            format!("use ::std::{item}::*;"),
            format!("fn f() {{ std::{item}::z(); }}"),
            format!("fn f() {{ vec![std::{item}::z()]; }}"),
            format!("#[cfg(test)]\nmod tests {{}} use std::{item}::y as z;"),
        ] {
            let sources = Sources::of_texts(&[("plan/mod.rs", &source)]);
            let line = source.lines().count();
            assert_eq!(
                offences(&sources),
                [Finding::new("src/plan/mod.rs", line, &format!("std::{item}"), rule)]
            );
        }
    }
}

#[test]
fn offences_are_named_with_line_and_rule() {
    let source = r##"//! Says `tokio` and kube::Client in a comment only.
        use std::collections::BTreeMap;
        use std::{net::IpAddr, fs};
        use kube_core::{Selector, params::ListParams};
        fn decide<'a>(now: Now, text: &'a str) -> char {
            let quote = ('"', '\'', "HashMap \" rand", r#"Instant "std::fs" "#);
            let at = jiff::Timestamp::now();
            let at = <jiff::Zoned>::now;
            /* SystemTime */
            let map: HashMap<u8, u8> = HashMap::new();
            'x'
        }
        use std as standard;
        use kube_core as kubernetes;
        use jiff::{Timestamp, tz};
        fn f() { standard::process::exit(1); assert!(Timestamp::now() > at && kubernetes::discovery::x()) }
    "##;
    let shown: Vec<String> = offences(&Sources::of_texts(&[("model/mod.rs", source)]))
        .iter()
        .map(|offence| offence.to_string().replace("src/model/mod.rs:", ""))
        .collect();
    assert_eq!(
        shown,
        [
            format!("3: `std::fs`: {OUTSIDE}"),
            format!("4: `kube_core::params::ListParams`: {CLIENT}"),
            format!("7: `::now`: {CLOCK}"),
            format!("8: `::now`: {CLOCK}"),
            format!("8: `jiff::Zoned`: {CLOCK}"),
            format!("10: `HashMap`: {CHANCE}"),
            format!("14: `kube_core`: {CLIENT}"),
            format!("15: `jiff::tz`: {CLOCK}"),
            format!("16: `::now`: {CLOCK}"),
            format!("16: `kube_core::discovery::x`: {CLIENT}"),
            format!("16: `std::process`: {OUTSIDE}"),
        ]
    );
}

#[test]
fn what_the_core_needs_is_allowed() {
    let source = "
        use std::{collections::BTreeMap, net::{IpAddr, Ipv6Addr}, time::Duration};
        use kube_core::{Selector, SelectorExt};
        fn selects(selector: kube_core::Selector, now: Now, at: jiff::Timestamp) -> Duration { now.uptime }
        fn f(selector: Selector) -> bool { Selector::default().matches(now) }
    ";
    assert_eq!(offences(&Sources::of_texts(&[("world/mod.rs", source)])), []);
}
