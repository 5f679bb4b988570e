//! The text of a shape, while it is written.

use std::fmt;

use super::{REFERENCE, agree};

/// The words of a text, with marks where types begin and end. Only recursive types keep their
/// marks.
#[derive(Debug, Default)]
pub(super) struct Text {
    words: Vec<Word>,
    /// For each type that has begun, whether the text refers to it.
    is_referred: Vec<bool>,
}

#[derive(Debug)]
enum Word {
    /// A word or a number.
    Plain(String),
    /// A type begins, of this number.
    Begin(usize),
    End(usize),
    /// A type of this number occurs again.
    Again(usize),
}

impl Text {
    pub(super) fn word(&mut self, word: fmt::Arguments<'_>) {
        self.words.push(Word::Plain(word.to_string()));
    }

    /// Begins a type. Returns its number.
    pub(super) fn begin(&mut self) -> usize {
        let number = self.is_referred.len();
        self.is_referred.push(false);
        self.words.push(Word::Begin(number));
        number
    }

    pub(super) fn end(&mut self, number: usize) {
        self.words.push(Word::End(number));
    }

    /// Refers to a type.
    pub(super) fn refer(&mut self, number: usize) {
        self.is_referred[number] = true;
        self.words.push(Word::Again(number));
    }

    /// Returns the words, separated by spaces.
    pub(super) fn finish(self) -> String {
        let Self { words, is_referred } = self;
        let (mut text, mut begun) = (String::new(), Vec::new());
        let mut add = |word: &str| {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(word);
        };
        for word in words {
            match word {
                Word::Plain(word) => add(&word),
                Word::Begin(number) if is_referred[number] => {
                    begun.push(number);
                    add(agree::RECURSIVE);
                }
                Word::End(number) if is_referred[number] => add(agree::RECURSIVE_END),
                Word::Begin(_) | Word::End(_) => {}
                Word::Again(number) => {
                    let later = begun.iter().rev().take_while(|begun| **begun != number).count();
                    add(&format!("{}{later}", REFERENCE));
                }
            }
        }
        text
    }
}
