//! The rights that the installation and the controller need, as questions to the API server.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;

use crate::cli::access::Access;
use crate::controller::client::Clients;
use crate::model::installation::{Right, Seen};
use crate::publisher::ipam_mode::IpamMode;

/// The name of the controller's ServiceAccount.
const ACCOUNT: &str = "cilium-node-ipam";

/// The namespace in which a right counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// All namespaces, or the kind has none.
    Everywhere,
    /// That of Cilium.
    Cilium,
    /// That of the controller.
    Own,
    /// `default`.
    Default,
}

/// A resource with the verbs on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needed {
    pub(super) place: Place,
    pub(super) group: &'static str,
    /// The resource, perhaps with a subresource behind a slash.
    pub(super) resource: &'static str,
    pub(super) name: &'static str,
    pub(super) verbs: &'static [&'static str],
}

const fn needed(
    place: Place,
    group: &'static str,
    resource: &'static str,
    name: &'static str,
    verbs: &'static [&'static str],
) -> Needed {
    Needed { place, group, resource, name, verbs }
}

/// The rights of the user who installs.
const OF_INSTALLATION: [Needed; 11] = [
    needed(Place::Everywhere, "apiextensions.k8s.io", "customresourcedefinitions", "", &["create"]),
    needed(Place::Everywhere, "rbac.authorization.k8s.io", "clusterroles", "", &["create"]),
    needed(Place::Everywhere, "rbac.authorization.k8s.io", "clusterrolebindings", "", &["create"]),
    needed(Place::Everywhere, "admissionregistration.k8s.io", "validatingadmissionpolicies", "", &["create"]),
    needed(
        Place::Everywhere,
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        "",
        &["create"],
    ),
    needed(Place::Cilium, "rbac.authorization.k8s.io", "roles", "", &["create"]),
    needed(Place::Own, "rbac.authorization.k8s.io", "rolebindings", "", &["create"]),
    needed(Place::Own, "", "serviceaccounts", "", &["create"]),
    needed(Place::Own, "apps", "deployments", "", &["create"]),
    needed(Place::Own, "policy", "poddisruptionbudgets", "", &["create"]),
    needed(Place::Everywhere, "nodeipam.io", "nodeippools", "", &["create"]),
];

/// The rights of a user who looks at a cluster.
const OF_READER: [Needed; 9] = [
    needed(Place::Everywhere, "", "nodes", "", &["list"]),
    needed(Place::Everywhere, "cilium.io", "ciliumnodes", "", &["list"]),
    needed(Place::Everywhere, "nodeipam.io", "nodeippools", "", &["list"]),
    needed(Place::Everywhere, "nodeipam.io", "nodeipblocks", "", &["list"]),
    needed(Place::Cilium, "", "configmaps", "", &["list"]),
    needed(Place::Own, "", "configmaps", "", &["list"]),
    needed(Place::Cilium, "", "pods", "", &["list"]),
    needed(Place::Cilium, "cilium.io", "ciliumnodeconfigs", "", &["list"]),
    needed(Place::Cilium, "coordination.k8s.io", "leases", ACCOUNT, &["get"]),
];

/// The rights of the controller in every mode.
pub(super) const OF_CONTROLLER: [Needed; 17] = [
    needed(
        Place::Everywhere,
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "nodeippools.nodeipam.io",
        &["get"],
    ),
    needed(
        Place::Everywhere,
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "nodeipblocks.nodeipam.io",
        &["get"],
    ),
    needed(Place::Everywhere, "", "nodes", "", &["list", "watch"]),
    needed(Place::Everywhere, "", "pods", "", &["list"]),
    needed(Place::Everywhere, "cilium.io", "ciliumnodes", "", &["list", "watch", "patch"]),
    needed(Place::Everywhere, "cilium.io", "ciliumnodes/status", "", &["patch"]),
    needed(Place::Everywhere, "nodeipam.io", "nodeippools", "", &["list", "watch", "patch"]),
    needed(Place::Everywhere, "nodeipam.io", "nodeippools/status", "", &["patch"]),
    needed(
        Place::Everywhere,
        "nodeipam.io",
        "nodeipblocks",
        "",
        &["list", "watch", "create", "patch", "delete"],
    ),
    needed(Place::Everywhere, "nodeipam.io", "nodeipblocks/status", "", &["patch"]),
    needed(Place::Cilium, "", "configmaps", "cilium-config", &["list", "watch"]),
    needed(Place::Cilium, "", "pods", "", &["list", "watch"]),
    needed(Place::Cilium, "cilium.io", "ciliumnodeconfigs", "", &["list", "watch"]),
    needed(Place::Cilium, "coordination.k8s.io", "leases", "", &["create"]),
    needed(Place::Cilium, "coordination.k8s.io", "leases", ACCOUNT, &["get", "list", "watch", "update"]),
    needed(Place::Own, "", "configmaps", ACCOUNT, &["list", "watch"]),
    needed(Place::Default, "events.k8s.io", "events", "", &["create"]),
];

/// The further rights of the controller in a mode of Cilium.
fn in_mode(mode: IpamMode) -> &'static [Needed] {
    const IN_KUBERNETES: &[Needed] = &[needed(Place::Everywhere, "", "nodes", "", &["patch"])];
    const IN_MULTI_POOL: &[Needed] =
        &[needed(Place::Everywhere, "cilium.io", "ciliumpodippools", "", &["list", "watch"])];
    match mode {
        IpamMode::Kubernetes => IN_KUBERNETES,
        IpamMode::MultiPool => IN_MULTI_POOL,
        IpamMode::Crd | IpamMode::ClusterPool => &[],
    }
}

/// The rights of the user for the installation, each as the server answers.
pub(super) async fn of_user(clients: &Clients, access: &Access) -> Seen<Vec<Right>> {
    own_rights(clients, questions(&OF_INSTALLATION, access)).await
}

/// The rights to look at a cluster that the user lacks, with the role that has them; `None` if none is missing, or if
/// the server does not say.
pub(in crate::cli::answers) async fn missing_to_read(clients: &Clients, access: &Access) -> Option<String> {
    let mut questions = questions(&OF_READER, access);
    // The namespaces of Cilium and of the controller may be the same.
    let mut asked = BTreeSet::new();
    questions.retain(|(name, _)| asked.insert(name.clone()));
    let rights = own_rights(clients, questions).await.ok()?;
    let missing: Vec<String> =
        rights.into_iter().filter(|right| !right.granted).map(|right| right.name).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "you have no right to {}: the ClusterRole `view` has these rights, with the chart's \
             `cilium-node-ipam-viewer` in it: kubectl create clusterrolebinding NAME --clusterrole=view --user=USER",
            missing.join(", ")
        )
    })
}

/// Rights of the user, each as the server answers.
async fn own_rights(clients: &Clients, questions: Vec<(String, ResourceAttributes)>) -> Seen<Vec<Right>> {
    let api: Api<SelfSubjectAccessReview> = Api::all(clients.reads.clone());
    let mut rights = Vec::new();
    for (name, attributes) in questions {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
            ..Default::default()
        };
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| unseen(&error))?;
        rights.push(Right { name, granted: answer.status.is_some_and(|status| status.allowed) });
    }
    Ok(rights)
}

/// The rights of the controller's account, each as the server answers; `None` if the account does not exist.
pub(super) async fn of_controller(
    clients: &Clients,
    access: &Access,
    mode: Option<IpamMode>,
) -> Seen<Option<Vec<Right>>> {
    let namespace = &access.namespace;
    let accounts: Api<ServiceAccount> = Api::namespaced(clients.reads.clone(), namespace);
    if accounts.get_opt(ACCOUNT).await.map_err(|error| unseen(&error))?.is_none() {
        return Ok(None);
    }
    let api: Api<SubjectAccessReview> = Api::all(clients.reads.clone());
    let further = mode.map(in_mode).unwrap_or_default();
    let mut rights = Vec::new();
    for (name, attributes) in questions(OF_CONTROLLER.iter().chain(further), access) {
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(format!("system:serviceaccount:{namespace}:{ACCOUNT}")),
                groups: Some([&groups[..], &["system:authenticated".to_owned()]].concat()),
                resource_attributes: Some(attributes),
                ..Default::default()
            },
            ..Default::default()
        };
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| unseen(&error))?;
        rights.push(Right { name, granted: answer.status.is_some_and(|status| status.allowed) });
    }
    Ok(Some(rights))
}

/// The cause why rights are not seen.
fn unseen(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => {
            "you are not allowed to ask the API server for the rights of this account".to_owned()
        }
        other => format!("the API server does not say: {other}"),
    }
}

/// One question per verb, with the right in words.
fn questions<'a>(
    needed: impl IntoIterator<Item = &'a Needed>,
    access: &Access,
) -> Vec<(String, ResourceAttributes)> {
    let mut questions = Vec::new();
    for Needed { place, group, resource, name, verbs } in needed {
        let namespace = match place {
            Place::Everywhere => None,
            Place::Cilium => Some(access.cilium_namespace.clone()),
            Place::Own => Some(access.namespace.clone()),
            Place::Default => Some("default".to_owned()),
        };
        let (plural, subresource) = match resource.split_once('/') {
            Some((plural, subresource)) => (plural, Some(subresource.to_owned())),
            None => (*resource, None),
        };
        for verb in *verbs {
            let within = namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            let attributes = ResourceAttributes {
                group: Some((*group).to_owned()),
                resource: Some(plural.to_owned()),
                subresource: subresource.clone(),
                name: Some((*name).to_owned()).filter(|name| !name.is_empty()),
                namespace: namespace.clone(),
                verb: Some((*verb).to_owned()),
                ..Default::default()
            };
            questions.push((format!("{verb} {resource}{within}"), attributes));
        }
    }
    questions
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Group, resource, name and verb of each right.
    type Rights = BTreeSet<(String, String, String, String)>;

    /// The rights that the installation for a mode grants are those that are asked for there.
    #[test]
    fn the_rights_of_the_controller_are_those_of_the_installation() {
        for (mode, installation) in [
            (IpamMode::Crd, include_str!("../../../../manifests/install.yaml")),
            (IpamMode::MultiPool, include_str!("../../../../tests/it/install/rendered/multi-pool.yaml")),
            (
                IpamMode::Kubernetes,
                include_str!("../../../../tests/it/install/rendered/kubernetes-mode.yaml"),
            ),
        ] {
            let asked: Rights = OF_CONTROLLER
                .iter()
                .chain(in_mode(mode))
                .flat_map(|needed| needed.verbs.iter().map(move |verb| (needed, verb)))
                .map(|(needed, verb)| {
                    let owned = |text: &str| text.to_owned();
                    (owned(needed.group), owned(needed.resource), owned(needed.name), owned(verb))
                })
                .collect();
            assert_eq!(asked, granted(installation), "{mode:?}; left: preflight, right: the installation");
        }
    }

    /// The rights that an installation grants to the controller.
    fn granted(installation: &str) -> Rights {
        let mut granted = Rights::new();
        for role in installation
            .split("\n---\n")
            .filter(|part| part.contains("\nkind: ClusterRole\n") || part.contains("\nkind: Role\n"))
        {
            let role: Value = serde_saphyr::from_str(role).unwrap();
            // Granted to users.
            if role["metadata"]["name"] == "cilium-node-ipam-viewer" {
                continue;
            }
            let texts = |value: &Value| -> Vec<String> {
                value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(ToOwned::to_owned)
                    .collect()
            };
            for rule in role["rules"].as_array().unwrap() {
                let names = texts(&rule["resourceNames"]);
                let names = if names.is_empty() { vec![String::new()] } else { names };
                for (group, resource) in texts(&rule["apiGroups"]).iter().flat_map(|group| {
                    texts(&rule["resources"]).into_iter().map(move |resource| (group.clone(), resource))
                }) {
                    for (name, verb) in names.iter().flat_map(|name| {
                        texts(&rule["verbs"]).into_iter().map(move |verb| (name.clone(), verb))
                    }) {
                        granted.insert((group.clone(), resource.clone(), name, verb));
                    }
                }
            }
        }
        granted
    }
}
