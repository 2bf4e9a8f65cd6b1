//! `scripts/logged`, by which `make demo` and `make playground` build: its status is that of the build.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Result, ensure};

fn run(program: &str, arguments: &[&str]) -> Result<(Output, String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(program).args(arguments).current_dir(root).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    Ok((output, stdout, stderr))
}

#[test]
fn a_build_that_fails_is_named_with_its_status_and_its_last_lines() -> Result<()> {
    let (output, _, stderr) = run("scripts/logged", &["test-fails", "bash", "-c", "echo broken; exit 3"])?;
    ensure!(output.status.code() == Some(3), "{:?}", output.status);
    let end = "The build of test-fails has failed with status 3. All of its log: build/logs/test-fails.log\n";
    ensure!(stderr == format!("broken\n{end}"), "{stderr}");
    Ok(())
}

#[test]
fn a_build_that_is_up_to_date_prints_nothing() -> Result<()> {
    let (output, stdout, stderr) = run("scripts/logged", &["test-passes", "echo", "fresh"])?;
    ensure!(output.status.success() && stdout.is_empty() && stderr.is_empty(), "{stdout}{stderr}");
    Ok(())
}

/// The processes that a build starts may get the number of any that has exited.
#[test]
fn a_build_that_starts_many_processes_keeps_its_status() -> Result<()> {
    let many = "for i in $(seq 200); do /bin/true & done; wait; exit 7";
    let (output, ..) = run("scripts/logged", &["test-many", "bash", "-c", many])?;
    ensure!(output.status.code() == Some(7), "{:?}", output.status);
    Ok(())
}

#[test]
fn make_ends_with_the_failure_of_one_of_its_builds() -> Result<()> {
    let (output, _, stderr) = run("make", &["--jobs=2", "logged-no-such-program"])?;
    ensure!(
        !output.status.success() && stderr.contains("The build of no-such-program has failed"),
        "{stderr}"
    );
    Ok(())
}
