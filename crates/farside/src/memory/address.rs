//! Global addresses: the names of bytes anywhere in the job.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use farside_fabric::{ProcessId, RemoteKey};

use crate::Wire;

const OFFSET_BITS: u32 = 32;
const GENERATION_BITS: u32 = 4;
const SLOT_BITS: u32 = 10;

const GENERATION_SHIFT: u32 = OFFSET_BITS;
const SLOT_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS;
const PROCESS_SHIFT: u32 = SLOT_SHIFT + SLOT_BITS;

/// The number of regions of one process that can have addresses.
pub(crate) const SLOT_COUNT: u32 = 1 << SLOT_BITS;
const _: () = assert!(SLOT_COUNT == farside_launch::layout::SEGMENT_COUNT);
/// The bytes of a region that one slot can name: the most that a region with addresses has.
pub(crate) const SLOT_BYTES: u64 = 1 << OFFSET_BITS;

/// The name of a byte of any process's memory: 64 bits, so it fits into an atomic word. Zero is
/// null.
///
/// ```text
/// | process + 1 (18) | slot (10) | generation (4) | offset (32) |
/// ```
///
/// Memory that can be named lies in regions. The slot names the region in its process. The
/// generation is that of the slot's use: an address of a region that was taken back is
/// [stale](crate::AddressFault::Stale), until the slot was used sixteen more times. The 64 bits do
/// not name a job: an address of another job is stale or names other memory.
///
/// Computing, sending and comparing addresses involves no other process. Whether an address names
/// memory is found out when it is used.
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
        Self::new(process, 0, 0, offset)
    }

    const fn new(process: ProcessId, slot: u32, generation: u32, offset: u32) -> Self {
        let generation = generation & ((1 << GENERATION_BITS) - 1);
        Self(
            process_bits(process)
                | (slot as u64) << SLOT_SHIFT
                | (generation as u64) << GENERATION_SHIFT
                | offset as u64,
        )
    }

    /// Returns the address of a byte of a region, or `None` if it has none: the slot is too high,
    /// or the offset too large.
    pub(crate) fn in_region(key: RemoteKey, offset: u64) -> Option<Self> {
        let offset = u32::try_from(offset).ok()?;
        (key.slot < SLOT_COUNT).then(|| Self::new(key.process, key.slot, key.generation, offset))
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

    /// Returns the offset in its region.
    pub const fn offset(self) -> u32 {
        self.0 as u32
    }

    /// Returns the address `bytes` bytes further; `None` beyond the largest region, and for null.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        if bytes < SLOT_BYTES && self.offset() as u64 + bytes < SLOT_BYTES && !self.is_null() {
            Some(Self(self.0 + bytes))
        } else {
            None
        }
    }

    /// Returns the address `bytes` bytes before; `None` before the region's first byte, and for
    /// null.
    pub const fn checked_sub(self, bytes: u64) -> Option<Self> {
        if bytes <= self.offset() as u64 && !self.is_null() { Some(Self(self.0 - bytes)) } else { None }
    }

    /// Returns the address with the same slot, generation and offset in another process.
    #[inline]
    pub(crate) const fn at_process(self, process: ProcessId) -> Self {
        Self(process_bits(process) | self.0 & ((1 << PROCESS_SHIFT) - 1))
    }

    /// Returns the segment: the region, its process, and the use of its slot.
    pub(crate) const fn segment(self) -> Segment {
        Segment((self.0 >> OFFSET_BITS) as u32)
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
        write!(f, "{process}:{}.{}+{:#x}", segment.slot(), segment.generation(), self.offset())
    }
}

/// The upper half of an address: a region of a process, in one use of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Segment(u32);

impl Segment {
    pub(crate) fn process(self) -> Option<ProcessId> {
        (self.0 >> (PROCESS_SHIFT - OFFSET_BITS)).checked_sub(1).map(ProcessId::new)
    }

    pub(crate) const fn slot(self) -> u32 {
        self.0 >> (SLOT_SHIFT - OFFSET_BITS) & (SLOT_COUNT - 1)
    }

    /// Returns the last bits of the slot's generation.
    pub(crate) const fn generation(self) -> u32 {
        self.0 & ((1 << GENERATION_BITS) - 1)
    }

    /// Returns whether a generation of the slot has the same last bits as the address.
    pub(crate) const fn is_of(self, generation: u32) -> bool {
        generation & ((1 << GENERATION_BITS) - 1) == self.generation()
    }

    /// Returns its bits.
    #[inline]
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Returns an index below `count`, a power of two. Regions of one process, and the same region
    /// of several processes, are spread.
    #[inline]
    pub(crate) const fn index(self, count: usize) -> usize {
        let mixed = self.0.wrapping_mul(0x9e37_79b9);
        (mixed >> (u32::BITS - count.ilog2())) as usize
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
            process in 0..(1_u32 << 18) - 2, slot in 0..SLOT_COUNT, generation: u32, offset: u32,
        ) {
            let address = GlobalAddress::in_region(key(process, slot, generation), offset.into()).unwrap();
            let segment = address.segment();
            prop_assert_eq!(address.process(), Some(ProcessId::new(process)));
            prop_assert_eq!(segment.process(), address.process());
            prop_assert_eq!((segment.slot(), address.offset()), (slot, offset));
            prop_assert!(segment.is_of(generation) && !segment.is_of(generation.wrapping_add(1)) && !address.is_null());
        }

        #[test]
        fn arithmetic_stays_in_the_region(bits: u64, by: u64) {
            let address = GlobalAddress::from_bits(bits);
            if let Some(further) = address.checked_add(by) {
                prop_assert_eq!(further.segment(), address.segment());
                prop_assert_eq!(further.checked_sub(by), Some(address));
                prop_assert_eq!(u64::from(further.offset()), u64::from(address.offset()) + by);
            }
        }

        #[test]
        fn any_segment_has_an_index(bits: u64, log in 1..12_u32) {
            prop_assert!(GlobalAddress::from_bits(bits).segment().index(1 << log) < 1 << log);
        }
    }

    #[test]
    fn bytes_out_of_reach_have_no_address() {
        assert_eq!(GlobalAddress::in_region(key(0, SLOT_COUNT, 0), 0), None);
        assert_eq!(GlobalAddress::in_region(key(0, 1, 0), SLOT_BYTES), None);
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
