//! The order of the rooms inside a crate: a top-level module knows only those below it.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Kind, Source, Word};

/// The rooms of a crate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rooms {
    /// The name of the crate.
    pub(super) package: &'static str,
    /// The rooms, bottom to top. Rooms of the same floor may know each other.
    floors: &'static [&'static str],
    /// The modules that put the rooms together. They may know every room, and no room may know
    /// them.
    assembly: &'static str,
}

/// The crates that have rooms.
pub(super) const HOUSES: [Rooms; 2] = [
    Rooms {
        package: "farside",
        floors: &[
            "error",
            "runtime invoke",
            "memory",
            "buffers",
            "check",
            "dist",
            "extensions",
            "tasks",
            "global",
            "heap",
            "pipe",
            "sync",
        ],
        assembly: "tour job rooms prelude __private",
    },
    Rooms {
        package: "farside-fabric",
        floors: &[
            "sync",
            "ids",
            "clock",
            "wait",
            "ring",
            "bell",
            "operation",
            "region",
            "transport",
            "queue",
            "memory",
            "emulated",
            "shm",
            "ofi",
            "sim",
            "route",
        ],
        assembly: "",
    },
];

impl Rooms {
    /// The floor of a room. Assembly is above all others.
    fn floor(&self, room: &str) -> Option<usize> {
        let has = |rooms: &&str| rooms.split(' ').any(|listed| listed == room);
        self.floors.iter().chain([&self.assembly]).position(has)
    }
}

/// What a look at one crate found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Where one room names a room above it, by `lower->upper`.
    pub(super) upward: BTreeMap<String, Vec<String>>,
    /// Rooms that are missing in the table.
    pub(super) others: Vec<String>,
}

/// Looks at all imports and paths between the rooms of a crate.
pub(super) fn look(rooms: &Rooms, sources: &[Source]) -> Findings {
    let mut findings = Findings::default();
    for room in existing(sources).into_iter().filter(|room| rooms.floor(room).is_none()) {
        findings.others.push(format!("{}: the room {room} is missing in the table of rooms", rooms.package));
    }
    for (room, other, place) in imports(sources) {
        if rooms.floor(&other) > rooms.floor(&room) {
            findings.upward.entry(format!("{room}->{other}")).or_default().push(place);
        }
    }
    findings
}

/// The room that a word stands in.
fn room_of<'a>(source: &'a Source, word: &'a Word) -> Option<&'a String> {
    source.module.first().or(word.inside.first())
}

/// The rooms of a crate.
fn existing(sources: &[Source]) -> BTreeSet<&String> {
    let code = || sources.iter().filter(|source| source.kind == Kind::Code);
    let inside = code().filter(|source| source.module.is_empty()).flat_map(|source| &source.words);
    let inside = inside.filter(|word| !word.is_test).filter_map(|word| word.inside.first());
    code().filter_map(|source| source.module.first()).chain(inside).collect()
}

/// The imports and paths that lead from one room to another: both rooms, and the place.
pub(super) fn imports(sources: &[Source]) -> Vec<(String, String, String)> {
    let existing = existing(sources);
    // What the root re-exports: the room that each name comes from.
    let mut root = BTreeMap::new();
    for source in sources.iter().filter(|source| source.kind == Kind::Code && source.module.is_empty()) {
        for (word, path) in paths(source, &["use"]) {
            if let [room, .., name] = path.as_slice()
                && word.inside.is_empty()
                && existing.contains(room)
            {
                root.insert(name.clone(), room.clone());
            }
        }
    }
    let mut imports = Vec::new();
    for source in sources.iter().filter(|source| source.kind == Kind::Code) {
        for (word, path) in paths(source, &["crate", "super"]) {
            let (Some(room), Some(first)) = (room_of(source, word), path.first()) else { continue };
            let other = if existing.contains(first) { Some(first) } else { root.get(first) };
            if let Some(other) = other.filter(|other| *other != room) {
                let place = format!("{}:{}: crate::{}", source.path.display(), word.lines.start(), path.join("::"));
                imports.push((room.clone(), other.clone(), place));
            }
        }
    }
    imports
}

/// The paths of a source that begin with one of the words, or behind `use`, from the root of the
/// crate.
fn paths<'a>(source: &'a Source, openings: &[&str]) -> Vec<(&'a Word, Vec<String>)> {
    let words: Vec<&Word> = source.words.iter().filter(|word| !word.is_test).collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < words.len() {
        let (word, mut trees) = (words[at], Vec::new());
        let is_inner = at > 0 && words[at - 1].text == "::";
        if openings.contains(&word.text.as_str()) && !is_inner {
            at += usize::from(word.text == "use");
            read_tree(&words, &mut at, &[], &mut trees);
            let here: Vec<_> = source.module.iter().chain(&*word.inside).cloned().collect();
            found.extend(trees.into_iter().map(|tree| (word, resolve(tree, here.clone()))));
        }
        at += 1;
    }
    found
}

/// Reads a path with its groups up to its last word. A name behind `as` becomes one more part.
fn read_tree(words: &[&Word], at: &mut usize, before: &[String], trees: &mut Vec<Vec<String>>) {
    let word = |at: usize| words.get(at).map_or("", |word| word.text.as_str());
    let mut path = before.to_vec();
    loop {
        match word(*at) {
            "{" => {
                while !["}", ""].contains(&word(*at + 1)) {
                    *at += 1;
                    if word(*at) != "," {
                        read_tree(words, at, &path, trees);
                    }
                }
                *at += 1;
                return;
            }
            "*" => break,
            name => path.push(name.to_owned()),
        }
        match (word(*at + 1), word(*at + 2)) {
            ("::", next) if !["<", "("].contains(&next) => *at += 2,
            ("as", name) => {
                path.push(name.to_owned());
                *at += 2;
                break;
            }
            _ => break,
        }
    }
    trees.push(path);
}

/// A path from the root of the crate, for a path in the module `here`.
fn resolve(path: Vec<String>, mut here: Vec<String>) -> Vec<String> {
    for part in path {
        match part.as_str() {
            "crate" => here.clear(),
            "super" => drop(here.pop()),
            "self" => {}
            _ => here.push(part),
        }
    }
    here
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::tidy::source;

    const ROOMS: Rooms = Rooms { package: "planted", floors: &["low", "left right", "high"], assembly: "tour prelude" };

    fn planted(files: &[(&str, &str)]) -> Vec<Source> {
        let root = "mod low; mod left; mod right; pub mod high; mod tour; mod prelude { pub use super::high::Deep; }\n\
                    pub use high::inner::{Top, Other as Peak};";
        let empty = ["low", "left", "right", "high", "tour"].map(|room| (format!("src/{room}.rs"), ""));
        let empty = empty.iter().map(|(path, text)| (path.as_str(), *text));
        let files = files.iter().map(|(path, text)| (*path, *text));
        let all = empty.chain([("src/lib.rs", root)]).chain(files);
        let all = all.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        source::split(Path::new(""), all.collect()).unwrap()
    }

    fn upward(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let findings = look(&ROOMS, &planted(files));
        assert_eq!(findings.others, [""; 0]);
        findings.upward.into_iter().map(|(pair, places)| (pair, places.len())).collect()
    }

    #[test]
    fn a_planted_upward_import_is_found() {
        assert_eq!(upward(&[("src/low.rs", "use crate::high::Thing;")]), [("low->high".to_owned(), 1)]);
        assert_eq!(upward(&[("src/low/a.rs", "fn f() { crate::high::g::<u8>() }")]), [("low->high".to_owned(), 1)]);
        let group = "use crate::{left::a, high::{b, c::*}};";
        assert_eq!(upward(&[("src/low.rs", group)]), [("low->high".to_owned(), 2), ("low->left".to_owned(), 1)]);
        assert_eq!(upward(&[("src/low/a.rs", "use super::super::high::x;")]), [("low->high".to_owned(), 1)]);
        let nested = "mod b { use super::super::super::high::x; use super::super::high; }";
        assert_eq!(upward(&[("src/low/a.rs", nested)]), [("low->high".to_owned(), 1)]);
        assert_eq!(upward(&[("src/high.rs", "use crate::tour::x;")]), [("high->tour".to_owned(), 1)]);
    }

    #[test]
    fn names_at_the_root_are_resolved() {
        let uses = "use crate::{Top, Unknown}; fn f(_: crate::Peak) {}";
        assert_eq!(upward(&[("src/left.rs", uses)]), [("left->high".to_owned(), 2)]);
        assert_eq!(upward(&[("src/left.rs", "use crate::prelude::Deep;")]), [("left->prelude".to_owned(), 1)]);
    }

    #[test]
    fn downward_sideways_and_tests_are_allowed() {
        let files = [
            ("src/high.rs", "use crate::{low::a, left::b, Top};"),
            ("src/left.rs", "use crate::right::x; #[cfg(test)] mod tests { use crate::high::y; }"),
            ("src/right.rs", "use crate::left::x; #[cfg(test)] mod model;"),
            ("src/right/model.rs", "use crate::high::y;"),
            ("src/tour.rs", "use crate::high::y;"),
            ("src/low.rs", "// crate::high::x\nuse crate::low::{self, z}; const A: &str = \"crate::high::y\";"),
        ];
        assert_eq!(upward(&files), []);
    }

    #[test]
    fn a_room_that_no_table_lists_is_found() {
        assert!(look(&ROOMS, &planted(&[("src/attic.rs", "")])).others[0].contains("attic"));
    }
}
