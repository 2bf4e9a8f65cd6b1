//! Ways to a cluster, each judged by kubectl: the files of a test, and the run of both programs.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::answers::Said;
use crate::support::control_plane::{ControlPlane, tool};

/// Variables that change the access to a cluster.
const VARIABLES: [&str; 8] = [
    "KUBECONFIG",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "KUBERNETES_SERVICE_HOST",
];

/// Our program.
pub(super) const OURS: &str = env!("CARGO_BIN_EXE_cilium-node-ipam");

/// The files of a test, and the credentials of the rig.
pub(super) struct Bench {
    folder: TempDir,
    /// The kubeconfigs of the administrator and of the controller, as values.
    admin: Value,
    controller: Value,
    pub(super) address: SocketAddr,
}

/// One way to a cluster.
#[derive(Clone)]
pub(super) struct Case {
    name: &'static str,
    kubeconfig: Value,
    variables: Vec<(&'static str, String)>,
    pub(super) flags: Vec<String>,
}

/// The verdict of kubectl, and our words if it refuses.
enum Verdict {
    Accepted,
    Refused(Vec<&'static str>),
}

impl Case {
    pub(super) fn new(name: &'static str, kubeconfig: Value) -> Self {
        Self { name, kubeconfig, variables: Vec::new(), flags: Vec::new() }
    }

    pub(super) fn with(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((variable, value.into()));
        self
    }

    pub(super) fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(ToString::to_string));
        self
    }
}

impl Bench {
    pub(super) fn new(plane: &ControlPlane) -> Result<Self> {
        let read =
            |path: &Path| -> Result<Value> { Ok(serde_saphyr::from_str(&std::fs::read_to_string(path)?)?) };
        Ok(Self {
            folder: tempfile::tempdir()?,
            admin: read(&plane.admin_kubeconfig)?,
            controller: read(&plane.controller_kubeconfig)?,
            address: plane.server.trim_start_matches("https://").parse()?,
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<String> {
        std::fs::write(self.path(name), text)?;
        Ok(self.path(name).display().to_string())
    }

    /// A program of the shell.
    pub(super) fn script(&self, name: &str, text: &str) -> Result<String> {
        let path = self.write(name, format!("#!/bin/sh\n{text}\n"))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    pub(super) fn cluster(&self) -> Value {
        self.admin["clusters"][0]["cluster"].clone()
    }

    pub(super) fn user(&self) -> Value {
        self.admin["users"][0]["user"].clone()
    }

    pub(super) fn token(&self) -> String {
        self.controller["users"][0]["user"]["token"].as_str().unwrap_or_default().to_owned()
    }

    /// A kubeconfig of this cluster and this user.
    pub(super) fn config(cluster: &Value, user: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "rig",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "rig", "context": {"cluster": "c", "user": "u"}}],
        })
    }

    /// The same with further fields of the cluster.
    pub(super) fn config_with(&self, fields: &Value) -> Value {
        let mut cluster = self.cluster();
        for (name, value) in fields.as_object().into_iter().flatten() {
            cluster[name] = value.clone();
        }
        Self::config(&cluster, &self.user())
    }

    pub(super) async fn run(
        &self,
        program: impl AsRef<Path>,
        case: &Case,
        arguments: &[&str],
    ) -> Result<Said> {
        let kubeconfig = self.write("config", case.kubeconfig.to_string())?;
        let mut command = Command::new(program.as_ref());
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        command.env("HOME", self.folder.path()).env("KUBECONFIG", kubeconfig);
        command.envs(case.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.args(arguments).output().await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Said { text: text(&output.stdout), errors: text(&output.stderr), code: output.status.code() })
    }

    /// Runs kubectl, and then our commands with the same flags in front of the subcommand and behind it.
    async fn judge(&self, case: &Case, verdict: &Verdict) -> Result<()> {
        let name = case.name;
        let flags: Vec<&str> = case.flags.iter().map(String::as_str).collect();
        let kubectl = tool("NODEIPAM_KUBECTL", "kubectl");
        let judged = self.run(kubectl, case, &[&["get", "nodes"], &flags[..]].concat()).await?;
        let accepts = judged.code == Some(0);
        ensure!(accepts == matches!(verdict, Verdict::Accepted), "{name}: kubectl: {}", judged.errors);
        let behind = [&["status"], &flags[..]].concat();
        let in_front = [&flags[..], &["status"]].concat();
        let both = if flags.is_empty() { vec![behind] } else { vec![behind, in_front] };
        for arguments in both {
            let said = self.run(OURS, case, &arguments).await?;
            match verdict {
                Verdict::Accepted => {
                    ensure!(matches!(said.code, Some(0 | 1)), "{name}: {:?} {}", said.code, said.errors);
                }
                Verdict::Refused(words) => {
                    let errors = &said.errors;
                    ensure!(said.code == Some(2), "{name}: {:?} {errors}", said.code);
                    ensure!(errors.trim().lines().count() == 1, "{name}: not one sentence: {errors}");
                    for words in words {
                        ensure!(errors.contains(words), "{name}: no {words:?} in: {errors}");
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) async fn accepted(&self, cases: impl IntoIterator<Item = Case>) -> Result<()> {
        for case in cases {
            self.judge(&case, &Verdict::Accepted).await?;
        }
        Ok(())
    }

    pub(super) async fn refused<const N: usize>(&self, case: Case, words: [&'static str; N]) -> Result<()> {
        self.judge(&case, &Verdict::Refused(words.into())).await
    }
}
