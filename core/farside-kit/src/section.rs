//! Sections: values that are not contiguous.

mod pieces;
mod transfer;

use farside::{Error, Result};

use self::pieces::{Level, Run};
pub use self::transfer::MoveSections;

/// The most dimensions of a section.
const DIMENSIONS_MAX: usize = 8;
/// Levels of a regular section: for each dimension of a hyperslab, one for its blocks and one
/// inside them.
const LEVELS_MAX: usize = 2 * DIMENSIONS_MAX;

/// A selection of values, and their order: at equal distances (*strided*), from a list (*indexed*),
/// or a part of an array of up to eight dimensions. One section says where values lie in global
/// memory, another where they lie in the program's own memory;
/// [`put_section`](MoveSections::put_section) moves the values of one to the
/// places of the other.
///
/// It is checked once, when it is made, and may be used any number of times. Places are counted in
/// values, from the first value of the slice that it is used on.
///
/// ```
/// use farside_kit::section::Section;
///
/// // The third column of a matrix of 100 x 40 values, which lie row by row.
/// let column = Section::strided(100, 1, 40)?.shifted(2)?;
/// assert_eq!((column.len(), column.span()), (100, 99 * 40 + 3));
/// // The same.
/// assert_eq!(Section::subarray(&[100, 40], &[0, 2], &[100, 1])?, column);
/// # Ok::<(), farside::Error>(())
/// ```
///
/// Sources: OpenSHMEM's `iput`, `iget` and `ibput`; MPI's vector, indexed and subarray types;
/// HDF5's hyperslabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    form: Form,
    /// The number of values.
    length: usize,
    /// One past the last value.
    span: usize,
    /// True if no value is selected twice.
    is_disjoint: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// Runs of one length, repeated by levels; the first level is the outermost.
    Regular {
        offset: usize,
        levels: Box<[Level]>,
        run: usize,
    },
    Indexed(Box<[Run]>),
}

/// One dimension of a hyperslab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hyperslab {
    /// The first index.
    pub start: usize,
    /// The distance between the beginnings of blocks.
    pub stride: usize,
    /// The number of blocks.
    pub count: usize,
    /// The number of indices of each block.
    pub block: usize,
}

/// A section is impossible, or does not fit where it is used.
///
/// It arrives as an [`Error`]; [`Error::room_error`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a section of memory: {0}")]
pub struct SectionError(pub SectionFault);

impl From<SectionFault> for Error {
    fn from(fault: SectionFault) -> Self {
        Self::Room(Box::new(SectionError(fault)))
    }
}

/// A fault of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SectionFault {
    /// Its numbers are too large.
    #[error("its values are more, or lie further apart, than memory can hold")]
    TooLarge,
    /// The section has too many dimensions.
    #[error("{count} dimensions; at most {DIMENSIONS_MAX} are supported")]
    TooManyDimensions {
        /// The number of dimensions.
        count: usize,
    },
    /// Lists that describe the same dimensions have different lengths.
    #[error("one list has {one} dimensions and another {other}: give each list one number for every dimension")]
    DimensionsDiffer {
        /// The length of one list.
        one: usize,
        /// The length of the other.
        other: usize,
    },
    /// A part leaves its array.
    #[error("it reaches beyond the array in dimension {dimension}, which has {extent} indices")]
    OutsideOfArray {
        /// The dimension.
        dimension: usize,
        /// The array's extent in that dimension.
        extent: usize,
    },
    /// A section that is written to must not select a value twice.
    #[error(
        "its pieces overlap (or interleave so that this cannot be ruled out), and it is written to: make each stride at least as large as \
         what lies inside it"
    )]
    Overlaps,
    /// There are too few values.
    #[error("it spans {span} values, and the memory has {length}")]
    TooLong {
        /// One past its last.
        span: usize,
        /// The number of values that there are.
        length: usize,
    },
    /// The two sections have different numbers of values.
    #[error("the source selects {from} values and the target {to}: let both select the same number")]
    LengthsDiffer {
        /// The length of the section that is read.
        from: usize,
        /// The length of the section that is written.
        to: usize,
    },
}

impl Section {
    /// Selects `length` contiguous values.
    pub fn contiguous(length: usize) -> Self {
        let form = Form::Regular { offset: 0, levels: Box::default(), run: length };
        Self { form, length, span: length, is_disjoint: true }
    }

    /// Selects `count` blocks of `block` values each, whose beginnings are `stride` values apart.
    ///
    /// # Errors
    /// [`SectionError`],
    /// [`TooLarge`](SectionFault::TooLarge).
    pub fn strided(count: usize, block: usize, stride: usize) -> Result<Self> {
        Self::regular(0, &[Level { extent: count, stride }], block)
    }

    /// Selects pieces, each given by its place and its length, in this order.
    ///
    /// *Cost*: sorts them, to find whether they overlap.
    ///
    /// # Errors
    /// [`SectionError`],
    /// [`TooLarge`](SectionFault::TooLarge).
    pub fn indexed(pieces: impl IntoIterator<Item = (usize, usize)>) -> Result<Self> {
        let mut runs: Vec<Run> = Vec::new();
        let (mut length, mut span) = (0_usize, 0);
        for (offset, values) in pieces.into_iter().filter(|(_, values)| *values > 0) {
            let end = offset.checked_add(values).ok_or(SectionFault::TooLarge)?;
            length = length.checked_add(values).ok_or(SectionFault::TooLarge)?;
            span = span.max(end);
            match runs.last_mut() {
                Some(last) if last.offset + last.length == offset => last.length += values,
                _ => runs.push(Run { offset, length: values }),
            }
        }
        let mut sorted = runs.clone();
        sorted.sort_unstable_by_key(|run| run.offset);
        let is_disjoint = sorted.windows(2).all(|pair| pair[0].offset + pair[0].length <= pair[1].offset);
        Ok(Self { form: Form::Indexed(runs.into()), length, span, is_disjoint })
    }

    /// Selects the values of an array with these extents. Neighbours in a dimension are its stride
    /// apart. The last dimension varies fastest.
    ///
    /// # Errors
    /// [`SectionError`],
    /// [`TooLarge`](SectionFault::TooLarge),
    /// [`TooManyDimensions`](SectionFault::TooManyDimensions),
    /// [`DimensionsDiffer`](SectionFault::DimensionsDiffer).
    pub fn grid(extents: &[usize], strides: &[usize]) -> Result<Self> {
        check_dimensions(extents.len(), strides.len())?;
        let levels: Vec<Level> =
            extents.iter().zip(strides).map(|(&extent, &stride)| Level { extent, stride }).collect();
        Self::regular(0, &levels, 1)
    }

    /// Selects the part of an array of this shape that begins at the indices `start` and has these
    /// extents. The array is stored row by row.
    ///
    /// # Errors
    /// [`SectionError`] with `TooLarge`,
    /// `TooManyDimensions`, `DimensionsDiffer` or `OutsideOfArray`.
    pub fn subarray(shape: &[usize], start: &[usize], extents: &[usize]) -> Result<Self> {
        check_dimensions(shape.len(), start.len())?;
        check_dimensions(shape.len(), extents.len())?;
        let one_block = |(&start, &block): (&usize, &usize)| Hyperslab { start, stride: block, count: 1, block };
        Self::hyperslab(shape, &start.iter().zip(extents).map(one_block).collect::<Vec<_>>())
    }

    /// Selects the part of an array of this shape that has these blocks of indices in each
    /// dimension. The array is stored row by row.
    ///
    /// # Errors
    /// [`SectionError`] with `TooLarge`,
    /// `TooManyDimensions`, `DimensionsDiffer` or `OutsideOfArray`.
    pub fn hyperslab(shape: &[usize], dimensions: &[Hyperslab]) -> Result<Self> {
        check_dimensions(shape.len(), dimensions.len())?;
        let mut levels = Vec::with_capacity(LEVELS_MAX);
        let (mut offset, mut row) = (0_usize, 1_usize);
        for (dimension, (&extent, slab)) in shape.iter().zip(dimensions).enumerate().rev() {
            let blocks = slab.count.saturating_sub(1).checked_mul(slab.stride);
            let end = blocks.and_then(|blocks| blocks.checked_add(slab.block)?.checked_add(slab.start));
            if end.is_none_or(|end| end > extent) {
                return Err(SectionFault::OutsideOfArray { dimension, extent }.into());
            }
            let rows = |count: usize| count.checked_mul(row).ok_or(SectionFault::TooLarge);
            levels.push(Level { extent: slab.block, stride: row });
            levels.push(Level { extent: slab.count, stride: rows(slab.stride)? });
            offset = offset.checked_add(rows(slab.start)?).ok_or(SectionFault::TooLarge)?;
            row = rows(extent)?;
        }
        levels.reverse();
        Self::regular(offset, &levels, 1)
    }

    /// Returns the same section, shifted by a number of values.
    ///
    /// # Errors
    /// [`SectionError`],
    /// [`TooLarge`](SectionFault::TooLarge).
    pub fn shifted(mut self, by: usize) -> Result<Self> {
        if self.is_empty() {
            return Ok(self);
        }
        // No place lies beyond the span.
        self.span = self.span.checked_add(by).ok_or(SectionFault::TooLarge)?;
        match &mut self.form {
            Form::Regular { offset, .. } => *offset += by,
            Form::Indexed(runs) => runs.iter_mut().for_each(|run| run.offset += by),
        }
        Ok(self)
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the number of values that a slice must have to contain it: one past its last.
    pub fn span(&self) -> usize {
        self.span
    }

    /// Returns whether it selects no value twice, as a section that is written to must. If
    /// a stride of a [grid](Self::grid) is less than what lies inside it, the result is `false`.
    pub fn is_disjoint(&self) -> bool {
        self.is_disjoint
    }

    /// Selects runs of `run` values, repeated by levels; the first level is the outermost.
    fn regular(offset: usize, levels: &[Level], run: usize) -> Result<Self> {
        debug_assert!(levels.len() <= LEVELS_MAX, "two levels for each dimension");
        if run == 0 || levels.iter().any(|level| level.extent == 0) {
            return Ok(Self::contiguous(0));
        }
        let mut kept: Vec<Level> = Vec::with_capacity(levels.len());
        let (mut length, mut span) = (run, offset.checked_add(run).ok_or(SectionFault::TooLarge)?);
        for level in levels.iter().filter(|level| level.extent > 1) {
            length = length.checked_mul(level.extent).ok_or(SectionFault::TooLarge)?;
            let reach = (level.extent - 1).checked_mul(level.stride).ok_or(SectionFault::TooLarge)?;
            span = span.checked_add(reach).ok_or(SectionFault::TooLarge)?;
            match kept.last_mut() {
                // The outer level continues where the inner one ends.
                Some(outer) if level.stride.checked_mul(level.extent) == Some(outer.stride) => {
                    *outer = Level { extent: outer.extent * level.extent, stride: level.stride };
                }
                _ => kept.push(*level),
            }
        }
        let mut run = run;
        while let Some(inner) = kept.pop_if(|inner| inner.stride == run) {
            run *= inner.extent;
        }
        let is_disjoint = pieces::nest(&kept, run);
        Ok(Self { form: Form::Regular { offset, levels: kept.into(), run }, length, span, is_disjoint })
    }
}

/// Refuses lists for too many dimensions, or for different ones.
fn check_dimensions(one: usize, other: usize) -> Result<(), SectionFault> {
    match (one, other) {
        _ if one > DIMENSIONS_MAX => Err(SectionFault::TooManyDimensions { count: one }),
        _ if one != other => Err(SectionFault::DimensionsDiffer { one, other }),
        _ => Ok(()),
    }
}
