//! The rules of the house that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

/// A file longer than this wants to be two.
const LINES_MAX: usize = 800;

/// Who may depend on whom, besides crates from outside: the rooms below, never those above.
const BELOW: [(&str, &[&str]); 12] = [
    ("farside-testbed", &[]),
    ("farside-sys", &["farside-testbed"]),
    ("farside-macros", &[]),
    ("farside-wire", &["farside-macros"]),
    ("farside-fabric", &["farside-sys", "farside-wire", "farside-testbed", "farside-conformance", "farside-transmit"]),
    ("farside-transmit", &["farside-fabric", "farside-sys"]),
    ("farside-conformance", &["farside-fabric", "farside-sys", "farside-transmit"]),
    ("farside-launch", &["farside-sys", "farside-wire", "farside-fabric"]),
    (
        "farside",
        &[
            "farside-sys",
            "farside-wire",
            "farside-fabric",
            "farside-launch",
            "farside-macros",
            "farside-testbed",
            "farside-transmit",
        ],
    ),
    ("farside-mcts", &["farside", "farside-macros"]),
    (
        "farside-bench",
        &["farside", "farside-fabric", "farside-mcts", "farside-sys", "farside-testbed", "farside-transmit"],
    ),
    ("farside-cli", &["farside", "farside-fabric", "farside-mcts", "farside-sys", "farside-testbed"]),
];

/// Crates with no unsafe code at all.
const SAFE: [&str; 4] = ["farside-mcts", "farside-cli", "farside-macros", "farside-testbed"];

/// Words that have no place in finished code.
const UNFINISHED: [&str; 4] = ["FIXME", "XXX", "HACK", "TODO"];

/// Checks all rules and reports every breach.
pub(crate) fn check() -> Result<(), String> {
    let mut breaches = Vec::new();
    for (name, below) in BELOW {
        let crate_dir = Path::new("crates").join(name);
        check_dependencies(&crate_dir, below, &mut breaches);
        if SAFE.contains(&name) {
            check_forbids_unsafe(&crate_dir, &mut breaches);
        }
    }
    let mut sources = Vec::new();
    for root in ["crates", "xtask"] {
        collect_sources(Path::new(root), &mut sources);
    }
    if sources.is_empty() {
        return Err("tidy found no sources: run it from the root of the project".to_owned());
    }
    for source in sources {
        check_source(&source, &mut breaches);
    }
    if breaches.is_empty() {
        println!("xtask: tidy");
        return Ok(());
    }
    Err(format!("the house is not tidy:\n  {}", breaches.join("\n  ")))
}

fn check_dependencies(crate_dir: &Path, below: &[&str], breaches: &mut Vec<String>) {
    let manifest = crate_dir.join("Cargo.toml");
    let Ok(text) = fs::read_to_string(&manifest) else {
        breaches.push(format!("{}: cannot be read", manifest.display()));
        return;
    };
    let own_name = crate_dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for line in text.lines() {
        let Some(dependency) = line.split(['.', ' ', '=']).next().filter(|name| name.starts_with("farside")) else {
            continue;
        };
        if dependency != own_name && !below.contains(&dependency) {
            breaches.push(format!("{}: depends on {dependency}, which is not below it", manifest.display()));
        }
    }
    // System calls are made in one crate.
    for system in ["libc", "rustix"] {
        if own_name != "farside-sys" && text.lines().any(|line| line.starts_with(&format!("{system}."))) {
            breaches.push(format!(
                "{}: only farside-sys makes system calls, but this depends on {system}",
                manifest.display()
            ));
        }
    }
}

fn check_forbids_unsafe(crate_dir: &Path, breaches: &mut Vec<String>) {
    let roots = ["src/lib.rs", "src/main.rs"].map(|root| crate_dir.join(root));
    let forbids = |root: &PathBuf| fs::read_to_string(root).is_ok_and(|text| text.contains("#![forbid(unsafe_code)]"));
    if !roots.iter().any(forbids) {
        breaches.push(format!("{}: does not forbid unsafe code", crate_dir.display()));
    }
}

pub(crate) fn collect_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}

fn check_source(source: &Path, breaches: &mut Vec<String>) {
    let Ok(text) = fs::read_to_string(source) else { return };
    let lines = text.lines().count();
    if lines > LINES_MAX {
        breaches.push(format!("{}: {lines} lines; {LINES_MAX} are the limit", source.display()));
    }
    if source.ends_with("xtask/src/tidy.rs") {
        return;
    }
    for word in UNFINISHED {
        if text.split(|c: char| !c.is_alphanumeric()).any(|found| found == word) {
            breaches.push(format!("{}: {word}", source.display()));
        }
    }
}
