//! The rules of the project that no compiler checks.
//!
//! Some rules have allowances ([`allowances::FILE`]): how many breaches a place still has. These
//! numbers may only fall.

mod allowances;
mod language;
pub(crate) mod packages;
pub(crate) mod rooms;
pub(crate) mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use allowances::Found;
use language::Prose;
use source::{Kind, Source, Word};

/// The lines of a source file at most.
const LINES_MAX: usize = 800;

/// The folders of the workspace's crates, bottom to top. A crate may depend on crates of its own
/// folder and of those below. Tests may use the last folder as well.
const FOLDERS: [&str; 4] = ["core", "services", "apps", "dev"];

/// A crate of the workspace.
pub(crate) struct Crate {
    /// Its folder, which has its name.
    folder: &'static str,
    /// True if the crate has no unsafe code at all.
    is_safe: bool,
    /// The lines of code at most: see `cargo xtask lines`.
    pub(crate) code: usize,
    /// The crates directly below. It may depend on these and on all crates below them.
    below: &'static [&'static str],
}

/// The crates of the workspace, bottom to top.
const CRATES: [Crate; 26] = [
    Crate { folder: "dev/farside-testbed", is_safe: true, code: 775, below: &[] },
    Crate { folder: "core/farside-sys", is_safe: false, code: 2_880, below: &[] },
    Crate { folder: "core/farside-macros", is_safe: true, code: 1_050, below: &[] },
    Crate { folder: "core/farside-wire", is_safe: false, code: 1_660, below: &["farside-macros"] },
    Crate { folder: "core/farside-fabric", is_safe: false, code: 12_060, below: &["farside-sys", "farside-wire"] },
    Crate { folder: "core/farside-transmit", is_safe: false, code: 1_120, below: &["farside-fabric"] },
    Crate { folder: "core/farside-launch", is_safe: false, code: 4_080, below: &["farside-fabric"] },
    Crate { folder: "core/farside", is_safe: false, code: 22_800, below: &["farside-launch"] },
    Crate { folder: "core/farside-kit", is_safe: false, code: 5_600, below: &["farside"] },
    Crate { folder: "core/farside-containers", is_safe: true, code: 6_970, below: &["farside"] },
    Crate { folder: "services/farside-connect", is_safe: false, code: 5_540, below: &["farside-fabric"] },
    Crate { folder: "services/farside-rpc", is_safe: true, code: 4_560, below: &["farside-connect"] },
    Crate { folder: "services/farside-kv", is_safe: true, code: 1_540, below: &["farside-rpc"] },
    Crate { folder: "services/farside-inspect", is_safe: true, code: 4_130, below: &["farside-rpc", "farside"] },
    Crate { folder: "services/farside-viewer", is_safe: true, code: 4_650, below: &["farside-inspect"] },
    Crate { folder: "apps/farside-mcts", is_safe: true, code: 5_350, below: &["farside"] },
    Crate { folder: "apps/farside-command", is_safe: true, code: 170, below: &[] },
    Crate { folder: "apps/farside-cli", is_safe: true, code: 1_900, below: &["farside-mcts", "farside-command"] },
    Crate { folder: "apps/farside-rpc-cli", is_safe: true, code: 1_200, below: &["farside-rpc", "farside-command"] },
    Crate { folder: "apps/farside-kv-cli", is_safe: true, code: 560, below: &["farside-kv", "farside-rpc-cli"] },
    Crate { folder: "apps/farside-inspect-cli", is_safe: true, code: 1_600, below: &["farside-viewer", "farside-cli"] },
    Crate {
        folder: "apps/farside-bench",
        is_safe: false,
        code: 11_630,
        below: &[
            "farside-transmit",
            "farside-kit",
            "farside-containers",
            "farside-mcts",
            "farside-viewer",
            "farside-kv",
            "farside-command",
        ],
    },
    Crate {
        folder: "dev/farside-conformance",
        is_safe: false,
        code: 0,
        below: &["farside-transmit", "farside-testbed"],
    },
    Crate { folder: "dev/farside-tests", is_safe: false, code: 0, below: &["farside-rpc"] },
    Crate {
        folder: "dev/farside-book",
        is_safe: true,
        code: 30,
        below: &["farside-kit", "farside-containers", "farside-viewer", "farside-kv", "farside-conformance"],
    },
    Crate { folder: "dev/xtask", is_safe: true, code: 3_400, below: &["farside-testbed"] },
];

/// The memory model, whose rules have numbers.
const MODEL: &str = "docs/memory-model.md";

/// Words that have no place in finished code.
const UNFINISHED: [&str; 4] = ["FIXME", "XXX", "HACK", "TODO"];

/// The crates whose messages the codec writes and reads.
const ENCODED: [&str; 5] =
    ["core/farside", "core/farside-fabric", "core/farside-launch", "services/farside-connect", "services/farside-rpc"];

/// The functions that hand-written encoding calls.
const ENCODING: [&str; 4] = ["to_le_bytes", "from_le_bytes", "to_ne_bytes", "from_ne_bytes"];

/// The files that call it, and why no codec can do it.
const ENCODED_BY_HAND: [(&str, &str); 19] = [
    ("core/farside-fabric/src/ofi/message.rs", "hot path: the header of every message"),
    ("services/farside-connect/src/frame.rs", "hot path: the header of every frame"),
    ("services/farside-connect/src/path/tcp.rs", "hot path: the length of every frame"),
    ("services/farside-connect/src/socket.rs", "the length of a message, which comes before it is decoded"),
    ("services/farside-connect/src/door.rs", "the version of a message, which says how to decode it"),
    ("services/farside-rpc/src/server.rs", "a number made of random bytes"),
    ("core/farside-kit/src/heap/layout.rs", "hot path: headers of blocks"),
    ("core/farside-kit/src/heap/tags.rs", "hot path: lists of freed blocks"),
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

/// The treatment of allowances that are too high.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Allowances {
    /// An allowance that is too high is a breach.
    #[default]
    Keep,
    /// An allowance that is too high falls to the number of today.
    Lower,
}

/// The findings of the rules.
#[derive(Default)]
struct Findings {
    /// Messages.
    breaches: Vec<String>,
    /// Breaches of the rules that have allowances.
    counted: Found,
    /// The rules of the memory model, which may be cited.
    rules_of_model: BTreeSet<String>,
}

impl Findings {
    fn count(&mut self, rule: &str, place: String, at: String) {
        self.counted.entry((rule.to_owned(), place)).or_default().push(at);
    }

    /// Counts breaches in a file, each with its line and text.
    fn count_in(&mut self, rule: &str, file: &Path, found: impl IntoIterator<Item = (usize, String)>) {
        for (line, text) in found {
            self.count(rule, place(file), format!("{}:{line}: {text}", file.display()));
        }
    }
}

/// Checks all rules and reports every breach.
pub(crate) fn check(allowances: Allowances) -> Result<(), String> {
    let model = fs::read_to_string(MODEL)
        .map_err(|error| format!("{MODEL}: {error}: run tidy from the root of the project"))?;
    let mut findings = Findings { rules_of_model: language::rules_of_model(&model), ..Findings::default() };
    check_crates(&mut findings.breaches);
    packages::check(&mut findings.breaches);
    for folder in crate_folders() {
        let sources = source::read_crate(&folder)?;
        sources.iter().for_each(|source| check_source(source, &mut findings));
        rooms::check(&folder, &sources, &mut findings);
        let (code, budget) =
            (source::count(&sources)[Kind::Code as usize], known(&folder).map_or(usize::MAX, |known| known.code));
        if code > budget {
            let what = format!("{}: {code} lines of code, but the budget is {budget}", folder.display());
            findings
                .breaches
                .push(format!("{what}: take something out, or raise it in the table of crates in tidy and say why"));
        }
    }
    check_documents(&mut findings);
    let mut breaches = findings.breaches;
    breaches.extend(allowances::check(Path::new(allowances::FILE), &findings.counted, allowances)?);
    if breaches.is_empty() {
        println!("xtask: tidy");
        return Ok(());
    }
    Err(format!("{} rules of the project are broken:\n  {}", breaches.len(), breaches.join("\n  ")))
}

/// The folders of all crates.
pub(crate) fn crate_folders() -> Vec<PathBuf> {
    let entries = FOLDERS.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let mut folders: Vec<_> =
        entries.map(|entry| entry.path()).filter(|folder| folder.join("Cargo.toml").exists()).collect();
    folders.sort_unstable();
    folders
}

/// The row of a crate in the table.
pub(crate) fn known(folder: &Path) -> Option<&'static Crate> {
    CRATES.iter().find(|known| folder == Path::new(known.folder))
}

impl Crate {
    fn name(&self) -> &'static str {
        self.folder.rsplit('/').next().unwrap_or(self.folder)
    }

    fn floor(&self) -> Option<usize> {
        FOLDERS.iter().position(|floor| self.folder.starts_with(floor))
    }

    /// Returns whether `lower` is somewhere below.
    fn is_above(&self, lower: &Self) -> bool {
        let mut below = CRATES.iter().filter(|known| self.below.contains(&known.name()));
        lower.floor() <= self.floor() && below.any(|known| known.name() == lower.name() || known.is_above(lower))
    }
}

fn check_crates(breaches: &mut Vec<String>) {
    let folders = crate_folders();
    for known in CRATES.iter().filter(|known| !folders.iter().any(|folder| folder == Path::new(known.folder))) {
        breaches.push(format!("{}: no such crate: strike it from the table of crates in tidy", known.folder));
    }
    for folder in folders {
        let Some(known) = known(&folder) else {
            breaches.push(format!("{}: missing in the table of crates in tidy: add it", folder.display()));
            continue;
        };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        check_dependencies(known, &manifest, breaches);
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| fs::read_to_string(folder.join(root)).unwrap_or_default());
        if known.is_safe && !roots.iter().any(|root| root.contains("#![forbid(unsafe_code)]")) {
            breaches.push(format!("{}: does not forbid unsafe code: add the attribute", folder.display()));
        }
    }
}

fn check_dependencies(known: &Crate, manifest: &str, breaches: &mut Vec<String>) {
    let mut section = "";
    for (line, number) in manifest.lines().zip(1..) {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ', '=']).next().filter(|_| section.contains("dependencies")).unwrap_or_default();
        let at = format!("{}/Cargo.toml:{number}: depends on {name}", known.folder);
        let may_use = |other: &Crate| match section.contains("dev-dependencies") {
            true => other.floor() <= known.floor() || other.folder.starts_with("dev/"),
            false => known.is_above(other),
        };
        if name.starts_with("farside") && !CRATES.iter().any(|other| other.name() == name && may_use(other)) {
            breaches.push(format!("{at}, which is not below it in the table of crates in tidy: turn to a lower crate"));
        }
        // System calls are made in one crate.
        if ["libc", "rustix"].contains(&name) && known.name() != "farside-sys" {
            breaches.push(format!("{at}: make the system call in farside-sys"));
        }
    }
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

fn check_source(source: &Source, findings: &mut Findings) {
    let (path, text) = (source.path.as_path(), source.text.as_str());
    let (name, lines) = (path.display(), text.lines().count());
    if lines > LINES_MAX {
        findings.breaches.push(format!("{name}: {lines} lines; {LINES_MAX} are the limit: split it"));
    }
    let comments = language::comments(text);
    findings.count_in("columns", path, language::wide(text, &comments));
    // The checker names what it looks for.
    if path.starts_with("dev/xtask/src/tidy") || path.ends_with("tidy.rs") {
        return;
    }
    for (line, number) in text.lines().zip(1..) {
        let words = line.split(|c: char| !c.is_alphanumeric());
        for word in words.filter(|word| UNFINISHED.contains(word)) {
            findings.breaches.push(format!("{name}:{number}: {word}: finish it, or file an issue"));
        }
    }
    findings.count_in("pronoun", path, language::pronoun_openings(text));
    findings.count_in("errors-of-others", path, language::borrowed_errors(&comments));
    check_prose(path, &language::without_examples(comments), findings);
    if !path.starts_with("dev/farside-testbed") {
        findings.count_in("clock", path, clock_calls(source));
    }
    if source.kind == Kind::Code && ENCODED.iter().any(|name| path.starts_with(name)) {
        let words = source.words.iter().filter(|word| !word.is_test && ENCODING.contains(&word.text.as_str()));
        let calls: Vec<_> = words.map(|word| (*word.lines.start(), word.text.clone())).collect();
        if !ENCODED_BY_HAND.iter().any(|(listed, _)| path == Path::new(listed)) {
            findings.count_in("encoding-by-hand", path, calls);
        } else if calls.is_empty() {
            findings.breaches.push(format!("{name}: encodes nothing by hand: strike it from ENCODED_BY_HAND in tidy"));
        }
    }
}

/// The calls in tests that read or wait for a real clock, except in modules named `timing`.
fn clock_calls(source: &Source) -> Vec<(usize, String)> {
    let in_tests = |word: &Word| {
        source.kind_of(word) == Kind::Test && !source.module.iter().chain(&*word.inside).any(|name| name == "timing")
    };
    let call = |words: &[Word]| {
        let texts = [0, 1, 2].map(|at| words[at].text.as_str());
        let call = match texts {
            [before, "sleep", "("] if !["fn", "."].contains(&before) => "sleep(",
            [".", "elapsed", "("] => ".elapsed()",
            ["Instant", "::", "now"] => "Instant::now",
            _ => return None,
        };
        in_tests(&words[1]).then(|| (*words[1].lines.start(), call.to_owned()))
    };
    source.words.windows(3).filter_map(call).collect()
}

/// Looks through all documents.
fn check_documents(findings: &mut Findings) {
    let mut documents = Vec::new();
    for root in FOLDERS.into_iter().chain(["docs"]) {
        collect(Path::new(root), "md", &mut documents);
    }
    let here = fs::read_dir(".").into_iter().flatten().flatten().map(|entry| PathBuf::from(entry.file_name()));
    documents.extend(here.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    for document in documents {
        let text = fs::read_to_string(&document).unwrap_or_default();
        let lines = language::without_examples(text.lines().map(Some).collect());
        findings.count_in("columns", &document, language::wide(&text, &lines));
        check_prose(&document, &lines, findings);
    }
}

/// Checks comments, or the lines of a document.
fn check_prose(path: &Path, lines: &[Option<&str>], findings: &mut Findings) {
    let prose = Prose::new(lines, false);
    findings.count_in("phrase", path, prose.find(language::PHRASES));
    findings.count_in("private-word", path, prose.find(language::PRIVATE));
    for (line, rule) in Prose::new(lines, true).citations(path == Path::new(MODEL)) {
        if !findings.rules_of_model.contains(&rule) {
            let path = path.display();
            findings.breaches.push(format!("{path}:{line}: {MODEL} has no rule {rule}: cite the rule that is meant"));
        }
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
            let mut breaches = Vec::new();
            check_dependencies(known(Path::new(folder)).unwrap(), manifest, &mut breaches);
            breaches.len()
        };
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
