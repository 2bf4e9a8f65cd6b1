//! The image's recipe: the facts that need neither a daemon nor a build. `make static` runs its build steps in a copy
//! of the files that `.dockerignore` keeps.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::deployment;

fn source(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The last instruction of each name, of the last stage, in one line each.
fn last_stage() -> BTreeMap<String, String> {
    let text = source("Dockerfile").replace("\\\n", " ");
    let stage = text.rfind("\nFROM ").unwrap();
    let instructions = text[stage..].lines().filter_map(|line| line.split_once(' '));
    instructions.map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect()
}

#[test]
fn image_holds_what_the_deployment_runs() {
    let stage = last_stage();
    assert_eq!(stage["FROM"], "scratch");
    assert_eq!(stage["ENTRYPOINT"], "[\"/cilium-node-ipam\"]");
    let pod = deployment().spec.unwrap().template.spec.unwrap();
    assert!(pod.containers[0].command.is_none(), "the entry point is the binary");
    let security = pod.security_context.unwrap();
    let user = format!("{}:{}", security.run_as_user.unwrap(), security.run_as_group.unwrap());
    assert_eq!(stage["USER"], user);
}

/// Both come out of one stage, so the SBOM is that of the binary.
#[test]
fn sbom_is_written_where_the_binary_is_built() {
    let text = source("Dockerfile").replace("\\\n", " ");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (build, rest) = words.split_once(" FROM scratch AS sbom COPY --from=build ").unwrap();
    let sbom = rest.split_whitespace().next().unwrap();
    assert!(build.contains(&format!("scripts/sbom {sbom}")), "{build}");
    assert!(
        build.find("scripts/install-auditors /usr/local").unwrap()
            < build.find("scripts/build-static").unwrap()
    );
    assert!(source("Makefile").contains("build --target sbom --output build/sbom ."));
}

#[test]
fn image_is_built_by_a_compiler_that_is_new_enough() {
    let field = |text: &str, start: &str, end: &str| {
        let rest = text.split_once(start).unwrap().1;
        let version = rest.split_once(end).unwrap().0;
        version.split('.').map(|part| part.parse::<u32>().unwrap()).collect::<Vec<_>>()
    };
    let image = field(&source("Dockerfile"), "FROM rust:", "-");
    let wanted = field(&source("Cargo.toml"), "rust-version = \"", "\"");
    assert!(image >= wanted, "{image:?} < {wanted:?}");
}

/// The files that `.dockerignore` keeps must be a package that cargo can read, with everything that the recipe copies.
#[test]
fn image_is_built_from_all_that_it_needs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let context = tempfile::tempdir().unwrap();
    let ignore = source(".dockerignore");
    for name in ignore.lines().filter_map(|line| line.strip_prefix('!')) {
        let copied = Command::new("cp").arg("-r").arg(root.join(name)).arg(context.path()).status().unwrap();
        assert!(copied.success(), "{name}");
    }
    for name in ["LICENSE", "scripts/build-static", "scripts/install-auditors", "scripts/sbom"] {
        assert!(context.path().join(name).is_file(), "{name}");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"])
        .current_dir(context.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
