//! Addresses of Services and load balancers in a pool, as `preflight`, `check` and `who` see them on a real API server,
//! and the same commands for a user who may not list Services.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::answers::ask;
use crate::support::control_plane::Options;
use crate::support::kubectl::{apply, kubectl};
use crate::support::objects::PoolSpec;
use crate::support::rig::without_product;

/// `MetalLB`'s kind, as far as the commands read it.
const METALLB: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipaddresspools.metallb.io}
spec:
  group: metallb.io
  scope: Namespaced
  names: {kind: IPAddressPool, plural: ipaddresspools}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

const OBJECTS: &str = r"
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: lb, namespace: default}
spec: {addresses: [10.1.0.32-10.1.0.47]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: LoadBalancer, externalIPs: [10.1.0.7], ports: [{port: 80}]}
";

/// The texts of the lines of a point, behind its state.
fn lines(object: &Value, point: &str) -> Vec<String> {
    let items = object["items"].as_array().into_iter().flatten().filter(|item| item["point"] == point);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    items.map(|item| format!("{} {}", text(&item["state"]), text(&item["text"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_services_and_load_balancers_are_seen() -> Result<()> {
    without_product(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        for manifest in [METALLB, OBJECTS] {
            apply(plane, manifest).await?;
            let kind = "crd/ipaddresspools.metallb.io";
            kubectl(plane, &["wait", "--for=condition=Established", "--timeout=60s", kind]).await?;
        }
        let ingress = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"10.1.0.8"}]}}}"#;
        kubectl(plane, &["patch", "service", "web", "--subresource=status", "--type=merge", "-p", ingress])
            .await?;

        let object = ask(plane, &["preflight", "-o", "json"]).await?.json()?;
        let expected = [
            "fail pool p and IPAddressPool default/lb have the same addresses: 10.1.0.32/28",
            "fail pool p and Service default/web have the same addresses: 10.1.0.7/32, 10.1.0.8/32",
        ];
        ensure!(lines(&object, "service-ranges") == expected, "{object}");
        let check = ask(plane, &["check", "-o", "json"]).await?;
        let items = check.json()?["items"].as_array().cloned().unwrap_or_default();
        let n_found = items.iter().filter(|item| item["id"] == "NIP0503").count();
        ensure!(n_found == 2 && check.code == Some(1), "{}", check.text);
        let who = ask(plane, &["who", "10.1.0.7", "10.1.0.8", "10.1.0.40"]).await?;
        who.assert_lines(&[
            "10.1.0.7 service - - Service default/web has 10.1.0.7",
            "10.1.0.8 service - - Service default/web has 10.1.0.8",
            "10.1.0.40 service - - IPAddressPool default/lb has 10.1.0.32/28",
        ])?;

        // The controller itself needs no right to Services.
        let blind = plane.controller_kubeconfig.display().to_string();
        let who = ask(plane, &["who", "10.1.0.7", "--kubeconfig", &blind]).await?;
        let unseen = "not seen: Services, because you are not allowed to list them";
        ensure!(who.code == Some(0) && who.errors.contains(unseen), "{:?} {}", who.code, who.errors);
        let object = ask(plane, &["preflight", "-o", "json", "--kubeconfig", &blind]).await?.json()?;
        let found = lines(&object, "service-ranges");
        ensure!(found.iter().any(|line| line.starts_with("unseen not seen: Services, ")), "{found:#?}");
        Ok(())
    })
    .await
}
