//! A comparison of the texts of two shapes.
//!
//! Both are read word by word, in step. A recursive type is entered where it stands, and again
//! where it is referred to. If both sides enter a type at the same time, and have entered this pair
//! before, then the two types are taken to agree: the first time finds out whether they do.

use std::collections::HashSet;

use super::{EXTENSIBLE, EXTENSIBLE_END, REFERENCE};

/// The words around a recursive type.
pub(super) const RECURSIVE: &str = "rec{";
pub(super) const RECURSIVE_END: &str = "}rec";

/// The number of times that the words of both texts may be read. Types that begin their recursions
/// elsewhere are read more than once; what takes longer does not agree.
const READINGS_MAX: usize = 4;

/// The words of a text.
struct Words<'t> {
    words: Vec<&'t str>,
    /// For each word, the number of recursive types that begin before it.
    begun: Vec<usize>,
    /// The beginning and the end of each recursive type.
    types: Vec<(usize, usize)>,
}

/// A side of the comparison.
struct Side<'t> {
    text: &'t Words<'t>,
    next: usize,
    /// The types that are entered.
    inside: Vec<Inside>,
}

/// A recursive type that is entered.
#[derive(Clone, Copy)]
struct Inside {
    /// The word after it.
    after: usize,
    /// The number of the pair if the other side entered a type at the same time.
    pair: Option<usize>,
}

/// The next word of a side.
enum Next<'t> {
    Word(&'t str),
    /// A recursive type, of this number, and the word after it.
    Type(usize, usize),
    End,
    /// The text is no description.
    Broken,
}

pub(super) fn agree(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let (Some(one), Some(other)) = (Words::of(one), Words::of(other)) else { return false };
    let readings = READINGS_MAX * (one.words.len() + other.words.len() + 1);
    let [mut one, mut other] = [&one, &other].map(|text| Side { text, next: 0, inside: Vec::new() });
    let mut assumed = HashSet::new();
    for _ in 0..readings {
        if !leave_together(&mut one, &mut other) {
            return false;
        }
        match (one.next(), other.next()) {
            (Next::End, Next::End) => return true,
            (Next::Type(a, after_a), Next::Type(b, after_b)) => {
                if assumed.insert((a, b)) {
                    let pair = Some(assumed.len());
                    one.enter(a, after_a, pair);
                    other.enter(b, after_b, pair);
                } else {
                    (one.next, other.next) = (after_a, after_b);
                }
            }
            (Next::Type(a, after), Next::Word(_)) => one.enter(a, after, None),
            (Next::Word(_), Next::Type(b, after)) => other.enter(b, after, None),
            (Next::Word(a), Next::Word(b)) if a == b => {
                one.next += 1;
                other.next += 1;
            }
            (Next::Word(EXTENSIBLE_END), Next::Word(_)) => {
                if !other.skip_fields() {
                    return false;
                }
            }
            (Next::Word(_), Next::Word(EXTENSIBLE_END)) => {
                if !one.skip_fields() {
                    return false;
                }
            }
            _ => return false,
        }
    }
    false
}

/// Leaves the types that end here. Returns whether types that were entered together end together.
fn leave_together(one: &mut Side<'_>, other: &mut Side<'_>) -> bool {
    loop {
        one.leave_alone();
        other.leave_alone();
        match (one.ending(), other.ending()) {
            (None, None) => return true,
            (Some(a), Some(b)) if a.pair == b.pair => {
                one.leave();
                other.leave();
            }
            // One of them ends before the other.
            _ => return false,
        }
    }
}

impl<'t> Words<'t> {
    /// Splits a text into words. Returns `None` if its recursive types are not nested.
    fn of(text: &'t str) -> Option<Self> {
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        let (mut begun, mut types, mut open) = (Vec::new(), Vec::new(), Vec::new());
        for (place, word) in words.iter().enumerate() {
            begun.push(types.len());
            match *word {
                RECURSIVE => {
                    open.push(types.len());
                    types.push((place, usize::MAX));
                }
                RECURSIVE_END => types[open.pop()?].1 = place,
                _ => {}
            }
        }
        open.is_empty().then_some(Self { words, begun, types })
    }

    fn next(&self, place: usize) -> Next<'t> {
        let Some(&word) = self.words.get(place) else { return Next::End };
        if word == RECURSIVE {
            let number = self.begun[place];
            return Next::Type(number, self.types[number].1 + 1);
        }
        let Some(later) = word.strip_prefix(REFERENCE) else { return Next::Word(word) };
        let number = later.parse().ok().and_then(|later: usize| self.begun[place].checked_sub(later)?.checked_sub(1));
        number.map_or(Next::Broken, |number| Next::Type(number, place + 1))
    }
}

impl<'t> Side<'t> {
    fn next(&self) -> Next<'t> {
        self.text.next(self.next)
    }

    fn enter(&mut self, number: usize, after: usize, pair: Option<usize>) {
        self.inside.push(Inside { after, pair });
        self.next = self.text.types[number].0 + 1;
    }

    /// The type that ends here.
    fn ending(&self) -> Option<Inside> {
        let ends = self.text.words.get(self.next) == Some(&RECURSIVE_END);
        self.inside.last().copied().filter(|_| ends)
    }

    fn leave(&mut self) {
        if let Some(Inside { after, .. }) = self.inside.pop() {
            self.next = after;
        }
    }

    /// Leaves the types that end here and that this side has entered alone.
    fn leave_alone(&mut self) {
        while self.ending().is_some_and(|inside| inside.pair.is_none()) {
            self.leave();
        }
    }

    /// Skips the fields up to the end of the extensible struct. Returns whether it ends within the
    /// type that was entered last.
    fn skip_fields(&mut self) -> bool {
        let (mut structs, mut types) = (0_u32, 0_u32);
        while let Some(&word) = self.text.words.get(self.next) {
            match word {
                EXTENSIBLE => structs += 1,
                EXTENSIBLE_END if structs == 0 => return types == 0,
                EXTENSIBLE_END => structs -= 1,
                RECURSIVE => types += 1,
                RECURSIVE_END if types == 0 => return false,
                RECURSIVE_END => types -= 1,
                _ => {}
            }
            self.next += 1;
        }
        false
    }
}
