//! The meaning of a path: the modules of a crate, their definitions and imports, and the way from a path to its
//! definition.
//!
//! Follows imports, renames, globs and re-exports. It knows no types, so it sees neither the calls of methods nor the
//! members of a type: `Claim::new` leads to the module of `Claim`.

use std::collections::{BTreeMap, BTreeSet};

/// The names of the modules from the root of the crate to one of them.
pub(super) type ModulePath = Vec<String>;

/// More re-exports than any path needs to reach its definition. A path that needs more leads back to itself.
const MAX_STEPS: usize = 16;

/// The names that one module makes known.
#[derive(Default)]
pub(super) struct Scope {
    /// The file that the module is in.
    pub(super) file: String,
    /// Its definitions, except modules.
    pub(super) items: BTreeSet<String>,
    /// Its imports by the names that they give. Two blocks of a module may use one name for two things.
    pub(super) imports: BTreeMap<String, Vec<Vec<String>>>,
    /// The paths from which it imports everything.
    pub(super) globs: Vec<Vec<String>>,
}

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// Something in this crate.
    Inside {
        /// The module that defines it, or the module itself.
        module: ModulePath,
        /// Its name, or `*`; `None` if the path leads to the module.
        item: Option<String>,
        /// The modules that the path passes through.
        through: Vec<ModulePath>,
    },
    /// Something that is not of this crate, with renames undone; or the name of a variable.
    Outside(Vec<String>),
}

/// The scopes of all modules of a crate.
#[derive(Default)]
pub(super) struct Scopes(BTreeMap<ModulePath, Scope>);

impl Scopes {
    /// Adds the modules of one file.
    pub(super) fn extend(&mut self, scopes: BTreeMap<ModulePath, Scope>) {
        self.0.extend(scopes);
    }

    /// The file in which a module is.
    pub(super) fn file_of(&self, module: &ModulePath) -> &str {
        &self.0[module].file
    }

    /// The target of a path that is written in a module. An empty first part means a leading `::`.
    pub(super) fn resolve(&self, from: &ModulePath, written: &[String]) -> Target {
        self.follow(from, written, &[], MAX_STEPS)
    }

    fn follow(&self, from: &ModulePath, written: &[String], through: &[ModulePath], steps: usize) -> Target {
        let mut at = from.clone();
        let mut rest = written;
        let mut is_relative = true;
        while let Some((first, tail)) = rest.split_first() {
            match first.as_str() {
                "" => return Target::Outside(tail.to_vec()),
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                "self" => {}
                _ => break,
            }
            is_relative = false;
            rest = tail;
        }
        let found = steps.checked_sub(1).and_then(|steps| self.descend(at.clone(), rest, through, steps));
        match found {
            Some(target) => target,
            None if is_relative => Target::Outside(written.to_vec()),
            None => Target::Inside { module: at, item: rest.first().cloned(), through: through.to_vec() },
        }
    }

    /// Looks for a path in a module; `None` if the module does not know its first part.
    fn descend(
        &self,
        mut at: ModulePath,
        path: &[String],
        through: &[ModulePath],
        steps: usize,
    ) -> Option<Target> {
        let mut through = through.to_vec();
        let mut rest = path;
        loop {
            let Some((name, tail)) = rest.split_first() else {
                return Some(Target::Inside { module: at, item: None, through });
            };
            let scope = self.0.get(&at)?;
            let mut child = at.clone();
            child.push(name.clone());
            let imports = scope.imports.get(name);
            // A module and a function may have one name. Only the module can contain anything.
            let is_item = tail.is_empty() && (imports.is_some() || scope.items.contains(name));
            if self.0.contains_key(&child) && !is_item {
                through.push(child.clone());
                at = child;
                rest = tail;
                continue;
            }
            if let Some(imports) = imports {
                let targets = imports.iter().map(|import| {
                    let path: Vec<String> = import.iter().chain(tail).cloned().collect();
                    self.follow(&at, &path, &through, steps)
                });
                let (inside, outside): (Vec<_>, Vec<_>) =
                    targets.partition(|target| matches!(target, Target::Inside { .. }));
                return inside.into_iter().chain(outside).next();
            }
            if name == "*" || scope.items.contains(name) {
                return Some(Target::Inside { module: at, item: Some(name.clone()), through });
            }
            let from_globs = scope.globs.iter().find_map(|glob| match self.follow(&at, glob, &[], steps) {
                Target::Inside { module, item: None, through: entered } if module != at => {
                    let through: Vec<ModulePath> = through.iter().cloned().chain(entered).collect();
                    self.descend(module, rest, &through, steps.checked_sub(1)?)
                }
                Target::Inside { .. } | Target::Outside(_) => None,
            });
            // The path has entered a module that must define it, perhaps in a macro.
            let is_entered = rest.len() < path.len();
            return from_globs.or_else(|| {
                is_entered.then(|| Target::Inside { module: at.clone(), item: Some(name.clone()), through })
            });
        }
    }
}
