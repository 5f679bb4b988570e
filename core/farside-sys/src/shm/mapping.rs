//! [`Mapping`]: shared memory that safe code reads and writes.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use super::{MemoryPreference, SharedMemory, ShmError};
use crate::racy;

/// Shared memory that this process accesses by copies alone.
///
/// No reference points at the bytes, so it does no harm that other threads and processes write them
/// at any time. What is read may be torn; check it before you rely on it.
///
/// ```
/// use farside_sys::shm::Mapping;
///
/// let memory = Mapping::create("example", 5, Default::default())?;
/// memory.write(1, b"abc").unwrap();
/// let mut found = [9; 4];
/// memory.read(0, &mut found).unwrap();
/// assert_eq!(&found, b"\0abc");
/// # Ok::<(), farside_sys::shm::ShmError>(())
/// ```
#[derive(Debug)]
pub struct Mapping {
    memory: SharedMemory,
    may_write: bool,
}

/// A range that does not lie inside a mapping, that may not be written, or that this process does
/// not have because it was forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inaccessible;

impl Mapping {
    /// Creates memory, as [`SharedMemory::create_as`] does.
    ///
    /// # Errors
    /// [`ShmError::Empty`], [`ShmError::NoSpace`], [`ShmError::NoPages`], [`ShmError::FileLimit`],
    /// or [`ShmError::System`].
    pub fn create(name: &str, bytes: usize, preference: MemoryPreference) -> Result<Self, ShmError> {
        Ok(Self { memory: SharedMemory::create_as(name, bytes, preference)?, may_write: true })
    }

    /// Maps memory from a process that is not trusted, for writing if its creator allows that.
    ///
    /// # Errors
    /// [`ShmError::NotAsAnnounced`] if an access could fault or would take memory from the system:
    /// if the descriptor is not a memory file, its size may change, it is empty, its pages are not
    /// reserved, or they are huge pages that an administrator reserves. Otherwise
    /// [`ShmError::System`].
    pub fn of_stranger(fd: OwnedFd) -> Result<Self, ShmError> {
        let (memory, may_write) = SharedMemory::of_stranger(fd)?;
        Ok(Self { memory, may_write })
    }

    /// The memory itself, for more than copies. `None` if this process may not write it.
    pub fn into_memory(self) -> Option<SharedMemory> {
        self.may_write.then_some(self.memory)
    }

    /// The size in bytes, a whole number of pages.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Returns whether this process may write the memory.
    pub fn may_write(&self) -> bool {
        self.may_write
    }

    /// The address of the first byte, as [`SharedMemory::base`].
    pub fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// The descriptor, which can be sent to a peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// Copies the bytes from `offset` on into `into`.
    ///
    /// # Errors
    /// [`Inaccessible`] if they are not inside the mapping.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Inaccessible> {
        let from = self.place(offset, into.len())?;
        // SAFETY: `place` has checked that the source lies in the mapping, which lives as long as
        // `self`. Other threads of this process access it by `racy` alone. `into` is private, and
        // does not overlap the mapping, to which no reference points.
        unsafe { racy::copy_in(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Overwrites the bytes from `offset` on.
    ///
    /// # Errors
    /// [`Inaccessible`] if they are not inside the mapping, or if this process may not write it.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Inaccessible> {
        let to = self.place(offset, from.len())?;
        if !self.may_write {
            return Err(Inaccessible);
        }
        // SAFETY: as in `read`, with the directions exchanged; the mapping may be written.
        unsafe { racy::copy_out(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    /// Returns whether this process has the mapping. A forked child has the value alone.
    pub fn is_here(&self) -> bool {
        self.memory.origin.is_here()
    }

    /// The address of a range of the mapping.
    fn place(&self, offset: usize, bytes: usize) -> Result<*mut u8, Inaccessible> {
        if !self.is_here() {
            return Err(Inaccessible);
        }
        let end = offset.checked_add(bytes).ok_or(Inaccessible)?;
        let is_inside = end <= self.memory.bytes();
        is_inside.then(|| self.memory.base().as_ptr().wrapping_add(offset)).ok_or(Inaccessible)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;

    fn other(memory: &Mapping) -> Mapping {
        Mapping::of_stranger(memory.fd().try_clone_to_owned().unwrap()).unwrap()
    }

    #[test]
    fn ranges_outside_are_refused() {
        let memory = Mapping::create("test", 5000, MemoryPreference::default()).unwrap();
        let bytes = memory.bytes();
        let mut found = [0; 2];
        memory.read(bytes - 2, &mut found).unwrap();
        memory.read(bytes, &mut []).unwrap();
        for offset in [bytes - 1, bytes, usize::MAX, usize::MAX - 1] {
            assert_eq!(memory.read(offset, &mut found), Err(Inaccessible));
            assert_eq!(memory.write(offset, &found), Err(Inaccessible));
        }
    }

    #[test]
    fn a_stranger_writes_only_where_it_may() {
        for is_ours_to_write in [false, true] {
            let preference = MemoryPreference { is_ours_to_write, ..MemoryPreference::default() };
            let memory = Mapping::create("test", 5000, preference).unwrap();
            let other = other(&memory);
            assert_eq!(other.may_write(), !is_ours_to_write);
            memory.write(4000, b"seen").unwrap();
            let mut found = [0; 4];
            other.read(4000, &mut found).unwrap();
            assert_eq!(&found, b"seen");
            assert_eq!(other.write(4000, b"done").is_ok(), !is_ours_to_write);
        }
    }

    #[test]
    fn memory_that_could_fault_is_refused() {
        let sealed = |bytes: u64, seals| {
            let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&fd, bytes).unwrap();
            rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let fixed = SealFlags::SHRINK | SealFlags::GROW;
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        for (fd, why) in [
            (file.as_fd().try_clone_to_owned().unwrap(), "not a memory file"),
            (sealed(8192, SealFlags::GROW), "not sealed"),
            (sealed(0, fixed), "empty"),
            (sealed(8192, fixed), "not reserved"),
            (sealed(1 << 50, fixed), "not reserved"),
        ] {
            let error = Mapping::of_stranger(fd).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
