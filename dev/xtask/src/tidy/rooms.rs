//! The order of the rooms inside a crate: a top-level module knows only those below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::tokens::{Product, product};

/// The rooms of a crate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rooms {
    /// The name of the crate, which is the name of its folder.
    pub(super) package: &'static str,
    /// The rooms, bottom to top. Rooms of the same floor may know each other.
    pub(super) floors: &'static [&'static [&'static str]],
    /// The modules that put the rooms together. They may know every room, and no room may know
    /// them.
    pub(super) assembly: &'static [&'static str],
}

/// The crates that have rooms.
pub(super) const HOUSES: [Rooms; 2] = [
    Rooms {
        package: "farside",
        floors: &[
            &["error"],
            &["runtime", "invoke"],
            &["memory"],
            &["buffers"],
            &["check"],
            &["dist"],
            &["extensions"],
            &["tasks"],
            &["global"],
            &["heap"],
            &["pipe"],
            &["sync"],
        ],
        assembly: &["tour", "job", "rooms"],
    },
    Rooms {
        package: "farside-fabric",
        floors: &[
            &["sync"],
            &["ids"],
            &["clock"],
            &["wait"],
            &["ring"],
            &["bell"],
            &["operation"],
            &["region"],
            &["transport"],
            &["queue"],
            &["memory"],
            &["emulated"],
            &["shm"],
            &["ofi"],
            &["sim"],
            &["route"],
        ],
        assembly: &[],
    },
];

/// What a look at one crate found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// How often one room names a room above it, by `lower->upper`.
    pub(super) upward: BTreeMap<String, usize>,
    /// Where that is: one line for each path.
    pub(super) places: Vec<String>,
    /// Rooms that are missing in the table, and names that cannot be resolved.
    pub(super) others: Vec<String>,
}

/// Looks at all imports and paths between the rooms of the crate in `folder`.
pub(super) fn look(rooms: &Rooms, folder: &Path) -> Findings {
    let mut findings = Findings::default();
    let source_folder = folder.join("src");
    let mut sources = Vec::new();
    super::collect_sources(&source_folder, &mut sources);
    sources.sort_unstable();
    let products = products(&source_folder, &sources);
    let existing: BTreeSet<String> = products.keys().filter_map(|module| module.first().cloned()).collect();
    let listed = |name: &str| rooms.assembly.contains(&name) || rooms.floors.iter().any(|floor| floor.contains(&name));
    for room in existing.iter().filter(|room| !listed(room)) {
        findings.others.push(format!("{}: the room {room} is missing in the table of rooms", rooms.package));
    }
    let root = exports(products.get(&Vec::new()), &existing);
    for (module, product) in &products {
        let Some(room) = module.first().filter(|room| !rooms.assembly.contains(&room.as_str())) else { continue };
        for path in paths(&product.tokens, module) {
            let Some(first) = path.first() else { continue };
            let known = if existing.contains(first) { Some(first) } else { root.get(first) };
            let Some(other) = known else { continue };
            if is_upward(rooms, room, other) {
                *findings.upward.entry(format!("{room}->{other}")).or_default() += 1;
                findings.places.push(format!("{}: crate::{}", module.join("::"), path.join("::")));
            }
        }
    }
    findings
}

/// The sources of a crate without their tests, by the path of the module. The root has the empty
/// path.
fn products(folder: &Path, sources: &[PathBuf]) -> BTreeMap<Vec<String>, Product> {
    let mut products = BTreeMap::new();
    for source in sources {
        let relative = source.strip_prefix(folder).unwrap_or(source).with_extension("");
        let mut module: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.last().is_some_and(|last| last == "mod") || ["lib", "main"].contains(&module.join("/").as_str()) {
            module.pop();
        }
        products.insert(module, product(&fs::read_to_string(source).unwrap_or_default()));
    }
    let for_tests: Vec<Vec<String>> = products
        .iter()
        .flat_map(|(module, product)| {
            product.test_modules.iter().map(|name| module.iter().chain([name]).cloned().collect())
        })
        .collect();
    products.retain(|module, _| !for_tests.iter().any(|tests| module.starts_with(tests)));
    products
}

/// What the root of a crate re-exports: the room that each name comes from.
fn exports(root: Option<&Product>, existing: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let Some(root) = root else { return names };
    let mut at = 0;
    while let Some(start) = root.tokens[at..].iter().position(|token| token == "use").map(|found| at + found + 1) {
        let mut trees = Vec::new();
        at = read_tree(&root.tokens, start, Vec::new(), &mut trees);
        for tree in trees {
            let tree: Vec<_> = tree.into_iter().filter(|part| !["crate", "self"].contains(&part.as_str())).collect();
            if let (Some(room), Some(name)) = (tree.first().filter(|room| existing.contains(*room)), tree.last()) {
                names.insert(name.clone(), room.clone());
            }
        }
    }
    names
}

/// The paths in a module that begin with `crate` or leave it by `super`, from the root of the
/// crate.
fn paths(tokens: &[String], module: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    // The modules inside this file, each with the depth of braces at which it ends.
    let (mut inside, mut depth): (Vec<(String, usize)>, usize) = (Vec::new(), 0);
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" => {
                if at >= 2 && tokens[at - 2] == "mod" {
                    inside.push((tokens[at - 1].clone(), depth));
                }
                depth += 1;
            }
            "}" => {
                depth = depth.saturating_sub(1);
                if inside.last().is_some_and(|(_, end)| *end == depth) {
                    inside.pop();
                }
            }
            "crate" | "super"
                if tokens.get(at + 1).is_some_and(|next| next == "::") && (at == 0 || tokens[at - 1] != "::") =>
            {
                let mut trees = Vec::new();
                at = read_tree(tokens, at, Vec::new(), &mut trees);
                let here: Vec<&String> = module.iter().chain(inside.iter().map(|(name, _)| name)).collect();
                found.extend(trees.iter().map(|tree| resolve(tree, &here)));
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Reads a path with its groups, and returns where it ends. A name given by `as` takes the place of
/// the last part.
fn read_tree(tokens: &[String], from: usize, before: Vec<String>, trees: &mut Vec<Vec<String>>) -> usize {
    let (mut path, mut at) = (before, from);
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    loop {
        match token(at) {
            "{" => {
                at += 1;
                while !["}", ""].contains(&token(at)) {
                    at = read_tree(tokens, at, path.clone(), trees);
                    if token(at) == "," {
                        at += 1;
                    } else if !["}", ""].contains(&token(at)) {
                        // Not a group of imports: what follows is no path.
                        return at;
                    }
                }
                return at + 1;
            }
            "*" => {
                trees.push(path);
                return at + 1;
            }
            name if name.starts_with(|first: char| first == '_' || first.is_alphabetic()) => {
                if name != "self" {
                    path.push(name.to_owned());
                }
                at += 1;
                if token(at) == "::" && !["<", "("].contains(&token(at + 1)) {
                    at += 1;
                    continue;
                }
                trees.push(path);
                return if token(at) == "as" { at + 2 } else { at };
            }
            _ => {
                trees.push(path);
                return at.max(from + 1);
            }
        }
    }
}

/// A path from the root of the crate.
fn resolve(path: &[String], here: &[&String]) -> Vec<String> {
    let mut resolved: Vec<String> = here.iter().map(|part| (*part).clone()).collect();
    for part in path {
        match part.as_str() {
            "crate" => resolved.clear(),
            "super" => drop(resolved.pop()),
            _ => resolved.push(part.clone()),
        }
    }
    resolved
}

/// Whether `room` may not know `other`.
fn is_upward(rooms: &Rooms, room: &str, other: &str) -> bool {
    let floor = |name: &str| rooms.floors.iter().position(|floor| floor.contains(&name));
    match (floor(room), floor(other)) {
        (Some(own), Some(others)) => others > own,
        // A room that no table lists is reported by itself.
        _ => rooms.assembly.contains(&other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMS: Rooms =
        Rooms { package: "planted", floors: &[&["low"], &["left", "right"], &["high"]], assembly: &["tour"] };

    /// A crate in a temporary folder, which goes with it.
    struct Planted(PathBuf);

    impl Planted {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let folder = std::env::temp_dir().join(format!("farside-rooms-{}-{name}", std::process::id()));
            let root =
                "mod low; mod left; mod right; pub mod high; mod tour;\npub use high::inner::{Top, Other as Peak};";
            let empty =
                [("lib.rs", root), ("low.rs", ""), ("left.rs", ""), ("right.rs", ""), ("high.rs", ""), ("tour.rs", "")];
            for (path, text) in empty.iter().chain(files) {
                let path = folder.join("src").join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(folder)
        }
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn upward(name: &str, files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let planted = Planted::new(name, files);
        let findings = look(&ROOMS, &planted.0);
        assert_eq!(findings.others, [""; 0]);
        findings.upward.into_iter().collect()
    }

    #[test]
    fn a_planted_upward_import_is_found() {
        assert_eq!(upward("use", &[("low.rs", "use crate::high::Thing;")]), [("low->high".to_owned(), 1)]);
        assert_eq!(upward("path", &[("low/a.rs", "fn f() { crate::high::g::<u8>() }")]), [("low->high".to_owned(), 1)]);
        let group = "use crate::{left::a, high::{b, c::*}};";
        assert_eq!(upward("group", &[("low.rs", group)]), [("low->high".to_owned(), 2), ("low->left".to_owned(), 1)]);
        assert_eq!(upward("super", &[("low/a.rs", "use super::super::high::x;")]), [("low->high".to_owned(), 1)]);
        let nested = "mod b { use super::super::super::high::x; use super::super::high; }";
        assert_eq!(upward("nested", &[("low/a.rs", nested)]), [("low->high".to_owned(), 1)]);
        assert_eq!(upward("tour", &[("high.rs", "use crate::tour::x;")]), [("high->tour".to_owned(), 1)]);
    }

    #[test]
    fn names_at_the_root_are_resolved() {
        let uses = "use crate::{Top, Unknown}; fn f(_: crate::Peak) {}";
        assert_eq!(upward("root", &[("left.rs", uses)]), [("left->high".to_owned(), 1)]);
    }

    #[test]
    fn downward_sideways_and_tests_are_allowed() {
        let files = [
            ("high.rs", "use crate::{low::a, left::b, Top};"),
            ("left.rs", "use crate::right::x; #[cfg(test)] mod tests { use crate::high::y; }"),
            ("right.rs", "use crate::left::x; #[cfg(test)] mod model;"),
            ("right/model.rs", "use crate::high::y;"),
            ("tour.rs", "use crate::high::y;"),
            ("low.rs", "// crate::high::x\nuse crate::low::{self, z}; const A: &str = \"crate::high::y\";"),
        ];
        assert_eq!(upward("down", &files), []);
    }

    #[test]
    fn a_room_that_no_table_lists_is_found() {
        let planted = Planted::new("unlisted", &[("attic.rs", "")]);
        assert!(look(&ROOMS, &planted.0).others[0].contains("attic"));
    }
}
