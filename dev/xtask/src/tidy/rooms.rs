//! The order of the rooms inside a crate: a top-level module knows only those below it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Findings;
use super::source::{Kind, Source, Word};

/// The rooms of each crate, bottom to top. `<` separates floors: a room may name the rooms of lower
/// floors. Rooms joined by `+` may name each other as well.
const ROOMS: &str = "
    farside-sys: fence file futex image library limits net poller prefetch origin process_memory racy \
        topology < pmix process < shm
    farside-macros: options < element wire < service test_attribute
    farside-wire: error < portable reader schema < encode < attachment boxed compound plain < check < wire
    farside-fabric: sync < ids < clock < threads wait < ring < bell < operation < region < transport < queue < memory \
        < emulated < shm < ofi < sim < route
    farside-transmit: looks posted sync < open signals < queue < transmitter < circular < linear
    farside-launch: error < control nic ring_options layout < settings < coordinator host kill_point log \
        < member < rendezvous < child < start
    farside: error < runtime+invoke < memory < buffers < check < dist < extensions < global < kit rooms < job \
        < prelude tour __private
    farside-kit: room_error < notifications pipe section sync tasks < heap < prelude
    farside-containers: agreement promise route < announced cost dist_iterator dist_vec exchange keep phase remote \
        < array_sort collections counting_set query < array_batch map queue
    farside-connect: address frame kills lock peer segments table watched < allocated < path < patience < area \
        < greeting < error simulated < link < lent socket < door < dial remote < memory relay < bulk < attachments testing
    farside-rpc: kills < error < answer < bulk < call < stream < service < server < client < sim __private
    farside-kv: error kills < service < index < group < values < open uploads < store < handlers < client
    farside-inspect: element names network points spans sync < protocol < doors < target < __private
    farside-viewer: selection target < client < session < page
    farside-mcts: rng < game < tree < search < games
    farside-command: events values
    farside-cli: inspection json shape < error < info plugin < hex run
    farside-rpc-cli: error json < server < call
    farside-kv-cli: error progress < bench serve
    farside-inspect-cli: error < inspect search < jobs top
    farside-bench: error < fabric metric options random resident search_modes sequential < results stats \
        < launches row shared timing < case limits table < name plot turns < kit peers < matrix < benches
    farside-testbed: failure holdings left_out patience < command running < browser netns
    farside-conformance: harness < atomics ends messages operations queues regions user_memory waiting
    xtask: steps < programs < beds < tidy < book lines < runner < groups < testing < arguments
";

/// Reports rooms that are missing in the table, and counts the imports and paths that do not lead
/// downwards.
pub(super) fn check(folder: &Path, sources: &[Source], findings: &mut Findings) {
    let package = folder.file_name().unwrap_or_default().to_string_lossy();
    let row = ROOMS.lines().filter_map(|row| row.trim().split_once(": ")).find(|(name, _)| *name == package);
    let floors = row.map_or("", |(_, floors)| floors);
    for room in existing(sources).into_iter().filter(|room| spot(floors, room).is_none()) {
        let at = format!("{}/src/{room}", folder.display());
        findings.breaches.push(format!("{at}: missing in the table of rooms in tidy: add it"));
    }
    for (room, other, at) in imports(sources) {
        if !is_below(floors, other, room) {
            findings.count("upward-import", format!("{package}:{room}->{other}"), at);
        }
    }
}

/// The floor of a room, and its number there. Joined rooms have the same number.
fn spot(floors: &str, room: &str) -> Option<(usize, usize)> {
    floors.split('<').enumerate().find_map(|(floor, rooms)| {
        let number = rooms.split_whitespace().position(|joined| joined.split('+').any(|listed| listed == room))?;
        Some((floor, number))
    })
}

fn is_below(floors: &str, lower: &str, upper: &str) -> bool {
    let (lower, upper) = (spot(floors, lower), spot(floors, upper));
    lower == upper || lower.map(|spot| spot.0) < upper.map(|spot| spot.0)
}

/// The largest group of rooms that all depend on each other, by any way.
pub(crate) fn largest_cycle(sources: &[Source]) -> Vec<&str> {
    let rooms = existing(sources);
    let mut reached: BTreeSet<_> = imports(sources).into_iter().map(|(room, other, _)| (room, other)).collect();
    for between in rooms.iter().copied() {
        let to: Vec<_> = rooms.iter().filter(|room| reached.contains(&(**room, between))).collect();
        let from: Vec<_> = rooms.iter().filter(|room| reached.contains(&(between, **room))).collect();
        reached.extend(to.iter().flat_map(|room| from.iter().map(move |other| (**room, **other))));
    }
    let cycle = |room: &str| -> Vec<_> {
        let is_mutual = |other: &&str| reached.contains(&(room, *other)) && reached.contains(&(*other, room));
        rooms.iter().copied().filter(is_mutual).collect()
    };
    rooms.iter().map(|room| cycle(room)).max_by_key(Vec::len).unwrap_or_default()
}

/// The room that a word stands in.
fn room_of<'a>(source: &'a Source, word: &'a Word) -> Option<&'a str> {
    source.module.first().or(word.inside.first()).map(String::as_str)
}

/// The rooms of a crate.
fn existing(sources: &[Source]) -> BTreeSet<&str> {
    let code = sources.iter().filter(|source| source.kind == Kind::Code);
    let words = code.flat_map(|source| source.words.iter().map(move |word| (source, word)));
    words.filter(|(_, word)| !word.is_test).filter_map(|(source, word)| room_of(source, word)).collect()
}

/// The imports and paths that lead from one room to another: both rooms, and the place.
fn imports(sources: &[Source]) -> Vec<(&str, &str, String)> {
    let existing = existing(sources);
    // What the root re-exports: the room that each name comes from.
    let mut root = BTreeMap::new();
    for source in sources.iter().filter(|source| source.kind == Kind::Code && source.module.is_empty()) {
        for (word, path) in paths(source, &["use"]) {
            if let ([room, .., name], true) = (path.as_slice(), word.inside.is_empty())
                && let Some(room) = existing.get(room.as_str())
            {
                root.insert(name.clone(), *room);
            }
        }
    }
    let mut imports = Vec::new();
    for source in sources.iter().filter(|source| source.kind == Kind::Code) {
        for (word, path) in paths(source, &["crate", "super"]) {
            let (Some(room), Some(first)) = (room_of(source, word), path.first()) else { continue };
            if let Some(other) = existing.get(first.as_str()).or(root.get(first)).filter(|other| **other != room) {
                let place = format!("{}:{}: crate::{}", source.path.display(), word.lines.start(), path.join("::"));
                imports.push((room, *other, place));
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
        // `$crate` in a macro leads there from where the macro is used.
        let is_other = at > 0 && ["::", "$"].contains(&words[at - 1].text.as_str());
        if openings.contains(&word.text.as_str()) && !is_other {
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
    use std::path::PathBuf;

    use super::*;
    use crate::tidy::source;

    fn planted(files: &[(&str, &str)]) -> Vec<Source> {
        let root = "mod low; mod left; mod right; pub mod high; mod tour; mod prelude { pub use super::high::Deep; }\n\
                    pub use high::inner::{Top, Other as Peak};";
        let empty = ["low", "left", "right", "high", "tour"].map(|room| (format!("src/{room}.rs"), "fn f() {}"));
        let empty = empty.iter().map(|(path, text)| (path.as_str(), *text));
        let files = files.iter().map(|(path, text)| (*path, *text));
        let all = empty.chain([("src/lib.rs", root)]).chain(files);
        let all = all.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        source::split(Path::new(""), all.collect()).unwrap()
    }

    /// The imports of a planted crate that do not lead downwards.
    fn upward(files: &[(&str, &str)]) -> Vec<String> {
        let floors = "low < left+right next < high < tour prelude";
        let sources = planted(files);
        let imports = imports(&sources).into_iter();
        let upward = imports.filter(|(room, other, _)| !is_below(floors, other, room));
        upward.map(|(room, other, _)| format!("{room}->{other}")).collect()
    }

    #[test]
    fn a_planted_upward_import_is_found() {
        assert_eq!(upward(&[("src/low.rs", "use crate::high::Thing;")]), ["low->high"]);
        assert_eq!(upward(&[("src/low/a.rs", "fn f() { crate::high::g::<u8>() }")]), ["low->high"]);
        let group = "use crate::{left::a, high::{b, c::*}};";
        assert_eq!(upward(&[("src/low.rs", group)]), ["low->left", "low->high", "low->high"]);
        assert_eq!(upward(&[("src/low/a.rs", "use super::super::high::x;")]), ["low->high"]);
        let nested = "mod b { use super::super::super::high::x; use super::super::high; }";
        assert_eq!(upward(&[("src/low/a.rs", nested)]), ["low->high"]);
        assert_eq!(upward(&[("src/high.rs", "use crate::tour::x;")]), ["high->tour"]);
    }

    #[test]
    fn names_at_the_root_are_resolved() {
        let uses = "use crate::{Top, Unknown}; fn f(_: crate::Peak) {}";
        assert_eq!(upward(&[("src/left.rs", uses)]), ["left->high", "left->high"]);
        assert_eq!(upward(&[("src/left.rs", "use crate::prelude::Deep;")]), ["left->prelude"]);
    }

    #[test]
    fn downward_sideways_and_tests_are_allowed() {
        let files = [
            ("src/high.rs", "use crate::{low::a, left::b, Top};"),
            ("src/left.rs", "use crate::right::x; #[cfg(test)] mod tests { use crate::high::y; }"),
            ("src/right.rs", "use crate::left::x; #[cfg(test)] mod model;"),
            ("src/right/model.rs", "use crate::high::y;"),
            ("src/tour.rs", "use crate::high::y;"),
            (
                "src/low.rs",
                "// crate::high::x\nuse crate::low::{self, z}; const A: &str = \"crate::high::y\";\n\
                 macro_rules! m { () => { $crate::high::x() } }",
            ),
        ];
        assert_eq!(upward(&files), [""; 0]);
    }

    #[test]
    fn the_largest_cycle_is_found() {
        let files = [
            ("src/low.rs", "use crate::left::a;"),
            ("src/left.rs", "use crate::right::x;"),
            ("src/right.rs", "use crate::{low, high};"),
            ("src/high.rs", "use crate::tour::x;"),
            ("src/tour.rs", "use crate::high::y;"),
        ];
        assert_eq!(largest_cycle(&planted(&files)), ["left", "low", "right"]);
        assert_eq!(largest_cycle(&planted(&files[3..])), ["high", "tour"]);
        assert_eq!(largest_cycle(&planted(&files[..2])), [""; 0]);
    }

    #[test]
    fn a_room_that_no_table_lists_is_found() {
        let mut findings = Findings::default();
        check(Path::new("core/farside-mcts"), &planted(&[("src/rng.rs", "use crate::low;")]), &mut findings);
        let attic = findings.breaches.iter().any(|breach| breach.contains("core/farside-mcts/src/left"));
        assert!(attic && !findings.breaches.iter().any(|breach| breach.contains("rng")), "{:?}", findings.breaches);
    }
}
