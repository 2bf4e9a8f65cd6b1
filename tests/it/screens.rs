//! Each screen as a terminal of 80 and of 120 columns shows it, from the files of `examples/cluster`.
//!
//! No line is wider than the terminal, except for a command that a reader copies: a line break would cut it in two. It
//! then has a line of its own, with its label at most. `tests/it/screens` has the screens; with `UPDATE_DOCS=1`
//! the test writes them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

/// Each screen: the name of its file, and the command.
const SCREENS: [(&str, &str); 14] = [
    ("status", "status"),
    ("status-wide", "status -o wide"),
    ("why-waiting", "why f09"),
    ("why-held", "why e01"),
    ("why-draining", "why d01"),
    ("why-foreign", "why odd -o wide"),
    ("who", "who 10.1.0.5 10.1.0.6 10.2.0.241 10.2.0.230 10.3.0.0/28 192.168.0.1 default/web-1"),
    ("who-wide", "who 10.1.0.5 10.2.0.241 -o wide"),
    ("check", "check"),
    ("preflight", "preflight"),
    ("routes", "routes --node e01 --node f01 --node d01"),
    ("plan-join", "plan --add-nodes 3 --labels zone=e"),
    ("plan-delete", "plan --delete-pool edge"),
    ("plan-use", "plan --use 90%"),
];

const WIDTHS: [usize; 2] = [80, 120];

/// The starts of commands that are copied.
const COPIED: [&str; 3] = ["kubectl ", "cilium-node-ipam ", "`"];

fn file(name: &str, width: usize) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/screens");
    folder.join(format!("{name}-{width}.txt"))
}

/// The lines that are wider than this and hold more than a command.
fn too_wide(text: &str, width: usize) -> Vec<&str> {
    let is_copied = |line: &&str| {
        let before = COPIED.iter().filter_map(|start| Some(&line[..line.find(start)?]));
        before.into_iter().any(|label| label.split_whitespace().count() <= 1)
    };
    text.lines().filter(|line| line.chars().count() > width && !is_copied(line)).collect()
}

async fn shown(command: &str, columns: Option<usize>) -> Result<String> {
    let mut process = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
    process.args(command.split(' ')).args(["--from", "examples/cluster"]);
    process.current_dir(env!("CARGO_MANIFEST_DIR")).env("KUBECONFIG", "/nonexistent").env_remove("COLUMNS");
    process.envs(columns.map(|columns| ("COLUMNS", columns.to_string()))).stdin(Stdio::null());
    let output = process.output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code().is_some_and(|code| code < 2), "{command}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
async fn each_screen_fits_terminals_of_80_and_of_120_columns() -> Result<()> {
    for (name, command) in SCREENS {
        for width in WIDTHS {
            let text = shown(command, Some(width)).await?;
            ensure!(too_wide(&text, width).is_empty(), "{command}: {:#?}", too_wide(&text, width));
            let file = file(name, width);
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::write(file, text)?;
                continue;
            }
            let expected =
                std::fs::read_to_string(&file).with_context(|| format!("can't read {}", file.display()))?;
            ensure!(text == expected, "{} shows another screen:\n{text}", file.display());
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_pipe_has_100_columns_and_a_program_gets_whole_rows() -> Result<()> {
    let text = shown("check", None).await?;
    ensure!(text == shown("check", Some(100)).await? && text != shown("check", Some(80)).await?, "{text}");
    let rows = shown("status -o wide --no-headers", Some(80)).await?;
    let row = "full      Exhausted  14  8/8    0   6/0  -  -    -    0  zone=f  10.1.0.0/25=8/8";
    ensure!(rows.lines().any(|line| line == row), "{rows}");
    Ok(())
}

#[test]
fn a_line_that_is_too_wide_is_noticed() {
    let text = "short\na line that is too wide\nrun   kubectl -n kube-system get pods\na wide line: kubectl get pods\n";
    assert_eq!(too_wide(text, 20), ["a line that is too wide", "a wide line: kubectl get pods"]);
}
