//! The name by which a person calls this program.

use std::path::PathBuf;

/// The name of this program.
pub const NAME: &str = "cilium-node-ipam";

/// The name of the binary as a plugin of kubectl.
const PLUGIN: &str = "kubectl-nodeipam";

/// The name of the binary that completes the words of the plugin. kubectl runs it for `kubectl nodeipam <TAB>`.
const COMPLETER: &str = "kubectl_complete-nodeipam";

/// The name of the file that was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalledAs {
    /// The program by its own name, or by an unknown one.
    Program,
    /// A plugin of kubectl.
    Plugin,
    /// The completer of the plugin's words.
    Completer,
}

impl CalledAs {
    /// How this process was called.
    #[must_use]
    pub fn of_process() -> Self {
        let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
        match called.file_stem().and_then(|name| name.to_str()) {
            Some(PLUGIN) => Self::Plugin,
            Some(COMPLETER) => Self::Completer,
            Some(_) | None => Self::Program,
        }
    }

    /// The name of the file.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::Program => NAME,
            Self::Plugin => PLUGIN,
            Self::Completer => COMPLETER,
        }
    }
}

/// How a person calls this program: as a plugin, or by its own name.
#[must_use]
pub fn program() -> &'static str {
    match CalledAs::of_process() {
        CalledAs::Program => NAME,
        CalledAs::Plugin | CalledAs::Completer => "kubectl nodeipam",
    }
}
