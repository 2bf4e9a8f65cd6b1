//! Reads one file with `syn`: the paths and words in it, the modules that it declares, and the definitions and imports
//! of each of its modules.
//!
//! Of the names without `::` only types, constants and called functions count: a variable can have the name of an
//! import.

use std::collections::BTreeMap;
use std::ops::Range;

use proc_macro2::{LineColumn, Span, TokenStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, Token, UseTree};

use super::scope::{ModulePath, Scope};
use super::tokens::{Word, counts, paths, word, words};

/// A path as it is written.
#[derive(Debug)]
pub(super) struct Name {
    /// The line of its first word; for an import, of its last.
    pub(super) line: usize,
    /// The module in which it is written.
    pub(super) module: ModulePath,
    /// Its parts. The first is empty if the path starts with `::`, and the last is `*` if it means everything.
    pub(super) written: Vec<String>,
    pub(super) is_reexport: bool,
    pub(super) in_test: bool,
}

/// A module that has a file of its own.
pub(super) struct Declared {
    pub(super) path: ModulePath,
    pub(super) is_test: bool,
}

/// The content of one file.
pub(super) struct Reading {
    pub(super) names: Vec<Name>,
    pub(super) words: Vec<Word>,
    pub(super) declared: Vec<Declared>,
    pub(super) scopes: BTreeMap<ModulePath, Scope>,
}

/// Reads the file of a module; `is_test` says that the module is compiled for tests only.
pub(super) fn read(file: &str, module: &ModulePath, is_test: bool, text: &str) -> Reading {
    let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
    let syntax: syn::File = syn::parse2(tokens.clone())
        .unwrap_or_else(|error| panic!("{file}:{}: {error}", error.span().start().line));
    let mut reader = Reader {
        file,
        module: module.clone(),
        in_attribute: false,
        names: Vec::new(),
        declared: Vec::new(),
        scopes: BTreeMap::new(),
        tests: Vec::new(),
    };
    if is_test || is_for_tests(&syntax.attrs) {
        reader.tests.push(LineColumn { line: 0, column: 0 }..LineColumn { line: usize::MAX, column: 0 });
    }
    reader.scope();
    reader.visit_file(&syntax);
    let Reader { names, declared, scopes, tests, .. } = reader;
    let within_tests = |at: LineColumn| tests.iter().any(|test| test.contains(&at));
    let words = words(tokens, &within_tests);
    let names = names.into_iter().map(|(at, name)| Name { in_test: within_tests(at), ..name }).collect();
    let declared =
        declared.into_iter().map(|(at, path)| Declared { path, is_test: within_tests(at) }).collect();
    Reading { names, words, declared, scopes }
}

/// Whether an item with these attributes is compiled for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    fn needs_test(condition: &Meta) -> bool {
        match condition {
            Meta::Path(path) => path.is_ident("test"),
            Meta::List(all) if all.path.is_ident("all") => all
                .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
                .is_ok_and(|conditions| conditions.iter().any(needs_test)),
            Meta::List(_) | Meta::NameValue(_) => false,
        }
    }
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args().is_ok_and(|condition: Meta| needs_test(&condition))
    })
}

struct Reader<'a> {
    file: &'a str,
    /// The module that is being read, in the file or at its top.
    module: ModulePath,
    /// Texts in attributes can be paths, as in `#[serde(with = "a::b")]`.
    in_attribute: bool,
    names: Vec<(LineColumn, Name)>,
    declared: Vec<(LineColumn, ModulePath)>,
    scopes: BTreeMap<ModulePath, Scope>,
    /// The parts that are compiled for tests only.
    tests: Vec<Range<LineColumn>>,
}

impl Reader<'_> {
    fn scope(&mut self) -> &mut Scope {
        let file = self.file;
        self.scopes
            .entry(self.module.clone())
            .or_insert_with(|| Scope { file: file.to_owned(), ..Scope::default() })
    }

    fn note_tests(&mut self, attributes: &[Attribute], node: &impl Spanned) {
        if is_for_tests(attributes) {
            let span = node.span();
            self.tests.push(span.start()..span.end());
        }
    }

    fn name(&mut self, at: Span, written: Vec<String>, is_reexport: bool) {
        let at = at.start();
        let name = Name { line: at.line, module: self.module.clone(), written, is_reexport, in_test: false };
        self.names.push((at, name));
    }

    /// A path in the code. A single word counts only if it is a type or if it is called, as `is_called` says.
    fn path(&mut self, path: &syn::Path, is_called: bool) {
        let mut written: Vec<String> = path.segments.iter().map(|segment| word(&segment.ident)).collect();
        if path.leading_colon.is_some() {
            written.insert(0, String::new());
        }
        if is_called || counts(&written) {
            self.name(path.span(), written, false);
        }
    }

    /// An import: the path, and its name in the module.
    fn import(&mut self, tree: &UseTree, prefix: &[String], is_reexport: bool) {
        let path = |last: &proc_macro2::Ident| {
            let mut path = prefix.to_vec();
            // `a::{self}` is `a`.
            if last != "self" || path.is_empty() {
                path.push(word(last));
            }
            path
        };
        match tree {
            UseTree::Path(step) => self.import(&step.tree, &path(&step.ident), is_reexport),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix, is_reexport);
                }
            }
            UseTree::Glob(glob) => {
                self.scope().globs.push(prefix.to_vec());
                let everything = prefix.iter().cloned().chain(["*".to_owned()]).collect();
                self.name(glob.span(), everything, is_reexport);
            }
            UseTree::Name(name) => {
                let path = path(&name.ident);
                let known_as = path.last().cloned().unwrap_or_default();
                self.name(name.span(), path.clone(), is_reexport);
                self.scope().imports.entry(known_as).or_default().push(path);
            }
            UseTree::Rename(rename) => {
                let path = path(&rename.ident);
                self.name(rename.span(), path.clone(), is_reexport);
                self.scope().imports.entry(word(&rename.rename)).or_default().push(path);
            }
        }
    }
}

macro_rules! note_tests {
    ($($visit:ident $node:ident,)*) => {$(
        fn $visit(&mut self, node: &'ast syn::$node) {
            self.note_tests(&node.attrs, node);
            visit::$visit(self, node);
        }
    )*};
}

impl<'ast> Visit<'ast> for Reader<'_> {
    note_tests! {
        visit_item_const ItemConst, visit_item_enum ItemEnum, visit_item_fn ItemFn, visit_item_impl ItemImpl,
        visit_item_macro ItemMacro, visit_item_static ItemStatic, visit_item_struct ItemStruct,
        visit_item_trait ItemTrait, visit_item_type ItemType, visit_item_union ItemUnion,
        visit_impl_item_const ImplItemConst, visit_impl_item_fn ImplItemFn, visit_impl_item_type ImplItemType,
        visit_trait_item_const TraitItemConst, visit_trait_item_fn TraitItemFn,
        visit_trait_item_type TraitItemType, visit_arm Arm, visit_field Field, visit_field_value FieldValue,
        visit_local Local, visit_stmt_macro StmtMacro, visit_variant Variant, visit_expr_block ExprBlock,
        visit_expr_method_call ExprMethodCall,
    }

    fn visit_item(&mut self, item: &'ast Item) {
        let defined = match item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        if let Some(ident) = defined {
            let name = word(ident);
            self.scope().items.insert(name);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_extern_crate(&mut self, node: &'ast syn::ItemExternCrate) {
        self.note_tests(&node.attrs, node);
        let path = if node.ident == "self" {
            vec!["crate".to_owned()]
        } else {
            vec![String::new(), word(&node.ident)]
        };
        self.name(node.span(), path.clone(), false);
        if let Some((_, rename)) = &node.rename {
            self.scope().imports.entry(word(rename)).or_default().push(path);
        }
    }

    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        self.note_tests(&node.attrs, node);
        assert!(
            !node.attrs.iter().any(|attribute| attribute.path().is_ident("path")),
            "{}: a module whose file is named by `#[path]` is not found here",
            self.file
        );
        self.module.push(word(&node.ident));
        if node.content.is_some() {
            self.scope();
            visit::visit_item_mod(self, node);
        } else {
            self.declared.push((node.ident.span().start(), self.module.clone()));
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, node: &'ast syn::ItemUse) {
        self.note_tests(&node.attrs, node);
        let prefix: &[String] = if node.leading_colon.is_some() { &[String::new()] } else { &[] };
        self.import(&node.tree, prefix, !matches!(node.vis, syn::Visibility::Inherited));
    }

    /// `pub(super)` and `pub(in crate::x)` name the modules that may look in, always a module around this one.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, node: &'ast Attribute) {
        if !node.path().is_ident("doc") {
            self.in_attribute = true;
            visit::visit_attribute(self, node);
            self.in_attribute = false;
        }
    }

    fn visit_path(&mut self, node: &'ast syn::Path) {
        self.path(node, false);
        visit::visit_path(self, node);
    }

    fn visit_expr_call(&mut self, node: &'ast syn::ExprCall) {
        self.note_tests(&node.attrs, node);
        if let syn::Expr::Path(function) = &*node.func
            && let Some(function) = function.path.get_ident()
            && !counts(&[word(function)])
        {
            self.name(function.span(), vec![word(function)], false);
        }
        visit::visit_expr_call(self, node);
    }

    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        self.path(&node.path, true);
        self.visit_token_stream(&node.tokens);
    }

    fn visit_token_stream(&mut self, node: &'ast TokenStream) {
        for (at, written) in paths(node, self.in_attribute) {
            self.name(at, written, false);
        }
    }
}
