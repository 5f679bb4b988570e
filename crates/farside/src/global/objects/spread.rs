//! Memory of several processes that is had and given back by all workers together: what symmetric memory, arrays and byte spaces lie in.
//!
//! One worker of each process allocates. Then all vote: everybody learns whether somebody was refused, and whether the memory has the same
//! address in every process but for the number of the process. Mostly it has, since the processes of a job do the same things in the same
//! order; then the address is kept once, and otherwise a table of all.

use std::ops::Range;
use std::sync::Arc;

use farside_fabric::{FabricError, ProcessId, WorkerId};
use farside_sys::shm::SharedMemory;

use super::object_error::ObjectError;
use crate::Wire;
use crate::error::{Error, Result};
use crate::memory::address::{GlobalAddress, SLOT_BYTES};
use crate::memory::{MemoryError, MemoryRefusal, RemoteMemory};
use crate::runtime::worker::Worker;

/// What is zeroed at a time.
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// The most that one process has of an object: what the offset of an address reaches.
pub(super) const BYTES_MAX: u64 = SLOT_BYTES;

/// What all workers must ask for alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Wish {
    /// What kind of object it is, and of which values.
    pub(super) kind: ObjectKind,
    pub(super) value_bytes: u64,
    /// Its size and shape, in numbers.
    pub(super) shape: [u64; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) enum ObjectKind {
    Symmetric,
    Array,
    Bytes,
}

/// Which processes have how much, each.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) processes: Range<u32>,
    pub(super) bytes: u64,
}

/// Memory of the same size in some of the job's processes, zero at first.
#[derive(Debug)]
pub(super) struct Spread {
    bases: Bases,
    bytes: u64,
    /// The part of this process, if it has one.
    here: Option<Here>,
    /// What this worker allocated for its process, and will release.
    granted: Option<RemoteMemory>,
}

#[derive(Debug)]
enum Bases {
    /// The same everywhere but for the process.
    Alike(GlobalAddress),
    /// By process.
    Each(Box<[GlobalAddress]>),
}

/// The memory of this process, mapped for as long as the object is kept.
#[derive(Debug)]
struct Here {
    memory: Arc<SharedMemory>,
    offset: u64,
}

/// What the workers of a subtree have found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
struct Vote {
    from: WorkerId,
    wish: Wish,
    /// The address of the memory in one of the processes; null when they have none.
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
        let unequal = (self.wish != other.wish).then_some(Failure::Unequal { a: self.from, b: other.from });
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
    /// Gives each of some processes memory. All workers call this, also those whose wish comes to nothing: they may be the only ones.
    ///
    /// # Errors
    /// [`ObjectError::Unequal`], [`MemoryError::Refused`](crate::memory::MemoryError::Refused), [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress) and what came of the wish, the same at all; and those of
    /// [`Worker::barrier`].
    pub(super) fn new(me: &Worker, wish: Wish, parts: Result<Parts, ObjectError>) -> Result<Self> {
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
        // What fails here and below is a loss, or the job's end. Then the memory is kept: somebody may have learned its address, and after
        // a loss there is no next collective that could ask for more.
        let verdict = me.all_reduce(Vote { from: me.id(), wish, base, is_alike: true, failure }, Vote::and)?;
        if let Some(failure) = verdict.failure {
            granted.map_or(Ok(()), |memory| me.release(memory))?;
            return Err(failure.into());
        }
        // All wished the same, so it came to nothing everywhere.
        let Parts { bytes, .. } = parts?;
        let bases = match verdict.is_alike {
            true => Bases::Alike(verdict.base),
            false => Bases::Each(table(me, base)?),
        };
        let mut spread = Self { bases, bytes, here: None, granted };
        if is_holder {
            let own = spread.base(me.process());
            let here = me.on_region(own, bytes as usize, None, |region, offset, _| {
                Ok(region.mapped().map(|memory| Here { memory: memory.clone(), offset }))
            })?;
            spread.here = here;
        }
        Ok(spread)
    }

    /// Where the memory of a process begins. For processes that have some.
    #[inline(always)]
    pub(super) fn base(&self, process: ProcessId) -> GlobalAddress {
        match &self.bases {
            Bases::Alike(base) if base.is_null() => *base,
            Bases::Alike(base) => base.at_process(process),
            Bases::Each(bases) => bases.get(process.index()).copied().unwrap_or_default(),
        }
    }

    /// A piece of this process's part. `None` when it has no such.
    pub(super) fn here(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        let here = self.here.as_ref().filter(|_| end <= self.bytes)?;
        Some(here.memory.base().as_ptr().wrapping_add((here.offset + offset) as usize))
    }

    /// Gives the memory back. All workers call this, and none goes on before all have come.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`]. The memory is kept then.
    #[track_caller]
    pub(super) fn free(self, me: &Worker) -> Result<()> {
        me.barrier()?;
        match self.granted {
            Some(memory) => me.release(memory),
            None => Ok(()),
        }
    }
}

/// Memory of this process, zeroed.
fn allocate(me: &Worker, bytes: u64) -> Result<(GlobalAddress, RemoteMemory), Failure> {
    let refused = |why| Failure::Refused { process: me.process(), bytes, why };
    let memory = me.allocate_at(me.id(), bytes).map_err(|error| {
        refused(match error.room_error() {
            Some(MemoryError::Refused { why, .. }) => *why,
            // The own process fails in no other way.
            _ => MemoryRefusal::NoMemory,
        })
    })?;
    let fits = memory.offset.checked_add(bytes).is_some_and(|end| end <= BYTES_MAX);
    let address = memory.address().ok().filter(|_| fits);
    let result = match address {
        None => Err(Failure::NoAddress { process: me.process(), bytes: memory.key.bytes }),
        Some(address) => match zero(me, &memory) {
            Ok(()) => return Ok((address, memory)),
            Err(_) => Err(refused(MemoryRefusal::NoMemory)),
        },
    };
    // It was given a moment ago, and nobody else knows of it.
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

/// Everybody's addresses, by process.
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

    const WISH: Wish = Wish { kind: ObjectKind::Array, value_bytes: 8, shape: [1, 2, 3] };

    fn vote(from: u32, base: GlobalAddress) -> Vote {
        Vote { from: WorkerId::new(from), wish: WISH, base, is_alike: true, failure: None }
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
    fn one_refusal_is_everybodys() {
        let failure = Failure::Refused { process: ProcessId::new(2), bytes: 8, why: MemoryRefusal::NoMemory };
        let refused = Vote { failure: Some(failure), ..vote(4, GlobalAddress::NULL) };
        assert_eq!(vote(0, at(0, 64)).and(refused).and(vote(6, at(3, 64))).failure, Some(failure));
        assert_eq!(refused.and(vote(6, at(3, 64))).failure, Some(failure));
    }

    #[test]
    fn different_wishes_are_noticed() {
        let other = Vote { wish: Wish { value_bytes: 4, ..WISH }, ..vote(3, at(1, 64)) };
        let failure = vote(2, at(0, 64)).and(other).failure;
        assert_eq!(failure, Some(Failure::Unequal { a: WorkerId::new(2), b: WorkerId::new(3) }));
    }
}
