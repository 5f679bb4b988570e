//! The lines of code of each layer: the table of Seriema §5.3, for this project.

use std::fs;
use std::path::Path;

use crate::tidy::collect_sources;

/// The layers: a name, the figure of the seed for the same layer if it has one, and the folders and
/// files. A file belongs to the layer with the longest path that contains it.
const LAYERS: [(&str, &str, &[&str]); 10] = [
    ("the game: Hex by its rules", "200", &["apps/farside-mcts/src/games/hex"]),
    ("knowledge of Hex beyond the rules", "–", &["apps/farside-mcts/src/games/hex/connections", INFERIOR]),
    ("the protocol of a Hex engine", "–", &["apps/farside-mcts/src/games/hex/htp"]),
    ("other games", "–", &["apps/farside-mcts/src/games"]),
    ("tree nodes", "475", &["apps/farside-mcts/src/tree"]),
    ("the search of several workers", "210", &["apps/farside-mcts/src/search/job"]),
    ("the search in one thread, parameters, reports", "–", &["apps/farside-mcts/src"]),
    ("calls and jobs", "", &["core/farside/src", "core/farside-macros/src"]),
    ("moving bytes", "", &["core/farside-fabric/src"]),
    ("the operating system", "", &["core/farside-sys/src"]),
];
const INFERIOR: &str = "apps/farside-mcts/src/games/hex/inferior";
/// The number of layers at the end that the seed counts together.
const BELOW: usize = 3;
const SEED_BELOW: &str = "10,050";

/// The lines of a layer that are not empty, and the comments among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    lines: usize,
    comments: usize,
}

/// Prints the table in Markdown.
pub(crate) fn print() -> Result<(), String> {
    let mut sources = Vec::new();
    for root in ["core", "services", "apps", "dev"] {
        collect_sources(Path::new(root), &mut sources);
    }
    let mut counts = [Count::default(); LAYERS.len()];
    for source in sources.iter().filter(|source| !is_test(source)) {
        let text = fs::read_to_string(source).map_err(|error| format!("{}: {error}", source.display()))?;
        if let Some(layer) = layer_of(source) {
            let found = count(&text);
            counts[layer].lines += found.lines;
            counts[layer].comments += found.comments;
        }
    }
    if counts.iter().any(|count| count.lines == 0) {
        return Err("cannot count lines: a layer has none; run the command from the root of the project, or correct the paths of the layer".to_owned());
    }
    println!("| layer | lines | of these comments | Seriema |\n|---|---|---|---|");
    for ((name, seed, _), count) in LAYERS.iter().zip(&counts).take(LAYERS.len() - BELOW) {
        println!("| {name} | {} | {} | {seed} |", count.lines, count.comments);
    }
    for ((name, ..), count) in LAYERS.iter().zip(&counts).skip(LAYERS.len() - BELOW) {
        println!("| below: {name} | {} | {} | {SEED_BELOW} in all |", count.lines, count.comments);
    }
    let sum = |counts: &[Count]| counts.iter().map(|count| count.lines).sum::<usize>();
    let (search, all) = (sum(&counts[..LAYERS.len() - BELOW]), sum(&counts));
    println!("\nSearch and games are {} % of {all} lines.", (100 * search + all / 2) / all);
    Ok(())
}

/// Returns the layer with the longest path that contains the file.
fn layer_of(source: &Path) -> Option<usize> {
    let length = |layer: &usize| {
        let paths = LAYERS[*layer]
            .2
            .iter()
            .filter(|path| source.starts_with(path) || source == Path::new(path).with_extension("rs"));
        paths.map(|path| path.len()).max()
    };
    (0..LAYERS.len()).filter(|layer| length(layer).is_some()).max_by_key(length)
}

/// Returns whether a file belongs to tests, benches or examples.
fn is_test(source: &Path) -> bool {
    let name = |part: &std::ffi::OsStr| {
        part.to_str().is_some_and(|part| ["tests", "tests.rs", "benches", "examples", "brute_force.rs"].contains(&part))
    };
    source.iter().any(name)
}

/// Counts the lines up to the tests at the end of a file.
fn count(text: &str) -> Count {
    let mut found = Count::default();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let opens_tests = lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if line == "#[cfg(test)]" && opens_tests {
            break;
        }
        found.lines += 1;
        found.comments += usize::from(line.starts_with("//"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_empty_lines_do_not_count() {
        let text = "//! What.\n\nfn f() {\n\n    // Why.\n    g();\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        assert_eq!(count(text), Count { lines: 5, comments: 2 });
        assert_eq!(count("#[cfg(test)]\nmod tests;\nfn f() {}\n"), Count { lines: 3, comments: 0 });
    }

    #[test]
    fn a_file_belongs_to_the_innermost_layer() {
        let layer = |path: &str| layer_of(Path::new(path)).map(|layer| LAYERS[layer].0);
        assert_eq!(layer("apps/farside-mcts/src/games/hex.rs"), Some(LAYERS[0].0));
        assert_eq!(layer("apps/farside-mcts/src/games/hex/connections.rs"), Some(LAYERS[1].0));
        assert_eq!(layer("apps/farside-mcts/src/games/other.rs"), Some(LAYERS[3].0));
        assert_eq!(layer("apps/farside-mcts/src/search/job/part.rs"), Some(LAYERS[5].0));
        assert_eq!(layer("apps/farside-mcts/src/search/local.rs"), Some(LAYERS[6].0));
        assert_eq!(layer("apps/farside-cli/src/main.rs"), None);
    }
}
