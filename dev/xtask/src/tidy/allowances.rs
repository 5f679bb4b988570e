//! The breaches that are still allowed, and how often. The numbers may only fall.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::Allowances;

/// The file that lists the allowances.
pub(super) const FILE: &str = "dev/xtask/allowances.txt";

const HEAD: &str = "# Breaches that `cargo xtask tidy` still allows: rule, place, number. A number may only fall:
# `cargo xtask tidy --lower` writes the numbers of today where they are lower.
";

/// Numbers by rule and place.
type Allowed = BTreeMap<(String, String), usize>;

/// Breaches by rule and place: each with its file, line and text.
pub(super) type Found = BTreeMap<(String, String), Vec<String>>;

/// The rules that have allowances, and how to keep them.
const RULES: [(&str, &str); 8] = [
    ("clock", "wait with `farside_testbed::wait_until`, turn a clock, or move the test into a module `timing`"),
    ("columns", "wrap the line at 100 columns"),
    ("encoding-by-hand", "derive `Wire`, or add the file and its reason to ENCODED_BY_HAND in tidy"),
    ("errors-of-others", "list the errors in words"),
    ("phrase", "name the actor, or say it in plain words"),
    ("private-word", "take the word of the field; ARCHITECTURE.md has a glossary"),
    ("pronoun", "begin with the noun or the verb"),
    ("upward-import", "move the item down, or let the upper room pass it in"),
];

/// Compares what was found with the file of allowances: a message for each difference. If they may
/// be lowered, writes the numbers of today where they are lower, and all of them if there is no
/// file.
pub(super) fn check(file: &Path, found: &Found, allowances: Allowances) -> Result<Vec<String>, String> {
    let mut allowed = read(file)?;
    if allowances == Allowances::Lower {
        if !file.exists() {
            allowed = found.iter().map(|(key, places)| (key.clone(), places.len())).collect();
        }
        allowed.iter_mut().for_each(|(key, number)| *number = found.get(key).map_or(0, Vec::len).min(*number));
        allowed.retain(|_, number| *number > 0);
        let lines = allowed.iter().map(|((rule, place), number)| format!("{rule} {place} {number}\n"));
        let text = HEAD.to_owned() + &lines.collect::<String>();
        fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(compare(&allowed, found))
}

/// Reads the file of allowances. A missing file allows nothing.
fn read(file: &Path) -> Result<Allowed, String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let key = (words.next()?.to_owned(), words.next()?.to_owned());
        Some((key, words.next()?.parse().ok()?))
    };
    lines.map(|line| read(line).ok_or_else(|| format!("{}: not an allowance: {line}", file.display()))).collect()
}

/// Compares what was found with what is allowed: a message for each difference.
fn compare(allowed: &Allowed, found: &Found) -> Vec<String> {
    let mut breaches = Vec::new();
    for (key, places) in found {
        let ((rule, place), number) = (key, places.len());
        let limit = allowed.get(key).copied().unwrap_or(0);
        if number > limit {
            let remedy = RULES.iter().find(|(name, _)| name == rule).map_or("", |(_, remedy)| remedy);
            let places: String = places.iter().map(|at| format!("\n      {at}")).collect();
            breaches.push(format!("{rule}: {place}: {number} found, {limit} allowed: {remedy}{places}"));
        }
    }
    for (key, limit) in allowed {
        let ((rule, place), number) = (key, found.get(key).map_or(0, Vec::len));
        if number < *limit {
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

    fn allowed(entries: &[(&str, &str, usize)]) -> Allowed {
        entries.iter().map(|(rule, place, number)| (((*rule).to_owned(), (*place).to_owned()), *number)).collect()
    }

    fn found(entries: &[(&str, &str, usize)]) -> Found {
        let places = |number| (1..=number).map(|line| format!("f.rs:{line}")).collect();
        allowed(entries).into_iter().map(|(key, number)| (key, places(number))).collect()
    }

    #[test]
    fn more_and_fewer_than_allowed_are_both_reported() {
        let allowed = allowed(&[("columns", "a", 2), ("columns", "b", 2), ("columns", "c", 2)]);
        let found = found(&[("columns", "a", 2), ("columns", "b", 3), ("columns", "c", 1), ("phrase", "d", 1)]);
        let breaches = compare(&allowed, &found);
        assert_eq!(breaches.len(), 3, "{breaches:?}");
        assert!(breaches[0].contains("wrap") && breaches[0].contains("f.rs:3"), "{breaches:?}");
        assert!(breaches[2].contains("--lower"), "{breaches:?}");
    }

    #[test]
    fn allowances_fall_and_never_rise() {
        let file = std::env::temp_dir().join(format!("farside-allowances-{}", std::process::id()));
        let found = found(&[("columns", "a", 3), ("columns", "b", 9), ("phrase", "d", 1)]);
        fs::write(&file, "# x\ncolumns a 5\ncolumns b 5\ncolumns c 5\n").unwrap();
        assert_eq!(check(&file, &found, Allowances::Keep).unwrap().len(), 4);
        assert_eq!(check(&file, &found, Allowances::Lower).unwrap().len(), 2);
        let lowered = read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(lowered, allowed(&[("columns", "a", 3), ("columns", "b", 5)]));
        // Without a file the numbers of today are written.
        assert_eq!(check(&file, &found, Allowances::Lower).unwrap(), [""; 0]);
        fs::remove_file(&file).unwrap();
    }
}
