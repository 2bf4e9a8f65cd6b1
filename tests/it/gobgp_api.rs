//! The types of GoBGP's API agree with its definitions: `src/wire/gobgp/api.rs` is generated from `api.proto` beside
//! it.
//!
//! `UPDATE_API=1` writes it. No `protoc` is needed.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The first line of the file, which describes it.
const HEAD: &str = "//! The types of `api.proto`, as prost generates them. `tests/it/gobgp_api.rs` compares them, and writes them with \
                    `UPDATE_API=1`.\n\n";

#[test]
fn the_types_are_generated_from_the_definitions() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wire/gobgp");
    let output = tempfile::tempdir()?;
    let definitions = protox::compile(["api.proto"], [&folder])?;
    let mut generator = prost_build::Config::new();
    generator.out_dir(output.path()).disable_comments(["."]).compile_fds(definitions)?;
    let generated = HEAD.to_owned() + &fs::read_to_string(output.path().join("api.rs"))?;
    let file = folder.join("api.rs");
    if std::env::var_os("UPDATE_API").is_some() {
        fs::write(&file, &generated)?;
    }
    let found = fs::read_to_string(&file).context("src/wire/gobgp/api.rs is missing: set UPDATE_API=1")?;
    assert!(found == generated, "src/wire/gobgp/api.rs is not what api.proto says: set UPDATE_API=1");
    Ok(())
}
