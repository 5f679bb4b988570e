//! The work of operations, and the memory that they access.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use farside_fabric::transport::{AtomicChange, Operation};
use farside_fabric::{FabricError, ProcessId, RemoteKey, RemoteRegion};
use farside_sys::racy;
use farside_sys::shm::SharedMemory;

use super::error::Failure;
use crate::global::signal::RemoteSignal;
use crate::global::space::own_region;
use crate::memory::Extent;
use crate::memory::mover::start_transfer;
use crate::memory::segments::is_published;
use crate::runtime::observer::{Part, Touch};
use crate::runtime::process::Process;

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
    /// A put, followed by a signal in a word.
    PutSignal {
        target: Spot,
        data: Vec<u8>,
        word: Spot,
        signal: RemoteSignal,
    },
    /// A get of as many bytes as the buffer has.
    Get {
        source: Spot,
        room: Vec<u8>,
    },
    /// An atomic change; its offset is the target's.
    Change {
        target: Spot,
        change: Operation,
    },
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MoveValue {
    Nothing,
    /// The buffer that was handed over.
    Buffer(Vec<u8>),
    /// The earlier value of a word.
    Previous(u64),
}

impl Work {
    /// Returns its size in bytes; 1 for work that is a single step.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Copy { bytes, .. } => *bytes,
            Self::Get { room, .. } => room.len() as u64,
            // The data travels with the signal.
            Self::PutSignal { signal, .. } if signal.takes_data() => 0,
            Self::Put { data, .. } | Self::PutSignal { data, .. } => data.len() as u64,
            Self::Change { .. } => 1,
        }
    }

    /// Returns the place that it writes.
    pub(super) fn target(&mut self) -> Option<&mut Spot> {
        match self {
            Self::Copy { target, .. }
            | Self::Put { target, .. }
            | Self::PutSignal { target, .. }
            | Self::Change { target, .. } => Some(target),
            Self::Get { .. } => None,
        }
    }

    /// Returns the place that it reads or, with a signal, the word of that.
    pub(super) fn source(&mut self) -> Option<&mut Spot> {
        match self {
            Self::Copy { source, .. } | Self::Get { source, .. } | Self::PutSignal { word: source, .. } => Some(source),
            Self::Put { .. } | Self::Change { .. } => None,
        }
    }

    /// Returns the buffer that was handed over for it.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Put { data, .. } | Self::PutSignal { data, .. } => data,
            Self::Get { room, .. } => room,
            Self::Copy { .. } | Self::Change { .. } => Vec::new(),
        }
    }

    /// Does all of it, if its memory is at hand. If something is wrong with that, does nothing that
    /// would have to be reported.
    pub(super) fn do_now(&mut self, process: &Process) -> Option<MoveValue> {
        match self {
            Self::Copy { target, source, bytes } => {
                let (to, from) = (target.mapped(process).ok()??, source.mapped(process).ok()??);
                copy_mapped((target, to), (source, from), 0, *bytes as usize);
                Some(MoveValue::Nothing)
            }
            Self::Put { target, data } => {
                target.at_hand(process).ok()??.put(target.offset, data, process.clock().now()).ok()?;
                Some(MoveValue::Buffer(std::mem::take(data)))
            }
            Self::PutSignal { target, data, word, signal } => {
                let (region, there) = (target.at_hand(process).ok()??, word.at_hand(process).ok()??);
                region.put(target.offset, data, process.clock().now()).ok()?;
                signal.give(process, there, word.offset).ok()?;
                Some(MoveValue::Buffer(std::mem::take(data)))
            }
            Self::Get { source, room } => {
                source.at_hand(process).ok()??.get(source.offset, room, process.clock().now()).ok()?;
                Some(MoveValue::Buffer(std::mem::take(room)))
            }
            Self::Change { target, change } => {
                let region = target.at_hand(process).ok()??;
                change_at_hand(region, change, process.clock().now()).ok().map(MoveValue::Previous)
            }
        }
    }

    /// Refuses work that this process must not do for another: accesses to memory without
    /// addresses.
    pub(super) fn check_for_others(&self, process: &Process) -> Result<(), Failure> {
        match self {
            Self::Copy { target, source, bytes } => {
                target.check_for_others(process, *bytes, true)?;
                source.check_for_others(process, *bytes, false)
            }
            Self::Put { target, data } => target.check_for_others(process, data.len() as u64, true),
            Self::Change { target, change } => {
                let bytes = if matches!(change, Operation::Atomic64 { .. }) { 8 } else { 4 };
                target.check_for_others(process, bytes, true)
            }
            Self::Get { .. } | Self::PutSignal { .. } => Err(no_address()),
        }
    }
}

/// A place in a region.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) key: RemoteKey,
    /// The offset from the region's first byte, whether or not that byte has an address.
    pub(super) offset: u64,
    /// The region, once it is attached.
    region: Option<RemoteRegion>,
}

/// The outcome of attaching a region, once it is known.
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

    /// Returns the access to `bytes` bytes from here on, for the observer of accesses.
    pub(super) fn part(&self, bytes: u64, touch: Touch) -> Part {
        Part { memory: Extent { key: self.key, offset: self.offset, bytes }, touch }
    }

    pub(super) fn is_at_hand(&self) -> bool {
        self.region.as_ref().is_some_and(|region| !region.waits(true))
    }

    fn check_for_others(&self, process: &Process, bytes: u64, is_target: bool) -> Result<(), Failure> {
        let layout = process.home().layout();
        let begin = if self.key.slot == 0 { layout.starter() as u64 } else { 0 };
        let is_inside = self.offset >= begin && self.offset.checked_add(bytes).is_some_and(|end| end <= self.key.bytes);
        // Of internal memory, only a part of the starter memory has addresses.
        let is_foreign = self.key.is_internal() && self.key.slot != 0;
        if self.process().number() >= process.shape().processes || !is_inside || is_foreign {
            return Err(no_address());
        }
        match self.process() == process.id() && !is_published(process.home(), self.key) {
            true => Err(Failure::Stale { is_target }),
            false => Ok(()),
        }
    }

    /// Finds the region, if it is attached. Returns whether it is.
    pub(super) fn find(&mut self, process: &Process) -> Result<bool, FoundNothing> {
        if process.losses.is_lost(self.process()) {
            return Err(FoundNothing::Lost);
        }
        if self.region.is_none() {
            self.region = match self.process() == process.id() {
                false => process.transport().attached(self.key),
                true if self.key.slot == 0 => Some(process.transport().starter().as_remote()),
                true => Some(own_region(process, self.key).ok_or(FoundNothing::Stale)?),
            };
        }
        Ok(self.region.is_some())
    }

    /// Has the transfer thread attach the region, since that waits for the owner's service thread.
    pub(super) fn attach(&self, process: &Arc<Process>, is_target: bool) -> Attaching {
        let attaching = Attaching::default();
        let key = self.key;
        let done = attaching.clone();
        let then = move |process: &Arc<Process>, outcome: crate::Result<_>| {
            let result = outcome.map(drop).map_err(|error| Failure::of_error(&error, is_target));
            // This is the only place that sets it.
            let _ = done.set(result);
            process.transport().wake();
        };
        start_transfer(process, Extent::whole(key), Operation::get(0, 1), Box::new(then));
        attaching
    }

    /// Returns the region, if accesses to it wait for no other process: it is mapped, or this
    /// process's own. Returns `Err` if its owner has taken it back.
    pub(super) fn at_hand(&self, process: &Process) -> Result<Option<&RemoteRegion>, FoundNothing> {
        let Some(region) = self.region.as_ref().filter(|region| !region.waits(true)) else { return Ok(None) };
        match process.links.home_of(self.process()) {
            Some(home) if !is_published(home, self.key) => Err(FoundNothing::Stale),
            _ => Ok(Some(region)),
        }
    }

    /// Returns the mapping of the region, if it is mapped here, or `Err` if its owner has taken it
    /// back.
    pub(super) fn mapped(&self, process: &Process) -> Result<Option<&Arc<SharedMemory>>, FoundNothing> {
        Ok(self.at_hand(process)?.and_then(RemoteRegion::mapped))
    }

    /// Stores a word in memory of this process. If the memory was taken back meanwhile, the value
    /// is dropped.
    pub(super) fn store_word(&self, process: &Process, value: u64, bytes: usize) {
        let Ok(Some(region)) = self.at_hand(process) else { return };
        let offset = self.offset;
        let change = match bytes {
            8 => Operation::Atomic64 { offset, change: AtomicChange::Swap(value) },
            _ => Operation::Atomic32 { offset, change: AtomicChange::Swap(value as u32) },
        };
        let _ = change_at_hand(region, &change, process.clock().now());
    }

    /// Returns the address of a byte in a mapping of the region.
    pub(super) fn at(&self, memory: &SharedMemory, offset: u64) -> *mut u8 {
        memory.base().as_ptr().wrapping_add((self.offset + offset) as usize)
    }
}

fn no_address() -> Failure {
    Failure::Other { what: "what another process was asked to move has no address".to_owned() }
}

/// Why there is no region.
#[derive(Clone, Copy, Debug)]
pub(super) enum FoundNothing {
    Lost,
    Stale,
}

/// Changes a word of a region that is at hand, and returns its earlier value.
pub(super) fn change_at_hand(region: &RemoteRegion, change: &Operation, now: Instant) -> Result<u64, FabricError> {
    match change {
        Operation::Atomic64 { offset, change } => region.atomic64(*offset, *change, now),
        Operation::Atomic32 { offset, change } => region.atomic32(*offset, *change, now).map(u64::from),
        Operation::Put { .. } | Operation::Get { .. } => unreachable!("changes are of words"),
    }
}

/// Copies from one mapped place to another.
pub(super) fn copy_mapped(
    (target, target_memory): (&Spot, &SharedMemory),
    (source, source_memory): (&Spot, &SharedMemory),
    offset: u64,
    bytes: usize,
) {
    // SAFETY: both ranges were found inside their regions when the operation was made, or by
    // `check_for_others`. The mappings are at least as long as the regions, and live while they are
    // borrowed.
    unsafe { racy::copy_between(source.at(source_memory, offset), target.at(target_memory, offset), bytes) };
}
