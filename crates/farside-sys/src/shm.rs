//! Sealed anonymous shared memory: made by one process, mapped by its peers, gone with the last of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::limits;

/// From this size on the machine's free memory is looked up before the pages are reserved.
const CHECK_FREE_MEMORY_FROM_BYTES: usize = 1 << 22;

/// A region of memory that other processes can map too, mapped here for reading and writing.
///
/// Its pages are reserved when it is made, so that a full machine is an error then and not a fatal signal later, and it is
/// sealed against growing and shrinking, so that no holder of the descriptor can make another's access fault.
/// It has no name in any file system: nothing is left behind, however its users end.
#[derive(Debug)]
pub struct SharedMemory {
    fd: OwnedFd,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; `SharedMemory` gives out its address only.
unsafe impl Send for SharedMemory {}
// SAFETY: no method reads or writes the mapped bytes, so sharing the value races on nothing.
unsafe impl Sync for SharedMemory {}

/// Why a piece of shared memory could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// A region of no bytes was asked for.
    #[error("a shared memory region must have at least one byte")]
    Empty,
    /// The machine has not so much memory left.
    #[error(
        "no space for {bytes} bytes of shared memory: {available} bytes are free on this machine or in its memory \
         limit; ask for less, start fewer processes, or free memory"
    )]
    NoSpace {
        /// The bytes that were asked for.
        bytes: usize,
        /// The bytes that were free.
        available: u64,
    },
    /// A descriptor came from a peer that does not hold what was announced.
    #[error("the descriptor received is not the shared memory announced: {why}")]
    NotAsAnnounced {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The system refused.
    #[error("{call} of {bytes} bytes of shared memory failed: {cause}")]
    System {
        /// The system call that failed.
        call: &'static str,
        /// The size of the region.
        bytes: usize,
        /// The system's reason.
        cause: io::Error,
    },
}

impl SharedMemory {
    /// Makes a region of at least `bytes` bytes, all zero, rounded up to whole pages.
    ///
    /// *Cost*: four system calls, and the zeroing of every page (about 0.5 µs per KiB).
    ///
    /// # Errors
    /// [`ShmError::Empty`], [`ShmError::NoSpace`], or what the system said.
    pub fn create(name: &str, bytes: usize) -> Result<Self, ShmError> {
        if bytes == 0 {
            return Err(ShmError::Empty);
        }
        let page = rustix::param::page_size();
        let Some(bytes) = bytes.checked_next_multiple_of(page) else {
            return Err(ShmError::NoSpace { bytes, available: limits::available_memory_bytes() });
        };
        if bytes >= CHECK_FREE_MEMORY_FROM_BYTES {
            let available = limits::available_memory_bytes();
            if bytes as u64 > available {
                return Err(ShmError::NoSpace { bytes, available });
            }
        }
        let failed = |call| move |errno: Errno| system(call, bytes, errno);
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(failed("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(failed("ftruncate"))?;
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, bytes as u64).map_err(failed("fallocate"))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(failed("sealing"))?;
        Self::map(fd, bytes)
    }

    /// Maps a region that another process made and sent.
    ///
    /// # Errors
    /// [`ShmError::NotAsAnnounced`] when the descriptor is not a memory file sealed against shrinking or is not
    /// `bytes` long; otherwise what the system said.
    pub fn from_fd(fd: OwnedFd, bytes: usize) -> Result<Self, ShmError> {
        let not = |why| ShmError::NotAsAnnounced { why };
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| not("it is no memory file"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(not("it is not sealed against a change of its size"));
        }
        let stat = rustix::fs::fstat(&fd).map_err(|errno| system("fstat", bytes, errno))?;
        if bytes == 0 || stat.st_size != bytes as i64 {
            return Err(not("its size is another"));
        }
        Self::map(fd, bytes)
    }

    fn map(fd: OwnedFd, bytes: usize) -> Result<Self, ShmError> {
        // SAFETY: a new mapping at an address of the kernel's choice overlays nothing.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)
        }
        .map_err(|errno| system("mmap", bytes, errno))?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address zero unasked");
        Ok(Self { fd, base, bytes })
    }

    /// The address of the first byte here. Other processes may write these bytes at any moment: access them through
    /// [`racy`](crate::racy) or atomics only.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The size in bytes, a whole number of pages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The descriptor, to be sent to a peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are those of a mapping that `map` made and nobody else unmaps; whoever keeps a
        // pointer into it keeps the `SharedMemory` alive (the duty stated at `base`).
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping cannot fail");
    }
}

/// The size of a page of memory. Shared memory comes in whole pages.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

fn system(call: &'static str, bytes: usize, errno: Errno) -> ShmError {
    match errno {
        Errno::NOSPC | Errno::NOMEM => ShmError::NoSpace { bytes, available: limits::available_memory_bytes() },
        errno => ShmError::System { call, bytes, cause: errno.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::racy;

    #[test]
    fn a_second_mapping_sees_what_the_first_writes() {
        let first = SharedMemory::create("test", 5000).unwrap();
        assert_eq!(first.bytes() % rustix::param::page_size(), 0);
        let second = SharedMemory::from_fd(first.fd().try_clone_to_owned().unwrap(), first.bytes()).unwrap();
        assert_ne!(first.base(), second.base());
        let sent = *b"across";
        // SAFETY: both mappings are longer than six bytes and live.
        unsafe { racy::copy_out(sent.as_ptr(), first.base().as_ptr(), sent.len()) };
        let mut got = [0; 6];
        // SAFETY: as above.
        unsafe { racy::copy_in(second.base().as_ptr(), got.as_mut_ptr(), got.len()) };
        assert_eq!(got, sent);
    }

    #[test]
    fn a_full_machine_is_an_error() {
        assert!(matches!(SharedMemory::create("test", 1 << 50), Err(ShmError::NoSpace { .. })));
        assert!(matches!(SharedMemory::create("test", usize::MAX), Err(ShmError::NoSpace { .. })));
        assert!(matches!(SharedMemory::create("test", 0), Err(ShmError::Empty)));
    }

    #[test]
    fn a_descriptor_of_something_else_is_refused() {
        let region = SharedMemory::create("test", 4096).unwrap();
        let longer = SharedMemory::from_fd(region.fd().try_clone_to_owned().unwrap(), region.bytes() * 2);
        assert!(matches!(longer, Err(ShmError::NotAsAnnounced { .. })));
        let unsealed = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        assert!(matches!(SharedMemory::from_fd(unsealed, 4096), Err(ShmError::NotAsAnnounced { .. })));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(SharedMemory::from_fd(file.into(), 4096), Err(ShmError::NotAsAnnounced { .. })));
    }
}
