//! The rules of the project that no compiler checks.
//!
//! Some rules have allowances ([`allowances::FILE`]): how many breaches a place still has. These
//! numbers may only fall.

mod allowances;
mod language;
pub(crate) mod packages;
mod rooms;
pub(crate) mod source;

use std::fs;
use std::path::{Path, PathBuf};

use allowances::Counts;
use source::{Kind, Source};

/// The lines of a source file at most.
const LINES_MAX: usize = 800;

/// The folders of the workspace's crates, bottom to top. A crate may depend on crates of its own
/// folder and of those below. Tests may use the crates of the last folder as well.
const FOLDERS: [&str; 4] = ["core", "services", "apps", "dev"];

/// A crate of the workspace.
struct Crate {
    name: &'static str,
    /// Whether the crate has no unsafe code at all.
    is_safe: bool,
    /// The crates directly below. It may depend on these, and on everything below them.
    below: &'static [&'static str],
}

/// The crates of the workspace, bottom to top.
const CRATES: [Crate; 19] = [
    Crate { name: "farside-sys", is_safe: false, below: &[] },
    Crate { name: "farside-macros", is_safe: true, below: &[] },
    Crate { name: "farside-wire", is_safe: false, below: &["farside-macros"] },
    Crate { name: "farside-fabric", is_safe: false, below: &["farside-sys", "farside-wire"] },
    Crate { name: "farside-transmit", is_safe: false, below: &["farside-fabric"] },
    Crate { name: "farside-launch", is_safe: false, below: &["farside-fabric"] },
    Crate { name: "farside", is_safe: false, below: &["farside-launch"] },
    Crate { name: "farside-containers", is_safe: true, below: &["farside"] },
    Crate { name: "farside-rpc", is_safe: false, below: &["farside-fabric"] },
    Crate { name: "farside-kv", is_safe: true, below: &["farside-rpc"] },
    Crate { name: "farside-inspect", is_safe: true, below: &["farside-rpc", "farside"] },
    Crate { name: "farside-mcts", is_safe: true, below: &["farside"] },
    Crate { name: "farside-cli", is_safe: true, below: &["farside-mcts", "farside-inspect", "farside-kv"] },
    Crate {
        name: "farside-bench",
        is_safe: false,
        below: &["farside-transmit", "farside-containers", "farside-mcts", "farside-inspect", "farside-kv"],
    },
    Crate { name: "farside-testbed", is_safe: true, below: &[] },
    Crate { name: "farside-conformance", is_safe: false, below: &["farside-transmit"] },
    Crate { name: "farside-tests", is_safe: false, below: &["farside-rpc"] },
    Crate {
        name: "farside-book",
        is_safe: true,
        below: &["farside-containers", "farside-inspect", "farside-kv", "farside-conformance"],
    },
    Crate { name: "xtask", is_safe: true, below: &["farside-testbed"] },
];

/// Words that have no place in finished code.
const UNFINISHED: [&str; 4] = ["FIXME", "XXX", "HACK", "TODO"];

/// The crates whose messages the codec writes and reads.
const ENCODED: [&str; 4] = ["core/farside", "core/farside-fabric", "core/farside-launch", "services/farside-rpc"];

/// What hand-written encoding calls.
const ENCODING: [&str; 4] = ["to_le_bytes", "from_le_bytes", "to_ne_bytes", "from_ne_bytes"];

/// The files that call it, and why no codec can do it.
const ENCODED_BY_HAND: [(&str, &str); 19] = [
    ("core/farside-fabric/src/ofi/message.rs", "hot path: the header of every message"),
    ("services/farside-rpc/src/frame.rs", "hot path: the header of every frame"),
    ("services/farside-rpc/src/path/tcp.rs", "hot path: the length of every frame"),
    ("services/farside-rpc/src/socket.rs", "the length of a message, which comes before it is decoded"),
    ("services/farside-rpc/src/door.rs", "the version of a message, which says how to decode it"),
    ("services/farside-rpc/src/server.rs", "a number made of random bytes"),
    ("core/farside/src/heap/layout.rs", "hot path: headers of blocks"),
    ("core/farside/src/heap/tags.rs", "hot path: lists of freed blocks"),
    ("core/farside/src/invoke/frames.rs", "hot path: the words of records"),
    ("core/farside-fabric/src/ofi/provider.rs", "a format of others: socket addresses"),
    ("core/farside-fabric/src/ofi/endpoint.rs", "a number made of random bytes"),
    ("core/farside-fabric/src/ofi/raw.rs", "a number made of random bytes"),
    ("core/farside-fabric/src/ofi/port.rs", "a number made of random bytes"),
    ("core/farside-fabric/src/sim/random.rs", "random bytes made of numbers"),
    ("core/farside-launch/src/rendezvous/host.rs", "a number made of random bytes"),
    ("core/farside-launch/src/start.rs", "a number made of random bytes"),
    ("core/farside-launch/src/host.rs", "the input of a hash"),
    ("core/farside-launch/src/rendezvous/environment.rs", "the input of a hash, and a number made of its result"),
    ("core/farside/src/invoke/table.rs", "the input of a hash"),
];

/// Whether `check` writes the allowances where they are too high.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Allowances {
    /// An allowance that is too high is a breach.
    #[default]
    Keep,
    /// An allowance that is too high falls to the number of today.
    Lower,
}

/// Checks all rules and reports every breach.
pub(crate) fn check(allowances: Allowances) -> Result<(), String> {
    let (mut breaches, mut counts) = (Vec::new(), Counts::new());
    check_crates(&mut breaches);
    packages::check(&mut breaches);
    let folders = crate_folders();
    if folders.is_empty() {
        return Err("tidy found no crates: run it from the root of the project".to_owned());
    }
    let mut places = Vec::new();
    for folder in folders {
        let sources = source::read_crate(&folder)?;
        for source in &sources {
            check_source(source, &mut breaches, &mut counts);
        }
        if let Some(house) = rooms::HOUSES.iter().find(|house| folder.ends_with(house.package)) {
            let findings = rooms::look(house, &sources);
            breaches.extend(findings.others);
            for (pair, found) in findings.upward {
                counts.insert(("upward-import".to_owned(), format!("{}:{pair}", house.package)), found.len());
                places.extend(found);
            }
        }
    }
    check_documents(&mut counts);
    let file = Path::new(allowances::FILE);
    let allowed = allowances::read(file)?;
    if allowances == Allowances::Lower {
        allowances::lower(file, &allowed, &counts)?;
    }
    let differences = allowances::compare(&allowances::read(file)?, &counts);
    if differences.iter().any(|difference| difference.starts_with("upward-import")) {
        breaches.extend(places);
    }
    breaches.extend(differences);
    if breaches.is_empty() {
        println!("xtask: tidy");
        return Ok(());
    }
    Err(format!("{} rules of the project are broken:\n  {}", breaches.len(), breaches.join("\n  ")))
}

/// The folders of all crates.
fn crate_folders() -> Vec<PathBuf> {
    let entries = FOLDERS.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let mut folders: Vec<_> =
        entries.map(|entry| entry.path()).filter(|folder| folder.join("Cargo.toml").exists()).collect();
    folders.sort_unstable();
    folders
}

/// The folder of a crate. It need not exist.
fn folder_of(name: &str) -> PathBuf {
    crate_folders().into_iter().find(|folder| folder.ends_with(name)).unwrap_or_else(|| Path::new("?").join(name))
}

fn check_crates(breaches: &mut Vec<String>) {
    let folders = crate_folders();
    for known in CRATES.iter().filter(|known| !folders.iter().any(|folder| folder.ends_with(known.name))) {
        breaches.push(format!("{}: no such crate: strike it from the table of crates in tidy", known.name));
    }
    for folder in folders {
        let Some(known) = CRATES.iter().find(|known| folder.ends_with(known.name)) else {
            breaches.push(format!("{}: missing in the table of crates in tidy: add it", folder.display()));
            continue;
        };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        check_dependencies(known, &folder, &manifest, breaches);
        if known.is_safe && !forbids_unsafe(&folder) {
            breaches.push(format!("{}: does not forbid unsafe code: add the attribute", folder.display()));
        }
    }
}

/// Whether the table has `lower` somewhere below `upper`.
fn is_below(lower: &str, upper: &str) -> bool {
    let below = CRATES.iter().find(|known| known.name == upper).map_or(&[][..], |known| known.below);
    below.iter().any(|name| *name == lower || is_below(lower, name))
}

/// The height of a crate's folder.
fn floor(folder: &Path) -> usize {
    FOLDERS.iter().position(|floor| folder.starts_with(floor)).unwrap_or(FOLDERS.len())
}

fn check_dependencies(known: &Crate, folder: &Path, manifest: &str, breaches: &mut Vec<String>) {
    let (mut section, own) = ("", floor(folder));
    for (number, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        }
        let Some(name) = line.split(['.', ' ', '=']).next().filter(|_| section.contains("dependencies")) else {
            continue;
        };
        let at = format!("{}:{}", folder.join("Cargo.toml").display(), number + 1);
        let floor = floor(&folder_of(name));
        let may_use = if section.contains("dev-dependencies") {
            floor <= own || floor == FOLDERS.len() - 1
        } else {
            floor <= own && is_below(name, known.name)
        };
        if name.starts_with("farside") && !may_use {
            breaches.push(format!("{at}: depends on {name}, which is not below it in the table of crates in tidy"));
        }
        // System calls are made in one crate.
        if ["libc", "rustix"].contains(&name) && known.name != "farside-sys" {
            breaches.push(format!("{at}: depends on {name}: make the system call in farside-sys"));
        }
    }
}

fn forbids_unsafe(folder: &Path) -> bool {
    let roots = ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root));
    let forbids = |root: &PathBuf| fs::read_to_string(root).is_ok_and(|text| text.contains("#![forbid(unsafe_code)]"));
    roots.iter().any(forbids)
}

/// Adds the Rust sources below a folder.
pub(crate) fn collect_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    collect(folder, "rs", sources);
}

fn collect(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, extension, files);
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
}

fn check_source(source: &Source, breaches: &mut Vec<String>, counts: &mut Counts) {
    let (path, text) = (&source.path, &source.text);
    let lines = text.lines().count();
    if lines > LINES_MAX {
        breaches.push(format!("{}: {lines} lines; {LINES_MAX} are the limit", path.display()));
    }
    add(counts, "comment-columns", place(path), language::wide_comments(text));
    // The checker names what it looks for.
    if path.starts_with("dev/xtask/src/tidy") || path.ends_with("tidy.rs") {
        return;
    }
    add(counts, "phrase", place(path), language::phrases_in_comments(text));
    for word in UNFINISHED {
        if text.split(|c: char| !c.is_alphanumeric()).any(|found| found == word) {
            breaches.push(format!("{}: {word}", path.display()));
        }
    }
    if source.kind == Kind::Code && ENCODED.iter().any(|name| path.starts_with(name)) {
        let calls = source.words.iter().filter(|word| !word.is_test && ENCODING.contains(&word.text.as_str())).count();
        let is_listed = ENCODED_BY_HAND.iter().any(|(listed, _)| path == Path::new(listed));
        if is_listed && calls == 0 {
            let path = path.display();
            breaches.push(format!("{path}: encodes nothing by hand any more: strike it from the list in tidy"));
        } else if !is_listed {
            add(counts, "encoding-by-hand", path.display().to_string(), calls);
        }
    }
}

/// Looks for phrases in all documents.
fn check_documents(counts: &mut Counts) {
    let mut documents = Vec::new();
    for root in FOLDERS.into_iter().chain(["docs"]) {
        collect(Path::new(root), "md", &mut documents);
    }
    let here = fs::read_dir(".").into_iter().flatten().flatten().map(|entry| PathBuf::from(entry.file_name()));
    documents.extend(here.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    for document in documents {
        let text = fs::read_to_string(&document).unwrap_or_default();
        add(counts, "phrase", place(&document), language::phrases_in_text(&text));
    }
}

fn add(counts: &mut Counts, rule: &str, place: String, number: usize) {
    if number > 0 {
        *counts.entry((rule.to_owned(), place)).or_default() += number;
    }
}

/// The place of a file in the list of allowances: its room or folder, or the document itself.
fn place(file: &Path) -> String {
    let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
    let depth = match parts.as_slice() {
        [root, _, source, ..] if FOLDERS.contains(&&**root) && source == "src" => 4,
        [root, ..] if FOLDERS.contains(&&**root) => 3,
        _ => 2,
    };
    let place = parts[..depth.min(parts.len())].join("/");
    place.trim_end_matches(".rs").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_and_its_folder_are_one_place() {
        assert_eq!(place(Path::new("core/farside/src/heap.rs")), "core/farside/src/heap");
        assert_eq!(place(Path::new("core/farside/src/heap/README.md")), "core/farside/src/heap");
        assert_eq!(place(Path::new("dev/farside-tests/tests/all/heap.rs")), "dev/farside-tests/tests");
        assert_eq!(place(Path::new("docs/testing.md")), "docs/testing.md");
    }

    #[test]
    fn dependencies_go_downwards() {
        let breaches_of = |folder: &str, manifest: &str| {
            let known = CRATES.iter().find(|known| folder.ends_with(known.name)).unwrap();
            let mut breaches = Vec::new();
            check_dependencies(known, Path::new(folder), manifest, &mut breaches);
            breaches.len()
        };
        std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap();
        let fabric = "[dependencies]\nfarside-sys.workspace = true\nfarside-macros.workspace = true\n";
        assert_eq!(breaches_of("core/farside-fabric", fabric), 0);
        let tests = "[dev-dependencies]\nfarside-transmit.workspace = true\nfarside-testbed = { path = \"x\" }\n";
        assert_eq!(breaches_of("core/farside-fabric", tests), 0);
        assert_eq!(breaches_of("core/farside", "[dev-dependencies]\nfarside-rpc.workspace = true\n"), 1);
        assert_eq!(breaches_of("core/farside-fabric", "[dependencies]\nfarside.workspace = true\n"), 1);
        assert_eq!(breaches_of("core/farside-fabric", "[dependencies]\nfarside-testbed = { path = \"x\" }\n"), 1);
        assert_eq!(breaches_of("apps/farside-cli", "[dependencies]\nfarside-bench.workspace = true\n"), 1);
        assert_eq!(breaches_of("core/farside", "[dependencies]\nrustix.workspace = true\n"), 1);
    }
}
