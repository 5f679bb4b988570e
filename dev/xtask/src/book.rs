//! The book: the pages of `docs/` in the order of its summary, and the links of all documents.
//!
//! The folder is laid out for mdbook, so `mdbook build docs` works as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// The folder of the pages.
const PAGES: &str = "docs";
/// The list of the pages.
const SUMMARY: &str = "docs/SUMMARY.md";
/// The crate whose tests are the Rust code of the documents.
const EXAMPLES: &str = "dev/farside-book/src/lib.rs";
/// The documents in the root of the project.
const IN_THE_ROOT: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "BENCHMARKS.md", "CHANGELOG.md"];
/// The folders of the sources.
const FOLDERS: [&str; 4] = ["core/", "services/", "apps/", "dev/"];
/// The folder of the built book.
const BUILT: &str = "target/book";
/// Parts of Markdown beyond its core.
const OPTIONS: Options = Options::ENABLE_TABLES;

const STYLE: &str = "body{display:flex;gap:3em;max-width:80em;margin:2em auto;padding:0 1em;font:16px/1.5 sans-serif}\
    nav{flex:0 0 15em}main{min-width:0}pre{overflow-x:auto;background:#f5f5f5;padding:1em}\
    td,th{padding:.2em .6em;border:1px solid #ccc;text-align:left}table{border-collapse:collapse}img{max-width:100%}";

/// The names of a document that others refer to, and its references to others.
#[derive(Debug, Default, PartialEq, Eq)]
struct Document {
    /// The names of its headings in addresses.
    anchors: BTreeSet<String>,
    /// The targets of its links and pictures, each with its line. A file of the project that is
    /// named without a link is a target that begins with `/`.
    links: Vec<(usize, String)>,
    /// True if it has blocks of Rust code.
    has_rust: bool,
}

/// Checks the documents and builds the book.
pub(crate) fn make() -> Result<(), String> {
    let mut documents = BTreeMap::new();
    let in_the_root = IN_THE_ROOT.iter().map(PathBuf::from);
    for path in in_the_root.chain(markdown(Path::new(PAGES))).chain(readmes()) {
        let text = read(&path)?;
        documents.insert(path, Document::of(&text));
    }
    let mut breaches = check_summary(&documents);
    let examples = read(Path::new(EXAMPLES))?;
    for (path, document) in &documents {
        if document.has_rust && !examples.contains(&format!("\"../../../{}\"", path.display())) {
            let why = "has Rust code that no test compiles";
            breaches.push(format!("{}: {why}: add a line for it to {EXAMPLES}", path.display()));
        }
        breaches.extend(check_links(path, document, &documents, &|target| Path::new(target).exists()));
    }
    if !breaches.is_empty() {
        return Err(format!("{} faults of the documents:\n  {}", breaches.len(), breaches.join("\n  ")));
    }
    build()?;
    println!("xtask: the book is in {BUILT}");
    Ok(())
}

impl Document {
    fn of(text: &str) -> Self {
        let mut document = Self::default();
        let mut heading = None;
        for (event, place) in Parser::new_ext(text, OPTIONS).into_offset_iter() {
            let line = |at: usize| text[..at].matches('\n').count() + 1;
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default(), &document.anchors);
                    document.anchors.insert(anchor);
                }
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                    let files = words
                        .lines()
                        .enumerate()
                        .flat_map(|(line, words)| sources(words).map(move |file| (line, file)));
                    document.links.extend(files.map(|(below, file)| (line(place.start) + below, format!("/{file}"))));
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    document.links.push((line(place.start), dest_url.into_string()));
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    document.has_rust |= language.split(',').next() == Some("rust");
                }
                _ => {}
            }
        }
        document
    }
}

/// Returns the source files that a text names.
fn sources(words: &str) -> impl Iterator<Item = &str> {
    let is_path = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    let words = words.split(move |c: char| !is_path(c)).map(|word| word.trim_end_matches('.'));
    words.filter(|word| word.ends_with(".rs") && FOLDERS.iter().any(|folder| word.starts_with(folder)))
}

/// Returns the name of a heading in addresses, as mdbook and GitHub make it.
fn anchor(heading: &str, others: &BTreeSet<String>) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    let name: String = heading.to_lowercase().chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect();
    let numbered = (1..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !others.contains(name)).unwrap_or(name)
}

/// Compares the summary with the pages.
fn check_summary(documents: &BTreeMap<PathBuf, Document>) -> Vec<String> {
    let summary = Path::new(SUMMARY);
    let listed: BTreeSet<_> = documents[summary].links.iter().map(|(_, link)| Path::new(PAGES).join(link)).collect();
    let pages = documents.keys().filter(|path| path.starts_with(PAGES) && *path != summary);
    let missing = pages.filter(|page| !listed.contains(*page));
    missing.map(|page| format!("{}: is not in the book: list it in {SUMMARY}", page.display())).collect()
}

/// Checks that each link within the project leads to a file, and to a heading of it.
fn check_links(
    path: &Path,
    document: &Document,
    documents: &BTreeMap<PathBuf, Document>,
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<String> {
    let fault = |line: usize, link: &str| {
        // Its entries are about the project as it was.
        let is_history = path.ends_with("CHANGELOG.md") && link.starts_with('/');
        if is_history || link.contains("://") {
            return None;
        }
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { path.to_owned() } else { resolve(path, file) };
        let why = if !exists(&target) {
            format!("leads to no file: {} does not exist; name the one that is meant", target.display())
        } else if path.starts_with(PAGES) && !target.starts_with(PAGES) && !link.starts_with('/') {
            "leads out of the book: name the file without a link".to_owned()
        } else if !heading.is_empty() && !documents.get(&target).is_some_and(|found| found.anchors.contains(heading)) {
            format!("leads to no heading: {} has none that is called #{heading}", target.display())
        } else {
            return None;
        };
        let what = if link.starts_with('/') { "the file" } else { "the link" };
        Some(format!("{}:{line}: {what} {link:?} {why}", path.display()))
    };
    document.links.iter().filter_map(|(line, link)| fault(*line, link)).collect()
}

/// Returns the file that a link in another file names.
fn resolve(from: &Path, link: &str) -> PathBuf {
    let mut path = from.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            Component::RootDir => path.clear(),
            other => path.push(other),
        }
    }
    path
}

/// Writes the pages as HTML.
fn build() -> Result<(), String> {
    let built = Path::new(BUILT);
    let failed = |error: std::io::Error| format!("cannot write {BUILT}: {error}");
    fs::create_dir_all(built.join("pictures")).map_err(failed)?;
    let contents = html_of(&read(Path::new(SUMMARY))?);
    for page in markdown(Path::new(PAGES)).into_iter().filter(|page| page != Path::new(SUMMARY)) {
        let (text, name) = (read(&page)?, page.file_stem().unwrap_or_default().to_string_lossy());
        let head = format!("<!doctype html><meta charset=\"utf-8\"><title>{name}</title><style>{STYLE}</style>");
        let whole = format!("{head}<nav>{contents}</nav><main>{}</main>", html_of(&text));
        fs::write(built.join(&*name).with_extension("html"), whole).map_err(failed)?;
    }
    for picture in fs::read_dir(Path::new(PAGES).join("pictures")).into_iter().flatten().flatten() {
        fs::copy(picture.path(), built.join("pictures").join(picture.file_name())).map_err(failed)?;
    }
    Ok(())
}

/// Returns a page as HTML: its headings have names, and its links lead to pages of the book.
fn html_of(text: &str) -> String {
    let mut events: Vec<_> = Parser::new_ext(text, OPTIONS).collect();
    let (mut anchors, mut heading, mut begin) = (BTreeSet::new(), String::new(), 0);
    for index in 0..events.len() {
        match &mut events[index] {
            Event::Start(Tag::Heading { .. }) => (heading, begin) = (String::new(), index),
            Event::Text(words) | Event::Code(words) => heading.push_str(words),
            Event::Start(Tag::Link { dest_url, .. }) if !dest_url.contains("://") => {
                *dest_url = CowStr::from(dest_url.replace(".md", ".html"));
            }
            Event::End(TagEnd::Heading(_)) => {
                let name = anchor(&heading, &anchors);
                anchors.insert(name.clone());
                if let Event::Start(Tag::Heading { id, .. }) = &mut events[begin] {
                    *id = Some(name.into());
                }
            }
            _ => {}
        }
    }
    let mut page = String::new();
    html::push_html(&mut page, events.into_iter());
    page
}

/// Returns the Markdown files of a folder.
fn markdown(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    files.sort_unstable();
    files
}

/// Returns the `README.md` files of all crates and of their folders.
fn readmes() -> Vec<PathBuf> {
    let mut folders: Vec<_> = ["core", "services", "apps", "dev"].map(PathBuf::from).into();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        found.extend(markdown(&folder).into_iter().filter(|path| path.ends_with("README.md")));
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        folders.extend(entries.filter(|path| path.is_dir()));
    }
    found
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_names_of_mdbook() {
        let none = BTreeSet::new();
        assert_eq!(anchor("14. Bulk data (`farside-rpc`)", &none), "14-bulk-data-farside-rpc");
        assert_eq!(anchor("Not yet", &BTreeSet::from(["not-yet".into()])), "not-yet-1");
    }

    #[test]
    fn faulty_links_are_named_with_their_lines() {
        let text = "# A page\n\n[a](#a-page) [b](b.md)\n[c](b.md#gone)\n[d](../x.rs) <https://e.org>\n\n```text\na\n(core/y.rs)\n```\n";
        let page = Document::of(text);
        let documents = BTreeMap::from([(PathBuf::from("docs/b.md"), Document::of("## There"))]);
        let own = Document { anchors: BTreeSet::from(["a-page".into()]), ..Document::default() };
        let documents = documents.into_iter().chain([(PathBuf::from("docs/a.md"), own)]).collect();
        let exists = |path: &Path| ["docs/a.md", "docs/b.md", "x.rs"].iter().any(|known| path == Path::new(known));
        let faults = check_links(Path::new("docs/a.md"), &page, &documents, &exists);
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults[0].starts_with("docs/a.md:4: ") && faults[0].contains("#gone"), "{}", faults[0]);
        assert!(faults[1].starts_with("docs/a.md:5: ") && faults[1].contains("out of the book"), "{}", faults[1]);
        assert!(faults[2].starts_with("docs/a.md:9: ") && faults[2].contains("core/y.rs"), "{}", faults[2]);
    }

    #[test]
    fn pages_that_the_summary_lacks_are_named() {
        let documents = [(SUMMARY, "[a](a.md)"), ("docs/a.md", ""), ("docs/b.md", ""), ("README.md", "")];
        let documents = documents.into_iter().map(|(path, text)| (path.into(), Document::of(text))).collect();
        let faults = check_summary(&documents);
        assert_eq!(faults, ["docs/b.md: is not in the book: list it in docs/SUMMARY.md"]);
    }

    #[test]
    fn pages_become_html() {
        let html = html_of("# A `b`\n\n[c](d.md#e)\n\n```rust,no_run\nlet a = 1;\n```\n");
        assert!(html.contains("<h1 id=\"a-b\">") && html.contains("href=\"d.html#e\""), "{html}");
        assert!(Document::of("```rust,no_run\n```\n").has_rust && !Document::of("```text\n```\n").has_rust);
    }
}
