//! [`Missing`]: elements of a frame that no process shows any more.

use std::fmt;

use farside_inspect::__private::spans::{Span, runs};
use farside_inspect::ElementType;

/// The most boxes into which what is missing is divided.
const BOXES_MAX: usize = 4096;

/// Elements that are missing in a frame, because their process is gone. The frame has `NaN` in
/// their places if they are floating-point or complex numbers, and otherwise bytes that are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The worker that had them, and its process. `None` if it was gone before the area was opened.
    pub worker: Option<(u32, u32)>,
    /// Where they begin in the frame.
    pub origin: Vec<u64>,
    /// Their shape.
    pub shape: Vec<u64>,
}

impl Missing {
    pub(super) fn of_block(worker: Option<(u32, u32)>, block: &[Span]) -> Self {
        let origin = block.iter().map(|span| span.start).collect();
        Self { worker, origin, shape: block.iter().map(|span| span.count).collect() }
    }

    /// The same in a frame with further dimensions behind its own.
    pub(super) fn with_dimensions(&self, lengths: &[u32]) -> Self {
        let (mut origin, mut shape) = (self.origin.clone(), self.shape.clone());
        origin.extend(lengths.iter().map(|_| 0));
        shape.extend(lengths.iter().map(|length| u64::from(*length)));
        Self { worker: self.worker, origin, shape }
    }

    pub(super) fn block(&self) -> Vec<Span> {
        let span = |(start, count): (&u64, &u64)| Span { start: *start, step: 1, count: *count };
        self.origin.iter().zip(&self.shape).map(span).collect()
    }

    /// The places in the frame, one after the other.
    fn places(&self, frame: &[u64], mut take: impl FnMut(usize)) {
        runs(frame, &self.block(), 1, |first, count| (first..first + count).for_each(&mut take));
    }

    /// Marks the places in a frame of a shape.
    pub(super) fn mark(&self, frame: &[u64], element: ElementType, bytes: &mut [u8]) {
        let (f32s, f64s) = (f32::NAN.to_ne_bytes(), f64::NAN.to_ne_bytes());
        let pattern: &[u8] = match element {
            ElementType::F32 | ElementType::C64 => &f32s,
            ElementType::F64 | ElementType::C128 => &f64s,
            _ => &[0],
        };
        let each = element.bytes();
        self.places(frame, |place| {
            for word in bytes[place * each..(place + 1) * each].chunks_exact_mut(pattern.len()) {
                word.copy_from_slice(pattern);
            }
        });
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.worker {
            Some((worker, process)) => write!(f, "worker {worker} of process {process}")?,
            None => f.write_str("some worker")?,
        }
        let spans = self.origin.iter().zip(&self.shape).map(|(start, count)| format!("{start}:{}", start + count));
        write!(f, " at [{}]", spans.collect::<Vec<_>>().join(", "))
    }
}

/// Which elements of a frame are missing, in row-major order.
pub(super) fn mask(frame: &[u64], missing: &[Missing]) -> Vec<bool> {
    let mut mask = vec![false; frame.iter().product::<u64>() as usize];
    missing.iter().for_each(|missing| missing.places(frame, |place| mask[place] = true));
    mask
}

/// The boxes of a frame that no block covers. `None` if they are too many.
pub(super) fn uncovered<'a>(frame: &[u64], blocks: impl Iterator<Item = &'a [Span]>) -> Option<Vec<Vec<Span>>> {
    let mut boxes = vec![frame.iter().map(|count| Span { start: 0, step: 1, count: *count }).collect::<Vec<_>>()];
    for block in blocks {
        boxes = boxes.into_iter().flat_map(|of| without(of, block)).collect();
        if boxes.len() > BOXES_MAX {
            return None;
        }
    }
    Some(boxes)
}

/// The parts of a box outside of a block: those before and behind it, dimension by dimension.
fn without(mut of: Vec<Span>, block: &[Span]) -> Vec<Vec<Span>> {
    let end = |span: &Span| span.start + span.count;
    if of.iter().zip(block).any(|(own, other)| own.start >= end(other) || other.start >= end(own)) {
        return vec![of];
    }
    let mut found = Vec::new();
    for (dimension, other) in block.iter().enumerate() {
        let own = of[dimension];
        for (first, last) in [(own.start, other.start.max(own.start)), (end(other).min(end(&own)), end(&own))] {
            if first < last {
                let mut outside = of.clone();
                outside[dimension] = Span { start: first, step: 1, count: last - first };
                found.push(outside);
            }
        }
        let first = own.start.max(other.start);
        of[dimension] = Span { start: first, step: 1, count: end(&own).min(end(other)) - first };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(ends: &[(u64, u64)]) -> Vec<Span> {
        ends.iter().map(|(start, end)| Span { start: *start, step: 1, count: end - start }).collect()
    }

    #[test]
    fn what_no_block_covers_is_found() {
        let blocks = [block(&[(0, 2), (0, 5)]), block(&[(3, 4), (1, 4)])];
        let found = uncovered(&[4, 5], blocks.iter().map(Vec::as_slice)).unwrap();
        let missing: Vec<Missing> = found.iter().map(|found| Missing::of_block(None, found)).collect();
        let mask = mask(&[4, 5], &missing);
        let expected = (0..20).map(|place| !(place < 10 || (16..19).contains(&place)));
        assert!(mask.into_iter().eq(expected), "{missing:?}");
        assert_eq!(missing.iter().map(|missing| missing.shape.iter().product::<u64>()).sum::<u64>(), 7);
        assert!(uncovered(&[], std::iter::once(&[][..])).unwrap().is_empty());
    }

    #[test]
    fn missing_elements_are_marked_and_named() {
        let missing = Missing::of_block(Some((3, 1)), &block(&[(1, 2), (0, 2)]));
        assert_eq!(missing.to_string(), "worker 3 of process 1 at [1:2, 0:2]");
        let mut bytes = [1; 32];
        missing.mark(&[2, 2], ElementType::F64, &mut bytes);
        let values: Vec<f64> = bytemuck::pod_collect_to_vec(&bytes);
        assert!(values[..2].iter().all(|value| !value.is_nan()) && values[2..].iter().all(|value| value.is_nan()));
        let mut bytes = [1; 4];
        missing.mark(&[2, 2], ElementType::U8, &mut bytes);
        assert_eq!(bytes, [1, 1, 0, 0]);
    }
}
