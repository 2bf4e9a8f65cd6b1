//! The playground of `docs/tutorial.md`: how its controller runs, and the environment of a shell for it.
//!
//! `make playground` and the test of the tutorial share it, so that both run the same.

use std::path::Path;

use anyhow::Result;

use super::control_plane::{ControlPlane, tool};
use super::controller::{Controller, ELECTED};

/// Agents write each second here, so a drain need not wait for the default of 30 s either.
const FLAGS: &[&str] = &[ELECTED, "--usage-query-interval", "5s"];

/// The controller as an installation runs it, except for its periods.
pub(crate) async fn start_controller(plane: &ControlPlane) -> Result<Controller> {
    Controller::start_ready(plane, FLAGS).await
}

/// The lines that bring a shell into `folder`, where it finds the cluster, kubectl and the product's program, which is in
/// the folder `programs`.
pub(crate) fn environment(plane: &ControlPlane, programs: &Path, folder: &Path) -> String {
    let kubectl = tool("NODEIPAM_KUBECTL", "kubectl");
    let tools = kubectl.parent().unwrap_or(Path::new("/"));
    format!("{LEAVE}{}", enter(&plane.admin_kubeconfig, &[programs, tools], folder))
}

/// Keeps the settings of a shell, and defines `leave`, which brings it back: also after the playground has removed its
/// folder. The shell stays the same, because one below it would read its own start files, and they may set both again.
const LEAVE: &str = r#"if [ -z "${playground_folder-}" ]; then
    playground_folder=$PWD playground_path=$PATH playground_kubeconfig=${KUBECONFIG-}
fi
leave() {
    cd "$playground_folder"
    export PATH="$playground_path" KUBECONFIG="$playground_kubeconfig"
    [ -n "$KUBECONFIG" ] || unset KUBECONFIG
    unset playground_folder playground_path playground_kubeconfig
    unset -f leave
}
"#;

fn enter(kubeconfig: &Path, programs: &[&Path], folder: &Path) -> String {
    let programs: Vec<_> = programs.iter().map(|path| path.display().to_string()).collect();
    format!(
        "export KUBECONFIG='{}'\nexport PATH='{}':\"$PATH\"\ncd '{}'\n",
        kubeconfig.display(),
        programs.join(":"),
        folder.display(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_leaves_the_playground_as_it_came() {
        for (before, after) in [("export KUBECONFIG=/mine", "/mine"), ("unset KUBECONFIG", "unset")] {
            let (home, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let enter =
                format!("{LEAVE}{}", enter(Path::new("/k"), &["/a".as_ref(), "/b".as_ref()], folder.path()));
            // Twice, as by a person who is not sure.
            let script = format!(
                "{before}\npath=$PATH\n{enter}{enter}echo \"$KUBECONFIG\"; pwd; rmdir \"$PWD\"; leave\n\
                 echo \"${{KUBECONFIG-unset}}\"; pwd; [ \"$PATH\" = \"$path\" ]; command -v leave"
            );
            for shell in ["bash", "sh"] {
                std::fs::create_dir_all(folder.path()).unwrap();
                let mut command = Command::new(shell);
                command.args(["-uc", &script]).current_dir(home.path());
                let output = command.output().unwrap();
                let said = String::from_utf8_lossy(&output.stdout);
                let (inside, outside) = (folder.path().display(), home.path().display());
                assert_eq!(said, format!("/k\n{inside}\n{after}\n{outside}\n"), "{shell}: {output:?}");
                assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{shell}");
            }
        }
    }
}
