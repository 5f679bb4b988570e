//! Memory of several processes that all workers allocate and release together. Symmetric memory,
//! arrays and byte spaces lie in it.
//!
//! One worker of each process allocates. Then all workers vote. The vote tells each of them whether
//! a process refused, and whether the memory has the same address in every process except for the
//! process number. It usually has, since the processes of a job do the same things in the same
//! order. Then one address is kept, and otherwise a table of all.

use std::ops::Range;
use std::sync::Arc;

use farside_fabric::{FabricError, ProcessId, WorkerId};
use farside_sys::shm::SharedMemory;

use super::super::local_bytes::{Handles, LocalBytes};
use super::object_error::ObjectError;
use crate::Wire;
use crate::error::{Error, Result};
use crate::memory::ProcessMemory;
use crate::memory::address::GlobalAddress;
use crate::memory::{MemoryError, MemoryRefusal, RemoteMemory};
use crate::runtime::observer::Watched;
use crate::runtime::worker::Worker;

/// The bytes that are zeroed at a time.
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// The most bytes of an object in one process: 256 GiB, less what the process's heap needs for it.
pub(super) const BYTES_MAX: u64 = (256 << 30) - 4096;

/// The request of a worker, which must be the same in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct ObjectRequest {
    /// The kind of object.
    pub(super) kind: ObjectKind,
    pub(super) value_bytes: u64,
    /// The numbers that give its size and shape.
    pub(super) shape: [u64; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) enum ObjectKind {
    Symmetric,
    Array,
    Bytes,
}

/// The processes that have a part, and the size of each part.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) processes: Range<u32>,
    pub(super) bytes: u64,
}

/// Memory of the same size in some of the job's processes. It is zero at first.
#[derive(Debug)]
pub(super) struct Spread {
    bases: Bases,
    bytes: u64,
    /// The part of this process, if it has one.
    here: Option<Here>,
    /// The memory that this worker allocated for its process, and will release.
    granted: Option<RemoteMemory>,
    /// The handles that other threads have.
    handles: Handles,
}

#[derive(Debug)]
enum Bases {
    /// The same address in all processes, except for the process number.
    Alike(GlobalAddress),
    /// The addresses by process.
    Each(Box<[GlobalAddress]>),
}

/// The memory of this process, mapped for as long as the object is kept.
#[derive(Debug)]
struct Here {
    memory: Arc<SharedMemory>,
    offset: u64,
    watched: Option<Watched>,
}

/// The combined result of the workers of a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
struct Vote {
    from: WorkerId,
    request: ObjectRequest,
    /// The address of the memory in one of the processes; null if none of them has memory.
    base: GlobalAddress,
    is_alike: bool,
    failure: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
enum Failure {
    Unequal { a: WorkerId, b: WorkerId },
    Refused { process: ProcessId, bytes: u64, why: MemoryRefusal },
    NoAddress { process: ProcessId, bytes: u64 },
}

impl Vote {
    fn and(self, other: Self) -> Self {
        let unequal = (self.request != other.request).then_some(Failure::Unequal { a: self.from, b: other.from });
        let (base, is_alike) = match (self.base.process(), other.base.process()) {
            (None, _) => (other.base, other.is_alike),
            (_, None) => (self.base, self.is_alike),
            (Some(process), _) => {
                (self.base, self.is_alike && other.is_alike && other.base.at_process(process) == self.base)
            }
        };
        Self { base, is_alike, failure: unequal.or(self.failure).or(other.failure), ..self }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unequal { a, b } => ObjectError::Unequal { a, b }.into(),
            Failure::Refused { process, bytes, why } => MemoryError::Refused { process, bytes, why }.into(),
            Failure::NoAddress { process, bytes } => MemoryError::NoAddress { process, bytes }.into(),
        }
    }
}

impl Spread {
    /// Gives each of some processes memory. All workers call this, even those whose `parts` are an
    /// error, because the others wait for their votes.
    ///
    /// # Errors
    /// The same in all workers: [`ObjectError::Unequal`], [`MemoryError::Refused`],
    /// [`MemoryError::NoAddress`], or the error in `parts`. [`Error::PeerLost`] if a process of the
    /// job is lost; [`Error::CollectiveMismatch`] if another worker calls another collective;
    /// [`Error::Deadline`] if one does not come in time; [`Error::InHandler`] in a handler. In a
    /// job of several binaries also [`Error::CollectiveOverrun`].
    pub(super) fn new(me: &Worker, request: ObjectRequest, parts: Result<Parts, ObjectError>) -> Result<Self> {
        me.not_in_handler("making a collective object")?;
        if let Some(lost) = me.any_lost() {
            return Err(lost);
        }
        let bytes = parts.as_ref().map_or(0, |parts| parts.bytes);
        let is_holder = bytes > 0 && parts.as_ref().is_ok_and(|parts| parts.processes.contains(&me.process().number()));
        let granted = (is_holder && me.thread_index() == 0).then(|| allocate(me, bytes));
        let (base, failure) = match &granted {
            Some(Ok((address, _))) => (*address, None),
            Some(Err(failure)) => (GlobalAddress::NULL, Some(*failure)),
            None => (GlobalAddress::NULL, None),
        };
        let granted = granted.and_then(Result::ok).map(|(_, memory)| memory);
        // A failure here and below is a loss, or the end of the job. The memory is kept then,
        // because other workers may have learned its address. After a loss, no further collective
        // could ask for more.
        let verdict = me.all_reduce(Vote { from: me.id(), request, base, is_alike: true, failure }, Vote::and)?;
        if let Some(failure) = verdict.failure {
            granted.map_or(Ok(()), |memory| me.release(memory))?;
            return Err(failure.into());
        }
        // All workers made the same request, so `parts` is an error in all or in none.
        let Parts { bytes, .. } = parts?;
        let bases = match verdict.is_alike {
            true => Bases::Alike(verdict.base),
            false => Bases::Each(table(me, base)?),
        };
        let mut spread = Self { bases, bytes, here: None, granted, handles: Handles::default() };
        if is_holder {
            let own = spread.base(me.process());
            let here = me.on_region(own, bytes as usize, None, |region, offset, _| {
                let here = |memory: &Arc<SharedMemory>| {
                    let watched = Watched::new(me.process_handle(), region.key(), memory.base().as_ptr());
                    Here { memory: memory.clone(), offset, watched }
                };
                Ok(region.mapped().map(here))
            })?;
            spread.here = here;
        }
        Ok(spread)
    }

    /// Returns the start of the memory of a process that has some.
    #[inline(always)]
    pub(super) fn base(&self, process: ProcessId) -> GlobalAddress {
        match &self.bases {
            Bases::Alike(base) if base.is_null() => *base,
            Bases::Alike(base) => base.at_process(process),
            Bases::Each(bases) => bases.get(process.index()).copied().unwrap_or_default(),
        }
    }

    /// Returns a pointer to a piece of this process's part, or `None` if the piece is not inside
    /// it.
    pub(super) fn here(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        let here = self.here.as_ref().filter(|_| end <= self.bytes)?;
        Some(here.memory.base().as_ptr().wrapping_add((here.offset + offset) as usize))
    }

    /// Returns a handle to a piece of this process's part, for all its threads. It has no bytes if
    /// the piece is not inside.
    pub(super) fn local_bytes(&self, offset: u64, bytes: u64) -> LocalBytes {
        let Some((here, start)) = self.here.as_ref().zip(self.here(offset, bytes)) else { return LocalBytes::empty() };
        // SAFETY: `here` returned the start of this many bytes in `memory`, which is mapped while
        // it is kept. They are reached by their address and by `RacySlice` until they are released,
        // which `free` does after it has taken the handles back.
        unsafe { self.handles.add(start, bytes, here.memory.clone()) }
    }

    /// Returns what reports accesses to this process's part, if they are observed.
    pub(super) fn watched(&self) -> Option<&Watched> {
        self.here.as_ref()?.watched.as_ref()
    }

    /// Releases the memory. All workers call this, and none returns before all have called.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`]. The memory is kept then.
    #[track_caller]
    pub(super) fn free(self, me: &Worker) -> Result<()> {
        self.handles.take_back();
        me.barrier()?;
        // A lost process may still write there, also when the others go on without it.
        if let Some(lost) = me.any_lost() {
            return Err(lost);
        }
        match self.granted {
            Some(memory) => me.release(memory),
            None => Ok(()),
        }
    }
}

/// Allocates zeroed memory of this process.
fn allocate(me: &Worker, bytes: u64) -> Result<(GlobalAddress, RemoteMemory), Failure> {
    let refused = |why| Failure::Refused { process: me.process(), bytes, why };
    let memory = me.allocate_at(me.id(), bytes).map_err(|error| {
        refused(match error.room_error() {
            Some(MemoryError::Refused { why, .. }) => *why,
            // An allocation in this process fails in no other way.
            _ => MemoryRefusal::NoMemory,
        })
    })?;
    let was_zero = ProcessMemory::of(me.process_handle()).was_zero(&memory);
    let result = match memory.address() {
        Err(_) => Err(Failure::NoAddress { process: me.process(), bytes: memory.key.bytes }),
        Ok(address) if was_zero || zero(me, &memory).is_ok() => return Ok((address, memory)),
        Ok(_) => Err(refused(MemoryRefusal::NoMemory)),
    };
    // The memory is new, and no other worker knows it.
    let _ = me.release(memory);
    result
}

fn zero(me: &Worker, memory: &RemoteMemory) -> Result<()> {
    let (region, start) = memory.region(me)?;
    let now = me.now();
    let zeroed: Result<(), FabricError> = (0..memory.bytes).step_by(ZEROS.len()).try_for_each(|offset| {
        let bytes = (memory.bytes - offset).min(ZEROS.len() as u64) as usize;
        region.put(start + offset, &ZEROS[..bytes], now)
    });
    Ok(zeroed?)
}

/// Collects the addresses of all processes.
fn table(me: &Worker, own: GlobalAddress) -> Result<Box<[GlobalAddress]>> {
    let root = WorkerId::new(0);
    let threads = me.threads_per_process() as usize;
    let gathered = me.gather(root, own)?;
    let by_process = gathered.map(|bases| bases.into_iter().step_by(threads).collect::<Vec<_>>());
    Ok(me.broadcast(root, by_process)?.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: ObjectRequest = ObjectRequest { kind: ObjectKind::Array, value_bytes: 8, shape: [1, 2, 3] };

    fn vote(from: u32, base: GlobalAddress) -> Vote {
        Vote { from: WorkerId::new(from), request: REQUEST, base, is_alike: true, failure: None }
    }

    fn at(process: u32, offset: u32) -> GlobalAddress {
        GlobalAddress::starter(ProcessId::new(process), offset)
    }

    #[test]
    fn the_same_place_in_all_processes_is_noticed() {
        let none = vote(1, GlobalAddress::NULL);
        let all = none.and(vote(2, at(1, 64))).and(none).and(vote(4, at(2, 64)));
        assert!(all.is_alike && all.base == at(1, 64) && all.failure.is_none());
        assert!(!all.and(vote(6, at(3, 128))).is_alike);
        assert!(!all.and(vote(6, at(3, 128)).and(none)).and(vote(8, at(4, 64))).is_alike);
        assert!(none.and(none).base.is_null());
    }

    #[test]
    fn one_refusal_is_returned_to_all() {
        let failure = Failure::Refused { process: ProcessId::new(2), bytes: 8, why: MemoryRefusal::NoMemory };
        let refused = Vote { failure: Some(failure), ..vote(4, GlobalAddress::NULL) };
        assert_eq!(vote(0, at(0, 64)).and(refused).and(vote(6, at(3, 64))).failure, Some(failure));
        assert_eq!(refused.and(vote(6, at(3, 64))).failure, Some(failure));
    }

    #[test]
    fn different_wishes_are_noticed() {
        let other = Vote { request: ObjectRequest { value_bytes: 4, ..REQUEST }, ..vote(3, at(1, 64)) };
        let failure = vote(2, at(0, 64)).and(other).failure;
        assert_eq!(failure, Some(Failure::Unequal { a: WorkerId::new(2), b: WorkerId::new(3) }));
    }
}
