//! The names of regions.

use farside_wire::Wire;

use super::FabricError;
use crate::ids::ProcessId;

/// Names a registered region to its peers. Plain data: 24 bytes that can be sent anywhere in the
/// job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
#[wire(crate = "farside_wire")]
#[repr(C)]
pub struct RemoteKey {
    /// The process that owns the memory.
    pub process: ProcessId,
    /// The slot of the region, and the first of several if it is larger than [`SLOT_BYTES`].
    pub slot: u32,
    /// Tells the uses of a slot apart. The highest bit is set for [internal](Self::is_internal)
    /// regions.
    pub generation: u32,
    /// Zero.
    pub reserved: u32,
    /// The size of the region.
    pub bytes: u64,
}

/// The bytes that one slot stands for. A larger region takes consecutive slots, so that a slot and
/// an offset in it are one number, which a layer above can compute with.
pub const SLOT_BYTES: u64 = 1 << 29;
/// The number of slots that a layer above gives addresses. Further regions have only their keys.
pub const SLOT_COUNT: u32 = 1 << 13;

/// The bit of a generation that says that the region is internal.
pub(crate) const INTERNAL: u32 = 1 << 31;

/// The purpose of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Memory of programs, which name it by handles and addresses. They can make those from any
    /// bytes.
    Shared,
    /// Memory in which the layer above the transport keeps its own state.
    /// [`RemoteKey::is_internal`] tells these regions from all others.
    Internal,
}

impl RemoteKey {
    /// The key of a process's starter memory.
    pub const fn starter(process: ProcessId, bytes: u64) -> Self {
        Self { process, slot: 0, generation: 0, reserved: 0, bytes }
    }

    /// The number of slots that the region takes.
    pub fn slot_count(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(SLOT_BYTES).max(1)).unwrap_or(u32::MAX)
    }

    /// Returns whether the region is internal, or the key is one of starter memory, which has
    /// internal parts. A layer above that lets programs name memory refuses such a key from a
    /// program. A key that is not internal never names such memory: its owner compares all of the
    /// generation.
    #[inline]
    pub const fn is_internal(&self) -> bool {
        self.slot == 0 || self.generation & INTERNAL != 0
    }

    /// Checks that an access lies inside the region.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`].
    #[inline]
    pub fn check(&self, offset: u64, bytes: usize) -> Result<(), FabricError> {
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(FabricError::OutOfRange { offset, bytes, region_bytes: self.bytes }),
        }
    }

    /// Checks that an atomic access lies inside the region, on a multiple of its size.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::Misaligned`].
    #[inline]
    pub fn check_word(&self, offset: u64, bytes: usize) -> Result<(), FabricError> {
        self.check(offset, bytes)?;
        if offset.is_multiple_of(bytes as u64) { Ok(()) } else { Err(FabricError::Misaligned { offset, bytes }) }
    }
}

/// Names a region of one process: the part of a [`RemoteKey`] that its owner looks it up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
#[wire(crate = "farside_wire")]
pub struct RegionName {
    /// The slot, as in [`RemoteKey::slot`].
    pub slot: u32,
    /// The generation, as in [`RemoteKey::generation`].
    pub generation: u32,
}

impl From<RemoteKey> for RegionName {
    fn from(key: RemoteKey) -> Self {
        Self { slot: key.slot, generation: key.generation }
    }
}
