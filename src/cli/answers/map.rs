//! `cilium-node-ipam map`: the address space as a page or a picture.

use std::path::PathBuf;

use anyhow::Context as _;

use super::{Access, Gathered, Verdict, block_on};
use crate::page;
use crate::view::map::map;

/// Write a map of the address space: each pool's ranges with the state, node and use of every block.
///
/// A page (.html) has a search for addresses and nodes, and shows the numbers of a block on hover and click. A picture
/// (.svg) needs no browser script. Both are one file that loads nothing else. They name nodes and addresses of the
/// cluster.
///
/// It reads the cluster once and writes nothing to it.
///
/// Exit codes: 0 the file was written, 2 it could not be.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cilium-node-ipam map -o map.html\n  cilium-node-ipam map -o map.svg")]
pub struct Args {
    #[command(flatten)]
    access: Access,

    /// Write this file. Its name must end in .html or .svg.
    #[arg(short, long, value_name = "FILE", value_parser = file, help_heading = "Output")]
    output: File,
}

/// A file and its form.
#[derive(Debug, Clone)]
struct File {
    path: PathBuf,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Page,
    Picture,
}

fn file(text: &str) -> Result<File, String> {
    let path = PathBuf::from(text);
    let form = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => Form::Page,
        Some("svg") => Form::Picture,
        Some(_) | None => return Err("the file name must end in .html or .svg".to_owned()),
    };
    Ok(File { path, form })
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    block_on(async move {
        let Gathered { world, now, .. } = args.access.gather().await?;
        let map = map(&world, now.wall);
        let text = match args.output.form {
            Form::Page => page::map::html(&map),
            Form::Picture => page::map::svg(&map),
        };
        let path = args.output.path;
        std::fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
        Ok(Verdict::Fine)
    })
}
