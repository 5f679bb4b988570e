//! What lies where in the memory of a heap, and the numbers by which its parts are recognised.
//!
//! ```text
//! R, at the peer:   control | up to a page | unit 0 | unit 1 | ...          a unit has 16 bytes
//! a block:          header (1 unit: stamp, units, lists taken) | its bytes, in whole units
//! L, here:          the same units, without what is before them
//! ```

use farside_fabric::WorkerId;

use super::tags::{HEAD_BYTES, TAG_BYTES};
use crate::Wire;
use crate::memory::RemoteMemory;
use crate::wire;

/// Blocks begin on multiples of this, and take whole ones.
pub(super) const UNIT_BYTES: u64 = 16;
/// The header of a block has as much.
pub(super) const HEADER_BYTES: u64 = UNIT_BYTES;
/// The largest alignment of a block.
pub(super) const ALIGN_MAX: u64 = 4096;
/// Units are counted in 32 bits.
pub(super) const HEAP_BYTES_MAX: u64 = (u32::MAX as u64) * UNIT_BYTES;
/// What R begins with.
pub(super) const CONTROL_BYTES: u64 = 256;
/// The last word of it is the number of the last list that the initiator has taken, if it can store that there at once.
pub(super) const TAKEN_AT: u64 = CONTROL_BYTES - 8;

/// How many units hold so many bytes.
pub(super) fn units_of(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT_BYTES)
}

/// How much is asked of the peer for a heap of so many units: the first of them begins on a page, wherever the memory begins.
pub(super) fn far_bytes(units: u32) -> u64 {
    CONTROL_BYTES + ALIGN_MAX + u64::from(units) * UNIT_BYTES
}

/// Where the first unit is in the region that R lies in. `None` for a place that no memory has.
fn first_unit(far: &RemoteMemory) -> Option<u64> {
    far.offset.checked_add(CONTROL_BYTES)?.checked_next_multiple_of(ALIGN_MAX)
}

/// Where the bytes of a block are in that region. `None` for what no block can be.
pub(super) fn place_of_bytes(far: &RemoteMemory, start: u32) -> Option<u64> {
    first_unit(far)?.checked_add(u64::from(start) * UNIT_BYTES + HEADER_BYTES)
}

/// Where the units begin in R.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) units: u32,
    first: u64,
    salt: u64,
}

impl Layout {
    pub(super) fn new(far: &RemoteMemory, units: u32) -> Self {
        let first = first_unit(far).expect("memory that there is ends before the last byte") - far.offset;
        // Names of memory at one process differ, as long as one of them is in use.
        let salt = mix(u64::from(far.generation) << 32 | u64::from(far.id));
        Self { units, first, salt }
    }

    /// Whether so much memory holds all of it.
    pub(super) fn fits(&self, far: &RemoteMemory) -> bool {
        self.first + u64::from(self.units) * UNIT_BYTES <= far.bytes
    }

    /// Where in R the header of the block is that begins at this unit.
    pub(super) fn header_at(&self, start: u32) -> u64 {
        self.first + u64::from(start) * UNIT_BYTES
    }

    /// Where its bytes are.
    pub(super) fn bytes_at(&self, start: u32) -> u64 {
        self.header_at(start) + HEADER_BYTES
    }

    /// What the header of a block holds while it is one. Never 0.
    pub(super) fn stamp(&self, serial: u64, start: u32, kind: StampKind) -> u64 {
        let place = mix(serial.wrapping_mul(4).wrapping_add(kind as u64) ^ self.salt);
        mix(place ^ u64::from(start)) | 1
    }

    /// What a list of so many words ends, or begins, with if it is whole.
    pub(super) fn sum_of(&self, words: impl IntoIterator<Item = u64>) -> u64 {
        words.into_iter().fold(self.salt, |sum, word| mix(sum ^ word).wrapping_add(word))
    }
}

/// What is the case with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum StampKind {
    /// It is the peer's, to be read and freed.
    Given = 1,
    /// The peer may read and write it.
    Lent = 2,
    /// It was the peer's, and the initiator has taken it back.
    TakenBack = 3,
}

/// One to one, and unlike the numbers that programs keep in their memory.
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The header of a block, as it goes across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) stamp: u64,
    /// Of its bytes, without the header.
    pub(super) units: u32,
    /// The last list of freed blocks that the initiator had taken when it wrote this; the lower half of its number.
    pub(super) taken: u32,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES as usize] {
        let rest = u64::from(self.taken) << 32 | u64::from(self.units);
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&self.stamp.to_ne_bytes());
        bytes[8..].copy_from_slice(&rest.to_ne_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; HEADER_BYTES as usize]) -> Self {
        let [stamp, rest] = words(&bytes);
        Self { stamp, units: rest as u32, taken: (rest >> 32) as u32 }
    }
}

/// The first words of so many bytes.
pub(super) fn words<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let mut words = [0; COUNT];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of eight"));
    }
    words
}

/// What R begins with: all that the peer needs to know of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Control {
    pub(super) initiator: WorkerId,
    pub(super) owner: WorkerId,
    pub(super) units: u32,
    /// So many blocks are freed before the initiator is told.
    pub(super) batch: u32,
    /// Where it is told.
    pub(super) tray: RemoteMemory,
    pub(super) shape: TrayShape,
}

impl Control {
    /// As it stands at the beginning of R.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = wire::encode(&self, Vec::with_capacity(CONTROL_BYTES as usize));
        bytes.resize(CONTROL_BYTES as usize, 0);
        bytes
    }
}

/// How lists of freed blocks lie in the initiator's memory: the list of each number has its slot, round and round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct TrayShape {
    pub(super) slots: u32,
    /// No list is longer.
    pub(super) slot_tags: u32,
}

impl TrayShape {
    /// For one list at a time, of what was collected.
    pub(super) fn deferred(batch: u32) -> Self {
        // There may be more by the time it may be sent.
        Self { slots: 1, slot_tags: batch.clamp(16, 4096) }
    }

    /// For short lists, each in a cache line: 8 bytes that tell that it is whole, and 56 of news.
    pub(super) const IMMEDIATE: Self = Self { slots: 64, slot_tags: 3 };

    /// How long the list of so many tags is.
    pub(super) fn list_bytes(tags: usize) -> usize {
        HEAD_BYTES + tags * TAG_BYTES
    }

    pub(super) fn bytes(self) -> u64 {
        u64::from(self.slots) * Self::list_bytes(self.slot_tags as usize) as u64
    }

    /// Where the list of this number lies.
    pub(super) fn offset_of(self, sequence: u64) -> u64 {
        sequence % u64::from(self.slots) * Self::list_bytes(self.slot_tags as usize) as u64
    }

    /// Whether there can be such a tray in so many bytes.
    pub(super) fn fits(self, bytes: u64) -> bool {
        self.slots > 0
            && self.slot_tags > 0
            && self.slot_tags <= u32::MAX / TAG_BYTES as u32 / 2
            && self.bytes() <= bytes
    }
}

#[cfg(test)]
pub(super) mod tests {
    use farside_fabric::{ProcessId, RemoteKey};
    use proptest::prelude::*;

    use super::*;

    /// Some heap of so many units.
    pub(in crate::heap) fn layout(generation: u32, units: u32) -> Layout {
        let key = RemoteKey::starter(ProcessId::new(1), 1 << 40);
        Layout::new(&RemoteMemory { key, offset: 64 * 7, bytes: far_bytes(units), id: 3, generation }, units)
    }

    #[test]
    fn units_begin_on_a_page_and_fit() {
        for offset in [64, 4096 - 64, 4096 - 256, 4096, 4096 + 64] {
            for units in [1, 255, 256, 1000] {
                let key = RemoteKey::starter(ProcessId::new(1), 1 << 40);
                let mut far = RemoteMemory { key, offset, bytes: far_bytes(units), id: 0, generation: 0 };
                let layout = Layout::new(&far, units);
                assert!((far.offset + layout.header_at(0)).is_multiple_of(ALIGN_MAX));
                assert!(layout.header_at(0) >= CONTROL_BYTES && layout.fits(&far));
                assert_eq!(place_of_bytes(&far, units - 1), Some(far.offset + layout.bytes_at(units - 1)));
                far.bytes = layout.header_at(units) - 1;
                assert!(!layout.fits(&far));
            }
        }
    }

    #[test]
    fn a_control_block_leaves_room_for_the_word_behind_it() {
        let far = RemoteMemory {
            key: RemoteKey::starter(ProcessId::new(9), u64::MAX),
            offset: u64::MAX,
            bytes: u64::MAX,
            id: 1,
            generation: 2,
        };
        let shape = TrayShape::deferred(u32::MAX);
        let ids = (WorkerId::new(u32::MAX), WorkerId::new(1));
        let control = Control { initiator: ids.0, owner: ids.1, units: u32::MAX, batch: 1, tray: far, shape };
        assert!(crate::wire::encode(&control, Vec::new()).len() as u64 <= TAKEN_AT);
    }

    #[test]
    fn stamps_differ() {
        let (one, other) = (layout(1, 100), layout(2, 100));
        let kinds = [StampKind::Given, StampKind::Lent, StampKind::TakenBack];
        let mut stamps = std::collections::HashSet::from([0]);
        for layout in [one, other] {
            for serial in 1..50 {
                for start in 0..20 {
                    assert!(kinds.into_iter().all(|kind| stamps.insert(layout.stamp(serial, start, kind))));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn headers_come_back(stamp: u64, units: u32, taken: u32) {
            let header = Header { stamp, units, taken };
            prop_assert_eq!(Header::from_bytes(header.to_bytes()), header);
        }
    }
}
