//! The layout of a heap's memory, and the numbers that identify its parts.
//!
//! ```text
//! R, at the peer:   control | up to a page | unit 0 | unit 1 | ...          a unit has 16 bytes
//! a block:          header (1 unit: stamp, units, lists taken) | its bytes, in whole units
//! L, here:          the same units, without what is before them
//! ```
//!
//! Headers are encoded by hand: each allocation of the hot path writes one, and `free` changes it
//! by atomic operations on its words. The [`Control`] block derives [`Wire`].

use farside::Wire;
use farside::kit::MemoryParts as _;
use farside::memory::RemoteMemory;
use farside::wire;
use farside_fabric::WorkerId;

use super::tags::{HEAD_BYTES, TAG_BYTES};

/// The unit of allocation. Blocks begin on multiples of it and take whole units.
pub(super) const UNIT_BYTES: u64 = 16;
/// The size of a block's header.
pub(super) const HEADER_BYTES: u64 = UNIT_BYTES;
/// The largest alignment of a block.
pub(super) const ALIGN_MAX: u64 = 4096;
/// The largest heap: units are counted in 32 bits.
pub(super) const HEAP_BYTES_MAX: u64 = (u32::MAX as u64) * UNIT_BYTES;
/// The size of the control block at the beginning of R.
pub(super) const CONTROL_BYTES: u64 = 256;
/// The offset of the control block's last word: the number of the last list applied. The initiator
/// stores it where R is mapped.
pub(super) const TAKEN_AT: u64 = CONTROL_BYTES - 8;

/// Returns the number of units that hold `bytes`.
pub(super) fn units_of(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT_BYTES)
}

/// Returns the bytes of R for a heap of `units`. The first unit begins on a page, wherever the
/// memory begins.
pub(super) fn far_bytes(units: u32) -> u64 {
    CONTROL_BYTES + ALIGN_MAX + u64::from(units) * UNIT_BYTES
}

/// Returns the first unit's offset in R's region, or `None` if it overflows.
fn first_unit(far: &RemoteMemory) -> Option<u64> {
    far.start().checked_add(CONTROL_BYTES)?.checked_next_multiple_of(ALIGN_MAX)
}

/// Returns the offset of a block's bytes in R's region, or `None` if it overflows.
pub(super) fn place_of_bytes(far: &RemoteMemory, start: u32) -> Option<u64> {
    first_unit(far)?.checked_add(u64::from(start) * UNIT_BYTES + HEADER_BYTES)
}

/// The place of the units in R.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) units: u32,
    first: u64,
    salt: u64,
}

impl Layout {
    pub(super) fn new(far: &RemoteMemory, units: u32) -> Self {
        let first = first_unit(far).expect("memory that there is ends before the last byte") - far.start();
        // Two pieces of memory of one process never have the same name while either is in use.
        let salt = mix(far.serial());
        Self { units, first, salt }
    }

    /// Returns whether R has room for all units.
    pub(super) fn fits(&self, far: &RemoteMemory) -> bool {
        self.first + u64::from(self.units) * UNIT_BYTES <= far.bytes()
    }

    /// Returns the offset in R of the header of the block at unit `start`.
    pub(super) fn header_at(&self, start: u32) -> u64 {
        self.first + u64::from(start) * UNIT_BYTES
    }

    /// Returns the offset in R of that block's bytes.
    pub(super) fn bytes_at(&self, start: u32) -> u64 {
        self.header_at(start) + HEADER_BYTES
    }

    /// Returns the stamp in a block's header while the block exists. Never 0.
    pub(super) fn stamp(&self, serial: u64, start: u32, kind: StampKind) -> u64 {
        let place = mix(serial.wrapping_mul(4).wrapping_add(kind as u64) ^ self.salt);
        mix(place ^ u64::from(start)) | 1
    }

    /// Returns the checksum of a list of words.
    pub(super) fn sum_of(&self, words: impl IntoIterator<Item = u64>) -> u64 {
        words.into_iter().fold(self.salt, |sum, word| mix(sum ^ word).wrapping_add(word))
    }
}

/// The state of a block as its header tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum StampKind {
    /// The block was handed over: the peer reads and frees it.
    Given = 1,
    /// The block is lent: the peer may read and write it.
    Lent = 2,
    /// The initiator has taken the block back.
    TakenBack = 3,
}

/// A bijection whose results are unlike the numbers that programs keep in memory.
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The header of a block, as written to R.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) stamp: u64,
    /// The units of the block's bytes, without the header.
    pub(super) units: u32,
    /// The lower half of the number of the last list that the initiator had applied when it wrote
    /// the header.
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

/// Returns the first words of `bytes`.
pub(super) fn words<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let mut words = [0; COUNT];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of eight"));
    }
    words
}

/// The control block at the beginning of R: everything that the peer needs to know of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Control {
    pub(super) initiator: WorkerId,
    pub(super) owner: WorkerId,
    pub(super) units: u32,
    /// The number of blocks that the peer frees before it reports them.
    pub(super) batch: u32,
    /// The memory for the peer's lists.
    pub(super) tray: RemoteMemory,
    pub(super) shape: TrayShape,
}

impl Control {
    /// Returns the bytes of the control block.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = wire::encode(&self, Vec::with_capacity(CONTROL_BYTES as usize));
        bytes.resize(CONTROL_BYTES as usize, 0);
        bytes
    }
}

/// The layout of lists of freed blocks in the initiator's memory. List *n* has slot *n mod slots*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct TrayShape {
    pub(super) slots: u32,
    /// The largest number of tags in a list.
    pub(super) slot_tags: u32,
}

impl TrayShape {
    /// Returns the layout for deferred synchronisation: one list at a time.
    pub(super) fn deferred(batch: u32) -> Self {
        // More than `batch` tags may have gathered by the time a list may be sent.
        Self { slots: 1, slot_tags: batch.clamp(16, 4096) }
    }

    /// The layout for immediate synchronisation: short lists, each in a cache line of an 8-byte
    /// checksum and 56 bytes of content.
    pub(super) const IMMEDIATE: Self = Self { slots: 64, slot_tags: 3 };

    /// Returns the bytes of a list of `tags` tags.
    pub(super) fn list_bytes(tags: usize) -> usize {
        HEAD_BYTES + tags * TAG_BYTES
    }

    pub(super) fn bytes(self) -> u64 {
        u64::from(self.slots) * Self::list_bytes(self.slot_tags as usize) as u64
    }

    /// Returns the offset of the list with this number.
    pub(super) fn offset_of(self, sequence: u64) -> u64 {
        sequence % u64::from(self.slots) * Self::list_bytes(self.slot_tags as usize) as u64
    }

    /// Returns whether the tray is valid and fits into `bytes`.
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

    /// Returns a handle with these fields.
    pub(in crate::heap) fn memory(key: RemoteKey, offset: u64, bytes: u64, id: u32, generation: u32) -> RemoteMemory {
        let fields = wire::encode(&(key, offset, bytes, id, generation), Vec::new());
        wire::decode(wire::Decoder::new(&fields), fields.len()).unwrap()
    }

    /// Returns the layout of an arbitrary heap of `units`.
    pub(in crate::heap) fn layout(generation: u32, units: u32) -> Layout {
        let key = RemoteKey::starter(ProcessId::new(1), 1 << 40);
        Layout::new(&memory(key, 64 * 7, far_bytes(units), 3, generation), units)
    }

    #[test]
    fn units_begin_on_a_page_and_fit() {
        for offset in [64, 4096 - 64, 4096 - 256, 4096, 4096 + 64] {
            for units in [1, 255, 256, 1000] {
                let key = RemoteKey::starter(ProcessId::new(1), 1 << 40);
                let far = memory(key, offset, far_bytes(units), 0, 0);
                let layout = Layout::new(&far, units);
                assert!((far.start() + layout.header_at(0)).is_multiple_of(ALIGN_MAX));
                assert!(layout.header_at(0) >= CONTROL_BYTES && layout.fits(&far));
                assert_eq!(place_of_bytes(&far, units - 1), Some(far.start() + layout.bytes_at(units - 1)));
                let short = memory(key, offset, layout.header_at(units) - 1, 0, 0);
                assert!(!layout.fits(&short));
            }
        }
    }

    #[test]
    fn a_control_block_leaves_room_for_the_word_behind_it() {
        let far = memory(RemoteKey::starter(ProcessId::new(9), u64::MAX), u64::MAX, u64::MAX, 1, 2);
        let shape = TrayShape::deferred(u32::MAX);
        let ids = (WorkerId::new(u32::MAX), WorkerId::new(1));
        let control = Control { initiator: ids.0, owner: ids.1, units: u32::MAX, batch: 1, tray: far, shape };
        assert!(farside::wire::encode(&control, Vec::new()).len() as u64 <= TAKEN_AT);
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
