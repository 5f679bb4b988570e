//! The lines of each crate: code, tests, comments and examples. Each item counts for itself.

use std::path::Path;

use crate::tidy::rooms::largest_cycle;
use crate::tidy::source::{count, read_crate};
use crate::tidy::{crate_folders, known};

/// The layers of the search on a job, for comparison with the table of Seriema §5.3: a name, its
/// figure for the layer if it has one, and the paths. A file belongs to the longest path.
const LAYERS: [(&str, &str, &[&str]); 10] = [
    ("the game: Hex by its rules", "200", &["apps/farside-mcts/src/games/hex"]),
    ("knowledge of Hex beyond the rules", "–", &["apps/farside-mcts/src/games/hex/connections", INFERIOR]),
    ("the protocol of a Hex engine", "–", &["apps/farside-mcts/src/games/hex/htp"]),
    ("other games", "–", &["apps/farside-mcts/src/games"]),
    ("tree nodes", "475", &["apps/farside-mcts/src/tree"]),
    ("the search of several workers", "210", &["apps/farside-mcts/src/search/job"]),
    ("the search in one thread, parameters, reports", "–", &["apps/farside-mcts/src"]),
    ("below: calls and jobs", "10,050 in all", &["core/farside/src", "core/farside-macros/src"]),
    ("below: moving bytes", "10,050 in all", &["core/farside-fabric/src"]),
    ("below: the operating system", "10,050 in all", &["core/farside-sys/src"]),
];
const INFERIOR: &str = "apps/farside-mcts/src/games/hex/inferior";

/// Prints both tables in Markdown.
pub(crate) fn print() -> Result<(), String> {
    let (mut sum, mut layers) = ([0; 4], [0; LAYERS.len()]);
    println!("| crate | code | budget | tests | examples | comments | largest cycle of rooms |");
    println!("|---|---|---|---|---|---|---|");
    for folder in crate_folders() {
        let sources = read_crate(&folder)?;
        let lines @ [code, tests, examples, comments] = count(&sources);
        let budget = known(&folder).map_or(0, |known| known.code);
        let (folder, cycle) = (folder.display(), largest_cycle(&sources).join(" "));
        println!("| {folder} | {code} | {budget} | {tests} | {examples} | {comments} | {cycle} |");
        sum.iter_mut().zip(lines).for_each(|(sum, lines)| *sum += lines);
        for source in &sources {
            if let Some(layer) = layer_of(&source.path) {
                layers[layer] += count([source])[0];
            }
        }
    }
    println!("| all | {} | | {} | {} | {} | |", sum[0], sum[1], sum[2], sum[3]);
    println!("\n| layer of the search on a job | code | Seriema |\n|---|---|---|");
    for ((name, seed, _), code) in LAYERS.iter().zip(layers) {
        println!("| {name} | {code} | {seed} |");
    }
    Ok(())
}

/// Returns the layer with the longest path that contains the file.
fn layer_of(source: &Path) -> Option<usize> {
    let contains = |path: &&&str| source.starts_with(path) || source == Path::new(path).with_extension("rs");
    let length = |layer: &usize| LAYERS[*layer].2.iter().filter(contains).map(|path| path.len()).max();
    (0..LAYERS.len()).filter(|layer| length(layer).is_some()).max_by_key(length)
}

#[cfg(test)]
mod tests {
    use super::*;

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
