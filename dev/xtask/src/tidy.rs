//! The rules of the project that no compiler checks.
//!
//! Some rules have allowances ([`allowances::FILE`]): how many breaches a place still has. These
//! numbers may only fall.

mod allowances;
mod language;
pub(crate) mod packages;
mod rooms;
mod tokens;

use std::fs;
use std::path::{Path, PathBuf};

use allowances::Counts;

/// The lines of a source file at most.
const LINES_MAX: usize = 800;

/// A crate of the workspace.
struct Crate {
    name: &'static str,
    /// The other crates of the workspace that it may depend on.
    below: &'static [&'static str],
    /// The crates that its tests may use besides those below it.
    for_tests: &'static [&'static str],
    /// Whether the crate has no unsafe code at all.
    is_safe: bool,
    /// Whether users may take the crate.
    is_package: bool,
}

/// The crates of the workspace, bottom to top.
const CRATES: [Crate; 20] = [
    Crate { name: "farside-testbed", below: &[], for_tests: &[], is_safe: true, is_package: false },
    Crate { name: "farside-sys", below: &[], for_tests: &["farside-testbed"], is_safe: false, is_package: true },
    Crate { name: "farside-macros", below: &[], for_tests: &[], is_safe: true, is_package: true },
    Crate { name: "farside-wire", below: &["farside-macros"], for_tests: &[], is_safe: false, is_package: true },
    Crate {
        name: "farside-fabric",
        below: &["farside-sys", "farside-wire"],
        for_tests: &["farside-testbed", "farside-conformance", "farside-transmit"],
        is_safe: false,
        is_package: true,
    },
    Crate {
        name: "farside-transmit",
        below: &["farside-fabric", "farside-sys"],
        for_tests: &["farside-testbed", "farside-conformance"],
        is_safe: false,
        is_package: true,
    },
    Crate {
        name: "farside-conformance",
        below: &["farside-transmit", "farside-fabric", "farside-sys"],
        for_tests: &[],
        is_safe: false,
        is_package: true,
    },
    Crate {
        name: "farside-launch",
        below: &["farside-fabric", "farside-wire", "farside-sys"],
        for_tests: &["farside-testbed"],
        is_safe: false,
        is_package: true,
    },
    Crate {
        name: "farside",
        below: &["farside-launch", "farside-fabric", "farside-wire", "farside-macros", "farside-sys"],
        for_tests: &["farside-transmit"],
        is_safe: false,
        is_package: true,
    },
    Crate {
        name: "farside-tests",
        below: &["farside-rpc"],
        for_tests: &[
            "farside",
            "farside-fabric",
            "farside-inspect",
            "farside-launch",
            "farside-macros",
            "farside-sys",
            "farside-testbed",
        ],
        is_safe: false,
        is_package: false,
    },
    Crate {
        name: "farside-mcts",
        below: &["farside"],
        for_tests: &["farside-testbed"],
        is_safe: true,
        is_package: true,
    },
    Crate {
        name: "farside-containers",
        below: &["farside"],
        for_tests: &["farside-testbed"],
        is_safe: true,
        is_package: true,
    },
    Crate {
        name: "farside-containers-tests",
        below: &[],
        for_tests: &["farside", "farside-containers", "farside-testbed"],
        is_safe: true,
        is_package: false,
    },
    Crate {
        name: "farside-connect",
        below: &["farside-fabric", "farside-wire", "farside-sys"],
        for_tests: &["farside-testbed"],
        is_safe: false,
        is_package: true,
    },
    Crate {
        name: "farside-rpc",
        below: &["farside-connect", "farside-fabric", "farside-wire", "farside-macros", "farside-sys"],
        for_tests: &["farside-testbed"],
        is_safe: true,
        is_package: true,
    },
    Crate {
        name: "farside-kv",
        below: &["farside-rpc"],
        for_tests: &["farside-testbed"],
        is_safe: true,
        is_package: true,
    },
    Crate {
        name: "farside-inspect",
        below: &["farside-rpc", "farside", "farside-macros", "farside-sys"],
        for_tests: &["farside-testbed"],
        is_safe: true,
        is_package: true,
    },
    Crate {
        name: "farside-bench",
        below: &[
            "farside-mcts",
            "farside-containers",
            "farside-inspect",
            "farside-kv",
            "farside-rpc",
            "farside",
            "farside-transmit",
            "farside-fabric",
            "farside-sys",
        ],
        for_tests: &["farside-testbed"],
        is_safe: false,
        is_package: false,
    },
    Crate {
        name: "farside-cli",
        below: &[
            "farside-mcts",
            "farside-inspect",
            "farside-kv",
            "farside-rpc",
            "farside",
            "farside-launch",
            "farside-fabric",
            "farside-sys",
        ],
        for_tests: &["farside-testbed"],
        is_safe: true,
        is_package: true,
    },
    Crate { name: "xtask", below: &["farside-testbed"], for_tests: &[], is_safe: true, is_package: false },
];

/// Words that have no place in finished code.
const UNFINISHED: [&str; 4] = ["FIXME", "XXX", "HACK", "TODO"];

/// The crates whose messages the codec writes and reads.
const ENCODED: [&str; 5] = ["farside", "farside-connect", "farside-fabric", "farside-launch", "farside-rpc"];

/// What hand-written encoding calls.
const ENCODING: [&str; 4] = ["to_le_bytes", "from_le_bytes", "to_ne_bytes", "from_ne_bytes"];

/// The files that call it, and why no codec can do it.
const ENCODED_BY_HAND: [(&str, &str); 19] = [
    ("core/farside-fabric/src/ofi/message.rs", "hot path: the header of every message"),
    ("services/farside-connect/src/frame.rs", "hot path: the header of every frame"),
    ("services/farside-connect/src/path/tcp.rs", "hot path: the length of every frame"),
    ("services/farside-connect/src/socket.rs", "the length of a message, which comes before it is decoded"),
    ("services/farside-connect/src/door.rs", "the version of a message, which says how to decode it"),
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
    let mut sources = Vec::new();
    for root in ["core", "services", "apps", "dev"] {
        collect(Path::new(root), "rs", &mut sources);
    }
    if sources.is_empty() {
        return Err("tidy found no sources: run it from the root of the project".to_owned());
    }
    for source in &sources {
        check_source(source, &mut breaches, &mut counts);
    }
    check_documents(&mut counts);
    let mut places = Vec::new();
    for house in rooms::HOUSES {
        let findings = rooms::look(&house, &Path::new("crates").join(house.package));
        breaches.extend(findings.others);
        places.extend(findings.places);
        for (pair, number) in findings.upward {
            counts.insert(("upward-import".to_owned(), format!("{}:{pair}", house.package)), number);
        }
    }
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

fn check_crates(breaches: &mut Vec<String>) {
    for entry in fs::read_dir("crates").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().join("Cargo.toml").exists() && !CRATES.iter().any(|known| known.name == name) {
            breaches.push(format!("crates/{name}: missing in the table of crates"));
        }
    }
    for known in CRATES {
        let folder = if known.name == "xtask" { PathBuf::from("xtask") } else { Path::new("crates").join(known.name) };
        match fs::read_to_string(folder.join("Cargo.toml")) {
            Ok(manifest) => check_dependencies(&known, &manifest, breaches),
            Err(_) => breaches.push(format!("{}: in the table of crates, but it has no Cargo.toml", folder.display())),
        }
        if known.is_safe && !forbids_unsafe(&folder) {
            breaches.push(format!("{}: does not forbid unsafe code", folder.display()));
        }
    }
}

fn check_dependencies(known: &Crate, manifest: &str, breaches: &mut Vec<String>) {
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let Some(name) = line.split(['.', ' ', '=']).next().filter(|_| section.contains("dependencies")) else {
            continue;
        };
        let is_for_tests = section.contains("dev-dependencies");
        let may_use = known.below.contains(&name) || (is_for_tests && known.for_tests.contains(&name));
        if name.starts_with("farside") && !may_use {
            breaches.push(format!("{}: depends on {name}, which is not below it", known.name));
        }
        // System calls are made in one crate.
        if ["libc", "rustix"].contains(&name) && known.name != "farside-sys" {
            breaches.push(format!("{}: depends on {name}, but only farside-sys makes system calls", known.name));
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

fn check_source(source: &Path, breaches: &mut Vec<String>, counts: &mut Counts) {
    let Ok(text) = fs::read_to_string(source) else { return };
    let lines = text.lines().count();
    if lines > LINES_MAX {
        breaches.push(format!("{}: {lines} lines; {LINES_MAX} are the limit", source.display()));
    }
    add(counts, "comment-columns", place(source), language::wide_comments(&text));
    // The checker names what it looks for.
    if source.starts_with("xtask/src/tidy") || source.ends_with("tidy.rs") {
        return;
    }
    add(counts, "phrase", place(source), language::phrases_in_comments(&text));
    for word in UNFINISHED {
        if text.split(|c: char| !c.is_alphanumeric()).any(|found| found == word) {
            breaches.push(format!("{}: {word}", source.display()));
        }
    }
    let path = source.to_string_lossy();
    let is_product = ENCODED.iter().any(|name| source.starts_with(format!("crates/{name}/src")));
    if is_product && !source.ends_with("tests.rs") && !source.iter().any(|part| part == "tests") {
        let words = tokens::product(&text).tokens;
        let calls = words.iter().filter(|word| ENCODING.contains(&word.as_str())).count();
        let is_listed = ENCODED_BY_HAND.iter().any(|(listed, _)| *listed == path);
        if is_listed && calls == 0 {
            breaches.push(format!("{path}: encodes nothing by hand any more: strike it from the list in tidy"));
        } else if !is_listed {
            add(counts, "encoding-by-hand", path.into_owned(), calls);
        }
    }
}

/// Looks for phrases in all documents.
fn check_documents(counts: &mut Counts) {
    let mut documents = Vec::new();
    for root in ["core", "services", "apps", "dev", "docs"] {
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
        [crates, _, source, ..] if crates == "crates" && source == "src" => 4,
        [crates, ..] if crates == "crates" => 3,
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
        let breaches_of = |name: &str, manifest: &str| {
            let known = CRATES.iter().find(|known| known.name == name).unwrap();
            let mut breaches = Vec::new();
            check_dependencies(known, manifest, &mut breaches);
            breaches
        };
        let fabric =
            "[dependencies]\nfarside-sys.workspace = true\n[dev-dependencies]\nfarside-testbed.workspace = true\n";
        assert!(breaches_of("farside-fabric", fabric).is_empty());
        assert_eq!(breaches_of("farside-fabric", "[dependencies]\nfarside.workspace = true\n").len(), 1);
        assert_eq!(breaches_of("farside-fabric", "[dependencies]\nfarside-testbed = { path = \"x\" }\n").len(), 1);
        assert_eq!(breaches_of("farside-cli", "[dependencies]\nfarside-bench.workspace = true\n").len(), 1);
        assert_eq!(breaches_of("farside", "[dependencies]\nrustix.workspace = true\n").len(), 1);
    }
}
