//! The chart's output: the committed files, in every branch of its templates, by both majors of Helm. Also the values
//! that it refuses.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::helm::{CHART, MAJORS, program};

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a command of Helm succeeds, and its output.
pub(super) fn run(major: &str, arguments: &[&str]) -> (bool, String) {
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
fn package_has_the_address_of_the_project() {
    let address = "https://example.com/nodeipam";
    for major in MAJORS {
        let out = tempfile::tempdir().unwrap();
        let mut script = Command::new(root().join("scripts/package-chart"));
        script.arg(program(major)).arg(root().join(CHART)).arg(address).arg(out.path());
        let output = script.output().unwrap();
        assert!(output.status.success(), "helm {major}: {output:?}");
        let package = out.path().join(format!("cilium-node-ipam-{}.tgz", env!("CARGO_PKG_VERSION")));
        let (success, said) = run(major, &["show", "chart", package.to_str().unwrap()]);
        assert!(success, "helm {major}: {said}");
        let chart: Value = serde_saphyr::from_str(&said).unwrap();
        assert_eq!((&chart["home"], &chart["sources"]), (&json!(address), &json!([address])));
        assert!(chart["icon"].as_str().unwrap().starts_with("data:image/svg+xml;base64,"), "{chart}");
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
        let mut files: Vec<PathBuf> =
            ["manifests/install.yaml", "manifests/alerts.yaml"].map(PathBuf::from).into();
        files.push(Path::new(CHART).join("files/values.yaml"));
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

/// The notes that Helm prints, as they are committed.
fn notes(name: &str) -> String {
    let path = format!("tests/it/install/rendered/notes-{name}.txt");
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn notes_say_what_the_values_need() {
    let (one, two, elsewhere) = (notes("of-1"), notes("of-2"), notes("elsewhere"));
    let schedulable = "A cluster with one schedulable node needs replicaCount=1.";
    let unpublished = "WARNING: the image is cilium-node-ipam:";
    let unscraped = "WARNING: the alerts need metrics";
    for (notes, said) in
        [(&one, vec![unpublished]), (&two, vec![schedulable, unpublished]), (&elsewhere, vec![unscraped])]
    {
        for sentence in [schedulable, unpublished, unscraped] {
            assert_eq!(notes.contains(sentence), said.contains(&sentence), "{sentence}\n{notes}");
        }
    }
}

/// A shell gets the lines between the sentences as they are, here-document included. It runs scripts in place of the
/// programs, which write down their arguments and their input.
#[test]
fn notes_can_be_pasted() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["kubectl", "cilium-node-ipam"] {
        let script = "#!/bin/sh\necho \"${0##*/} $*\"\n[ \"$1\" != apply ] || cat >pool.yaml\n";
        let path = folder.path().join(name);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let notes = notes("elsewhere");
    let is_sentence =
        |part: &&str| part.starts_with(char::is_uppercase) || part.starts_with(char::is_numeric);
    let commands: Vec<&str> = notes.split("\n\n").skip(1).filter(|part| !is_sentence(part)).collect();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-ec", &commands.join("\n")])
        .current_dir(folder.path())
        .env("PATH", path)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let ran = String::from_utf8(output.stdout).unwrap();
    let namespaces = "--cilium-namespace=cilium --namespace=addresses";
    let expected = [
        "kubectl -n addresses rollout status deployment/cilium-node-ipam",
        "kubectl -n addresses logs deployment/cilium-node-ipam",
        &format!("cilium-node-ipam preflight {namespaces}"),
        "kubectl apply -f -",
        "kubectl get nodeippools,nodeipblocks",
        &format!(
            "kubectl -n addresses exec deployment/cilium-node-ipam -- /cilium-node-ipam status {namespaces}"
        ),
    ];
    assert_eq!(ran.lines().collect::<Vec<_>>(), expected);

    let program = env!("CARGO_BIN_EXE_cilium-node-ipam");
    for arguments in [vec!["preflight", "--help"], vec!["status", "--help"]] {
        let help = Command::new(program).args(&arguments).output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(help.contains("--cilium-namespace") && help.contains("--namespace"), "{help}");
    }
    let validate = ["validate", "-f", "pool.yaml"];
    let output = Command::new(program).args(validate).current_dir(folder.path()).output().unwrap();
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
        ("logLevel=loud", "logLevel"),
        ("port=http", "port"),
        ("port=9921,metricsPort.enabled=true", "set different ones"),
        ("livenessProbe.period=5", "livenessProbe"),
        ("readinessProbe.periodSeconds=5s", "periodSeconds"),
        ("extraArgs={dry-run}", "extraArgs"),
        ("createPodIPPools=true", "add multi-pool to modes"),
        ("nodeField=annotations", "add kubernetes to modes"),
        ("routes.exporter=frr-k8s", "set routes.template"),
        ("routes.exporter=gobgp", "set routes.gobgp.address"),
        ("routes.exporter=remove", "set routes.template or routes.gobgp.address"),
        ("routes.exporter=none", "exporter"),
        ("routes.template=template", "template"),
        ("k8sServicePort=6443", "set both"),
        ("k8sServiceHost=https://api.example.com:6443/", "set k8sServiceHost=api.example.com, and"),
        ("k8sServiceHost=192.0.2.7:6443", "set k8sServiceHost=192.0.2.7, and"),
        ("k8sServiceHost=[fd00::1]:6443", "set k8sServiceHost=fd00::1, and"),
        // Without a cluster there is no ConfigMap.
        ("k8sServiceHost=auto", "set k8sServiceHost and k8sServicePort"),
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
