//! Comments and documents: their width, words that a reader has to parse twice, and the rules that
//! they cite.

use std::collections::BTreeSet;

/// The columns of a line of prose at most.
const COLUMNS_MAX: usize = 100;

/// Phrases that plain English does not need, in lower case.
pub(super) const PHRASES: &str = "so many|nobody|somebody|as there.|see there|one or the other|is of no use|\
                                  who has|who must|who wants|who waits";

/// Words of the project's making, or with a plainer word that fits everywhere. Words that plain
/// English or the field needs in other senses are left to readers: hold, want, letter, lane (of a
/// vector), aside (set aside), announced, lead, follow.
pub(super) const PRIVATE: &str = "errand|errands|told|beside";

/// The beginnings of comments that say no noun and no verb.
const OPENINGS: [&str; 3] = ["What ", "Whether ", "The same of "];

/// The line of a breach, and what is there.
type Breach = (usize, String);

/// The text of each line that is a comment and nothing else.
pub(super) fn comments(source: &str) -> Vec<Option<&str>> {
    source.lines().map(comment).collect()
}

fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

/// Takes the examples out of comments or of the lines of a document.
pub(super) fn without_examples(mut lines: Vec<Option<&str>>) -> Vec<Option<&str>> {
    let mut is_example = false;
    for line in &mut lines {
        let is_fence = line.is_some_and(|line| line.trim_start().starts_with("```"));
        is_example = line.is_some() && is_example != is_fence;
        *line = line.filter(|_| !is_example && !is_fence);
    }
    lines
}

/// The lines beyond the limit that can be wrapped: no rows of tables, and no addresses.
pub(super) fn wide(text: &str, lines: &[Option<&str>]) -> Vec<Breach> {
    let can_wrap =
        |line: &str| !line.trim_start().starts_with('|') && line.split(' ').all(|word| word.len() < COLUMNS_MAX - 10);
    let columns = text.lines().map(|line| line.chars().count()).zip(lines).zip(1..);
    let wide = columns.filter(|((columns, line), _)| *columns > COLUMNS_MAX && line.is_some_and(can_wrap));
    wide.map(|((columns, _), number)| (number, format!("{columns} columns"))).collect()
}

/// Running text in lower case.
pub(super) struct Prose {
    text: String,
    /// Where each word begins in the text, and its line.
    words: Vec<(usize, usize)>,
}

impl Prose {
    /// Joins lines. `None` separates texts. `with_code` keeps what stands between backticks.
    pub(super) fn new(lines: &[Option<&str>], with_code: bool) -> Self {
        let (mut prose, mut is_code) = (Self { text: " ".to_owned(), words: Vec::new() }, false);
        for (line, number) in lines.iter().zip(1..) {
            let Some(line) = line.filter(|line| !line.is_empty()) else {
                is_code = false;
                prose.text.push_str(". ");
                continue;
            };
            for (part, text) in line.split('`').enumerate() {
                is_code ^= part > 0;
                let text = if is_code && !with_code { "_" } else { text };
                for word in text.split_whitespace() {
                    prose.words.push((prose.text.len(), number));
                    prose.text.push_str(&word.to_lowercase());
                    prose.text.push(' ');
                }
            }
        }
        prose
    }

    /// The lines at which phrases begin, and the phrases.
    pub(super) fn find(&self, phrases: &str) -> Vec<Breach> {
        let is_whole = |at: usize, phrase: &str| {
            let (before, after) = (&self.text[..at], &self.text[at + phrase.len()..]);
            !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
        };
        let line = |at: usize| self.words[self.words.partition_point(|(from, _)| *from <= at) - 1].1;
        let found = phrases.split('|').flat_map(|phrase| self.text.match_indices(phrase));
        let whole = found.filter(|(at, phrase)| is_whole(*at, phrase));
        whole.map(|(at, phrase)| (line(at), phrase.to_owned())).collect()
    }

    /// The lines and numbers of rules of the memory model that are cited: in its own text all
    /// numbers; elsewhere those shortly after its name or behind the word "rule".
    pub(super) fn citations(&self, is_model: bool) -> Vec<Breach> {
        let names = ["memory model", "memory-model"].map(|name| self.text.match_indices(name));
        let names: Vec<_> = names.into_iter().flatten().map(|(at, _)| at).collect();
        let is_cited = |at: usize| {
            let behind_rule = [" rule ", " (rule ", " rules "].iter().any(|rule| self.text[..at].ends_with(rule));
            is_model || behind_rule || names.iter().any(|name| (*name..*name + 60).contains(&at))
        };
        let words = self.words.iter().filter(|(at, _)| is_cited(*at));
        words.filter_map(|(at, line)| Some((*line, rule_number(self.text[*at..].split(' ').next()?)?))).collect()
    }
}

/// The number of a rule, such as `4.2`, with nothing but punctuation around it.
fn rule_number(word: &str) -> Option<String> {
    let number = word.trim_matches(|c: char| c.is_ascii_punctuation());
    let (section, rule) = number.split_once('.')?;
    let is_number = |part: &str| (1..=2).contains(&part.len()) && part.chars().all(|c| c.is_ascii_digit());
    (is_number(section) && is_number(rule)).then(|| number.to_owned())
}

/// The numbers of the rules in the text of the memory model.
pub(super) fn rules_of_model(text: &str) -> BTreeSet<String> {
    let (mut rules, mut section) = (BTreeSet::new(), "");
    for line in text.lines() {
        let number = line.trim_start_matches("## ").split_once(". ").map_or("", |(number, _)| number);
        if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit()) {
            continue;
        }
        if line.starts_with("## ") {
            section = number;
        } else {
            rules.insert(format!("{section}.{number}"));
        }
    }
    rules
}

/// The comments that document an item and begin with a pronoun.
pub(super) fn pronoun_openings(source: &str) -> Vec<Breach> {
    let kind = |line: &str| ["///", "//!"].into_iter().find(|kind| line.trim_start().starts_with(kind));
    let (mut found, mut before) = (Vec::new(), None);
    for (line, number) in source.lines().zip(1..) {
        let text = comment(line).unwrap_or_default();
        if kind(line).is_some() && kind(line) != before && OPENINGS.iter().any(|opening| text.starts_with(opening)) {
            found.push((number, text.to_owned()));
        }
        before = kind(line);
    }
    found
}

/// The sections on errors that name another function instead of errors.
pub(super) fn borrowed_errors(comments: &[Option<&str>]) -> Vec<Breach> {
    let is_section = |at: &usize| comments[*at] == Some("# Errors");
    let text = |at: usize| (at + 1..comments.len()).find(|next| comments[*next] != Some(""));
    let sections = (0..comments.len()).filter(is_section).filter_map(text);
    let texts = sections.filter_map(|at| Some((at + 1, comments[at]?.to_owned())));
    texts.filter(|(_, text)| text.starts_with("Those of ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: Vec<Breach>) -> Vec<usize> {
        found.into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn wide_lines_are_found() {
        let long = "x".repeat(50) + " " + &"y".repeat(50);
        let source = format!(
            "// {long}\n    /// {long}\n//! | {long} |\n// short\nlet a = \"{long}\";\n// https://{}",
            "z".repeat(99)
        );
        assert_eq!(lines(wide(&source, &comments(&source))), [1, 2]);
        let document = format!("{long}\n| {long} |\n[a](http://{})\n```text\n{long}\n```\n- {long}\n", "z".repeat(99));
        assert_eq!(lines(wide(&document, &without_examples(document.lines().map(Some).collect()))), [1, 7]);
    }

    #[test]
    fn phrases_are_found_also_across_lines() {
        let source = "// Nobody knows, and so\n// many more `who has` do not.\nlet nobody = 1;\n/// It is somebody's.\n\
                      // as there is\n// ```\n// nobody\n";
        let found = |text| Prose::new(&without_examples(text), false).find(PHRASES);
        assert_eq!(lines(found(comments(source))), [1, 1, 4]);
        assert_eq!(found(vec![Some("Who"), Some("waits, says who must."), Some("Whoever has it.")]).len(), 2);
    }

    #[test]
    fn citations_are_compared_with_the_rules() {
        let model = "# M\n\n## 1. A\n\n1. **One**: as 1.2 says.\n2. Two\n   (2.10).\n\n## 2. B\n\n10. Ten\n";
        assert_eq!(rules_of_model(model).into_iter().collect::<Vec<_>>(), ["1.1", "1.2", "2.10"]);
        let lines: Vec<_> = model.lines().map(Some).collect();
        let cited: Vec<_> = Prose::new(&lines, true).citations(true).into_iter().map(|(_, rule)| rule).collect();
        assert_eq!(cited, ["1.2", "2.10"]);
        let source =
            "// Takes 0.5 s (rule 3.1 of the memory\n// model). See `docs/memory-model.md`, 4.2.\n\nlet a = 5.5;";
        assert_eq!(Prose::new(&comments(source), true).citations(false), [(1, "3.1".into()), (2, "4.2".into())]);
    }

    #[test]
    fn openings_and_borrowed_errors_are_found() {
        let source = "/// What it is.\n/// Whether.\nfn a() {}\n// What for?\n//! Whether b.\n/// It.\n///\n/// # Errors\n///\n\
                      /// Those of [`a`].\n/// # Errors\n/// The file.\n";
        assert_eq!(lines(pronoun_openings(source)), [1, 5]);
        assert_eq!(lines(borrowed_errors(&comments(source))), [10]);
    }
}
