//! Sealed anonymous shared memory: made by one process, mapped by its peers, gone with the last of them.

mod numa;
mod pages;

pub use pages::{PageKind, Pages};

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use self::pages::HUGE_BYTES;
use crate::limits;
use crate::topology::NumaNodeId;

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
    pages: Pages,
    node: Option<NumaNodeId>,
}

/// What memory is to be like. What the system refuses of it is done without, and [told](SharedMemory::pages).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The largest pages that are tried. Smaller ones are tried after.
    pub pages: PageKind,
    /// The NUMA node that it is to be on.
    pub node: Option<NumaNodeId>,
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
    #[error("a region of memory must have at least one byte")]
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
        Self::create_as(name, bytes, Wish::default())
    }

    /// As [`create`](Self::create), on large pages and on a NUMA node if they can be had.
    ///
    /// Reserved huge pages are taken only for a size that they make up without a rest. Transparent ones are put together for the whole 2
    /// MiB of what remains. It is never an error when they are refused: [`pages`](Self::pages) and [`node`](Self::node) say what
    /// the memory got.
    ///
    /// *Cost*: as for [`create`](Self::create), and with a wish some more system calls; to find out about transparent huge pages the
    /// kernel's list of this process's mappings is read.
    ///
    /// # Errors
    /// Those of [`create`](Self::create).
    pub fn create_as(name: &str, bytes: usize, wish: Wish) -> Result<Self, ShmError> {
        if bytes == 0 {
            return Err(ShmError::Empty);
        }
        let page = rustix::param::page_size();
        let Some(bytes) = bytes.checked_next_multiple_of(page) else {
            return Err(ShmError::NoSpace { bytes, available: limits::available_memory_bytes() });
        };
        for (kind, flags) in pages::reserved_kinds(wish.pages, bytes) {
            let pages = pages::of_reserved(kind, bytes);
            // Whatever it is that fails, there are the other kinds.
            if let Ok(memory) = Self::create_of(name, bytes, flags, pages, wish.node) {
                return Ok(memory);
            }
        }
        if bytes >= CHECK_FREE_MEMORY_FROM_BYTES {
            let available = limits::available_memory_bytes();
            if bytes as u64 > available {
                return Err(ShmError::NoSpace { bytes, available });
            }
        }
        let kind = if bytes < HUGE_BYTES { PageKind::Base } else { wish.pages.min(PageKind::Transparent) };
        Self::create_of(name, bytes, MemfdFlags::empty(), Pages { kind, huge_bytes: 0 }, wish.node)
    }

    /// Makes a region of one kind of page. Reserved ones are as said in `pages`, transparent ones as far as they are found.
    fn create_of(
        name: &str,
        bytes: usize,
        flags: MemfdFlags,
        pages: Pages,
        node: Option<NumaNodeId>,
    ) -> Result<Self, ShmError> {
        let failed = |call| move |errno: Errno| system(call, bytes, errno);
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags)
            .map_err(failed("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(failed("ftruncate"))?;
        // It is mapped before it is filled, since policies for filling it are set on the mapping.
        let mut memory = Self::map(fd, bytes, pages)?;
        if let Some(node) = node {
            // SAFETY: a mapping of our own, which nobody else knows. Without a policy memory is where the system puts it.
            let _ = unsafe { numa::prefer(memory.base, bytes, node) };
        }
        if pages.kind == PageKind::Transparent {
            // SAFETY: as above.
            unsafe { pages::fill_with_transparent(memory.base, bytes) };
        }
        rustix::fs::fallocate(&memory.fd, FallocateFlags::empty(), 0, bytes as u64).map_err(failed("fallocate"))?;
        rustix::fs::fcntl_add_seals(&memory.fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(failed("sealing"))?;
        if pages.kind == PageKind::Transparent {
            memory.pages = pages::of_filled(memory.base, bytes);
        }
        if node.is_some() {
            // The kernel tells of pages that are mapped.
            // SAFETY: as above.
            unsafe { pages::fill(memory.base, bytes) };
            let page_bytes = pages::of_file(&memory.fd, bytes).map_err(failed("fstatfs"))?.0;
            memory.node = numa::node_of(memory.base, bytes, page_bytes);
        }
        Ok(memory)
    }

    /// Maps a region that another process made and sent.
    ///
    /// # Errors
    /// [`ShmError::NotAsAnnounced`] when the descriptor is not a memory file sealed against shrinking or is not
    /// `bytes` long, rounded up to whole pages of its own kind; otherwise what the system said.
    pub fn from_fd(fd: OwnedFd, bytes: usize) -> Result<Self, ShmError> {
        let not = |why| ShmError::NotAsAnnounced { why };
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| not("it is no memory file"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(not("it is not sealed against a change of its size"));
        }
        let stat = rustix::fs::fstat(&fd).map_err(|errno| system("fstat", bytes, errno))?;
        let (page_bytes, pages) = pages::of_file(&fd, bytes).map_err(|errno| system("fstatfs", bytes, errno))?;
        let whole = bytes.checked_next_multiple_of(page_bytes).ok_or(not("its size is another"))?;
        if bytes == 0 || u64::try_from(stat.st_size) != Ok(whole as u64) {
            return Err(not("its size is another"));
        }
        Self::map(fd, whole, pages)
    }

    fn map(fd: OwnedFd, bytes: usize, pages: Pages) -> Result<Self, ShmError> {
        let may_be_transparent = pages.kind <= PageKind::Transparent && bytes >= HUGE_BYTES;
        let base = if may_be_transparent { map_aligned(&fd, bytes, HUGE_BYTES) } else { map_anywhere(&fd, bytes) };
        let base = base.map_err(|errno| system("mmap", bytes, errno))?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address zero unasked");
        Ok(Self { fd, base, bytes, pages, node: None })
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

    /// What it is made of, as far as is known here: of memory that another process made, only whether its pages are reserved ones.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// The NUMA node that it lies on, if it was [made](Self::create_as) for one, here, and is all on one as far as the kernel says.
    pub fn node(&self) -> Option<NumaNodeId> {
        self.node
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

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn map_anywhere(fd: &OwnedFd, bytes: usize) -> rustix::io::Result<*mut c_void> {
    // SAFETY: a new mapping at an address of the kernel's choice overlays nothing.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, READ_WRITE, MapFlags::SHARED, fd, 0) }
}

/// Maps a file at a multiple of `align`, so that its huge pages, if it has any, can be mapped as such.
fn map_aligned(fd: &OwnedFd, bytes: usize, align: usize) -> rustix::io::Result<*mut c_void> {
    let Some(room) = bytes.checked_add(align) else { return map_anywhere(fd, bytes) };
    // Addresses are set aside first, with some to spare.
    // SAFETY: a new mapping at an address of the kernel's choice overlays nothing.
    let all = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            room,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?;
    let before = all.addr().wrapping_neg() % align;
    let base = all.wrapping_byte_add(before);
    // SAFETY: the range lies in the one set aside, of which nobody knows.
    let mapped = unsafe { rustix::mm::mmap(base, bytes, READ_WRITE, MapFlags::SHARED | MapFlags::FIXED, fd, 0) };
    let spare = match mapped {
        Ok(_) => [(all, before), (base.wrapping_byte_add(bytes), align - before)],
        Err(_) => [(all, room), (all, 0)],
    };
    for (start, bytes) in spare.into_iter().filter(|(_, bytes)| *bytes > 0) {
        // SAFETY: these addresses were set aside above, and nothing is mapped over them.
        let given_back = unsafe { rustix::mm::munmap(start, bytes) };
        debug_assert!(given_back.is_ok(), "munmap of an own mapping cannot fail");
    }
    mapped
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

    fn write_and_read(memory: &SharedMemory, offset: usize, byte: u8) -> u8 {
        let (place, mut got) = (memory.base().as_ptr().wrapping_add(offset), 0);
        // SAFETY: the tests ask for bytes inside of a mapping that they keep.
        unsafe { racy::copy_out(&raw const byte, place, 1) };
        // SAFETY: as above.
        unsafe { racy::copy_in(place, &raw mut got, 1) };
        got
    }

    #[test]
    fn whatever_pages_are_wished_for_memory_comes_and_a_peer_can_map_it() {
        let kinds = [PageKind::Base, PageKind::Transparent, PageKind::Huge, PageKind::Gigantic];
        for (pages, bytes) in
            kinds.into_iter().flat_map(|kind| [1, 5000, 2 << 20, (4 << 20) + 1].map(|bytes| (kind, bytes)))
        {
            for node in [None, Some(NumaNodeId(0)), Some(NumaNodeId(999)), Some(NumaNodeId(u32::MAX))] {
                let first = SharedMemory::create_as("test", bytes, Wish { pages, node }).unwrap();
                let got = first.pages();
                assert!(got.kind <= pages && got.huge_bytes <= first.bytes(), "{got:?} for {pages:?}");
                assert_eq!(got.kind == PageKind::Base, got.huge_bytes == 0, "{got:?}");
                assert!(first.node().is_none_or(|found| node.is_some() && found.0 < 999), "{:?}", first.node());
                let second = SharedMemory::from_fd(first.fd().try_clone_to_owned().unwrap(), bytes).unwrap();
                assert_eq!(second.bytes(), first.bytes());
                for offset in [0, bytes / 2, first.bytes() - 1] {
                    assert_eq!(write_and_read(&first, offset, 7), 7);
                    let mut got = 0;
                    // SAFETY: `offset` lies in the mapping, which is as large as the first one.
                    unsafe { racy::copy_in(second.base().as_ptr().wrapping_add(offset), &raw mut got, 1) };
                    assert_eq!(got, 7);
                }
            }
        }
    }

    #[test]
    fn memory_that_can_have_huge_pages_begins_on_one() {
        for bytes in [HUGE_BYTES, 5 * HUGE_BYTES, HUGE_BYTES + 4096] {
            let memory = SharedMemory::create("test", bytes).unwrap();
            assert!(memory.base().addr().get().is_multiple_of(HUGE_BYTES));
            assert_eq!(memory.pages(), Pages::default(), "nobody asked for more");
        }
    }

    /// Looks at what this machine really does; what that is depends on its administrator.
    #[test]
    fn what_is_said_of_pages_is_what_the_kernel_lists() {
        let wish = Wish { pages: PageKind::Gigantic, node: Some(NumaNodeId(0)) };
        let memory = SharedMemory::create_as("farside-pages-test", 8 << 20, wish).unwrap();
        println!("8 MiB: {:?} on {:?}", memory.pages(), memory.node());
        let list = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let own: Vec<_> = list.lines().skip_while(|line| !line.contains("farside-pages-test")).collect();
        let value = |name: &str| {
            let line = own.iter().find_map(|line| line.strip_prefix(name)).expect("the kernel lists it");
            line.trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() << 10
        };
        match memory.pages().kind {
            PageKind::Gigantic => assert_eq!(value("KernelPageSize:"), 1 << 30),
            PageKind::Huge => assert_eq!(value("KernelPageSize:"), 2 << 20),
            PageKind::Transparent | PageKind::Base => assert_eq!(value("ShmemPmdMapped:"), memory.pages().huge_bytes),
        }
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
