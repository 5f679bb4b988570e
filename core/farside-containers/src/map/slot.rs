//! The layout of slots, and where a key belongs.

use farside::bytemuck::checked::CheckedBitPattern;
use farside::bytemuck::{self, NoUninit};
use farside::{GlobalPtr, Result, Wire, WorkerId};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::MapError;

/// Keys and values of a [`HashMap`](super::HashMap): plain bytes without padding, of which not all
/// need to be a value. `u64`, `bool`, `char`, arrays, and structures that derive these traits.
///
/// Keys are equal if their bytes are.
pub trait Slot: NoUninit + CheckedBitPattern + Wire + Send {}

impl<T: NoUninit + CheckedBitPattern + Wire + Send> Slot for T {}

/// Returns the hash that places a key by default: XXH3 with 64 bits and no seed, of the bytes of
/// the key. It is the same in every binary and version.
#[inline]
pub fn placement_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Where a key belongs.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    hash: u64,
    /// The index of the worker that owns the key.
    pub(super) owner: usize,
    pub(super) tag: u64,
}

impl Spot {
    /// The owner depends on the upper bits, the slot on the lower ones.
    #[inline]
    pub(super) fn new(hash: u64, workers: usize) -> Self {
        let owner = ((hash >> 32) * workers as u64) >> 32;
        Self { hash, owner: owner as usize, tag: (hash >> 32) & Stamp::TAG_MASK }
    }

    /// Stands for any key of a worker's part, where only the owner counts.
    pub(super) fn in_part(owner: usize) -> Self {
        Self { hash: 0, owner, tag: 0 }
    }

    /// Returns the slots that the key may have, in order. Steps of growing size reach each of 2^k
    /// slots once.
    #[inline]
    pub(super) fn probes(self, part: Part) -> impl Iterator<Item = u64> {
        (1..=part.slots).scan(self.hash, move |next, step| {
            let index = *next & (part.slots - 1);
            *next = next.wrapping_add(step);
            Some(index)
        })
    }
}

/// The word of a slot that says what is in it. All workers change it by compare-and-swap, so a
/// holder that others have taken for lost publishes nothing. A worker that alone changes the slot
/// writes it with release stores, for the acquiring loads of readers.
///
/// ```text
/// | version, or holder (32) | tag of the key (29) | state (3) |
/// ```
///
/// A holder is the number of a worker (22 bits) and of its era (10 bits). An era ends when the
/// worker gives up a request, which may then take or give back a slot at any later time. No later
/// hold of the worker has the same stamp, so such a request touches none.
///
/// | state | entry | next |
/// |---|---|---|
/// | empty | none, never was | claimed, moved |
/// | claimed | its first one is being written | full, retired |
/// | full | valid | locked, moved |
/// | locked | being replaced | full, dead, retired |
/// | dead | removed; the key stays | locked, moved |
/// | retired | lost with its writer; never used again in this part | moved |
/// | moved | in the larger part | - |
///
/// A key keeps its slot, also when it is removed, until its part grows. So two workers that insert
/// one key meet at one slot, and all operations on a key are ordered by one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Stamp(pub(super) u64);

impl Stamp {
    pub(super) const EMPTY: u64 = 0;
    pub(super) const CLAIMED: u64 = 1;
    pub(super) const FULL: u64 = 2;
    pub(super) const LOCKED: u64 = 3;
    pub(super) const DEAD: u64 = 4;
    pub(super) const RETIRED: u64 = 5;
    pub(super) const MOVED: u64 = 6;
    const STATE_MASK: u64 = 7;
    const TAG_SHIFT: u32 = 3;
    const TAG_MASK: u64 = (1 << 29) - 1;
    const VERSION_SHIFT: u32 = 32;
    const WORKER_BITS: u32 = 22;
    /// Their numbers have room in a stamp.
    pub(super) const WORKERS_MAX: u32 = 1 << Self::WORKER_BITS;
    pub(super) const ERA_MASK: u32 = (1 << (32 - Self::WORKER_BITS)) - 1;

    /// A stamp with a version, or with a holder.
    #[inline]
    pub(super) fn new(state: u64, tag: u64, upper: u32) -> Self {
        Self(u64::from(upper) << Self::VERSION_SHIFT | tag << Self::TAG_SHIFT | state)
    }

    #[inline]
    pub(super) fn state(self) -> u64 {
        self.0 & Self::STATE_MASK
    }

    #[inline]
    pub(super) fn upper(self) -> u32 {
        (self.0 >> Self::VERSION_SHIFT) as u32
    }

    /// The stamp of a slot that a worker holds.
    #[inline]
    pub(super) fn held(state: u64, tag: u64, worker: WorkerId, era: u32) -> Self {
        Self::new(state, tag, era << Self::WORKER_BITS | worker.number())
    }

    /// The worker that has claimed or locked the slot.
    pub(super) fn holder(self) -> Option<WorkerId> {
        let is_held = matches!(self.state(), Self::CLAIMED | Self::LOCKED);
        is_held.then(|| WorkerId::new(self.upper() & (Self::WORKERS_MAX - 1)))
    }

    #[inline]
    pub(super) fn tag(self) -> u64 {
        (self.0 >> Self::TAG_SHIFT) & Self::TAG_MASK
    }

    /// Returns whether the slot holds a key with this tag.
    #[inline]
    pub(super) fn may_be(self, tag: u64) -> bool {
        self.tag() == tag && (Self::FULL..=Self::DEAD).contains(&self.state())
    }
}

/// Bytes before the entry in the copy of a slot: the stamp and the checksum.
pub(super) const HEAD_BYTES: usize = 16;

/// The layout of the slots of one map: the stamp, the checksum if any process reads by messages,
/// the key, the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) slot_bytes: usize,
    /// Where the key begins.
    pub(super) entry: usize,
}

impl Layout {
    pub(super) fn new(entry_bytes: usize, has_checksum: bool) -> Self {
        let entry = if has_checksum { HEAD_BYTES } else { 8 };
        let bytes = (entry + entry_bytes).next_multiple_of(8);
        // A slot of up to 64 bytes lies in one line of the cache.
        let slot_bytes = if bytes <= 64 { bytes.next_power_of_two() } else { bytes };
        Self { slot_bytes, entry }
    }

    pub(super) fn has_checksum(self) -> bool {
        self.entry == HEAD_BYTES
    }
}

/// The slots of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Part {
    pub(super) base: GlobalPtr<u8>,
    /// A power of two.
    pub(super) slots: u64,
    /// True if this worker reaches it by loads and stores.
    pub(super) is_mapped: bool,
}

impl Part {
    /// The part of a map that is not here.
    pub(super) const NONE: Self = Self { base: GlobalPtr::NULL, slots: 0, is_mapped: false };

    #[inline]
    pub(super) fn slot(self, index: u64, layout: Layout) -> Result<GlobalPtr<u64>> {
        self.base.add(index as usize * layout.slot_bytes).map(GlobalPtr::cast)
    }
}

/// Runs `work` with room for a copy of a slot.
#[inline]
pub(super) fn with_copy<K, V, R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    match const { HEAD_BYTES + size_of::<K>() + size_of::<V>() } {
        bytes @ ..=32 => work(&mut [0; 32][..bytes]),
        bytes @ ..=64 => work(&mut [0; 64][..bytes]),
        bytes @ ..=256 => work(&mut [0; 256][..bytes]),
        bytes => work(&mut vec![0; bytes]),
    }
}

/// Returns whether the copy of a slot has this key.
#[inline]
pub(super) fn has_key<K: Slot>(copy: &[u8], key: &K) -> bool {
    &copy[HEAD_BYTES..][..size_of::<K>()] == bytemuck::bytes_of(key)
}

/// Returns the key and the value in the copy of a slot.
#[inline]
pub(super) fn entry_of<K: Slot, V: Slot>(copy: &[u8]) -> Result<(K, V)> {
    let (key, value) = copy[HEAD_BYTES..].split_at(size_of::<K>());
    let key = bytemuck::checked::try_pod_read_unaligned(key);
    let value = bytemuck::checked::try_pod_read_unaligned(value);
    key.and_then(|key| Ok((key, value?))).map_err(|_| MapError::Damaged.into())
}

/// Returns the value in the copy of a slot.
#[inline]
pub(super) fn value_of<K: Slot, V: Slot>(copy: &[u8]) -> Result<V> {
    let value = bytemuck::checked::try_pod_read_unaligned(&copy[HEAD_BYTES + size_of::<K>()..]);
    value.map_err(|_| MapError::Damaged.into())
}

/// Returns the checksum of an entry. The stamp is its key, so an entry and the stamp of another one
/// do not agree, but for one of 2^64.
pub(super) fn checksum(entry: &[u8], stamp: Stamp) -> u64 {
    xxh3_64_with_seed(entry, stamp.0)
}

/// Returns the stamp of a copy, unless its pieces are of different moments.
pub(super) fn verified(copy: &[u8], is_held: impl Fn(Stamp) -> bool) -> Option<Stamp> {
    let word = |at: usize| u64::from_le_bytes(copy[at..at + 8].try_into().expect("eight bytes"));
    let stamp = Stamp(word(0));
    let is_whole = !is_held(stamp) || stamp.state() == Stamp::LOCKED;
    (is_whole || word(8) == checksum(&copy[HEAD_BYTES..], stamp)).then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_placement_never_changes() {
        let of = |key: u64| placement_hash(bytemuck::bytes_of(&key));
        let golden = [of(0), of(1), of(u64::MAX), placement_hash(b""), placement_hash(b"a key of a map")];
        let expected: [u64; 5] = [
            0xc77b_3abb_6f87_acd9,
            0x2fbc_5935_64db_792e,
            0x5111_c7e4_7d78_4413,
            0x2d06_8005_38d3_94c2,
            0x3dc7_e918_543f_3292,
        ];
        assert_eq!(golden, expected);
    }

    #[test]
    fn probes_reach_every_slot_once() {
        for slots in [1, 2, 8, 64] {
            let part = Part { slots, ..Part::NONE };
            let mut reached: Vec<_> = Spot::new(0x1234_5678_9abc_def1, 3).probes(part).collect();
            reached.sort_unstable();
            assert_eq!(reached, (0..slots).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_worker_owns_keys() {
        for workers in [1, 2, 3, 7] {
            let mut keys = vec![0; workers];
            for key in 0..1000_u64 {
                keys[Spot::new(placement_hash(bytemuck::bytes_of(&key)), workers).owner] += 1;
            }
            assert!(keys.iter().all(|keys| *keys > 700 / workers), "{keys:?}");
        }
    }

    #[test]
    fn a_slot_lies_in_one_line() {
        assert_eq!(Layout::new(16, false).slot_bytes, 32);
        assert_eq!(Layout::new(24, true).slot_bytes, 64);
        assert_eq!(Layout::new(100, true).slot_bytes, 120);
    }

    #[test]
    fn a_copy_of_two_moments_is_found() {
        let stamp = Stamp::new(Stamp::FULL, 5, 1);
        let mut copy = vec![0; HEAD_BYTES];
        copy.extend(b"an entry");
        copy[..8].copy_from_slice(&stamp.0.to_le_bytes());
        let sum = checksum(&copy[HEAD_BYTES..], stamp);
        copy[8..16].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(verified(&copy, |stamp| stamp.may_be(5)), Some(stamp));
        // A slot with another tag is not looked at.
        copy[HEAD_BYTES] ^= 1;
        assert_eq!(verified(&copy, |stamp| stamp.may_be(6)), Some(stamp));
        assert_eq!(verified(&copy, |stamp| stamp.may_be(5)), None);
        // A later stamp with an earlier entry.
        copy[HEAD_BYTES] ^= 1;
        copy[..8].copy_from_slice(&Stamp::new(Stamp::FULL, 5, 2).0.to_le_bytes());
        assert_eq!(verified(&copy, |stamp| stamp.may_be(5)), None);
    }
}
