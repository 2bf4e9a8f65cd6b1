//! The versions that the tests run: one file has them, the Makefile reads it, and a page shows it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::generated::compare;
use crate::support::agent::Release;
use crate::support::control_plane::{control_plane_of, ensure_version, tool};

/// The file.
const VERSIONS: &str = include_str!("../../data/versions");

/// The folders of the Go modules with the control plane. The first has the version of all other tests.
const CONTROL_PLANE: &str = "tests/controlplane";

/// A row: Kubernetes, modes, agents, command.
fn rows() -> Vec<[&'static str; 4]> {
    let rows = VERSIONS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let cells = |line: &'static str| line.split('|').map(str::trim).collect::<Vec<_>>();
    rows.map(|line| cells(line).try_into().unwrap_or_else(|_| panic!("four cells: {line}"))).collect()
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The version of a module that a `go.mod` requires.
fn required(go_mod: &str, module: &str) -> String {
    let line = format!("{module} v");
    let text = read(go_mod);
    let found = text.lines().find_map(|text| text.trim().strip_prefix(&line));
    found.unwrap_or_else(|| panic!("{go_mod} does not require {module}")).to_owned()
}

/// The names of the folders below `parent` that are versions, without their `v`.
fn folders(parent: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(parent)).expect("it is there");
    let names =
        entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.strip_prefix('v').map(str::to_owned)).collect()
}

/// The version of Kubernetes of all tests that do not ask for another one.
pub(crate) fn usual_kubernetes() -> String {
    required(&format!("{CONTROL_PLANE}/go.mod"), "k8s.io/kubernetes")
}

fn minor(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

#[test]
fn the_page_has_the_versions_that_run() {
    let mut table = "| Kubernetes | modes | agents | run by |\n|---|---|---|---|\n".to_owned();
    for [kubernetes, modes, agents, command] in rows() {
        let command =
            command.split(", ").map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(table, "| {kubernetes} | {modes} | {agents} | {command} |");
    }
    compare("docs/requirements.md", "versions that run", &table);
}

#[test]
fn each_version_of_kubernetes_has_a_module_and_each_module_a_row() {
    let usual = usual_kubernetes();
    let modules = folders(CONTROL_PLANE);
    for [kubernetes, _, _, command] in rows() {
        if command == "make test-kubernetes" {
            let module = minor(kubernetes);
            assert!(modules.contains(&module), "{kubernetes} has no module");
            let found = required(&format!("{CONTROL_PLANE}/v{module}/go.mod"), "k8s.io/kubernetes");
            assert_eq!(found, kubernetes);
        } else {
            assert_eq!(usual, kubernetes);
        }
    }
    let listed: BTreeSet<String> = rows().iter().map(|[kubernetes, ..]| minor(kubernetes)).collect();
    let built: BTreeSet<String> = modules.into_iter().chain([minor(&usual)]).collect();
    assert_eq!(listed, built);
}

#[test]
fn each_version_of_cilium_has_a_module_and_each_module_a_row() {
    let agents = rows().into_iter().flat_map(|[_, _, agents, _]| agents.split(", "));
    let listed: BTreeSet<String> = agents.map(str::to_owned).collect();
    let modules = folders("tests/agent")
        .into_iter()
        .map(|folder| required(&format!("tests/agent/v{folder}/go.mod"), "github.com/cilium/cilium"));
    assert_eq!(listed, modules.collect());
    let run = [Release::Oldest, Release::V1_17, Release::Newest];
    assert_eq!(listed, run.map(|release| release.as_str().to_owned()).into());
}

#[test]
fn the_oldest_version_that_runs_is_the_oldest_that_the_chart_accepts() {
    let rows = rows();
    let oldest = rows.iter().map(|[kubernetes, ..]| minor(kubernetes)).min_by_key(|version| {
        version.split('.').map(|part| part.parse::<u32>().expect("a number")).collect::<Vec<_>>()
    });
    let oldest = oldest.expect("there are rows");
    let chart = read("manifests/chart/cilium-node-ipam/Chart.yaml");
    assert!(chart.contains(&format!("kubeVersion: \">={oldest}.0-0\"")), "{oldest}");
    assert!(read("docs/requirements.md").contains(&format!("**Kubernetes:** {oldest} or newer")), "{oldest}");
}

#[test]
fn the_servers_of_another_version_are_refused() {
    assert!(ensure_version(Some("1.33"), "v1.33.13").is_ok());
    assert!(ensure_version(None, "v1.35.4").is_ok());
    for running in ["v1.35.4", "v1.3.3", "v1.330.1", "1.33.1", ""] {
        assert!(ensure_version(Some("1.33"), running).is_err(), "{running}");
    }
}

#[test]
fn a_control_plane_that_is_missing_is_no_reason_to_take_another() {
    let missing = || tool("NODEIPAM_NO_SUCH_VARIABLE", &control_plane_of(Some("1.0")));
    let panic = std::panic::catch_unwind(missing).expect_err("it is missing");
    let said = panic.downcast_ref::<String>().expect("a text");
    assert!(said.contains("controlplane-1.0 is missing"), "{said}");
}
