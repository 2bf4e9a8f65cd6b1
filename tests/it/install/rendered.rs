//! The chart's output: the committed files, in every branch of its templates, by both majors of Helm. Also the values
//! that it refuses.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::helm::{CHART, MAJORS, program};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a command of Helm succeeds, and its output.
fn run(major: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program(major)).args(arguments).current_dir(root()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn chart_is_without_fault_for_helm() {
    for major in MAJORS {
        let (success, said) = run(major, &["lint", "--strict", CHART]);
        assert!(success, "helm {major}: {said}");
    }
}

#[test]
fn files_are_what_the_chart_renders() {
    for major in MAJORS {
        let out = tempfile::tempdir().unwrap();
        let script = root().join("scripts/render");
        let status = Command::new(script).arg(program(major)).arg(out.path()).status().unwrap();
        assert!(status.success(), "helm {major}");
        let folder = Path::new("tests/it/install/rendered");
        let mut files = vec![PathBuf::from("manifests/install.yaml"), PathBuf::from("manifests/alerts.yaml")];
        for entry in out.path().join(folder).read_dir().unwrap() {
            files.push(folder.join(entry.unwrap().file_name()));
        }
        assert!(files.len() > 6, "{files:?}");
        for file in files {
            let rendered = std::fs::read_to_string(out.path().join(&file)).unwrap();
            let committed = std::fs::read_to_string(root().join(&file)).unwrap_or_default();
            // In Helm 4 documents have an empty line at the end.
            let lines = |text: &str| {
                text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
            };
            let differs = "differs from the chart: run `make generate`";
            assert!(lines(&rendered) == lines(&committed), "helm {major}: {} {differs}", file.display());
        }
    }
}

/// The notes that Helm prints are as committed. They have a valid first pool, and a further note for the numbers of
/// replicas that need one.
#[test]
fn notes_have_a_valid_first_pool_and_say_what_replicas_need() {
    let notes = |n: usize| {
        let name = format!("tests/it/install/rendered/notes-of-{n}.txt");
        std::fs::read_to_string(root().join(name)).unwrap()
    };
    let (one, two) = (notes(1), notes(2));
    let more = two.strip_prefix(&one).unwrap();
    assert!(more.contains("A cluster with one schedulable node needs replicaCount=1."), "{more}");
    for command in ["rollout status deployment/cilium-node-ipam", "get nodeippools,nodeipblocks"] {
        assert!(one.contains(command), "{command}");
    }
    let pool = one.split_once("<<EOF\n").unwrap().1.split_once("     EOF\n").unwrap().0;
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), pool).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"))
        .args(["validate", "-f"])
        .arg(file.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.starts_with("1 object checked, 0 problems found"), "{said}");
}

/// The chart's definitions are those in crds/, with labels, and kept if that is asked for.
#[test]
fn definitions_are_those_of_the_types() {
    for (major, keep) in [("3", true), ("4", true), ("3", false)] {
        let set = format!("crds.keep={keep}");
        let (success, said) =
            run(major, &["template", "r", CHART, "--set", &set, "-s", "templates/crds.yaml"]);
        assert!(success, "{said}");
        let rendered: Vec<Value> = said
            .split("\n---\n")
            .filter(|document| document.contains("kind: CustomResourceDefinition"))
            .map(|document| serde_saphyr::from_str(document).unwrap())
            .collect();
        assert_eq!(rendered.len(), 2, "{said}");
        for mut definition in rendered {
            let metadata = definition["metadata"].as_object_mut().unwrap();
            let labels = metadata.remove("labels").unwrap();
            assert_eq!(labels["app.kubernetes.io/instance"], "r");
            let annotations = metadata.remove("annotations");
            assert_eq!(annotations, keep.then(|| json!({"helm.sh/resource-policy": "keep"})));
            let path = root().join("crds").join(format!("{}.yaml", metadata["name"].as_str().unwrap()));
            let expected: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            assert_eq!(definition, expected);
        }
    }
}

#[test]
fn values_that_are_wrong_are_refused() {
    let refused = [
        ("replicas=3", "replicas"),
        ("image.name=x", "name"),
        ("replicaCount=many", "replicaCount"),
        ("replicaCount=-1", "replicaCount"),
        ("createCiliumNodes=yes", "createCiliumNodes"),
        ("modes={eni}", "modes"),
        ("modes=crd", "modes"),
        ("image.repository=registry.example.com/nodeipam:1", "repository"),
        ("image.digest=sha256:12", "digest"),
        ("leaderElection.leaseDuration=15", "leaseDuration"),
        ("logFormat=xml", "logFormat"),
        ("extraArgs={dry-run}", "extraArgs"),
        ("createPodIPPools=true", "add multi-pool to modes"),
        ("nodeField=annotations", "add kubernetes to modes"),
        ("routes.exporter=frr-k8s", "set routes.template"),
        ("routes.exporter=gobgp", "set routes.gobgp.address"),
        ("routes.exporter=remove", "set routes.template or routes.gobgp.address"),
        ("routes.exporter=none", "exporter"),
        ("routes.template=template", "template"),
        ("k8sServicePort=6443", "set both"),
        ("metricsPort.port=0", "port"),
        ("metricsPort.scrapers={prometheus}", "scrapers"),
        ("serviceMonitor.enabled=true", "set metricsPort.enabled=true"),
        ("serviceMonitor.interval=often", "interval"),
        ("grafanaDashboard.uid=x", "uid"),
        ("prometheusRule.alerts.NoLeader.for=soon", "for"),
        ("prometheusRule.alerts.NoLeader.threshold=2", "threshold"),
        ("prometheusRule.alerts.NoLeader.severity=high", "severity"),
        ("prometheusRule.alerts.Leaderless.for=1m", "Leaderless"),
        ("prometheusRule.enabled=true,prometheusRule.disabled={Leaderless}", "Leaderless is no alert"),
    ];
    for major in MAJORS {
        for (value, reason) in refused {
            let (success, said) = run(major, &["template", "r", CHART, "--set", value]);
            assert!(!success && said.contains(reason), "helm {major}: {value}: {said}");
        }
    }
}
