//! The last lines of log files, printed when a test has failed. The files themselves are not kept.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// How much of each log is shown: about forty lines, which hold the cause more often than not.
const TAIL: u64 = 6 * 1024;

/// Prints the tail of every `*.log` below `dir` that is not empty.
pub(crate) fn print(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            print(&path);
        } else if path.extension().is_some_and(|extension| extension == "log") {
            let tail = tail(&path);
            if !tail.is_empty() {
                eprintln!("---- end of {} ----\n{tail}", path.display());
            }
        }
    }
}

/// The end of the file, from the start of a line.
pub(crate) fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = fs::File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(TAIL);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(if start == 0 {
            text
        } else {
            text.split_once('\n').map_or(text.clone(), |(_, rest)| rest.into())
        })
    };
    read().unwrap_or_else(|error| format!("({error})"))
}
