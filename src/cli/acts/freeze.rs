//! `freeze` and `unfreeze`: the ConfigMap that stops writes of the controller.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PostParams, Preconditions};
use serde_json::{Value, json};

use super::{Answer, Consent, FIELD_MANAGER, patch_params, within};
use crate::cli::answers::replicas::OUR_PODS;
use crate::cli::answers::{Cluster, Gathered, Verdict, block_on, fields};
use crate::cli::screen::{self, Line};
use crate::controller::client::Clients;
use crate::controller::dry_run::{self, Proposal};
use crate::model::freeze::Switch;
use crate::wire::freeze::{CONFIG_MAP, REASON, freeze_of, key_of};

/// How many writes are listed for people.
const LISTED: usize = 20;
/// The indentation of a line that continues on the next one.
const INDENT: usize = 4;

/// Stop the writes of the controller while it keeps running and reporting.
///
/// It shows the effect, and asks before it writes. It sets `freeze-writes` in the ConfigMap `cilium-node-ipam` of the
/// controller's namespace, with your own rights. Pods keep starting on addresses that their nodes have. New nodes get
/// no addresses.
///
/// Exit codes: 0 written, 1 you declined, 2 it could not be written.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam freeze --reason 'ticket 4711, ask the network team'\n  cilium-node-ipam \
                        freeze --reclaim"
)]
pub struct Freeze {
    /// Stop only reclaim: no block starts draining.
    #[arg(long)]
    reclaim: bool,

    /// The reason. It appears wherever the freeze is reported.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    consent: Consent,

    #[command(flatten)]
    cluster: Cluster,
}

/// End a freeze. It deletes the ConfigMap `cilium-node-ipam` of the controller's namespace.
///
/// It shows the writes that the controller will make then, and asks before it writes with your own rights.
///
/// Exit codes: 0 written, or nothing to write; 1 you declined; 2 it could not be written.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  cilium-node-ipam unfreeze")]
pub struct Unfreeze {
    /// Remove only the switch for reclaim, and keep the ConfigMap.
    #[arg(long)]
    reclaim: bool,

    #[command(flatten)]
    consent: Consent,

    #[command(flatten)]
    cluster: Cluster,
}

/// Runs `freeze`.
pub fn freeze(args: Freeze) -> anyhow::Result<Verdict> {
    block_on(async move {
        args.consent.check()?;
        let Gathered { clients, .. } = args.cluster.access.gather().await?;
        let namespace = &args.cluster.access.namespace;
        let found = found(&clients, namespace).await?;
        warn_without_controller(&clients, namespace).await;
        let switch = if args.reclaim { Switch::Reclaim } else { Switch::Writes };
        let mut data = BTreeMap::from([(key_of(switch).to_owned(), "true".to_owned())]);
        data.extend(args.reason.clone().map(|reason| (REASON.to_owned(), reason)));
        let mut after = found.clone().unwrap_or_default();
        after.data.get_or_insert_default().extend(data.clone());
        let frozen = freeze_of(Some(&after), namespace);
        let effects: Vec<String> =
            Switch::ALL.into_iter().filter_map(|switch| frozen.description(switch)).collect();
        let is_table = args.consent.reads_first(args.cluster.output)?;
        let object = json!({"frozen": effects, "written": true});
        if is_table {
            args.cluster.print("Freeze", fields(object.clone()), || {
                effects.into_iter().map(|effect| Line::from(effect).below(INDENT)).collect()
            })?;
        }
        if args.consent.ask("Freeze?")? == Answer::No {
            return Ok(Verdict::Found);
        }
        write(&clients, namespace, found.as_ref(), &json!(data)).await?;
        if is_table {
            screen::print_lines([format!("{}frozen", subject(args.reclaim))])?;
        } else {
            args.cluster.print("Freeze", fields(object), Vec::<String>::new)?;
        }
        Ok(Verdict::Fine)
    })
}

/// The beginning of the line about the result: a freeze without a subject stops all writes.
fn subject(is_reclaim_only: bool) -> &'static str {
    if is_reclaim_only { "reclaim " } else { "" }
}

/// A ConfigMap in another namespace than the controller's freezes nothing.
async fn warn_without_controller(clients: &Clients, namespace: &str) {
    let pods: Api<Pod> = Api::namespaced(clients.reads.clone(), namespace);
    let ours = ListParams::default().labels(OUR_PODS).limit(1);
    // Without the right to list Pods there is no warning.
    if let Ok(Ok(found)) = tokio::time::timeout(clients.timeout, pods.list(&ours)).await
        && found.items.is_empty()
    {
        screen::note(format_args!(
            "warning: no Pod with the label {OUR_PODS} is in the namespace {namespace}: a controller in another \
             namespace is not frozen; see --namespace"
        ));
    }
}

/// Runs `unfreeze`.
pub fn unfreeze(args: Unfreeze) -> anyhow::Result<Verdict> {
    block_on(async move {
        args.consent.check()?;
        let Gathered { clients, mut world, now } = args.cluster.access.gather().await?;
        let namespace = &args.cluster.access.namespace;
        let found = found(&clients, namespace).await?;
        let mut after = found.clone().filter(|_| args.reclaim);
        if let Some(data) = after.as_mut().and_then(|after| after.data.as_mut()) {
            data.remove(key_of(Switch::Reclaim));
        }
        world.set_freeze(freeze_of(after.as_ref(), namespace));
        let policy = args.cluster.access.policy_in(&clients, &world, now).await;
        let proposal = Proposal::of(world.clone(), policy, now);
        let writes: Vec<String> = proposal.requests.iter().map(ToString::to_string).collect();
        let mut object = json!({"requests": writes, "written": found.is_some()});
        let is_table = args.consent.reads_first(args.cluster.output)?;
        if is_table {
            let lines = dry_run::lines(&world, &proposal);
            let n_more = lines.len().saturating_sub(LISTED);
            // The last line counts the writes.
            let lines = lines.into_iter().skip(n_more).map(|line| Line::from(line).below(INDENT));
            args.cluster.print("Unfreeze", fields(object.clone()), || lines.collect())?;
        }
        let Some(found) = found else {
            screen::note(format_args!(
                "ConfigMap {namespace}/{CONFIG_MAP} does not exist: nothing was written."
            ));
            if !is_table {
                args.cluster.print("Unfreeze", fields(object), Vec::<String>::new)?;
            }
            return Ok(Verdict::Fine);
        };
        if args.consent.ask("End the freeze?")? == Answer::No {
            return Ok(Verdict::Found);
        }
        if args.reclaim {
            let removed: Value = json!({key_of(Switch::Reclaim): null});
            write(&clients, namespace, Some(&found), &removed).await?;
        } else {
            let api = api(&clients, namespace);
            let preconditions =
                Preconditions { resource_version: found.metadata.resource_version, uid: found.metadata.uid };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            let name = format!("ConfigMap {namespace}/{CONFIG_MAP}");
            within(&clients, &name, api.delete(CONFIG_MAP, &params)).await?;
        }
        if is_table {
            screen::print_lines([format!("{}unfrozen", subject(args.reclaim))])?;
        } else {
            object["written"] = true.into();
            args.cluster.print("Unfreeze", fields(object), Vec::<String>::new)?;
        }
        Ok(Verdict::Fine)
    })
}

fn api(clients: &Clients, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(clients.writes.clone(), namespace)
}

async fn found(clients: &Clients, namespace: &str) -> anyhow::Result<Option<ConfigMap>> {
    let name = format!("ConfigMap {namespace}/{CONFIG_MAP}");
    within(clients, &name, api(clients, namespace).get_opt(CONFIG_MAP)).await
}

/// Writes these keys, in the version in which the user has seen the ConfigMap.
async fn write(
    clients: &Clients,
    namespace: &str,
    found: Option<&ConfigMap>,
    data: &Value,
) -> anyhow::Result<()> {
    let (api, name) = (api(clients, namespace), format!("ConfigMap {namespace}/{CONFIG_MAP}"));
    if let Some(found) = found {
        let version = &found.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
        within(clients, &name, api.patch(CONFIG_MAP, &patch_params(), &Patch::Merge(patch))).await?;
    } else {
        let mut new = ConfigMap::default();
        new.metadata.name = Some(CONFIG_MAP.to_owned());
        new.data = serde_json::from_value(data.clone())?;
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        within(clients, &name, api.create(&params, &new)).await?;
    }
    Ok(())
}
