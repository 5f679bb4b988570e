//! Rust sources as words. Each word knows its line, its modules, and whether only tests have it.

use std::fs;
use std::mem;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use proc_macro2::{Delimiter, LineColumn, Spacing, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Meta, Token};

/// The crates that consist of tests.
const TEST_CRATES: [&str; 2] = ["dev/farside-conformance", "dev/farside-tests"];

/// A source file.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) kind: Kind,
    /// The path of its module from the root of the crate. Empty for the root.
    pub(crate) module: Vec<String>,
    /// Its words, without comments.
    pub(crate) words: Vec<Word>,
}

/// The purpose of a file or a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Code,
    /// A test, or an item that is built for tests only.
    Test,
    Example,
    /// A line with nothing else.
    Comment,
}

/// An identifier, `::`, a bracket, a literal (empty), or another character of punctuation.
#[derive(Debug)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) lines: RangeInclusive<usize>,
    /// The modules inside the file that it stands in.
    pub(crate) inside: Rc<[String]>,
    /// True if it belongs to an item that is built for tests only.
    pub(crate) is_test: bool,
}

impl Source {
    /// The purpose of a word.
    pub(super) fn kind_of(&self, word: &Word) -> Kind {
        let is_test = word.is_test || TEST_CRATES.iter().any(|folder| self.path.starts_with(folder));
        if self.kind == Kind::Code && is_test { Kind::Test } else { self.kind }
    }
}

/// The lines of sources that are not empty, by [`Kind`]. A line with code and a comment is code.
pub(crate) fn count<'a>(sources: impl IntoIterator<Item = &'a Source>) -> [usize; 4] {
    let mut lines = [0; 4];
    for source in sources {
        let mut kinds = vec![Kind::Comment; source.text.lines().count()];
        for word in &source.words {
            kinds[word.lines.start() - 1..*word.lines.end()].fill(source.kind_of(word));
        }
        for (line, kind) in source.text.lines().zip(kinds) {
            lines[kind as usize] += usize::from(kind != Kind::Comment || !line.trim().is_empty());
        }
    }
    lines
}

/// Reads all sources of a crate. The error says which of them is not Rust.
pub(crate) fn read_crate(folder: &Path) -> Result<Vec<Source>, String> {
    let mut paths = Vec::new();
    super::collect(folder, "rs", &mut paths);
    paths.sort_unstable();
    let texts: Vec<_> = paths.iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
    split(folder, paths.into_iter().zip(texts).collect())
}

/// Splits all sources of a crate into words.
pub(super) fn split(folder: &Path, files: Vec<(PathBuf, String)>) -> Result<Vec<Source>, String> {
    let (mut sources, mut test_modules) = (Vec::new(), Vec::new());
    for (path, text) in files {
        let (kind, module) = kind_and_module(path.strip_prefix(folder).unwrap_or(&path));
        let (words, modules) = parse(&text).map_err(|error| {
            format!("{}:{}: not Rust: {error}: correct it", path.display(), error.span().start().line)
        })?;
        test_modules.extend(modules.into_iter().map(|name| module.iter().cloned().chain([name]).collect::<Vec<_>>()));
        sources.push(Source { path, text, kind, module, words });
    }
    for source in &mut sources {
        if source.kind == Kind::Code && test_modules.iter().any(|tests| source.module.starts_with(tests)) {
            source.kind = Kind::Test;
        }
    }
    Ok(sources)
}

/// The purpose of a file, and its module. The path begins at the folder of its crate.
fn kind_and_module(path: &Path) -> (Kind, Vec<String>) {
    let mut module: Vec<_> = path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let kind = match module.first().map(String::as_str) {
        Some("tests") => Kind::Test,
        Some("examples") => Kind::Example,
        _ => Kind::Code,
    };
    match module.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["src", "lib" | "main"] | ["src", "bin", ..] => module.clear(),
        ["src", .., "mod"] => drop((module.remove(0), module.pop())),
        ["src", ..] => drop(module.remove(0)),
        _ => {}
    }
    (kind, module)
}

/// Splits a source into words, and returns the modules whose files are built for tests only.
fn parse(text: &str) -> syn::Result<(Vec<Word>, Vec<String>)> {
    let tokens: TokenStream = text.parse().map_err(syn::Error::from)?;
    let mut items = TestItems { found: vec![false], ..TestItems::default() };
    items.visit_file(&syn::parse2(tokens.clone())?);
    if items.found == [true] {
        items.ranges.push((LineColumn { line: 0, column: 0 }, LineColumn { line: usize::MAX, column: 0 }));
    }
    let mut reader = Reader { tests: items.ranges, words: Vec::new() };
    reader.read(tokens, &Rc::default());
    Ok((reader.words, items.modules))
}

/// Finds the items, statements and fields that are built for tests only.
#[derive(Default)]
struct TestItems {
    /// For each node around the current one, whether one of its attributes says so.
    found: Vec<bool>,
    /// Where they begin and end.
    ranges: Vec<(LineColumn, LineColumn)>,
    /// Modules with a file of their own.
    modules: Vec<String>,
}

impl TestItems {
    fn within<T: Spanned>(&mut self, node: &T, visit: fn(&mut Self, &T)) -> bool {
        self.found.push(false);
        visit(self, node);
        let is_test = self.found.pop() == Some(true);
        if is_test {
            self.ranges.push((node.span().start(), node.span().end()));
        }
        is_test
    }
}

impl Visit<'_> for TestItems {
    fn visit_attribute(&mut self, attribute: &Attribute) {
        if let Some(found) = self.found.last_mut() {
            *found |= attribute.path().is_ident("cfg") && attribute.parse_args().is_ok_and(|meta| needs_test(&meta));
        }
    }

    fn visit_item(&mut self, item: &syn::Item) {
        if self.within(item, |items, item| visit::visit_item(items, item))
            && let syn::Item::Mod(module) = item
            && module.content.is_none()
        {
            self.modules.push(module.ident.to_string());
        }
    }

    fn visit_impl_item(&mut self, item: &syn::ImplItem) {
        self.within(item, |items, item| visit::visit_impl_item(items, item));
    }

    fn visit_stmt(&mut self, statement: &syn::Stmt) {
        self.within(statement, |items, statement| visit::visit_stmt(items, statement));
    }

    fn visit_field(&mut self, field: &syn::Field) {
        self.within(field, |items, field| visit::visit_field(items, field));
    }

    fn visit_field_value(&mut self, field: &syn::FieldValue) {
        self.within(field, |items, field| visit::visit_field_value(items, field));
    }
}

/// Returns whether a condition holds in builds for tests only.
fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|conditions| conditions.iter().any(needs_test)),
        _ => false,
    }
}

/// Makes words of tokens.
struct Reader {
    tests: Vec<(LineColumn, LineColumn)>,
    words: Vec<Word>,
}

impl Reader {
    fn read(&mut self, tokens: TokenStream, inside: &Rc<[String]>) {
        let (mut is_joint, mut is_comment) = (false, false);
        for token in tokens {
            let (start, end) = (token.span().start(), token.span().end());
            let (first, last) = (start.line, end.line);
            let is_test = self.tests.iter().any(|(from, to)| (*from..*to).contains(&start));
            let word = |text: String, lines| Word { text, lines, inside: inside.clone(), is_test };
            match token {
                // A comment that documents an item is read as an attribute whose every part is as
                // long as the comment.
                TokenTree::Punct(_) if (first, start.column + 1) != (last, end.column) => is_comment = true,
                TokenTree::Group(_) if mem::take(&mut is_comment) => {}
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::None => ("", ""),
                    };
                    let here = match self.words.as_slice() {
                        [.., keyword, name] if keyword.text == "mod" && open == "{" => {
                            inside.iter().chain([&name.text]).cloned().collect()
                        }
                        _ => inside.clone(),
                    };
                    self.words.push(word(open.to_owned(), first..=first));
                    self.read(group.stream(), &here);
                    self.words.push(word(close.to_owned(), last..=last));
                }
                TokenTree::Punct(punct) => {
                    let is_path = is_joint && punct.as_char() == ':';
                    is_joint = punct.as_char() == ':' && punct.spacing() == Spacing::Joint;
                    match self.words.last_mut() {
                        Some(colon) if is_path => colon.text.push(':'),
                        _ => self.words.push(word(punct.to_string(), first..=last)),
                    }
                }
                TokenTree::Ident(ident) => self.words.push(word(ident.to_string(), first..=last)),
                TokenTree::Literal(_) => self.words.push(word(String::new(), first..=last)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_words() {
        let text =
            "/// `a`: see\n//! b\nfn f() { a::b; // crate::c\n/* d /* e */ */ \"crate::f\n\" / 'x' }\nmod m { g! {} }";
        let (words, _) = parse(text.split_once('\n').unwrap().1).unwrap();
        let texts: Vec<_> = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(
            texts,
            ["fn", "f", "(", ")", "{", "a", "::", "b", ";", "", "/", "", "}", "mod", "m", "{", "g", "!", "{", "}", "}"]
        );
        assert_eq!((words[5].lines.clone(), words[9].lines.clone()), (2..=2, 3..=4));
        assert_eq!((words[15].inside.len(), &*words[16].inside), (0, &["m".to_owned()][..]));
    }

    #[test]
    fn what_is_built_for_tests_is_marked() {
        let text = "use a::b;\n#[cfg(test)]\nmod tests;\n#[cfg(test)] mod inside { fn f() { x } }\n\
                    #[cfg(all(loom, test))] pub(crate) fn g(h: [u8; 2]) -> u8 { 1 }\n#[cfg(not(test))] i!();\n\
                    struct S { #[cfg(test)] t: u8, u: u8 }\nfn v() { #[cfg(test)] if x { y } else { z } w }\n\
                    #[cfg(any(test, miri))] mod more;";
        let (words, modules) = parse(text).unwrap();
        assert_eq!(modules, ["tests"]);
        let product: String = words.iter().filter(|word| !word.is_test).map(|word| word.text.as_str()).collect();
        assert_eq!(product, "usea::b;#[cfg(not(test))]i!();structS{,u:u8}fnv(){w}#[cfg(any(test,miri))]modmore;");
        assert!(parse("#![cfg(test)]\nuse a;").unwrap().0.iter().all(|word| word.is_test));
    }

    fn lines(path: &str, text: &str) -> [usize; 4] {
        let sources = split(Path::new("core/a"), vec![(Path::new("core/a").join(path), text.to_owned())]).unwrap();
        count(&sources)
    }

    #[test]
    fn lines_are_told_apart_item_by_item() {
        let text = "//! What.\n\nfn f() {\n\n    // Why.\n    g(\"a\n\n      // no comment\n\"); // h\n}\n#[cfg(test)]\nmod tests;\n\
                    #[cfg(test)]\nmod more {\n    /// T.\n    fn t() {}\n}\n/* a\n */\nfn i() {}\n";
        assert_eq!(lines("src/target/b.rs", text), [7, 6, 0, 5]);
        assert_eq!(lines("tests/all/b.rs", text), [0, 13, 0, 5]);
        assert_eq!(lines("examples/b.rs", "fn main() {}\n// b\n"), [0, 0, 1, 1]);
    }
}
