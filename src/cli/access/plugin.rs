//! Credential plugins: the programs that a kubeconfig names to get a token or a certificate (`users[].user.exec`).
//!
//! kube runs a plugin three times per client, and shows its failures as Rust structures. So it runs here, once.

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, Cluster, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

use crate::cli::screen;

/// The answer of a plugin.
#[derive(Debug, Deserialize)]
struct Answer {
    status: Option<Credentials>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credentials {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Replaces the plugin of a user by the credentials that it returns.
pub(super) fn resolve(user: &mut AuthInfo, cluster: &Cluster) -> anyhow::Result<()> {
    let Some(exec) = user.exec.take() else { return Ok(()) };
    let name = exec.command.clone().context("a user with `exec` has no `command` in the kubeconfig")?;
    let answer = run(&name, &exec, cluster)?;
    let answer: Answer = serde_saphyr::from_slice(&answer)
        .ok()
        .with_context(|| format!("the credential plugin {name} printed no ExecCredential"))?;
    let found =
        answer.status.with_context(|| format!("the credential plugin {name} returned no credentials"))?;
    match (found.client_certificate_data, found.client_key_data) {
        (Some(certificate), Some(key)) => {
            user.client_certificate_data = Some(STANDARD.encode(certificate));
            user.client_key_data = Some(STANDARD.encode(key).into());
        }
        (Some(_), None) | (None, Some(_)) => {
            bail!("the credential plugin {name} returned a certificate or a key without the other")
        }
        (None, None) if found.token.is_none() => {
            bail!("the credential plugin {name} returned neither a token nor a certificate")
        }
        (None, None) => {}
    }
    if let Some(token) = found.token {
        user.token = Some(token.into());
    }
    Ok(())
}

/// The output of a plugin.
fn run(name: &str, exec: &ExecConfig, cluster: &Cluster) -> anyhow::Result<Vec<u8>> {
    let is_terminal = std::io::stdin().is_terminal();
    let is_interactive = match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !is_terminal => {
            bail!("the credential plugin {name} asks questions, and standard input is no terminal")
        }
        Some(ExecInteractiveMode::Always) => true,
        Some(ExecInteractiveMode::IfAvailable) | None => is_terminal,
    };
    let mut spec = json!({"interactive": is_interactive});
    if exec.provide_cluster_info {
        spec["cluster"] = json!({
            "server": cluster.server, "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": authority(cluster)?, "proxy-url": cluster.proxy_url,
            "config": cluster.extensions.iter().flatten().find(|found| found.name == CLUSTER_CONFIG).map(|found| &found.extension),
        });
        // A field that is not set is absent.
        if let Some(fields) = spec["cluster"].as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
    }
    let info = json!({"kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec});
    let mut command = Command::new(name);
    command.args(exec.args.iter().flatten()).env("KUBERNETES_EXEC_INFO", info.to_string());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    // A plugin that asks must not read the input of this program.
    command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() }).stdout(Stdio::piped());
    // The words of an interactive plugin are for the user: an address to open, or a code to enter.
    command.stderr(if is_interactive { Stdio::inherit() } else { Stdio::piped() });
    let output = match command.spawn().and_then(std::process::Child::wait_with_output) {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut text = format!("the credential plugin {name} of the kubeconfig is not installed");
            if let Some(hint) = exec.install_hint.as_deref().map(str::trim).filter(|hint| !hint.is_empty()) {
                let _ = write!(text, ": {hint}");
            }
            bail!(text)
        }
        Err(error) => bail!("the credential plugin {name} of the kubeconfig can't be run: {error}"),
    };
    let words = String::from_utf8_lossy(&output.stderr);
    let words = words.trim();
    if !output.status.success() {
        let colon = if words.is_empty() { "" } else { ": " };
        bail!("the credential plugin {name} failed ({}){colon}{words}", output.status);
    }
    words.lines().for_each(screen::note);
    Ok(output.stdout)
}

/// The extension of a cluster that a plugin gets.
const CLUSTER_CONFIG: &str = "client.authentication.k8s.io/exec";

/// The certificate authority of a cluster, as a plugin gets it.
fn authority(cluster: &Cluster) -> anyhow::Result<Option<String>> {
    match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => Ok(Some(data.clone())),
        (None, Some(file)) => {
            let read = std::fs::read(file)
                .with_context(|| format!("can't read the certificate authority {file}"))?;
            Ok(Some(STANDARD.encode(read)))
        }
        (None, None) => Ok(None),
    }
}
