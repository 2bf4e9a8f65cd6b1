//! The chart as others use it: values that a user has unset with `null`, and the chart as a dependency of another
//! chart, in both majors of Helm.

use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::helm::{CHART, MAJORS};
use super::rendered::{root, run};

/// Fields of Kubernetes, which decides about them where they are unset, and a part of the default of each.
const OF_KUBERNETES: [(&str, &str); 8] = [
    ("resources", "memory: 1Gi"),
    ("nodeSelector", "kubernetes.io/os"),
    ("tolerations", "tolerationSeconds"),
    ("priorityClassName", "system-cluster-critical"),
    ("podSecurityContext", "runAsNonRoot"),
    ("securityContext", "allowPrivilegeEscalation"),
    ("readinessProbe", "timeoutSeconds: 3"),
    ("livenessProbe", "failureThreshold: 6"),
];

/// The deepest values: `routes.gobgp.address`, and `threshold` of an alert one level below it.
const DEEPEST: usize = 4;

/// A chart with this one as its dependency.
struct Parent(TempDir);

impl Parent {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let charts = folder.path().join("charts");
        std::fs::create_dir(&charts).unwrap();
        let copied = std::process::Command::new("cp").arg("-r").arg(root().join(CHART)).arg(&charts).status();
        assert!(copied.unwrap().success());
        let chart = json!({
            "apiVersion": "v2", "name": "platform", "version": "1.0.0",
            "dependencies": [{
                "name": "cilium-node-ipam", "version": env!("CARGO_PKG_VERSION"), "repository": "",
                "condition": "cilium-node-ipam.enabled",
            }],
        });
        std::fs::write(folder.path().join("Chart.yaml"), chart.to_string()).unwrap();
        // Its own defaults, which its user changes.
        let values = json!({"global": {"imageRegistry": "registry.example.com"}, "cilium-node-ipam": {"enabled": true}});
        std::fs::write(folder.path().join("values.yaml"), values.to_string()).unwrap();
        Self(folder)
    }

    fn render(&self, major: &str, values: &Value) -> String {
        let output = render(major, self.0.path(), &json!({"cilium-node-ipam": values}));
        output.replace("# Source: platform/charts/", "# Source: ")
    }
}

fn render(major: &str, chart: &Path, values: &Value) -> String {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), values.to_string()).unwrap();
    let paths = [chart, file.path()].map(|path| path.to_str().unwrap().to_owned());
    let (success, said) = run(major, &["template", "r", &paths[0], "--values", &paths[1]]);
    assert!(success, "helm {major}: {values}: {said}");
    said
}

/// The values of the chart, with `null` for each that is `depth` levels deep, or has no level below.
fn unset(value: &Value, depth: usize) -> Value {
    match value {
        Value::Object(fields) if depth > 0 && !fields.is_empty() => fields
            .iter()
            .map(|(key, value)| (key.clone(), unset(value, depth - 1)))
            .collect::<Map<_, _>>()
            .into(),
        _ => Value::Null,
    }
}

#[test]
fn null_brings_the_default_of_the_chart_back() {
    let path = root().join(CHART).join("values.yaml");
    let mut chart: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let chart = chart.as_object_mut().unwrap();
    for (key, _) in OF_KUBERNETES {
        assert!(chart.remove(key).is_some(), "{key}");
    }
    // A label that is unset is removed.
    chart["grafanaDashboard"].as_object_mut().unwrap().remove("labels");
    let chart = Value::Object(chart.clone());
    let parent = Parent::new();
    for major in MAJORS {
        for depth in 1..=DEEPEST {
            let (mut values, mut expected) = (unset(&chart, depth), json!({}));
            if depth > 1 {
                for part in ["metricsPort", "serviceMonitor", "prometheusRule", "grafanaDashboard"] {
                    (values[part]["enabled"], expected[part]["enabled"]) = (json!(true), json!(true));
                }
            }
            let expected = render(major, &root().join(CHART), &expected);
            let alone = render(major, &root().join(CHART), &values);
            assert!(alone == expected, "helm {major}: {values}\n{alone}");
            let inside = parent.render(major, &values);
            assert!(inside == expected, "helm {major}: {values}\n{inside}");
        }
    }
}

#[test]
fn null_leaves_fields_of_kubernetes_out() {
    let unset = OF_KUBERNETES.map(|(key, _)| (key.to_owned(), Value::Null));
    let values = Value::Object(Map::from_iter(unset));
    let mut also = values.clone();
    // Values without a default, and a label that another file of values has set.
    also["affinity"] = json!({"podAntiAffinity": null});
    also["podLabels"] = json!({"example.com/team": null});
    also["global"] = Value::Null;
    let parent = Parent::new();
    for major in MAJORS {
        let usual = render(major, &root().join(CHART), &json!({}));
        let rendered = render(major, &root().join(CHART), &values);
        for (key, part) in OF_KUBERNETES {
            assert!(usual.contains(part) && !rendered.contains(part), "helm {major}: {key}\n{rendered}");
        }
        assert_eq!(render(major, &root().join(CHART), &also), rendered);
        assert_eq!(parent.render(major, &values), rendered);
    }
}

#[test]
fn dependency_is_rendered_if_its_condition_holds() {
    let parent = Parent::new();
    for major in MAJORS {
        let inside = parent.render(major, &json!({}));
        assert_eq!(inside, render(major, &root().join(CHART), &json!({})), "helm {major}");
        let without = parent.render(major, &json!({"enabled": false}));
        assert!(!without.contains("kind:"), "helm {major}: {without}");
    }
}
