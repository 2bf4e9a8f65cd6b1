//! The files of a release, made by `scripts/release` without `--publish`: nothing is published, and the provenance
//! statement has the digest of each file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use super::helm::program;
use super::rendered::root;

const HOMEPAGE: &str = "https://example.com/nodeipam";
const REGISTRY: &str = "registry.example.com/nodeipam";

#[test]
fn a_dry_run_publishes_nothing_and_states_every_digest() {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("release");
    let mut script = Command::new(root().join("scripts/release"));
    script.args(["--homepage", HOMEPAGE, "--registry", REGISTRY, "--helm"]).arg(program("3"));
    // Any file can stand for a binary: this is about digests.
    script.arg("--out").arg(&folder).args(["amd64=LICENSE", "arm64=Cargo.lock"]);
    let output = script.current_dir(root()).output().unwrap();
    let (said, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    for part in [
        "docker buildx build --platform linux/amd64,linux/arm64",
        "cosign sign --yes",
        "cosign attest",
        "push",
    ] {
        assert!(said.contains(part), "{part} is missing:\n{said}");
    }
    assert!(said.lines().all(|line| line.starts_with("would run: ")), "{said}");

    let text = std::fs::read_to_string(folder.join("provenance.json")).unwrap();
    let statement: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
    let stated: BTreeMap<String, String> = statement["subject"]
        .as_array()
        .unwrap()
        .iter()
        .map(|subject| (text_of(&subject["name"]), text_of(&subject["digest"]["sha256"])))
        .collect();
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let made_later = ["SHA256SUMS", "provenance.json", "predicate.json"];
    let files: Vec<String> = files.filter(|name| !made_later.contains(&&**name)).collect();
    assert!(files.len() >= 4, "{files:?}");
    let digests = files.iter().map(|name| (name.clone(), digest(&std::fs::read(folder.join(name)).unwrap())));
    assert_eq!(stated, digests.collect());

    let dependencies = &statement["predicate"]["buildDefinition"]["resolvedDependencies"];
    let lock = digest(&std::fs::read(root().join("Cargo.lock")).unwrap());
    assert_eq!(dependencies[1]["digest"], json!({"sha256": lock}));
    let head = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()).output().unwrap();
    assert_eq!(dependencies[0]["digest"]["gitCommit"], String::from_utf8(head.stdout).unwrap().trim());
    let predicate = std::fs::read_to_string(folder.join("predicate.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&predicate).unwrap(), statement["predicate"]);
}

/// The values that the schema requires are there, and each address of a file names one.
#[test]
fn the_security_insights_name_files_that_exist() {
    let insights =
        |args: &[&str]| Command::new(root().join("scripts/security-insights")).args(args).output().unwrap();
    let output = insights(&[HOMEPAGE, "Jo O'Hara <jo@example.com>"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let found: Value = serde_saphyr::from_str(&text).unwrap();
    let person = json!({"name": "Jo O'Hara", "email": "jo@example.com", "primary": true});
    for (field, expected) in [
        ("/header/schema-version", json!("2.0.0")),
        ("/header/url", json!(HOMEPAGE)),
        ("/project/administrators/0", person.clone()),
        ("/project/repositories/0/url", json!(HOMEPAGE)),
        ("/project/vulnerability-reporting/reports-accepted", json!(true)),
        ("/project/vulnerability-reporting/bug-bounty-available", json!(false)),
        ("/repository/status", json!("active")),
        ("/repository/core-team/0", person),
        ("/repository/license/expression", json!("Apache-2.0")),
    ] {
        assert_eq!(found.pointer(field), Some(&expected), "{field}");
    }
    let files: Vec<&str> = text.split(&format!("{HOMEPAGE}/blob/main/")).skip(1).map(first_word).collect();
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        assert!(root().join(file).is_file(), "{file}");
    }
    for wrong in [&[HOMEPAGE][..], &["example.com", "Jo <jo@example.com>"], &[HOMEPAGE, "Jo"]] {
        assert_eq!(insights(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

fn first_word(text: &str) -> &str {
    text.split([' ', ',', '}', ']', '\n']).next().unwrap_or_default()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut text = String::new();
    for byte in digest.as_ref() {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}
