//! `cilium-node-ipam map`: the address space as a page or a picture.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::{Verdict, block_on};
use crate::cli::access::Access;
use crate::cli::screen;
use crate::forecast::plan_all;
use crate::page;
use crate::view::map::map;

/// Write a map of the address space: each pool's ranges with the state, node and use of every block.
///
/// A page (.html) shows nodes without addresses, problems, and the numbers of a block on hover and click. It has a
/// search for addresses and nodes. A picture (.svg) needs no browser script and no style sheet. Both are one file that
/// loads nothing else. They name nodes and addresses of the cluster.
///
/// It reads the cluster once and writes nothing to it. A file that exists is replaced only with --force.
///
/// Exit codes: 0 the file was written, 2 it could not be.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam map -o map.html\n  cilium-node-ipam map --from bundle.tar.gz -o map.svg"
)]
pub struct Args {
    /// Read a bundle, or a directory with files of objects, instead of a cluster.
    #[arg(long, value_name = "FILE|DIR", help_heading = "Cluster")]
    from: Option<PathBuf>,

    #[command(flatten)]
    access: Access,

    /// Write this file. Its name must end in .html or .svg. `-` writes the page to standard output, and `-.svg` the
    /// picture.
    #[arg(short, long, value_name = "FILE|-", value_parser = file, allow_hyphen_values = true)]
    #[arg(help_heading = "Output")]
    output: File,

    /// Replace the file if it exists.
    #[arg(long, help_heading = "Output")]
    force: bool,
}

/// A file and its form.
#[derive(Debug, Clone)]
struct File {
    /// `None` for standard output.
    path: Option<PathBuf>,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Page,
    Picture,
}

fn file(text: &str) -> Result<File, String> {
    match text {
        "-" | "-.html" => return Ok(File { path: None, form: Form::Page }),
        "-.svg" => return Ok(File { path: None, form: Form::Picture }),
        _ => {}
    }
    let path = PathBuf::from(text);
    let form = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => Form::Page,
        Some("svg") => Form::Picture,
        Some(_) | None => return Err("the file name must end in .html or .svg".to_owned()),
    };
    Ok(File { path: Some(path), form })
}

/// Writes a file. An existing one is replaced only if the user wants that.
fn write(path: &Path, text: &str, is_forced: bool) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(true).create(is_forced).create_new(!is_forced);
    let opened = options.open(path);
    if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
        bail!("{} exists: give another name, or --force to replace it", path.display());
    }
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("can't write {}", path.display()))
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    block_on(async move {
        let (live, world, now) = args.access.read(args.from.as_deref()).await?;
        let policy = args.access.policy(&live, &world, now).await;
        let plans = plan_all(&mut world.clone(), policy, now);
        let map = map(&world, &plans, now.wall);
        let text = match args.output.form {
            Form::Page => page::map::html(&map),
            Form::Picture => page::map::svg(&map),
        };
        match &args.output.path {
            Some(path) => write(path, &text, args.force)?,
            None => {
                screen::print_own(text.as_bytes())?;
            }
        }
        Ok(Verdict::Fine)
    })
}
