//! `cilium-node-ipam check`: an audit of the cluster, or of files of objects.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::bail;
use serde_json::{Value, json};

use super::super::program::program;
use super::super::screen::{self, PLAIN, style_for};
use super::super::site;
use super::{Live, Source, Verdict, around, block_on, fields, files, lease};
use crate::forecast::plan_all;
use crate::model::counted::counted;
use crate::model::names::by_number;
use crate::view::audit::catalog::{Check, Severity};
use crate::view::audit::{Line, audit};

/// The page with an entry per id.
const PAGE: &str = "reference/checks";
/// How many objects of one line are named for people.
const NAMED: usize = 3;

/// Audit the cluster, or files of objects: claims, carriers, Pods, podCIDRs and ranges compared with each other.
///
/// It reads objects once, takes no locks and writes nothing. Each kind of problem has a stable id, such as NIP0302,
/// which `explain` explains. Equal problems of many objects are one entry, and the worst comes first.
///
/// Objects that you may not list are skipped, and the output names them.
///
/// Exit codes: 0 no errors and no warnings, 1 there are some, 2 the objects could not be read.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam check\n  cilium-node-ipam check --suppress NIP0403 -o json\n  kubectl get \
                        nodes,ciliumnodes,nip,nib,pods -A -o json | cilium-node-ipam check -f -"
)]
pub struct Args {
    /// Leave out the check with this id. May be repeated.
    #[arg(long, value_name = "ID")]
    suppress: Vec<String>,

    /// Audit the objects in a file instead of a cluster, or in `-` for standard input. May be repeated.
    #[arg(short, long = "filename", value_name = "FILE|-")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    cluster: Source,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    let suppressed = suppressed(&args.suppress)?;
    block_on(async move {
        let (world, plans, objects) = if args.filename.is_empty() {
            let listed = args.cluster.list().await?;
            let around = match listed.live {
                Live::Cluster(clients) => around::list(&clients).await?,
                Live::Files { objects, .. } => objects,
            };
            (listed.world, listed.plans, around)
        } else {
            let mut read = files::read(&args.filename, args.cluster.namespaces())?;
            let policy = lease::policy(&read.lease, &read.world, read.now.wall);
            let plans = plan_all(&mut read.world, policy, read.now);
            (read.world, plans, read.objects)
        };
        let mut lines = audit(&world, &plans, &objects.around);
        lines.retain(|line| !suppressed.contains(&line.check));
        let is_wrong = lines.iter().any(|line| line.check.severity() < Severity::Info);
        let object = json!({
            "items": lines.iter().map(object).collect::<Vec<_>>(),
            "suppressed": suppressed.iter().map(|check| check.id()).collect::<Vec<_>>(),
            "skipped": objects.skipped,
        });
        args.cluster.print("Check", fields(object), || text(&lines, &objects.skipped))?;
        Ok(if is_wrong { Verdict::Found } else { Verdict::Fine })
    })
}

fn suppressed(ids: &[String]) -> anyhow::Result<BTreeSet<Check>> {
    let mut checks = BTreeSet::new();
    for id in ids {
        let Some(check) = Check::ALL.into_iter().find(|check| check.id() == id) else {
            bail!("no check has the id {id}: `{} explain` lists all ids", program());
        };
        checks.insert(check);
    }
    Ok(checks)
}

fn text(lines: &[Line], skipped: &[String]) -> Vec<screen::Line> {
    let mut out = Vec::new();
    for line in lines {
        let check = line.check;
        let objects = match line.objects.len() {
            1 => line.kind.to_owned() + " " + line.objects.keys().next().map_or("", String::as_str),
            n => counted(n, line.kind),
        };
        let severity = format!("{:<7}", check.severity().as_str());
        let first = screen::Line::painted(style_for(check.severity()), severity);
        out.push(first.and(PLAIN, format!("  {}  {objects}", check.id())));
        let objects = has_objects(line).then(|| named(line));
        let parts = [
            ("cause", Some(line.cause.clone())),
            ("objects", objects),
            ("remedy", Some(check.remedy().to_owned())),
        ];
        let parts = parts.into_iter().filter_map(|(label, text)| Some((label, text?)));
        let more = ("more", explanation(check));
        let page = page(check).map(|page| ("page", page));
        out.extend(
            parts
                .chain([more])
                .chain(page)
                .map(|(label, text)| screen::Line::labelled(&format!("         {label}"), 18, &text)),
        );
        out.push(screen::Line::default());
    }
    let count = |severity: Severity| lines.iter().filter(|line| line.check.severity() == severity).count();
    let counts = format!(
        "{}, {}, {} for information.",
        counted(count(Severity::Error), "error"),
        counted(count(Severity::Warning), "warning"),
        count(Severity::Info)
    );
    out.push(counts.into());
    out.extend(skipped.iter().map(|skipped| screen::Line::from(format!("Not checked: {skipped}.")).below(2)));
    out
}

/// The command that explains a check.
fn explanation(check: Check) -> String {
    format!("{} explain {}", program(), check.id())
}

/// The entry of a check on the site of the documents.
fn page(check: Check) -> Option<String> {
    site::address(PAGE, &check.id().to_lowercase())
}

/// Whether the names or details of the objects say more than the first line.
fn has_objects(line: &Line) -> bool {
    line.objects.len() > 1 || line.objects.values().any(|detail| !detail.is_empty())
}

/// The objects with their details, by name.
fn by_name(line: &Line) -> Vec<(&String, &String)> {
    let mut objects: Vec<_> = line.objects.iter().collect();
    objects.sort_by(|(one, _), (other, _)| by_number(one, other));
    objects
}

/// The first objects with their details.
fn named(line: &Line) -> String {
    let one = |(name, detail): (&String, &String)| match (line.objects.len(), detail.is_empty()) {
        (1, _) => detail.clone(),
        (_, true) => name.clone(),
        (_, false) => format!("{name} ({detail})"),
    };
    let names: Vec<String> = by_name(line).into_iter().take(NAMED).map(one).collect();
    match line.objects.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn object(line: &Line) -> Value {
    let objects = by_name(line).into_iter().map(|(name, detail)| {
        let detail = (!detail.is_empty()).then_some(detail);
        json!({"name": name, "detail": detail})
    });
    json!({
        "id": line.check.id(),
        "severity": line.check.severity().as_str(),
        "title": line.check.title(),
        "kind": line.kind,
        "objects": objects.collect::<Vec<_>>(),
        "cause": line.cause,
        "remedy": line.check.remedy(),
        "explanation": explanation(line.check),
        "page": page(line.check),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_id_is_an_error() {
        assert!(suppressed(&["NIP9999".to_owned()]).is_err());
        assert_eq!(suppressed(&["NIP0302".to_owned()]).unwrap(), BTreeSet::from([Check::PodOutsideClaims]));
    }
}
