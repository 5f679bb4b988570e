//! Places in arrays: [`Span`], and the contiguous [runs](runs) of a [`Block`] in memory.

use farside_rpc::Wire;

/// Places at equal distances in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Span {
    /// The first place.
    pub start: u64,
    /// The distance of two places.
    pub step: u64,
    /// The number of places.
    pub count: u64,
}

impl Span {
    /// Returns whether all places are inside a dimension of this length, and there is one.
    pub(crate) fn is_inside(&self, length: u64) -> bool {
        let steps = self.count.checked_sub(1).filter(|_| self.step > 0);
        let last = steps.and_then(|steps| steps.checked_mul(self.step));
        last.and_then(|last| self.start.checked_add(last)).is_some_and(|last| last < length)
    }

    /// The places of this span inside a part of the dimension, counted from the start of the part,
    /// and the number of places before them.
    pub fn within(&self, origin: u64, length: u64) -> Option<(Self, u64)> {
        // The number of places of the span before a place of the dimension.
        let before = |place: u64| place.saturating_sub(self.start).div_ceil(self.step).min(self.count);
        let (first, end) = (before(origin), before(origin.checked_add(length)?));
        let start = |first| self.start + first * self.step - origin;
        (first < end).then(|| (Self { start: start(first), step: self.step, count: end - first }, first))
    }
}

/// The number of elements of a shape, if their bytes fit into an address space.
pub fn elements(shape: &[u64], element_bytes: usize) -> Option<usize> {
    let count = shape.iter().try_fold(1_u64, |product, length| product.checked_mul(*length))?;
    let bytes = count.checked_mul(element_bytes as u64)?;
    isize::try_from(bytes).ok()?;
    usize::try_from(count).ok()
}

/// A part of an array: its elements at the places of the spans, which are inside the shape. The
/// array has a [number of elements](elements).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) shape: &'a [u64],
    pub(crate) spans: &'a [Span],
    pub(crate) element_bytes: usize,
}

impl Block<'_> {
    pub(crate) fn bytes(&self) -> usize {
        self.spans.iter().map(|span| span.count as usize).product::<usize>() * self.element_bytes
    }

    /// Calls `take` for each [run](runs).
    pub(crate) fn runs(&self, take: impl FnMut(usize, usize)) {
        runs(self.shape, self.spans, self.element_bytes, take);
    }

    /// The offsets and lengths of the runs, unless there are more than `most`.
    pub(crate) fn few_runs(&self, most: usize) -> Option<Vec<(usize, usize)>> {
        let outer = &self.spans[..outer_dimensions(self.shape, self.spans)];
        outer.iter().try_fold(1_u64, |all, span| all.checked_mul(span.count).filter(|all| *all <= most as u64))?;
        let mut found = Vec::new();
        self.runs(|offset, length| found.push((offset, length)));
        Some(found)
    }
}

/// The number of dimensions in which the runs of a block begin. Each run covers the other ones.
fn outer_dimensions(shape: &[u64], spans: &[Span]) -> usize {
    // The last dimensions are one run if they are whole.
    let is_whole = |(length, span): (&u64, &Span)| span.count == *length;
    let inner = shape.len() - shape.iter().zip(spans).rev().take_while(|pair| is_whole(*pair)).count();
    // So is one more, if its places follow each other.
    let is_in_line = |last: &usize| spans[*last].step == 1 || spans[*last].count == 1;
    inner.checked_sub(1).filter(is_in_line).unwrap_or(inner)
}

/// Calls `take` with the offset and the length in bytes of each contiguous run of a block, in
/// row-major order. The spans are inside the shape, which has a [number of elements](elements).
pub fn runs(shape: &[u64], spans: &[Span], element_bytes: usize, mut take: impl FnMut(usize, usize)) {
    let outer = outer_dimensions(shape, spans);
    let bytes_from = |dimension: usize| shape[dimension..].iter().product::<u64>() as usize * element_bytes;
    let run = spans[outer..].iter().map(|span| span.count as usize).product::<usize>() * element_bytes;
    let strides: Vec<usize> = (0..shape.len()).map(|dimension| bytes_from(dimension + 1)).collect();
    let base: usize = spans.iter().zip(&strides).map(|(span, stride)| span.start as usize * stride).sum();
    let mut places = vec![0_u64; outer];
    loop {
        let walked = places.iter().zip(spans).zip(&strides);
        let offset: usize = walked.map(|((place, span), stride)| (place * span.step) as usize * stride).sum();
        take(base + offset, run);
        // The next place: the last dimension moves fastest.
        let Some(moved) = (0..outer).rev().find(|dimension| places[*dimension] + 1 < spans[*dimension].count) else {
            return;
        };
        places[moved] += 1;
        places[moved + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, step: u64, count: u64) -> Span {
        Span { start, step, count }
    }

    fn all_runs(shape: &[u64], spans: &[Span], bytes: usize) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        runs(shape, spans, bytes, |offset, length| found.push((offset, length)));
        found
    }

    #[test]
    fn many_runs_are_counted_and_not_listed() {
        let shape = [1 << 40, 4];
        let spans = [span(0, 2, 1 << 39), span(1, 1, 2)];
        let few = |spans: &[Span], most| Block { shape: &shape, spans, element_bytes: 1 }.few_runs(most);
        assert_eq!(few(&spans, 256), None);
        assert_eq!(few(&[span(5, 2, 3), spans[1]], 3), Some(vec![(21, 2), (29, 2), (37, 2)]));
        assert_eq!(few(&[span(5, 2, 3), spans[1]], 2), None);
        assert_eq!(few(&[span(0, 1, 1 << 40), span(0, 1, 4)], 1), Some(vec![(0, 1 << 42)]));
    }

    #[test]
    fn whole_dimensions_are_one_run() {
        assert_eq!(all_runs(&[4, 5], &[span(0, 1, 4), span(0, 1, 5)], 8), [(0, 160)]);
        assert_eq!(all_runs(&[4, 5], &[span(1, 1, 2), span(0, 1, 5)], 8), [(40, 80)]);
        assert_eq!(all_runs(&[], &[], 8), [(0, 8)]);
        assert_eq!(all_runs(&[4, 5], &[span(0, 2, 2), span(0, 1, 5)], 1), [(0, 5), (10, 5)]);
        assert_eq!(all_runs(&[4, 5], &[span(2, 1, 2), span(1, 1, 2)], 1), [(11, 2), (16, 2)]);
        assert_eq!(all_runs(&[4, 5], &[span(3, 1, 1), span(0, 4, 2)], 2), [(30, 2), (38, 2)]);
    }

    /// Every selection of small arrays against one element at a time.
    #[test]
    fn runs_are_the_elements_in_order() {
        let spans_of = |length: u64| {
            (0..length)
                .flat_map(move |start| (1..=3).flat_map(move |step| (1..=4).map(move |count| span(start, step, count))))
        };
        let shape = [3, 2, 4];
        for first in spans_of(3).filter(|span| span.is_inside(3)) {
            for second in spans_of(2).filter(|span| span.is_inside(2)) {
                for third in spans_of(4).filter(|span| span.is_inside(4)) {
                    let mut expected = Vec::new();
                    for i in 0..first.count {
                        for j in 0..second.count {
                            for k in 0..third.count {
                                let at = |span: Span, place| span.start + place * span.step;
                                expected.push((at(first, i) * 2 + at(second, j)) * 4 + at(third, k));
                            }
                        }
                    }
                    let found = all_runs(&shape, &[first, second, third], 1);
                    let bytes = found.into_iter().flat_map(|(offset, bytes)| offset..offset + bytes);
                    assert_eq!(bytes.map(|at| at as u64).collect::<Vec<_>>(), expected);
                }
            }
        }
    }

    #[test]
    fn parts_have_each_place_once() {
        for whole in [span(0, 1, 10), span(1, 3, 3), span(9, 1, 1), span(2, 7, 2)] {
            let mut found = Vec::new();
            for (origin, length) in [(0, 4), (4, 1), (5, 5)] {
                if let Some((part, first)) = whole.within(origin, length) {
                    assert!(part.is_inside(length));
                    assert_eq!(first, found.len() as u64);
                    found.extend((0..part.count).map(|place| origin + part.start + place * part.step));
                }
            }
            assert_eq!(found, (0..whole.count).map(|place| whole.start + place * whole.step).collect::<Vec<_>>());
        }
        assert!(!span(0, 1, 0).is_inside(5));
        assert!(!span(0, 0, 1).is_inside(5));
        assert!(!span(u64::MAX, u64::MAX, 2).is_inside(5));
        assert!(!span(0, u64::MAX, 3).is_inside(u64::MAX));
        assert_eq!(span(0, 1, 1).within(u64::MAX, 2), None);
    }
}
