//! What operations do, and with which memory.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use farside_fabric::region::execute;
use farside_fabric::transport::{Operation, Outcome};
use farside_fabric::{ProcessId, RemoteKey, RemoteRegion};
use farside_sys::racy;
use farside_sys::shm::SharedMemory;

use super::error::Failure;
use super::message::PUT_BYTES_MAX;
use crate::global::segments::is_published;
use crate::job::process::Process;
use crate::memory::Extent;

#[derive(Clone, Debug)]
pub(super) enum Work {
    Copy {
        target: Spot,
        source: Spot,
        bytes: u64,
    },
    Put {
        target: Spot,
        data: Vec<u8>,
    },
    /// As many bytes as there is room for.
    Get {
        source: Spot,
        room: Vec<u8>,
    },
    /// An atomic change, whose offset is the target's.
    Change {
        target: Spot,
        change: Operation,
    },
}

/// What an operation brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Brought {
    Nothing,
    /// The buffer that was handed over.
    Buffer(Vec<u8>),
    /// What a word held.
    Previous(u64),
}

impl Work {
    /// Where it writes.
    pub(super) fn target(&mut self) -> Option<&mut Spot> {
        match self {
            Self::Copy { target, .. } | Self::Put { target, .. } | Self::Change { target, .. } => Some(target),
            Self::Get { .. } => None,
        }
    }

    /// Where it reads.
    pub(super) fn source(&mut self) -> Option<&mut Spot> {
        match self {
            Self::Copy { source, .. } | Self::Get { source, .. } => Some(source),
            Self::Put { .. } | Self::Change { .. } => None,
        }
    }

    /// Does it, if all of it is mapped here. If something is wrong with that, nothing is done.
    pub(super) fn do_now(&mut self, process: &Process) -> Option<Brought> {
        match self {
            Self::Copy { target, source, bytes } => {
                let (to, from) = (target.mapped(process).ok()??, source.mapped(process).ok()??);
                copy_mapped((target, to), (source, from), 0, *bytes as usize);
                Some(Brought::Nothing)
            }
            Self::Put { target, data } => {
                write_mapped(target, target.mapped(process).ok()??, 0, data);
                Some(Brought::Buffer(std::mem::take(data)))
            }
            Self::Get { source, room } => {
                read_mapped(source, source.mapped(process).ok()??, 0, room);
                Some(Brought::Buffer(std::mem::take(room)))
            }
            Self::Change { target, change } => {
                let memory = target.mapped(process).ok()??;
                match execute(target.key, memory, change.clone()).ok()? {
                    Outcome::Previous(previous) => Some(Brought::Previous(previous)),
                    Outcome::Put(_) | Outcome::Got(_) => None,
                }
            }
        }
    }

    /// Whether this process may do it for another: it must not reach what has no addresses.
    pub(super) fn may_be_done_for_others(&self, process: &Process) -> bool {
        match self {
            Self::Copy { target, source, bytes } => {
                target.is_addressable(process, *bytes) && source.is_addressable(process, *bytes)
            }
            Self::Put { target, data } => {
                data.len() <= PUT_BYTES_MAX && target.is_addressable(process, data.len() as u64)
            }
            Self::Change { target, change } => {
                let bytes = if matches!(change, Operation::Atomic64 { .. }) { 8 } else { 4 };
                target.offset.is_multiple_of(bytes) && target.is_addressable(process, bytes)
            }
            Self::Get { .. } => false,
        }
    }
}

/// A place in a region.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) key: RemoteKey,
    /// From the region's first byte, whether that has an address or not.
    pub(super) offset: u64,
    /// The region, once it is attached.
    region: Option<RemoteRegion>,
}

/// A region that is being attached, and how that went.
pub(super) type Attaching = Arc<OnceLock<Result<(), Failure>>>;

impl Spot {
    /// A place in a region that is attached.
    pub(super) fn attached(region: RemoteRegion, offset: u64) -> Self {
        Self { key: region.key(), offset, region: Some(region) }
    }

    /// A place that another process has named.
    pub(super) fn named(key: RemoteKey, offset: u64) -> Self {
        Self { key, offset, region: None }
    }

    pub(super) fn process(&self) -> ProcessId {
        self.key.process
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.region.as_ref().is_some_and(|region| region.mapped().is_some())
    }

    fn is_addressable(&self, process: &Process, bytes: u64) -> bool {
        let layout = process.home().layout();
        let begin = if self.key.slot == 0 { layout.starter() as u64 } else { 0 };
        self.process().number() < process.shape().processes
            && self.offset >= begin
            && self.offset.checked_add(bytes).is_some_and(|end| end <= self.key.bytes)
            && (self.process() != process.id() || is_published(process.home(), self.key))
    }

    /// Finds the region, if it is attached. Says whether it is.
    pub(super) fn find(&mut self, process: &Process) -> Result<bool, FoundNothing> {
        if process.lost(self.process()).is_some() {
            return Err(FoundNothing::Lost);
        }
        if self.region.is_none() {
            self.region = match self.process() == process.id() {
                false => process.transport().attached(self.key),
                true if self.key.slot == 0 => Some(process.transport().starter().as_remote()),
                true => Some(process.memory().own_region(self.key).ok_or(FoundNothing::Stale)?),
            };
        }
        Ok(self.region.is_some())
    }

    /// Has the mover attach the region, since that waits for the owner's service thread.
    pub(super) fn attach(&self, process: &Arc<Process>, is_target: bool) -> Attaching {
        let attaching = Attaching::default();
        let key = self.key;
        let done = attaching.clone();
        let then = move |process: &Arc<Process>, outcome: crate::Result<_>| {
            let result = outcome.map(drop).map_err(|error| Failure::of_error(&error, is_target));
            // Nobody else sets it.
            let _ = done.set(result);
            process.transport().wake();
        };
        process.start_transfer(Extent::whole(key), Operation::Get { offset: 0, bytes: 1 }, Box::new(then));
        attaching
    }

    /// The mapping of the region, if it is mapped here; `Err` when its owner has taken it back.
    pub(super) fn mapped(&self, process: &Process) -> Result<Option<&Arc<SharedMemory>>, FoundNothing> {
        let Some(memory) = self.region.as_ref().and_then(RemoteRegion::mapped) else { return Ok(None) };
        match process.home_of(self.process()) {
            Some(home) if !is_published(home, self.key) => Err(FoundNothing::Stale),
            _ => Ok(Some(memory)),
        }
    }

    /// Stores a word in memory of this process. If that was taken back meanwhile, nobody wants it.
    pub(super) fn store_word(&self, process: &Process, value: u64, bytes: usize) {
        let Ok(Some(memory)) = self.mapped(process) else { return };
        let place = self.at(memory, 0);
        // Which of the two it is, and that it is aligned, was found out when the operation was made.
        if bytes == 8 {
            // SAFETY: aligned and inside of the region, and so of the mapping, which lives as long as `memory` is borrowed.
            unsafe { racy::atomic_u64(place) }.store(value, Ordering::SeqCst);
        } else {
            // SAFETY: as above.
            unsafe { racy::atomic_u32(place) }.store(value as u32, Ordering::SeqCst);
        }
    }

    /// The address of a byte in a mapping of the region.
    pub(super) fn at(&self, memory: &SharedMemory, offset: u64) -> *mut u8 {
        memory.base().as_ptr().wrapping_add((self.offset + offset) as usize)
    }
}

/// Why there is no region.
#[derive(Clone, Copy, Debug)]
pub(super) enum FoundNothing {
    Lost,
    Stale,
}

/// Writes to a mapped place.
pub(super) fn write_mapped(target: &Spot, memory: &SharedMemory, offset: u64, data: &[u8]) {
    // SAFETY: `data` is readable; for the target, as for `copy_mapped`.
    unsafe { racy::copy_out(data.as_ptr(), target.at(memory, offset), data.len()) };
}

/// Reads from a mapped place.
pub(super) fn read_mapped(source: &Spot, memory: &SharedMemory, offset: u64, data: &mut [u8]) {
    // SAFETY: `data` is writable; for the source, as for `copy_mapped`.
    unsafe { racy::copy_in(source.at(memory, offset), data.as_mut_ptr(), data.len()) };
}

/// Copies from one mapped place to another.
pub(super) fn copy_mapped(
    (target, target_memory): (&Spot, &SharedMemory),
    (source, source_memory): (&Spot, &SharedMemory),
    offset: u64,
    bytes: usize,
) {
    // SAFETY: both ranges were found inside of their regions when the operation was made, or by `may_be_done_for_others`; the mappings
    // are at least as long as those, and alive while they are borrowed.
    unsafe { racy::copy_between(source.at(source_memory, offset), target.at(target_memory, offset), bytes) };
}
