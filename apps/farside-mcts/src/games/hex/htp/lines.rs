//! Splits bytes into lines.

/// Maximum length of a line; the rest of a longer one is dropped.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;

/// Splits a stream of bytes into lines.
///
/// A line ends with a line feed. Other control characters and bytes that are not UTF-8 do no harm.
/// Only the beginning of a long line is kept, so the memory for it is bounded.
///
/// ```
/// use farside_mcts::games::hex::htp::Lines;
///
/// let mut lines = Lines::default();
/// lines.push(b"name\r\ngenm");
/// assert_eq!(lines.pop().unwrap().text, "name");
/// assert_eq!(lines.pop(), None);
/// lines.push(b"ove\tb");
/// assert_eq!(lines.pop(), None);
/// assert_eq!(lines.finish().unwrap().text, "genmove b");
/// ```
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// True if bytes of the current line were dropped.
    is_cut: bool,
    whole: std::collections::VecDeque<Line>,
}

/// A line without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// The text. Tabs are replaced by spaces, other control characters are removed.
    pub text: String,
    /// True if the line was too long, so that this is only its beginning.
    pub is_cut: bool,
}

impl Lines {
    /// Adds bytes in pieces of any size.
    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                let line = self.take();
                self.whole.push_back(line);
            } else if self.bytes.len() < LINE_BYTES_MAX {
                self.bytes.push(byte);
            } else {
                self.is_cut = true;
            }
        }
    }

    /// Returns the next complete line.
    pub fn pop(&mut self) -> Option<Line> {
        self.whole.pop_front()
    }

    /// Returns the last line if the input ended inside it. Take the complete lines first.
    pub fn finish(mut self) -> Option<Line> {
        (!self.bytes.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> Line {
        let text = Line::clean(&String::from_utf8_lossy(&self.bytes));
        self.bytes.clear();
        Line { text, is_cut: std::mem::take(&mut self.is_cut) }
    }
}

impl Line {
    /// Returns whether this line is the comment that ends a search.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        self.text.trim().strip_prefix('#').is_some_and(|comment| comment.trim() == "interrupt")
    }

    fn clean(text: &str) -> String {
        let spaced = text.chars().map(|c| if c == '\t' { ' ' } else { c });
        spaced.filter(|c| !c.is_control()).collect()
    }
}

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        Self { text: Self::clean(text), is_cut: false }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<Line> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            lines.push(piece);
            found.extend(std::iter::from_fn(|| lines.pop()));
        }
        found.extend(lines.finish());
        found
    }

    #[test]
    fn control_characters_are_dropped() {
        let texts: Vec<_> = all(&[b"a\r\n\0b\x07\x7f\tc\n\n\xffd"]).into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["a", "b c", "", "\u{fffd}d"]);
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_is_whole() {
        for (extra, is_cut) in [(0, false), (1, true), (1 << 20, true)] {
            let long = vec![b'x'; LINE_BYTES_MAX + extra];
            let lines = all(&[&long, b"\nname\n"]);
            assert_eq!((lines.len(), lines[0].text.len(), lines[0].is_cut), (2, LINE_BYTES_MAX, is_cut));
            assert_eq!(lines[1], "name".into());
        }
    }

    #[test]
    fn an_interrupt_is_a_comment() {
        for text in ["# interrupt", "#interrupt", " #  interrupt "] {
            assert!(Line::from(text).is_interrupt(), "{text}");
        }
        for text in ["interrupt", "# interrupted", "name # interrupt", "#", ""] {
            assert!(!Line::from(text).is_interrupt(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_bytes_come(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0..300_usize) {
            let at = at.min(bytes.len());
            let whole = all(&[&bytes]);
            prop_assert_eq!(&all(&[&bytes[..at], &bytes[at..]]), &whole);
            let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
            prop_assert_eq!(whole.len(), ends + usize::from(bytes.last().is_some_and(|byte| *byte != b'\n')));
        }
    }
}
