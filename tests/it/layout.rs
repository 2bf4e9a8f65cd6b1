//! The layout of the crate: what decides is pure. Nothing under `src/ipam`, `src/world` and `src/cilium` knows a
//! Kubernetes client, an async runtime, a clock, randomness, an order that depends on hashing, or the outside world.
//!
//! Reads the sources word by word, without comments and texts. It needs no control plane.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules that decide.
const PURE: [&str; 7] = ["net", "model", "ledger", "publisher", "world", "view", "plan"];

const CLIENT: &str = "the core knows no Kubernetes client; of kube-core it uses the selectors only";
const RUNTIME: &str = "the core is not async and starts no threads";
const CLOCK: &str = "the core knows no clock; the time is given to it";
const CHANCE: &str =
    "the core decides alike in equal worlds: no randomness, no order that depends on hashing";
const OUTSIDE: &str = "the core reads and writes nothing outside of the world";
const LAYERS: &str = "the core does not look up to what is built around it";

/// Words that may not stand anywhere.
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

/// Items that may not be taken from these paths, whether named in full or in braces.
const ITEMS: [(&str, &str, &str); 11] = [
    ("std", "env", OUTSIDE),
    ("std", "fs", OUTSIDE),
    ("std", "io", OUTSIDE),
    ("std", "os", OUTSIDE),
    ("std", "process", OUTSIDE),
    ("std", "sync::atomic", RUNTIME),
    ("std", "task", RUNTIME),
    ("crate", "wire", LAYERS),
    ("crate", "cli", LAYERS),
    ("crate", "controller", LAYERS),
    ("crate", "telemetry", LAYERS),
];

/// What may be taken from kube-core.
const SELECTORS: [&str; 2] = ["Selector", "SelectorExt"];

/// A word where it may not stand.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Offence {
    file: PathBuf,
    line: usize,
    word: String,
    rule: &'static str,
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: `{}`: {}", self.file.display(), self.line, self.word, self.rule)
    }
}

/// A word or a mark of the source, and its line.
type Token = (usize, String);

/// The words and marks of a source without its comments, texts and characters; `::` is one mark.
fn tokens(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = length_of_text(rest) {
            length
        } else if first.is_alphanumeric() || first == '_' {
            let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push((line, rest[..length].to_owned()));
            length
        } else if rest.starts_with("::") {
            tokens.push((line, "::".to_owned()));
            2
        } else {
            if !first.is_whitespace() {
                tokens.push((line, first.to_string()));
            }
            first.len_utf8()
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

/// The length of the text or character at the beginning of `rest`, if there is one; a lifetime is neither.
fn length_of_text(rest: &str) -> Option<usize> {
    let raw = rest.strip_prefix('r').filter(|raw| raw.trim_start_matches('#').starts_with('"'));
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let close = format!("\"{}", "#".repeat(hashes));
        let body = &raw[hashes + 1..];
        return Some(1 + hashes + 1 + body.find(&close).map_or(body.len(), |end| end + close.len()));
    }
    let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let mut chars = rest.char_indices().skip(1);
    let mut n_chars = 0;
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            _ if c == quote => return Some(at + 1),
            _ => {}
        }
        n_chars += 1;
        // A character is one; what goes on without a quote is a lifetime.
        if quote == '\'' && n_chars == 1 && c != '\\' && !rest[at + c.len_utf8()..].starts_with('\'') {
            return None;
        }
    }
    None
}

/// Every word of a source that may not stand in it.
fn offences(file: &Path, source: &str) -> Vec<Offence> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    let mut report = |line: usize, word: &str, rule: &'static str| {
        found.push(Offence { file: file.to_owned(), line, word: word.to_owned(), rule });
    };
    for (at, (line, word)) in tokens.iter().enumerate() {
        if let Some((_, rule)) = WORDS.iter().find(|(forbidden, _)| forbidden == word) {
            report(*line, word, rule);
        }
        if word == "now" && at > 0 && tokens[at - 1].1 == "::" {
            report(*line, "::now", CLOCK);
        }
        if matches!(word.as_str(), "std" | "crate") {
            for (line, item) in taken_from(&tokens[at + 1..]) {
                let path = |(from, forbidden, _): &&(&str, &str, &str)| {
                    from == word
                        && (item == *forbidden
                            || item.strip_prefix(forbidden).is_some_and(|rest| rest.starts_with("::")))
                };
                if let Some((from, forbidden, rule)) = ITEMS.iter().find(path) {
                    report(line, &format!("{from}::{forbidden}"), rule);
                }
            }
        }
        if word == "kube_core" {
            let items = taken_from(&tokens[at + 1..]);
            if items.is_empty() {
                report(*line, word, CLIENT);
            }
            for (line, item) in items {
                if !SELECTORS.iter().any(|selector| item.split("::").next() == Some(selector)) {
                    report(line, &format!("kube_core::{item}"), CLIENT);
                }
            }
        }
    }
    found
}

/// The paths that are named behind a first word: one, or those in braces, however deep.
fn taken_from(rest: &[Token]) -> Vec<Token> {
    let mut items = Vec::new();
    if rest.first().is_some_and(|(_, mark)| mark == "::") {
        read_tree(&rest[1..], "", &mut items);
    }
    items
}

/// Reads one tree of a path (`a::b`, `a::{b, c}`) into `items`; returns how many tokens it took.
fn read_tree(rest: &[Token], prefix: &str, items: &mut Vec<Token>) -> usize {
    let mut path = prefix.to_owned();
    let mut at = 0;
    while let Some((line, word)) = rest.get(at) {
        if word == "{" {
            at += 1;
            while rest.get(at).is_some_and(|(_, mark)| mark != "}") {
                at += if rest[at].1 == "," { 1 } else { read_tree(&rest[at..], &path, items).max(1) };
            }
            return at + 1;
        }
        path.push_str(word);
        at += 1;
        if rest.get(at).is_none_or(|(_, mark)| mark != "::") {
            items.push((*line, path));
            return at;
        }
        path.push_str("::");
        at += 1;
    }
    at
}

/// The Rust sources of a module, `src/<name>.rs` and everything below `src/<name>`.
fn sources(name: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut open = vec![root.join(name), root.join(format!("{name}.rs"))];
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory of the sources can be read");
            open.extend(entries.map(|entry| entry.expect("an entry of it can be read").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") && path.exists() {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[test]
fn what_decides_is_pure() {
    for name in PURE {
        let files = sources(name);
        assert!(!files.is_empty(), "there is no module {name}; has it been renamed?");
        let found: Vec<String> = files
            .iter()
            .flat_map(|file| offences(file, &fs::read_to_string(file).expect("a source can be read")))
            .map(|offence| offence.to_string())
            .collect();
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }
}

#[test]
fn every_forbidden_word_is_found() {
    for (word, rule) in WORDS {
        let source = format!("// {word}\nlet x = \"{word}\";\nlet y = {word}(1);\n");
        let expected = Offence { file: "x.rs".into(), line: 3, word: word.to_owned(), rule };
        assert_eq!(offences(Path::new("x.rs"), &source), [expected]);
    }
    for (from, item, rule) in ITEMS {
        for source in [
            format!("use {from}::{item};"),
            format!("use {from}::{{x, {item}::y}};"),
            format!("let y = {from}::{item}::z();"),
        ] {
            let word = format!("{from}::{item}");
            let expected = Offence { file: "x.rs".into(), line: 1, word, rule };
            assert_eq!(offences(Path::new("x.rs"), &source), [expected], "{source}");
        }
    }
}

#[test]
fn offences_are_named_with_line_and_rule() {
    let source = r##"
        //! Says `tokio` and kube::Client in a comment only.
        use std::collections::BTreeMap;
        use std::{net::IpAddr, fs};
        use kube_core::{Selector, params::ListParams};
        fn decide<'a>(now: Now, text: &'a str) -> char {
            let quote = ('"', '\'', "HashMap \" rand", r#"Instant "std::fs" "#);
            let at = jiff::Timestamp::now();
            /* SystemTime */
            let map: HashMap<u8, u8> = HashMap::new();
            'x'
        }
    "##;
    let shown: Vec<String> =
        offences(Path::new("src/ipam/x.rs"), source).iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            format!("src/ipam/x.rs:4: `std::fs`: {OUTSIDE}"),
            format!("src/ipam/x.rs:5: `kube_core::params::ListParams`: {CLIENT}"),
            format!("src/ipam/x.rs:8: `::now`: {CLOCK}"),
            format!("src/ipam/x.rs:10: `HashMap`: {CHANCE}"),
            format!("src/ipam/x.rs:10: `HashMap`: {CHANCE}"),
        ]
    );
}

#[test]
fn what_the_core_needs_is_allowed() {
    let source = "
        use std::{collections::BTreeMap, net::{IpAddr, Ipv6Addr}, time::Duration};
        use kube_core::{Selector, SelectorExt};
        use crate::world::World;
        fn selects(selector: kube_core::Selector, now: Now) -> Duration { now.uptime }
    ";
    assert_eq!(offences(Path::new("x.rs"), source), []);
}
