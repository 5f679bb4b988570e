//! The form of commands and answers.

use std::fmt::Write;

/// A command: an optional id, a name, and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) id: Option<u32>,
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
}

/// Maximum length of a quotation in an answer.
const QUOTED_CHARS_MAX: usize = 40;

impl Command {
    /// Reads a line. Returns `None` if it is empty or a comment.
    pub(super) fn read(line: &str) -> Option<Self> {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let mut name = words.next()?;
        let mut id = None;
        if name.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(number) = name.parse()
        {
            id = Some(number);
            // An id alone is a command with an empty name, which no command has.
            name = words.next().unwrap_or_default();
        }
        Some(Self { id, name: name.into(), arguments: words.map(Into::into).collect() })
    }
}

/// Returns the answer to a command: `=` or `?`, the id, a space, the text, and an empty line. Empty
/// lines inside the text are removed.
pub(super) fn framed(id: Option<u32>, result: &Result<String, String>) -> String {
    let (sign, text) = match result {
        Ok(text) => ('=', text),
        Err(text) => ('?', text),
    };
    let mut frame = String::from(sign);
    if let Some(id) = id {
        let _ = write!(frame, "{id}");
    }
    frame.push(' ');
    push_block(&mut frame, text);
    frame
}

/// Returns a block that a front end shows next to the answers.
pub(super) fn gfx(kind: &str, text: &str) -> String {
    let mut block = format!("gogui-gfx:\n{kind}\n");
    push_block(&mut block, text);
    block
}

fn push_block(block: &mut String, text: &str) {
    for (line, number) in text.split('\n').zip(0..) {
        // A line of control characters alone becomes empty, so this comes before the check.
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        let line = line.trim_end();
        // The first line follows the sign and may be empty.
        if number > 0 && line.is_empty() {
            continue;
        }
        if number > 0 {
            block.push('\n');
        }
        block.push_str(line);
    }
    block.push_str("\n\n");
}

/// Returns the beginning of a text from the front end, for quotation in an answer.
pub(super) fn quoted(text: &str) -> String {
    let mut chars = text.chars();
    let beginning: String = chars.by_ref().take(QUOTED_CHARS_MAX).collect();
    if chars.next().is_some() { format!("{beginning}...") } else { beginning }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn command(id: Option<u32>, name: &str, arguments: &[&str]) -> Option<Command> {
        Some(Command { id, name: name.into(), arguments: arguments.iter().map(|&word| word.into()).collect() })
    }

    #[test]
    fn commands_have_ids_names_and_arguments() {
        assert_eq!(Command::read("name"), command(None, "name", &[]));
        assert_eq!(Command::read("  7  play  b   a1 # the corner"), command(Some(7), "play", &["b", "a1"]));
        assert_eq!(Command::read("12"), command(Some(12), "", &[]));
        assert_eq!(Command::read("4294967296 name"), command(None, "4294967296", &["name"]));
        for line in ["", "   ", "#", " # name", "#name"] {
            assert_eq!(Command::read(line), None, "{line}");
        }
    }

    #[test]
    fn answers_end_with_the_only_empty_line() {
        assert_eq!(framed(None, &Ok(String::new())), "= \n\n");
        assert_eq!(framed(Some(3), &Ok("a1".into())), "=3 a1\n\n");
        assert_eq!(framed(None, &Ok("\n  a b\n\n 1 . .\n".into())), "= \n  a b\n 1 . .\n\n");
        assert_eq!(framed(None, &Err("no\r\0".into())), "? no\n\n");
        assert_eq!(framed(None, &Err("no\n\0\nsuch \u{85}\nfile".into())), "? no\nsuch\nfile\n\n");
        assert_eq!(gfx("uct", "VAR B a1\n\nTEXT x\n"), "gogui-gfx:\nuct\nVAR B a1\nTEXT x\n\n");
    }

    #[test]
    fn long_texts_are_quoted_in_part() {
        assert_eq!(quoted("genmove"), "genmove");
        assert_eq!(quoted(&"ö".repeat(1000)), format!("{}...", "ö".repeat(QUOTED_CHARS_MAX)));
    }

    proptest! {
        #[test]
        fn any_text_is_framed(text in "[\\n\\x00 a]{0,20}|\\PC{0,40}", is_good in any::<bool>(), id in any::<Option<u32>>()) {
            let frame = framed(id, &if is_good { Ok(text) } else { Err(text) });
            prop_assert!(frame.ends_with("\n\n") && !frame.trim_end_matches("\n\n").contains("\n\n"), "{:?}", frame);
            prop_assert_eq!(frame.starts_with('='), is_good);
        }

        #[test]
        fn any_line_is_read(line in any::<String>()) {
            if let Some(command) = Command::read(&line) {
                prop_assert!(command.id.is_some() || !command.name.is_empty());
            }
        }
    }
}
