//! Global addresses: the names of bytes anywhere in the job.

use std::fmt;

use bytemuck::{Pod, Zeroable};
pub(crate) use farside_fabric::transport::{SLOT_BYTES, SLOT_COUNT};
use farside_fabric::{ProcessId, RemoteKey};

use crate::Wire;

const WITHIN_BITS: u32 = SLOT_BYTES.ilog2();
const GENERATION_BITS: u32 = 4;

const GENERATION_SHIFT: u32 = WITHIN_BITS + SLOT_COUNT.ilog2();
const PROCESS_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS;
const _: () = assert!(u64::BITS - PROCESS_SHIFT == 18, "a job has room for its processes");

/// The bytes of one process that addresses can name: those of all its slots.
pub(crate) const SPACE_BYTES: u64 = 1 << GENERATION_SHIFT;

/// The name of a byte of any process's memory: 64 bits, so it fits into an atomic word. Zero is
/// null.
///
/// ```text
/// | process + 1 (18) | generation (4) | slot (13) | offset (29) |
/// ```
///
/// Memory that can be named lies in regions. A region has a slot of its process for each 512 MiB,
/// one after the other, so that its addresses can be counted from slot to slot. The generation is
/// that of the slots' use: an address of a region that was taken back is
/// [stale](crate::AddressFault::Stale), until the process has gone through its slots at least seven
/// more times. The 64 bits do not name a job: an address of another job is stale or names other
/// memory.
///
/// Computing, sending and comparing addresses involves no other process. Whether an address names
/// memory is found out when it is used. An address that was moved out of its region is refused. If
/// it was moved further than to the end of the region's last slot, it may name memory of another
/// region.
///
/// ```
/// use farside::{GlobalAddress, ProcessId};
///
/// let there = GlobalAddress::starter(ProcessId::new(3), 64);
/// assert_eq!((there.process(), there.offset()), (Some(ProcessId::new(3)), 64));
/// assert_eq!(there.checked_add(8).map(|next| next.offset()), Some(72));
/// assert_eq!(GlobalAddress::from_bits(there.to_bits()), there);
/// assert!(GlobalAddress::NULL.is_null() && GlobalAddress::NULL.process().is_none());
/// ```
///
/// ACP's global addresses, with a generation in place of ACP's "colour" (the number of a device).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable, Wire)]
#[repr(transparent)]
#[wire(word = "farside::GlobalAddress")]
pub struct GlobalAddress(u64);

impl GlobalAddress {
    /// The null address.
    pub const NULL: Self = Self(0);

    /// Returns the address with these bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the bits of the address, which may be stored or sent like any number.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the address of a byte of a process's starter memory. Every process has that memory
    /// from the start ([`Job::starter_bytes`](crate::Job::starter_bytes)), so its addresses need
    /// not be exchanged. If no job can have the process, the result is an address that is refused
    /// when it is used.
    pub const fn starter(process: ProcessId, offset: u32) -> Self {
        Self::new(process, 0, offset as u64)
    }

    /// `offset` is less than [`SPACE_BYTES`].
    const fn new(process: ProcessId, generation: u32, offset: u64) -> Self {
        let generation = generation & ((1 << GENERATION_BITS) - 1);
        Self(process_bits(process) | (generation as u64) << GENERATION_SHIFT | offset)
    }

    /// Returns the address of a byte of a region, or `None` if it has none: the slot is too high,
    /// or the offset too large.
    pub(crate) fn in_region(key: RemoteKey, offset: u64) -> Option<Self> {
        let offset = (u64::from(key.slot) * SLOT_BYTES).checked_add(offset)?;
        let has_address = key.slot < SLOT_COUNT && offset < SPACE_BYTES;
        has_address.then(|| Self::new(key.process, key.generation, offset))
    }

    /// Returns whether it is null.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the process whose memory it names; `None` for null and for bits that are no address.
    pub const fn process(self) -> Option<ProcessId> {
        match (self.0 >> PROCESS_SHIFT) as u32 {
            0 => None,
            next => Some(ProcessId::new(next - 1)),
        }
    }

    /// Returns the offset in its process's part of the address space, where starter memory is the
    /// first. Two addresses of a region are as far apart as their offsets.
    pub const fn offset(self) -> u64 {
        self.0 & (SPACE_BYTES - 1)
    }

    /// Returns the address `bytes` bytes further; `None` beyond the process's last address, and for
    /// null.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        if bytes < SPACE_BYTES && self.offset() + bytes < SPACE_BYTES && !self.is_null() {
            Some(Self(self.0 + bytes))
        } else {
            None
        }
    }

    /// Returns the address `bytes` bytes before; `None` before the process's first address, and for
    /// null.
    pub const fn checked_sub(self, bytes: u64) -> Option<Self> {
        if bytes <= self.offset() && !self.is_null() { Some(Self(self.0 - bytes)) } else { None }
    }

    /// Returns whether two ranges share a byte. An empty range shares none.
    #[inline]
    pub(crate) const fn overlaps(self, bytes: u64, other: Self, other_bytes: u64) -> bool {
        let (begin, other_begin) = (self.offset(), other.offset());
        self.0 >> PROCESS_SHIFT == other.0 >> PROCESS_SHIFT
            && bytes > 0
            && other_bytes > 0
            && begin < other_begin.saturating_add(other_bytes)
            && other_begin < begin.saturating_add(bytes)
    }

    /// Returns the distance from an earlier address. `None` if they cannot be in one region, or are
    /// in the other order.
    pub(crate) const fn bytes_from(self, earlier: Self) -> Option<u64> {
        if self.0 >> GENERATION_SHIFT != earlier.0 >> GENERATION_SHIFT {
            return None;
        }
        self.0.checked_sub(earlier.0)
    }

    /// Returns the offset in its slot.
    #[inline]
    pub(crate) const fn within(self) -> u32 {
        (self.0 & (SLOT_BYTES - 1)) as u32
    }

    /// Returns the address with the same slot, generation and offset in another process.
    #[inline]
    pub(crate) const fn at_process(self, process: ProcessId) -> Self {
        Self(process_bits(process) | self.0 & ((1 << PROCESS_SHIFT) - 1))
    }

    /// Returns the segment: the slot, its process, and its use.
    pub(crate) const fn segment(self) -> Segment {
        Segment(self.0 >> WITHIN_BITS)
    }
}

/// Returns the bits of a process. A number that is too large becomes the largest, which no job has,
/// and never that of another process.
const fn process_bits(process: ProcessId) -> u64 {
    const LARGEST: u64 = u64::MAX >> PROCESS_SHIFT;
    let next = process.number() as u64 + 1;
    (if next < LARGEST { next } else { LARGEST }) << PROCESS_SHIFT
}

impl fmt::Debug for GlobalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for GlobalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(process) = self.process() else { return write!(f, "null ({:#x})", self.0) };
        let segment = self.segment();
        write!(f, "{process}:{}.{}+{:#x}", segment.slot(), segment.generation(), self.within())
    }
}

/// The upper part of an address: a slot of a process, in one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Segment(u64);

impl Segment {
    pub(crate) fn process(self) -> Option<ProcessId> {
        ((self.0 >> (PROCESS_SHIFT - WITHIN_BITS)) as u32).checked_sub(1).map(ProcessId::new)
    }

    pub(crate) const fn slot(self) -> u32 {
        self.0 as u32 & (SLOT_COUNT - 1)
    }

    /// Returns the last bits of the slot's generation.
    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> (GENERATION_SHIFT - WITHIN_BITS)) as u32 & ((1 << GENERATION_BITS) - 1)
    }

    /// Returns whether a generation of the slot has the same last bits as the address.
    pub(crate) const fn is_of(self, generation: u32) -> bool {
        generation & ((1 << GENERATION_BITS) - 1) == self.generation()
    }

    /// Returns its bits.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns an index below `count`, a power of two. The slots of one process, and the same slot
    /// of several processes, are spread.
    #[inline]
    pub(crate) const fn index(self, count: usize) -> usize {
        let mixed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (u64::BITS - count.ilog2())) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(process: u32, slot: u32, generation: u32) -> RemoteKey {
        RemoteKey { process: ProcessId::new(process), slot, generation, reserved: 0, bytes: 1 << 20 }
    }

    proptest! {
        #[test]
        fn addresses_round_trip(
            process in 0..(1_u32 << 18) - 2, slot in 0..SLOT_COUNT, generation: u32, offset in 0..SPACE_BYTES,
        ) {
            let address = GlobalAddress::in_region(key(process, slot, generation), offset);
            let place = u64::from(slot) * SLOT_BYTES + offset;
            prop_assert_eq!(address.is_some(), place < SPACE_BYTES);
            let Some(address) = address else { return Ok(()) };
            let segment = address.segment();
            prop_assert_eq!(address.process(), Some(ProcessId::new(process)));
            prop_assert_eq!(segment.process(), address.process());
            let parts = ((place / SLOT_BYTES) as u32, (place % SLOT_BYTES) as u32);
            prop_assert_eq!((segment.slot(), address.within(), address.offset()), (parts.0, parts.1, place));
            prop_assert!(segment.is_of(generation) && !segment.is_of(generation.wrapping_add(1)) && !address.is_null());
        }

        #[test]
        fn arithmetic_stays_in_the_process(bits: u64, by in prop_oneof![any::<u64>(), 0..SPACE_BYTES]) {
            let address = GlobalAddress::from_bits(bits);
            if let Some(further) = address.checked_add(by) {
                prop_assert_eq!(further.segment().process(), address.segment().process());
                prop_assert_eq!(further.segment().generation(), address.segment().generation());
                prop_assert_eq!(further.checked_sub(by), Some(address));
                prop_assert_eq!(further.offset(), address.offset() + by);
                prop_assert_eq!(further.bytes_from(address), Some(by));
                prop_assert_eq!(address.bytes_from(further), (by == 0).then_some(0));
            }
        }

        #[test]
        fn ranges_overlap_where_they_share_a_byte(
            begin in 0..20_u32, bytes in 0..20_u32, other in 0..20_u32, other_bytes in 0..20_u32,
        ) {
            let at = |process, offset| GlobalAddress::starter(ProcessId::new(process), offset);
            let shares = (begin..begin + bytes).any(|byte| (other..other + other_bytes).contains(&byte));
            prop_assert_eq!(at(1, begin).overlaps(bytes.into(), at(1, other), other_bytes.into()), shares);
            prop_assert!(!at(1, begin).overlaps(bytes.into(), at(2, other), other_bytes.into()));
        }

        #[test]
        fn any_segment_has_an_index(bits: u64, log in 1..12_u32) {
            prop_assert!(GlobalAddress::from_bits(bits).segment().index(1 << log) < 1 << log);
        }
    }

    #[test]
    fn bytes_out_of_reach_have_no_address() {
        assert_eq!(GlobalAddress::in_region(key(0, SLOT_COUNT, 0), 0), None);
        assert_eq!(GlobalAddress::in_region(key(0, 1, 0), SPACE_BYTES - SLOT_BYTES), None);
        assert!(GlobalAddress::in_region(key(0, 1, 0), SPACE_BYTES - SLOT_BYTES - 1).is_some());
        assert_eq!(GlobalAddress::in_region(key(0, 1, 0), u64::MAX), None);
        assert_eq!(GlobalAddress::NULL.checked_add(0), None);
        assert_eq!(GlobalAddress::starter(ProcessId::new(0), 8).checked_sub(9), None);
    }

    #[test]
    fn impossible_processes_alias_no_other() {
        for number in [(1 << 18) - 2, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, u32::MAX - 1, u32::MAX] {
            let address = GlobalAddress::starter(ProcessId::new(number), 8);
            assert_eq!(address.process(), Some(ProcessId::new((1 << 18) - 2)), "{number}");
            assert_eq!(GlobalAddress::starter(ProcessId::new(0), 8).at_process(ProcessId::new(number)), address);
        }
    }

    #[test]
    fn an_address_is_shown_with_its_parts() {
        let address = GlobalAddress::in_region(key(2, 5, 17), 0x40).unwrap();
        assert_eq!(address.to_string(), "process 2:5.1+0x40");
        assert_eq!(GlobalAddress::NULL.to_string(), "null (0x0)");
    }
}
