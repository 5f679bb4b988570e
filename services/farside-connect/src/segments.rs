//! The segments of a peer's memory: how they travel, and which of them make up a range.
//!
//! Segments of the same length at regular distances are one *run*, so a million of them can take a
//! few bytes. A run travels as
//! - the distance from the end of the last segment before,
//! - twice the length of its segments, and one more if it has several,
//! - if it has several: their number, and the distance between the starts of two.
//!
//! Each of these has as many bytes as it needs, seven bits in each, and no more.

use farside_wire::check::MessageKind;

/// An address and a length.
pub type Segment = (usize, usize);

/// Segments of a peer's memory, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segments(Vec<Run>);

/// Segments of one length at regular distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    /// The length of a segment, which is not 0.
    bytes: usize,
    /// The distance between the starts of two segments, which may wrap around.
    stride: usize,
    count: usize,
}

impl Run {
    fn start_of(&self, index: usize) -> usize {
        self.start.wrapping_add(index.wrapping_mul(self.stride))
    }

    /// Adds a segment that goes on with the run. Returns false if it does not.
    fn extend(&mut self, (start, bytes): Segment) -> bool {
        if self.count == 1 {
            self.stride = start.wrapping_sub(self.start);
        }
        let fits = bytes == self.bytes && start == self.start_of(self.count);
        self.count += usize::from(fits);
        fits
    }
}

/// Segments as they travel, for tests of their decoder. A run of two bytes takes 32 in memory, and
/// memory grows by doubling.
pub(crate) fn message_kind() -> MessageKind {
    let recode = |bytes: &[u8]| Segments::unpack(bytes).and_then(|segments| segments.pack(usize::MAX));
    MessageKind::by_hand("segments::Segments", recode).requesting(80)
}

/// Describes segments that are not empty in at most `bytes_max` bytes. `None` if that is too
/// little.
pub fn pack(segments: impl IntoIterator<Item = Segment>, bytes_max: usize) -> Option<Vec<u8>> {
    let mut segments = segments.into_iter();
    let mut next = segments.next();
    pack_runs(
        std::iter::from_fn(|| {
            let (start, bytes) = next?;
            let mut run = Run { start, bytes, stride: 0, count: 1 };
            next = segments.find(|segment| !run.extend(*segment));
            Some(run)
        }),
        bytes_max,
    )
}

fn pack_runs(runs: impl Iterator<Item = Run>, bytes_max: usize) -> Option<Vec<u8>> {
    let (mut packed, mut end) = (Vec::new(), 0);
    for run in runs {
        let Run { start, bytes, .. } = run;
        push_distance(&mut packed, start.wrapping_sub(end));
        push_number(&mut packed, (bytes as u64) << 1 | u64::from(run.count > 1));
        if run.count > 1 {
            push_number(&mut packed, run.count as u64);
            push_distance(&mut packed, run.stride);
        }
        end = run.start_of(run.count - 1).wrapping_add(bytes);
        if packed.len() > bytes_max {
            return None;
        }
    }
    Some(packed)
}

impl Segments {
    /// Segments of this process.
    pub(crate) fn of(segments: Vec<Segment>) -> Self {
        Self(segments.into_iter().map(|(start, bytes)| Run { start, bytes, stride: 0, count: 1 }).collect())
    }

    /// Reads what [`pack`] wrote. `None` if it did not write that, or if a program cannot have so
    /// much memory.
    pub(crate) fn unpack(mut packed: &[u8]) -> Option<Self> {
        let (mut runs, mut end, mut sum) = (Vec::new(), 0_usize, 0_usize);
        while !packed.is_empty() {
            let start = end.wrapping_add(take_distance(&mut packed)?);
            let length = take_number(&mut packed)?;
            let bytes = usize::try_from(length >> 1).ok().filter(|bytes| *bytes > 0)?;
            let (count, stride) = match length & 1 {
                0 => (1, 0),
                _ => (usize::try_from(take_number(&mut packed)?).ok()?, take_distance(&mut packed)?),
            };
            // One segment is not written as several.
            if length & 1 == 1 && count < 2 {
                return None;
            }
            let run = Run { start, bytes, stride, count };
            let run_bytes = bytes.checked_mul(count)?;
            sum = sum.checked_add(run_bytes).filter(|sum| isize::try_from(*sum).is_ok())?;
            end = run.start_of(count - 1).wrapping_add(bytes);
            runs.push(run);
        }
        Some(Self(runs))
    }

    /// Describes them as [`pack`] does.
    pub(crate) fn pack(&self, bytes_max: usize) -> Option<Vec<u8>> {
        pack_runs(self.0.iter().copied(), bytes_max)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of bytes of all segments.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|run| run.bytes * run.count).sum()
    }

    /// The number of segments.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|run| run.count).fold(0, usize::saturating_add)
    }

    /// The parts of the segments that make up a range.
    pub(crate) fn range(&self, mut skip: usize, mut left: usize) -> impl Iterator<Item = Segment> {
        self.0.iter().flat_map(move |run| {
            // `unpack` has checked that the sum of all products is small enough.
            let run_bytes = run.bytes * run.count;
            let skipped = skip.min(run_bytes);
            skip -= skipped;
            let taken = left.min(run_bytes - skipped);
            left -= taken;
            let (first, last) = (skipped / run.bytes, (skipped + taken).div_ceil(run.bytes));
            let first = if taken > 0 { first } else { last };
            (first..last).map(move |index| {
                let from = skipped.saturating_sub(index * run.bytes);
                let to = run.bytes.min(skipped + taken - index * run.bytes);
                (run.start_of(index).wrapping_add(from), to - from)
            })
        })
    }
}

fn push_number(packed: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn take_number(packed: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = packed.split_first()?;
        *packed = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has one bit left. A last byte of 0 would be of no use.
        if shift > 63 || bits << shift >> shift != bits || *byte == 0 && shift > 0 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

/// Small distances in either direction become small numbers.
fn push_distance(packed: &mut Vec<u8>, distance: usize) {
    let distance = (distance as u64).cast_signed();
    push_number(packed, (distance.cast_unsigned() << 1) ^ (distance >> 63).cast_unsigned());
}

fn take_distance(packed: &mut &[u8]) -> Option<usize> {
    let number = take_number(packed)?;
    Some(((number >> 1) ^ (number & 1).wrapping_neg()) as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unpacked(segments: &[Segment]) -> Segments {
        Segments::unpack(&pack(segments.iter().copied(), usize::MAX).unwrap()).unwrap()
    }

    #[test]
    fn a_range_of_segments_is_cut_out() {
        let cut = |segments: &Segments, skip, bytes| segments.range(skip, bytes).collect::<Vec<_>>();
        let two = unpacked(&[(100, 10), (300, 5)]);
        assert_eq!(cut(&two, 0, 15), [(100, 10), (300, 5)]);
        assert_eq!(cut(&two, 8, 4), [(108, 2), (300, 2)]);
        assert_eq!(cut(&two, 10, 1), [(300, 1)]);
        assert_eq!(cut(&two, 3, 0), []);
        let regular = unpacked(&[(100, 10), (120, 10), (140, 10), (160, 10)]);
        assert_eq!(regular.0.len(), 1);
        assert_eq!(cut(&regular, 13, 14), [(123, 7), (140, 7)]);
        assert_eq!(cut(&regular, 12, 3), [(122, 3)]);
        assert_eq!(cut(&regular, 39, 9), [(169, 1)]);
        assert_eq!(cut(&regular, 40, 9), []);
    }

    #[test]
    fn regular_segments_take_few_bytes() {
        let segments = (0..1_000_000).map(|index| (0x7fff_0000_1000 + index * 512, 256));
        let packed = pack(segments.clone(), 16).unwrap();
        assert!(Segments::unpack(&packed).unwrap().range(0, usize::MAX).eq(segments));
        let irregular = (0..10_000).map(|index| (index * index, index + 1));
        assert_eq!(pack(irregular, 30_000), None);
    }

    #[test]
    fn impossible_segments_are_refused() {
        assert_eq!(Segments::unpack(&[]), Some(Segments::default()));
        for wrong in [
            &[2][..],
            &[0x80],
            &[0xff; 12],
            &[2, 0],
            &[2, 1, 1, 0],
            &[2, 3, 0, 0],
            &[2, 3, 1, 2],
            &[2, 3, 2],
            &[0x82, 0, 2],
        ] {
            assert_eq!(Segments::unpack(wrong), None, "{wrong:?}");
        }
        let most = isize::MAX as usize;
        let unpack = |segments: &[Segment]| Segments::unpack(&pack(segments.iter().copied(), 100).unwrap());
        assert_eq!(unpack(&[(1, most)]).unwrap().bytes(), most);
        assert_eq!(unpack(&[(1, most), (2, 1)]), None);
        assert_eq!(unpack(&[(1, most), (2, most), (3, most)]), None);
    }

    proptest! {
        #[test]
        fn packed_segments_are_unpacked(
            parts in prop::collection::vec((any::<usize>(), 1..1_usize << 40, any::<usize>(), 1..5_usize), 0..20),
            (skip, bytes) in (0..1_usize << 42, 0..1_usize << 42),
        ) {
            let segments = parts.into_iter().flat_map(|(start, bytes, stride, count)| {
                (0..count).map(move |index| (start.wrapping_add(stride.wrapping_mul(index)), bytes))
            });
            let segments: Vec<_> = segments.collect();
            let unpacked = unpacked(&segments);
            prop_assert!(unpacked.range(0, usize::MAX).eq(segments.iter().copied()));
            // Each part is where it is if the segments are walked one by one.
            let (mut before, mut expected) = (0, Vec::new());
            for (start, length) in segments {
                let (from, to) = (skip.clamp(before, before + length), (skip + bytes).clamp(before, before + length));
                if from < to {
                    expected.push((start.wrapping_add(from - before), to - from));
                }
                before += length;
            }
            prop_assert!(unpacked.range(skip, bytes).eq(expected));
            prop_assert_eq!(unpacked.bytes(), before);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(segments) = Segments::unpack(&bytes) {
                let most = segments.bytes();
                let first: usize = segments.range(most / 2, most).take(1000).map(|(_, bytes)| bytes).sum();
                prop_assert!(first <= most);
            }
        }
    }
}
