//! The crates that users may take: what their packages need.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// The document whose table lists the packages.
const TABLE: &str = "docs/packages.md";

/// Lines that every manifest of a package has.
const NEEDED: [&str; 4] = ["description = ", "license.workspace = true", "readme", "[package.metadata.docs.rs]"];

/// The packages of the workspace, bottom to top: the crates that the document lists.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let table = fs::read_to_string(TABLE).unwrap_or_default();
    let is_listed = move |name: &&str| table.lines().any(|line| line.starts_with(&format!("| `{name}` |")));
    super::CRATES.iter().map(super::Crate::name).filter(is_listed)
}

/// Checks what `cargo package` does not.
pub(super) fn check(breaches: &mut Vec<String>) {
    let names: Vec<_> = names().collect();
    for folder in super::crate_folders() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if names.iter().any(|name| folder.ends_with(name)) {
            check_package(&folder, &manifest, breaches);
        } else if !manifest.lines().any(|line| line.starts_with("publish")) {
            let folder = folder.display();
            breaches.push(format!("{folder}: not in the table of {TABLE}: add it there, or `publish = false` here"));
        }
    }
}

fn check_package(folder: &Path, manifest: &str, breaches: &mut Vec<String>) {
    for needed in NEEDED.into_iter().filter(|needed| !manifest.lines().any(|line| line.starts_with(needed))) {
        breaches.push(format!("{}: a package needs a line `{needed}`", folder.display()));
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        if !folder.join(licence).exists() {
            breaches.push(format!("{}: a package needs {licence}", folder.display()));
        }
    }
    let mut sources = Vec::new();
    super::collect(&folder.join("src"), "rs", &mut sources);
    for source in sources {
        let text = fs::read_to_string(&source).unwrap_or_default();
        for path in text.lines().filter_map(included).filter(|path| !stays_inside(folder, &source, path)) {
            breaches.push(format!("{}: includes {path}, which is not part of the package", source.display()));
        }
    }
}

/// The file that a line includes, if it includes one.
fn included(line: &str) -> Option<&str> {
    let openings = ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""];
    let behind = openings.iter().find_map(|opening| Some(line.split_once(opening)?.1))?;
    Some(behind.split_once('"')?.0)
}

/// Returns whether a path that a source names leads to a file of the same crate.
fn stays_inside(folder: &Path, source: &Path, path: &str) -> bool {
    let mut resolved = PathBuf::new();
    for part in source.parent().unwrap_or(folder).join(path).components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            other => resolved.push(other),
        }
    }
    resolved.starts_with(folder)
}

/// The command that makes all packages without building them. It finds the crates that the packages
/// depend on in the workspace, so that it needs no network.
pub(crate) fn command() -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(["package", "--quiet", "--no-verify", "--allow-dirty", "--offline"]);
    command.args(names().flat_map(|name| ["--package", name]));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_crates_are_found() {
        let (folder, source) = (Path::new("core/a"), Path::new("core/a/src/b/c.rs"));
        assert_eq!(included("const A: &str = include_str!(\"../../d.md\");"), Some("../../d.md"));
        assert_eq!(included("let a = \"include\";"), None);
        assert!(stays_inside(folder, source, "../../d.md"));
        assert!(!stays_inside(folder, source, "../../../b/d.md"));
    }
}
