//! What is still allowed, and how often. The numbers may only fall.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The file that lists the allowances.
pub(super) const FILE: &str = "dev/xtask/allowances.txt";

const HEAD: &str = "# Breaches that `cargo xtask tidy` still allows: rule, place, number. A number may only fall:
# `cargo xtask tidy --lower` writes the numbers of today where they are lower.
";

/// Numbers by rule and place.
pub(super) type Counts = BTreeMap<(String, String), usize>;

/// Reads the file of allowances. A missing file allows nothing.
pub(super) fn read(file: &Path) -> Result<Counts, String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let key = (words.next()?.to_owned(), words.next()?.to_owned());
        Some((key, words.next()?.parse().ok()?))
    };
    lines.map(|line| read(line).ok_or_else(|| format!("{}: not an allowance: {line}", file.display()))).collect()
}

/// Lowers each allowance to what was found, and writes the file.
pub(super) fn lower(file: &Path, allowed: &Counts, found: &Counts) -> Result<(), String> {
    let lowered = allowed.iter().map(|(key, allowed)| (key, *found.get(key).unwrap_or(&0).min(allowed)));
    let lines =
        lowered.filter(|(_, number)| *number > 0).map(|((rule, place), number)| format!("{rule} {place} {number}\n"));
    let text = HEAD.to_owned() + &lines.collect::<String>();
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Compares what was found with what is allowed: one line for each difference.
pub(super) fn compare(allowed: &Counts, found: &Counts) -> Vec<String> {
    let mut breaches = Vec::new();
    for ((rule, place), number) in found {
        let limit = allowed.get(&(rule.clone(), place.clone())).copied().unwrap_or(0);
        if *number > limit {
            breaches.push(format!("{rule}: {place}: {number} found, {limit} allowed"));
        }
    }
    for (key, limit) in allowed {
        let number = found.get(key).copied().unwrap_or(0);
        if number < *limit {
            let (rule, place) = key;
            breaches.push(format!(
                "{rule}: {place}: {limit} allowed, but only {number} found: run `cargo xtask tidy --lower`"
            ));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(entries: &[(&str, &str, usize)]) -> Counts {
        entries.iter().map(|(rule, place, number)| (((*rule).to_owned(), (*place).to_owned()), *number)).collect()
    }

    #[test]
    fn more_and_fewer_than_allowed_are_both_reported() {
        let allowed = counts(&[("columns", "a", 2), ("columns", "b", 2), ("columns", "c", 2)]);
        let found = counts(&[("columns", "a", 2), ("columns", "b", 3), ("columns", "c", 1), ("phrases", "d", 1)]);
        let breaches = compare(&allowed, &found);
        assert_eq!(breaches.len(), 3, "{breaches:?}");
        assert!(breaches[2].contains("--lower"), "{breaches:?}");
    }

    #[test]
    fn allowances_fall_and_never_rise() {
        let file = std::env::temp_dir().join(format!("farside-allowances-{}", std::process::id()));
        let allowed = counts(&[("columns", "a", 5), ("columns", "b", 5), ("columns", "c", 5)]);
        lower(&file, &allowed, &counts(&[("columns", "a", 3), ("columns", "b", 9), ("phrases", "d", 1)])).unwrap();
        let read = read(&file);
        fs::remove_file(&file).unwrap();
        assert_eq!(read.unwrap(), counts(&[("columns", "a", 3), ("columns", "b", 5)]));
    }
}
