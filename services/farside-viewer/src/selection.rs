//! [`Selection`]: which elements of an area are wanted, by the rules of numpy.

use std::fmt;
use std::str::FromStr;

use farside_inspect::__private::spans::Span;

/// Which elements of an area are wanted.
///
/// The text has a list in brackets, with numpy's rules for basic slices:
///
/// | text | meaning |
/// |---|---|
/// | nothing, `[]` or `[...]` | all |
/// | `[3]`, `[-1]` | the fourth place, the last one. The dimension goes away |
/// | `[10:20]`, `[:-1]` | a range. What lies beyond the area is cut off |
/// | `[::4]` | every fourth place. Steps are above 0 |
/// | `[..., 0]` | place 0 of the last dimension |
///
/// Dimensions that are not named are whole.
///
/// ```
/// use farside_viewer::Selection;
///
/// let selection: Selection = "[10:20, ::4]".parse()?;
/// assert_eq!(selection.of(&[100, 6])?.shape(), [10, 2]);
/// # Ok::<(), farside_viewer::SelectionError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection(Vec<Index>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    Place(i64),
    Slice { start: Option<i64>, stop: Option<i64>, step: u64 },
    Ellipsis,
}

/// Why a text selects nothing of an area.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// The text has another form.
    #[error("invalid selection {text:?}: {what}; write it as in [10:20, ::4]")]
    Syntax {
        /// The text.
        text: String,
        /// The fault.
        what: &'static str,
    },
    /// The selection has more dimensions than the area.
    #[error("the selection has {given} dimensions and the area has {dimensions}: leave out some")]
    Dimensions {
        /// Those of the selection.
        given: usize,
        /// Those of the area.
        dimensions: usize,
    },
    /// A place is outside the area.
    #[error("place {place} is outside dimension {dimension}, which has {length} places: use {least} to {most}", least = -i128::from(*length), most = i128::from(*length) - 1)]
    OutOfRange {
        /// The place.
        place: i64,
        /// The dimension, counted from 0.
        dimension: usize,
        /// The length of that dimension.
        length: u64,
    },
    /// The selection has no element.
    #[error("the selection has no element in dimension {dimension}, which has {length} places: widen it")]
    Empty {
        /// The dimension, counted from 0.
        dimension: usize,
        /// The length of that dimension.
        length: u64,
    },
}

/// A selection of an area of a certain shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// One span for each dimension of the area.
    pub(crate) spans: Vec<Span>,
    /// For each dimension, true if it is one of the result.
    keeps: Vec<bool>,
}

impl Selected {
    /// The shape of what is selected.
    #[must_use]
    pub fn shape(&self) -> Vec<u64> {
        let kept = self.spans.iter().zip(&self.keeps).filter(|(_, keeps)| **keeps);
        kept.map(|(span, _)| span.count).collect()
    }
}

/// The places of one dimension that are selected in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// One, whose dimension goes away.
    One(u64),
    /// Several, at equal distances.
    Many {
        /// The first.
        start: u64,
        /// The distance of two.
        step: u64,
        /// Their number.
        count: u64,
    },
}

impl Selected {
    /// Of numbers by dimension of the area, those of the dimensions of the result.
    pub(crate) fn kept(&self, of: &[u64]) -> Vec<u64> {
        of.iter().zip(&self.keeps).filter(|(_, keeps)| **keeps).map(|(number, _)| *number).collect()
    }

    /// The number of elements, or the highest number if there are more.
    pub(crate) fn count(&self) -> u64 {
        self.spans.iter().fold(1, |product, span| product.saturating_mul(span.count))
    }

    /// The places of spans in a part.
    pub(crate) fn places(&self, spans: Vec<Span>) -> Vec<Places> {
        let place = |(Span { start, step, count }, keeps): (Span, &bool)| match keeps {
            true => Places::Many { start, step, count },
            false => Places::One(start),
        };
        spans.into_iter().zip(&self.keeps).map(place).collect()
    }
}

impl Selection {
    /// Selects all elements.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Divides the name of an area from the selection behind it: `temperature[0, :]`.
    ///
    /// # Errors
    /// [`SelectionError::Syntax`].
    pub fn with_name(text: &str) -> Result<(&str, Self), SelectionError> {
        match text.find('[') {
            None => Ok((text, Self::all())),
            Some(at) => Ok((&text[..at], text[at..].parse()?)),
        }
    }

    /// Applies the selection to an area of a shape.
    ///
    /// # Errors
    /// [`SelectionError`].
    pub fn of(&self, shape: &[u64]) -> Result<Selected, SelectionError> {
        let given = self.0.iter().filter(|index| **index != Index::Ellipsis).count();
        let missing = shape.len().checked_sub(given);
        let missing = missing.ok_or(SelectionError::Dimensions { given, dimensions: shape.len() })?;
        let whole = Index::Slice { start: None, stop: None, step: 1 };
        let mut indices: Vec<Index> = Vec::with_capacity(shape.len());
        for index in &self.0 {
            match index {
                Index::Ellipsis => indices.extend(std::iter::repeat_n(whole, missing)),
                index => indices.push(*index),
            }
        }
        indices.resize(shape.len(), whole);
        let mut selected = Selected { spans: Vec::new(), keeps: Vec::new() };
        for (dimension, (index, length)) in indices.into_iter().zip(shape).enumerate() {
            let (span, keeps) = index.of(dimension, *length)?;
            selected.spans.push(span);
            selected.keeps.push(keeps);
        }
        Ok(selected)
    }
}

impl Index {
    fn of(self, dimension: usize, length: u64) -> Result<(Span, bool), SelectionError> {
        let signed = i128::from(length);
        // A negative number counts from the end.
        let from_start = |number: i64| i128::from(number) + if number < 0 { signed } else { 0 };
        let (start, stop, step) = match self {
            Self::Place(place) => {
                let at = from_start(place);
                if !(0..signed).contains(&at) {
                    return Err(SelectionError::OutOfRange { place, dimension, length });
                }
                return Ok((Span { start: at as u64, step: 1, count: 1 }, false));
            }
            Self::Slice { start, stop, step } => (start, stop, step),
            Self::Ellipsis => (None, None, 1),
        };
        let inside = |number: i64| from_start(number).clamp(0, signed) as u64;
        let (start, stop) = (start.map_or(0, inside), stop.map_or(length, inside));
        let count = stop.saturating_sub(start).div_ceil(step);
        match count {
            0 => Err(SelectionError::Empty { dimension, length }),
            count => Ok((Span { start, step, count }, true)),
        }
    }
}

impl FromStr for Selection {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Self, SelectionError> {
        parse(text).map_err(|what| SelectionError::Syntax { text: text.into(), what })
    }
}

fn parse(text: &str) -> Result<Selection, &'static str> {
    let inner = text.trim().strip_prefix('[').ok_or("it does not begin with [")?;
    let inner = inner.strip_suffix(']').ok_or("it does not end with ]")?;
    if inner.trim().is_empty() {
        return Ok(Selection::all());
    }
    // numpy allows a comma behind the last index.
    let inner = inner.trim_end().strip_suffix(',').unwrap_or(inner);
    let indices: Vec<Index> = inner.split(',').map(|part| parse_index(part.trim())).collect::<Result<_, _>>()?;
    match indices.iter().filter(|index| **index == Index::Ellipsis).count() {
        0 | 1 => Ok(Selection(indices)),
        _ => Err("it has more than one ..."),
    }
}

fn parse_index(text: &str) -> Result<Index, &'static str> {
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| "an index is no number of 64 bits");
    if text == "..." {
        return Ok(Index::Ellipsis);
    }
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or_default();
    let Some(stop) = parts.next() else { return Ok(Index::Place(number(first)?)) };
    let step = parts.next().unwrap_or_default();
    if parts.next().is_some() {
        return Err("a slice has more than two colons");
    }
    let optional = |text: &str| if text.trim().is_empty() { Ok(None) } else { number(text).map(Some) };
    let step = match optional(step)? {
        None => 1,
        Some(step) => u64::try_from(step).ok().filter(|step| *step > 0).ok_or("a step is not above 0")?,
    };
    Ok(Index::Slice { start: optional(first)?, stop: optional(stop)?, step })
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |number: &Option<i64>| number.map_or(String::new(), |number| number.to_string());
        let indices: Vec<String> = self
            .0
            .iter()
            .map(|index| match index {
                Index::Place(place) => place.to_string(),
                Index::Slice { start, stop, step: 1 } => format!("{}:{}", shown(start), shown(stop)),
                Index::Slice { start, stop, step } => format!("{}:{}:{step}", shown(start), shown(stop)),
                Index::Ellipsis => "...".into(),
            })
            .collect();
        write!(f, "[{}]", indices.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(text: &str, shape: &[u64]) -> Result<Vec<(u64, u64, u64)>, SelectionError> {
        let selected = text.parse::<Selection>()?.of(shape)?;
        Ok(selected.spans.iter().map(|span| (span.start, span.step, span.count)).collect())
    }

    #[test]
    fn selections_are_those_of_numpy() {
        assert_eq!(spans("[]", &[4, 5]).unwrap(), [(0, 1, 4), (0, 1, 5)]);
        assert_eq!(spans("[10:20, ::4]", &[100, 6]).unwrap(), [(10, 1, 10), (0, 4, 2)]);
        assert_eq!(spans("[-3:, -1]", &[10, 5]).unwrap(), [(7, 1, 3), (4, 1, 1)]);
        assert_eq!(spans("[:999:3]", &[10]).unwrap(), [(0, 3, 4)]);
        assert_eq!(spans("[-999:2]", &[10]).unwrap(), [(0, 1, 2)]);
        assert_eq!(spans("[..., 1]", &[2, 3, 4]).unwrap(), [(0, 1, 2), (0, 1, 3), (1, 1, 1)]);
        assert_eq!(spans("[1, ...]", &[2]).unwrap(), [(1, 1, 1)]);
        assert_eq!(spans("[ 1 : 2 , ]", &[2, 2]).unwrap(), [(1, 1, 1), (0, 1, 2)]);
        assert_eq!(spans("[::9223372036854775807]", &[u64::MAX]).unwrap(), [(0, i64::MAX as u64, 3)]);
        assert!(spans("[]", &[]).unwrap().is_empty());
        let selected = "[0, :2]".parse::<Selection>().unwrap().of(&[4, 5]).unwrap();
        assert_eq!(selected.shape(), [2]);
    }

    #[test]
    fn a_wrong_selection_is_refused_with_its_fault() {
        for (text, what) in [
            ("1]", "begin"),
            ("[1", "end"),
            ("[1,,2]", "number"),
            ("[a]", "number"),
            ("[9223372036854775808]", "number"),
            ("[::0]", "above 0"),
            ("[::-1]", "above 0"),
            ("[1:2:3:4]", "colons"),
            ("[..., ...]", "more than one"),
        ] {
            let error = text.parse::<Selection>().unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
        let error = spans("[0, 0]", &[3]).unwrap_err();
        assert_eq!(error, SelectionError::Dimensions { given: 2, dimensions: 1 });
        for place in [3, -4, i64::MAX, i64::MIN] {
            let error = spans(&format!("[{place}]"), &[3]).unwrap_err();
            assert_eq!(error, SelectionError::OutOfRange { place, dimension: 0, length: 3 });
        }
        assert_eq!(spans("[:, 2:2]", &[3, 3]).unwrap_err(), SelectionError::Empty { dimension: 1, length: 3 });
        assert_eq!(spans("[5:]", &[3]).unwrap_err(), SelectionError::Empty { dimension: 0, length: 3 });
    }

    #[test]
    fn names_are_divided_from_selections() {
        let (name, selection) = Selection::with_name("a b[1:, ::2, ..., 3]").unwrap();
        assert_eq!((name, selection.to_string().as_str()), ("a b", "[1:, ::2, ..., 3]"));
        assert_eq!(Selection::with_name("a").unwrap(), ("a", Selection::all()));
        assert!(Selection::with_name("a[").is_err());
    }
}
