//! Comments and documents: their width, and phrases that a reader has to parse twice.

/// The columns of a comment line at most.
const COLUMNS_MAX: usize = 100;

/// Phrases that plain English does not need, in lower case.
const PHRASES: [&str; 11] = [
    "so many",
    "nobody",
    "somebody",
    "as there.",
    "see there",
    "one or the other",
    "is of no use",
    "who has",
    "who must",
    "who wants",
    "who waits",
];

/// The number of comment lines beyond the limit. Rows of a table cannot be wrapped, and addresses
/// cannot either.
pub(super) fn wide_comments(source: &str) -> usize {
    let is_wide = |line: &&str| line.chars().count() > COLUMNS_MAX;
    let comments = source.lines().filter(is_wide).filter_map(comment);
    let is_address = |text: &str| text.contains("://") && !text.contains(' ');
    comments.filter(|text| !text.starts_with('|') && !is_address(text)).count()
}

/// How often the phrases stand in the comments of a source.
pub(super) fn phrases_in_comments(source: &str) -> usize {
    // A phrase may go on in the next line of a comment.
    let words: Vec<_> = source.lines().map(|line| comment(line).unwrap_or(".")).collect();
    phrases_in_text(&words.join(" "))
}

/// How often the phrases stand in a text.
pub(super) fn phrases_in_text(text: &str) -> usize {
    let lower = text.to_lowercase();
    let words: Vec<_> = lower.split(|c: char| c.is_whitespace()).filter(|word| !word.is_empty()).collect();
    let text = format!(" {} ", words.join(" "));
    let is_whole = |at: usize, phrase: &str| {
        let (before, after) = (&text[..at], &text[at + phrase.len()..]);
        !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
    };
    let count = |phrase: &&str| text.match_indices(*phrase).filter(|(at, _)| is_whole(*at, phrase)).count();
    PHRASES.iter().map(count).sum()
}

/// The text of a line that is a comment and nothing else.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_counted() {
        let wide = "x".repeat(50) + " " + &"y".repeat(50);
        let source = format!(
            "// {wide}\n    /// {wide}\n//! | {wide} |\n// short\nlet a = \"{wide}\";\n// https://{}",
            "z".repeat(99)
        );
        assert_eq!(wide_comments(&source), 2);
    }

    #[test]
    fn phrases_are_counted_also_across_lines() {
        let source =
            "// Nobody knows, and so\n// many more do not.\nlet nobody = 1;\n/// It is somebody's.\n// as there is\n";
        assert_eq!(phrases_in_comments(source), 3);
        assert_eq!(phrases_in_text("Who\nwaits, says who must. Whoever has it."), 2);
    }
}
