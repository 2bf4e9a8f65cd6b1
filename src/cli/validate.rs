//! `cilium-node-ipam validate`: checks files of pools without a cluster.
//!
//! Reads the files, asks [`crate::wire::check`], and prints. Knows no rule itself.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::model::pool::Pool;
use crate::net::cidr::Cidr;
use crate::wire::{FieldError, check};

/// The exit code when something was found.
const FINDINGS: u8 = 1;
/// The exit code when something could not be read; clap uses the same for wrong arguments.
const UNREADABLE: u8 = 2;

/// Checks files of NodeIPPools as the API server and the controller would, without a cluster.
///
/// Reads YAML or JSON, with several documents or a List in one file. Documents of other API groups are skipped. One
/// line is printed for each finding, such as
///
/// `pools.yaml:2 NodeIPPool/beijing: spec.ipv4.cidrs[0].cidr: "10.0.0.5/24": must be written masked`
///
/// which is the file, the number of the document in it, the object, the field, the value found there, and the rule
/// that it breaks.
/// Ranges that several of the pools offer are warnings: in a cluster the older pool keeps the range,
/// and a file does not tell which one is older. Rules that compare with the object in the cluster (the immutable
/// blockSize) are not checked.
///
/// Exit code: 0 nothing found (warnings do not count), 1 something found, 2 something could not be read, or nothing
/// to check was in it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file, a directory (its *.yaml, *.yml and *.json files), or `-` for standard input. Can be given repeatedly.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required = true)]
    pub filename: Vec<PathBuf>,

    /// Look into the directories below a directory too.
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// One document and where it was found.
struct Document {
    file: String,
    /// From 1.
    number: usize,
    value: Value,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let (kind, name) = (text(&self.value["kind"]), text(&self.value["metadata"]["name"]));
        write!(f, "{}:{} {kind}/{name}", self.file, self.number)
    }
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { filename, recursive } = args;
    let mut input = Input { depth: if recursive { Depth::All } else { Depth::One }, ..Input::default() };
    for path in &filename {
        input.read(path);
    }
    let Input { documents, unreadable, .. } = input;
    for error in &unreadable {
        eprintln!("{error:#}");
    }
    let n_findings =
        report(&documents, &mut std::io::stdout().lock()).context("can't write to standard output")?;
    if documents.is_empty() {
        eprintln!("nothing to check: no object of nodeipam.io in what was given");
    }
    Ok(if documents.is_empty() || !unreadable.is_empty() {
        ExitCode::from(UNREADABLE)
    } else if n_findings > 0 {
        ExitCode::from(FINDINGS)
    } else {
        ExitCode::SUCCESS
    })
}

/// Prints findings, warnings and the summary; returns the number of findings.
fn report(documents: &[Document], out: &mut impl Write) -> std::io::Result<usize> {
    let mut n_findings = 0;
    for document in documents {
        for finding in check::check_document(&document.value) {
            n_findings += 1;
            writeln!(out, "{document}: {finding}")?;
        }
    }
    let warnings = warnings(documents);
    for (document, warning) in &warnings {
        writeln!(out, "{document}: warning: {warning}")?;
    }
    writeln!(
        out,
        "{} checked, {} found, {}",
        counted(documents.len(), "object"),
        counted(n_findings, "problem"),
        counted(warnings.len(), "warning")
    )?;
    Ok(n_findings)
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Where the files contradict each other: names given twice, and ranges offered twice.
fn warnings(documents: &[Document]) -> Vec<(&Document, FieldError)> {
    let mut warnings = Vec::new();
    let mut names: BTreeMap<String, &Document> = BTreeMap::new();
    let mut ranges: Vec<(Cidr, &Document, Pool)> = Vec::new();
    for document in documents {
        let name = format!("{}/{}", document.value["kind"], document.value["metadata"]["name"]);
        if let Some(first) = names.insert(name, document) {
            let rule =
                format!("is also the name of {first}: the one that is applied last replaces the other");
            warnings.push((
                document,
                FieldError::new("metadata.name", &document.value["metadata"]["name"], rule),
            ));
            continue;
        }
        let Some(pool) = check::offline_pool(&document.value) else { continue };
        for (family, offered) in &pool.families {
            for cidr in offered.cidrs.keys() {
                for (other, at, other_pool) in &ranges {
                    if other.overlaps(*cidr) && other_pool.name != pool.name {
                        let rule = format!(
                            "overlaps {other} of {at}: in a cluster the older pool keeps the range and the other gets \
                             none of it; a file does not tell which one is older"
                        );
                        warnings.push((
                            document,
                            FieldError::new(format!("spec.{family}.cidrs"), &cidr.to_string(), rule),
                        ));
                    }
                }
            }
        }
        let offered = pool.families.values().flat_map(|ranges| ranges.cidrs.keys().copied());
        ranges.extend(offered.map(|cidr| (cidr, document, pool.clone())));
    }
    warnings
}

/// How deep below a directory files are looked for.
#[derive(Clone, Copy, Default)]
enum Depth {
    #[default]
    One,
    All,
}

/// What was read, and what could not be. One bad file does not hide what is in the others.
#[derive(Default)]
struct Input {
    depth: Depth,
    documents: Vec<Document>,
    unreadable: Vec<anyhow::Error>,
}

impl Input {
    fn read(&mut self, path: &Path) {
        let outcome = if path == Path::new("-") {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text).context("can't read standard input");
            read.and_then(|_| self.parse("-", &text))
        } else if path.is_dir() {
            self.read_directory(path)
        } else {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(|| format!("can't read {name}"));
            text.and_then(|text| self.parse(&name, &text))
        };
        self.unreadable.extend(outcome.err());
    }

    fn read_directory(&mut self, path: &Path) -> anyhow::Result<()> {
        let list = || std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect();
        let entries: std::io::Result<Vec<PathBuf>> = list();
        let mut entries = entries.with_context(|| format!("can't read {}", path.display()))?;
        entries.sort();
        for entry in entries {
            let wanted = if entry.is_dir() {
                matches!(self.depth, Depth::All)
            } else {
                entry
                    .extension()
                    .is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
            };
            if wanted {
                self.read(&entry);
            }
        }
        Ok(())
    }

    /// JSON is YAML, so one parser reads both.
    fn parse(&mut self, file: &str, text: &str) -> anyhow::Result<()> {
        // As kubectl reads it: 027 is 23 there (YAML 1.1), and what is sent to the server is 23.
        let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
        let values = match serde_saphyr::from_multiple_with_options::<Value>(text, options) {
            Ok(values) => values,
            Err(error) => bail!("{file}: not YAML: {error}"),
        };
        for (index, value) in values.into_iter().enumerate() {
            let items = match value["items"].as_array() {
                Some(items) if value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
                    items.clone()
                }
                Some(_) | None => vec![value],
            };
            let ours = items.into_iter().filter(check::is_ours);
            self.documents.extend(ours.map(|value| Document { file: file.into(), number: index + 1, value }));
        }
        Ok(())
    }
}
