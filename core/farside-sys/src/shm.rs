//! Sealed anonymous shared memory: one process creates it, its peers map it, and the system frees
//! it with the last user.

mod mapping;
mod numa;
mod pages;

pub use mapping::{Inaccessible, Mapping};
pub use pages::{PageKind, Pages};

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use self::pages::HUGE_BYTES;
use crate::limits;
use crate::process::Origin;
use crate::topology::NumaNodeId;

/// From this size on, `create_as` compares the size with the machine's free memory before it
/// reserves the pages.
const CHECK_FREE_MEMORY_FROM_BYTES: usize = 1 << 22;

/// The memory that one system call reserves. It takes a fraction of a millisecond.
const RESERVED_AT_ONCE: usize = 1 << 20;

/// The number of signals that may interrupt the reservation of one piece.
const INTERRUPTIONS_MAX: u32 = 10_000;

/// A region of memory that other processes can map too, mapped here for reading and writing.
///
/// Its pages are reserved at creation, so that a lack of memory is an error then and not a fatal
/// signal later, unless its creator wants them [on demand](MemoryPreference::on_demand). It is
/// sealed against growing and shrinking, so that no holder of the descriptor can make another
/// process's access fault. It has no name in any file system, so nothing is left behind, however
/// its users end.
#[derive(Debug)]
pub struct SharedMemory {
    /// `None` once it is [closed](Self::close_fd).
    fd: Option<OwnedFd>,
    base: NonNull<u8>,
    bytes: usize,
    pages: Pages,
    node: Option<NumaNodeId>,
    /// The process that has the mapping: forked children do not have it.
    origin: Origin,
}

/// Preferred properties of new memory. What the system cannot grant is omitted, except for pages
/// that are [required](Self::requires_pages); [`SharedMemory::pages`] and [`SharedMemory::node`]
/// report the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPreference {
    /// The largest pages to try. Smaller ones are tried afterwards.
    pub pages: PageKind,
    /// True if no smaller pages will do. Only for the kinds that an administrator reserves.
    pub requires_pages: bool,
    /// The preferred NUMA node.
    pub node: Option<NumaNodeId>,
    /// True if ordinary pages come when they are first accessed, instead of at the creation. If the
    /// machine has no memory left then, the system ends a process, as for a program's own memory.
    pub on_demand: bool,
    /// True if only this mapping may write. The system refuses others that would.
    pub is_ours_to_write: bool,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `SharedMemory` gives out only
// its address.
unsafe impl Send for SharedMemory {}
// SAFETY: no method reads or writes the mapped bytes, so sharing the value races on nothing.
unsafe impl Sync for SharedMemory {}

/// Why shared memory could not be created or mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// A region of zero bytes was requested.
    #[error("cannot create shared memory of zero bytes: a region needs at least one byte")]
    Empty,
    /// The machine has too little free memory, or the process too few free addresses.
    #[error(
        "cannot reserve {bytes} bytes of shared memory: only {available} bytes are free on this machine or within a limit (of \
         a control group, or `ulimit -v`); ask for less, start fewer processes, free memory, or raise the limit"
    )]
    NoSpace {
        /// Bytes requested.
        bytes: usize,
        /// Bytes that were free.
        available: u64,
    },
    /// The process may have no file of this size, and shared memory is a file.
    #[error(
        "cannot create {bytes} bytes of shared memory: this process is limited to files of {limit} bytes, which counts for \
         shared memory, too; raise the limit (`ulimit -f`)"
    )]
    FileLimit {
        /// Bytes requested.
        bytes: usize,
        /// The limit in bytes.
        limit: u64,
    },
    /// The machine has too few reserved pages of a required kind.
    #[error(
        "cannot get {bytes} bytes on {kind}: this machine has too few of them free; reserve some (`sysctl \
         vm.nr_hugepages=...` for 2 MiB, `hugepagesz=1G hugepages=...` at boot for 1 GiB), or do not require them"
    )]
    NoPages {
        /// The kind of page.
        kind: PageKind,
        /// Bytes requested.
        bytes: usize,
    },
    /// A peer sent a descriptor of something other than the announced memory.
    #[error("cannot map the received descriptor: {why}")]
    NotAsAnnounced {
        /// The defect of the descriptor.
        why: &'static str,
    },
    /// A system call failed.
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
    /// Creates a region of at least `bytes` bytes, all zero, rounded up to whole pages.
    ///
    /// *Cost*: five system calls, and the zeroing of every page (about 0.5 µs per KiB).
    ///
    /// # Errors
    /// [`ShmError::Empty`], [`ShmError::NoSpace`], [`ShmError::FileLimit`], or
    /// [`ShmError::System`].
    pub fn create(name: &str, bytes: usize) -> Result<Self, ShmError> {
        Self::create_as(name, bytes, MemoryPreference::default())
    }

    /// Creates a region like [`create`](Self::create), on large pages and on a NUMA node if the
    /// system grants them.
    ///
    /// Reserved huge pages are used only for a size that is a multiple of theirs. Transparent huge
    /// pages cover each whole 2 MiB of other memory. A refusal of either is never an error:
    /// [`pages`](Self::pages) and [`node`](Self::node) report what the memory got.
    ///
    /// *Cost*: as for [`create`](Self::create), plus some system calls for the preference. To find
    /// transparent huge pages, the call reads the kernel's list of this process's mappings.
    ///
    /// # Errors
    /// [`ShmError::Empty`], [`ShmError::NoSpace`], [`ShmError::FileLimit`], or
    /// [`ShmError::System`]; [`ShmError::NoPages`] if the preference requires pages that the system
    /// does not have.
    pub fn create_as(name: &str, bytes: usize, preference: MemoryPreference) -> Result<Self, ShmError> {
        if bytes == 0 {
            return Err(ShmError::Empty);
        }
        let page = rustix::param::page_size();
        let Some(bytes) = bytes.checked_next_multiple_of(page) else {
            return Err(ShmError::NoSpace { bytes, available: limits::available_memory_bytes() });
        };
        if preference.on_demand {
            return Self::create_of(name, bytes, MemfdFlags::empty(), Pages::default(), preference);
        }
        for (kind, flags) in pages::reserved_kinds(preference.pages, bytes) {
            let pages = pages::of_reserved(kind, bytes);
            // After any failure, the next kind of page is tried.
            if let Ok(memory) = Self::create_of(name, bytes, flags, pages, preference) {
                return Ok(memory);
            }
            if preference.requires_pages {
                return Err(ShmError::NoPages { kind, bytes });
            }
        }
        if bytes >= CHECK_FREE_MEMORY_FROM_BYTES {
            let available = limits::available_memory_bytes();
            if bytes as u64 > available {
                return Err(ShmError::NoSpace { bytes, available });
            }
        }
        let kind = if bytes < HUGE_BYTES { PageKind::Base } else { preference.pages.min(PageKind::Transparent) };
        Self::create_of(name, bytes, MemfdFlags::empty(), Pages { kind, huge_bytes: 0 }, preference)
    }

    /// Creates a region of one kind of page. `pages` describes reserved pages; transparent ones are
    /// counted afterwards.
    fn create_of(
        name: &str,
        bytes: usize,
        flags: MemfdFlags,
        pages: Pages,
        preference: MemoryPreference,
    ) -> Result<Self, ShmError> {
        let MemoryPreference { node, on_demand, is_ours_to_write, .. } = preference;
        let failed = |call| move |errno: Errno| system(call, bytes, errno);
        // A file beyond its limit would end this process by a signal.
        if let Some(limit) = limits::max_file_bytes().filter(|limit| bytes as u64 > *limit) {
            return Err(ShmError::FileLimit { bytes, limit });
        }
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags)
            .map_err(failed("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(failed("ftruncate"))?;
        // The file is mapped before it is filled, because the policies for filling it belong to the
        // mapping.
        let mut memory = Self::map(fd, bytes, pages, READ_WRITE)?;
        if let Some(node) = node {
            // SAFETY: the mapping is new, and only this function knows it. If the policy is
            // refused, the system chooses the node.
            let _ = unsafe { numa::prefer(memory.base, bytes, node) };
        }
        if pages.kind == PageKind::Transparent {
            // SAFETY: the mapping is of a memory file, is new, and only this function knows it.
            unsafe { pages::fill_with_transparent(memory.base, bytes) };
        }
        if !on_demand {
            reserve(memory.fd(), bytes, pages.huge_bytes).map_err(failed("fallocate"))?;
        }
        let against_writing = if is_ours_to_write { SealFlags::FUTURE_WRITE } else { SealFlags::empty() };
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | against_writing;
        rustix::fs::fcntl_add_seals(memory.fd(), seals).map_err(failed("sealing"))?;
        if pages.kind == PageKind::Transparent {
            memory.pages = pages::of_filled(memory.base, bytes);
        }
        if node.is_some() && !on_demand {
            // The kernel reports the nodes of mapped pages only.
            // SAFETY: the mapping is of a memory file, is new, and only this function knows it.
            unsafe { pages::fill(memory.base, bytes) };
            let page_bytes = pages::of_file(memory.fd(), bytes).map_err(failed("fstatfs"))?.0;
            memory.node = numa::node_of(memory.base, bytes, page_bytes);
        }
        Ok(memory)
    }

    /// Maps a region that another process created and sent.
    ///
    /// # Errors
    /// [`ShmError::NotAsAnnounced`] if the descriptor is not a memory file, is not sealed against
    /// changes of size, or is not `bytes` long (rounded up to whole pages of its own kind);
    /// otherwise [`ShmError::System`].
    pub fn from_fd(fd: OwnedFd, bytes: usize) -> Result<Self, ShmError> {
        let not = |why| ShmError::NotAsAnnounced { why };
        check_seals(&fd)?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| system("fstat", bytes, errno))?;
        let (page_bytes, pages) = pages::of_file(&fd, bytes).map_err(|errno| system("fstatfs", bytes, errno))?;
        let whole = bytes.checked_next_multiple_of(page_bytes).ok_or(not("its size is not the announced one"))?;
        if bytes == 0 || u64::try_from(stat.st_size) != Ok(whole as u64) {
            return Err(not("its size is not the announced one"));
        }
        Self::map(fd, whole, pages, READ_WRITE)
    }

    /// Implements [`Mapping::of_stranger`]. Also returns whether the memory may be written.
    fn of_stranger(fd: OwnedFd) -> Result<(Self, bool), ShmError> {
        let not = |why| ShmError::NotAsAnnounced { why };
        let may_write = !check_seals(&fd)?.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE);
        let stat = rustix::fs::fstat(&fd).map_err(|errno| system("fstat", 0, errno))?;
        let bytes = usize::try_from(stat.st_size).map_err(|_| not("it has no size"))?;
        let (page_bytes, pages) = pages::of_file(&fd, bytes).map_err(|errno| system("fstatfs", bytes, errno))?;
        if pages.kind > PageKind::Transparent {
            return Err(not("it consists of huge pages, which may be missing"));
        }
        if bytes == 0 || !bytes.is_multiple_of(page_bytes) {
            return Err(not("it is empty, or not a whole number of pages"));
        }
        if u64::try_from(stat.st_blocks).is_ok_and(|blocks| blocks.saturating_mul(512) < bytes as u64) {
            return Err(not("its pages are not reserved"));
        }
        let protection = if may_write { READ_WRITE } else { ProtFlags::READ };
        Ok((Self::map(fd, bytes, pages, protection)?, may_write))
    }

    fn map(fd: OwnedFd, bytes: usize, pages: Pages, protection: ProtFlags) -> Result<Self, ShmError> {
        let may_be_transparent = pages.kind <= PageKind::Transparent && bytes >= HUGE_BYTES;
        let base = if may_be_transparent {
            map_aligned(&fd, bytes, HUGE_BYTES, protection)
        } else {
            map_anywhere(&fd, bytes, protection)
        };
        let base = base.map_err(|errno| system("mmap", bytes, errno))?;
        let base: NonNull<u8> = NonNull::new(base.cast()).expect("the kernel maps nothing at address zero unasked");
        // A forked child that goes on without `exec` does not get the mapping: it would write the
        // memory as if it were this process. If the system refuses, the child gets it.
        // SAFETY: the mapping is new, and only this function knows it; it stays as it is here.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontFork) };
        Ok(Self { fd: Some(fd), base, bytes, pages, node: None, origin: Origin::here() })
    }

    /// The address of the first byte. Other processes may write these bytes at any time: access
    /// them only through [`racy`](crate::racy) or atomics. Pointers derived from it are valid only
    /// while this value lives.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The size in bytes, a whole number of pages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The pages of this memory, as far as they are known. For memory from another process, only
    /// reserved huge pages are known.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// The NUMA node of this memory. Known only if this process [created](Self::create_as) it for a
    /// node and the kernel reports all sampled pages on one node.
    pub fn node(&self) -> Option<NumaNodeId> {
        self.node
    }

    /// The descriptor, which can be sent to a peer.
    ///
    /// # Panics
    /// After [`close_fd`](Self::close_fd).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("the descriptor was closed here").as_fd()
    }

    /// Closes the descriptor, where no further peer gets it. The memory stays mapped.
    pub fn close_fd(&mut self) {
        self.fd = None;
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // Something else may be at these addresses.
            return;
        }
        // SAFETY: `base` and `bytes` are those of a mapping that `map` made and that only this
        // function unmaps; code that keeps a pointer into it keeps the `SharedMemory` alive (the
        // duty stated at `base`).
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping cannot fail");
    }
}

/// Refuses a file whose size may change. Returns its seals.
fn check_seals(fd: &OwnedFd) -> Result<SealFlags, ShmError> {
    let not = |why| ShmError::NotAsAnnounced { why };
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| not("it is not a memory file"))?;
    let is_fixed = seals.contains(SealFlags::SHRINK | SealFlags::GROW);
    if is_fixed { Ok(seals) } else { Err(not("it is not sealed against changes of its size")) }
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn map_anywhere(fd: &OwnedFd, bytes: usize, protection: ProtFlags) -> rustix::io::Result<*mut c_void> {
    // SAFETY: a new mapping at an address of the kernel's choice overlays nothing.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0) }
}

/// Maps a file at a multiple of `align`, so that the processor can map its huge pages as such.
fn map_aligned(fd: &OwnedFd, bytes: usize, align: usize, protection: ProtFlags) -> rustix::io::Result<*mut c_void> {
    let Some(room) = bytes.checked_add(align) else { return map_anywhere(fd, bytes, protection) };
    // A larger range of addresses is reserved first.
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
    // SAFETY: the range lies in the range reserved above, which only this function knows.
    let mapped = unsafe { rustix::mm::mmap(base, bytes, protection, MapFlags::SHARED | MapFlags::FIXED, fd, 0) };
    let spare = match mapped {
        Ok(_) => [(all, before), (base.wrapping_byte_add(bytes), align - before)],
        Err(_) => [(all, room), (all, 0)],
    };
    for (start, bytes) in spare.into_iter().filter(|(_, bytes)| *bytes > 0) {
        // SAFETY: these addresses were reserved above, and nothing is mapped over them.
        let given_back = unsafe { rustix::mm::munmap(start, bytes) };
        debug_assert!(given_back.is_ok(), "munmap of our own mapping cannot fail");
    }
    mapped
}

/// The size of an ordinary page. Shared memory consists of whole pages.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Reserves the pages of a file.
///
/// On some kernels a signal interrupts the call, which then takes back what it has reserved. With
/// the timer of a profiler, one call for a large file would never end there. So it is made in
/// pieces. Huge pages stay reserved.
fn reserve(fd: impl AsFd, bytes: usize, huge_bytes: usize) -> Result<(), Errno> {
    let piece_bytes = if huge_bytes > 0 { bytes } else { RESERVED_AT_ONCE };
    for offset in (0..bytes).step_by(piece_bytes) {
        let length = piece_bytes.min(bytes - offset) as u64;
        let mut interruptions = 0;
        loop {
            match rustix::fs::fallocate(&fd, FallocateFlags::empty(), offset as u64, length) {
                Err(Errno::INTR) if interruptions < INTERRUPTIONS_MAX => interruptions += 1,
                result => break result?,
            }
        }
    }
    Ok(())
}

fn system(call: &'static str, bytes: usize, errno: Errno) -> ShmError {
    match errno {
        Errno::NOSPC | Errno::NOMEM => ShmError::NoSpace { bytes, available: limits::available_memory_bytes() },
        errno => ShmError::System { call, bytes, cause: errno.into() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::racy;

    /// Signals arrive as fast as from the timer of a profiler, and faster.
    #[test]
    fn signals_do_not_end_the_creation_of_memory() {
        extern "C" fn ignore(_: libc::c_int) {}
        // SAFETY: all-zero bytes are a valid `sigaction`: no flags and an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        // SAFETY: the action is valid, its handler does nothing, and no other test uses the signal.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()) }, 0);
        // SAFETY: the call has no preconditions.
        let here = unsafe { libc::pthread_self() };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // SAFETY: the thread lives until the scope ends, which waits for this one.
                    unsafe { libc::pthread_kill(here, libc::SIGUSR2) };
                    std::thread::park_timeout(Duration::from_micros(200));
                }
            });
            let memory = SharedMemory::create("interrupted", 128 << 20);
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(memory.unwrap().bytes(), 128 << 20);
        });
    }

    #[test]
    fn a_forked_child_does_not_get_the_memory() {
        for bytes in [5000, HUGE_BYTES] {
            let memory = SharedMemory::create("test", bytes).unwrap();
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let begins = format!("{:x}-", memory.base().addr());
            let its = maps.lines().skip_while(|line| !line.starts_with(&begins));
            let flags = its.skip(1).find(|line| line.starts_with("VmFlags")).unwrap();
            assert!(flags.split_whitespace().any(|flag| flag == "dc"), "{flags}");
        }
    }

    #[test]
    fn a_second_mapping_sees_what_the_first_writes() {
        let first = SharedMemory::create("test", 5000).unwrap();
        assert_eq!(first.bytes() % rustix::param::page_size(), 0);
        let second = SharedMemory::from_fd(first.fd().try_clone_to_owned().unwrap(), first.bytes()).unwrap();
        assert_ne!(first.base(), second.base());
        let sent = *b"across";
        // SAFETY: both mappings are live and longer than six bytes.
        unsafe { racy::copy_out(sent.as_ptr(), first.base().as_ptr(), sent.len()) };
        let mut got = [0; 6];
        // SAFETY: both mappings are live and longer than six bytes.
        unsafe { racy::copy_in(second.base().as_ptr(), got.as_mut_ptr(), got.len()) };
        assert_eq!(got, sent);
    }

    fn write_and_read(memory: &SharedMemory, offset: usize, byte: u8) -> u8 {
        let (place, mut got) = (memory.base().as_ptr().wrapping_add(offset), 0);
        // SAFETY: the tests pass offsets inside a mapping that they keep.
        unsafe { racy::copy_out(&raw const byte, place, 1) };
        // SAFETY: the tests pass offsets inside a mapping that they keep.
        unsafe { racy::copy_in(place, &raw mut got, 1) };
        got
    }

    #[test]
    fn required_pages_are_those_or_an_error_that_says_what_to_do() {
        for (pages, bytes) in [(PageKind::Huge, HUGE_BYTES), (PageKind::Gigantic, 1 << 30)] {
            let preference = MemoryPreference { pages, requires_pages: true, ..MemoryPreference::default() };
            match SharedMemory::create_as("test", bytes, preference) {
                Ok(memory) => assert_eq!(memory.pages(), Pages { kind: pages, huge_bytes: bytes }),
                Err(error) => {
                    assert!(matches!(error, ShmError::NoPages { kind, .. } if kind == pages), "{error}");
                    assert!(error.to_string().contains("hugepages=..."), "{error}");
                }
            }
        }
    }

    /// More than any machine has.
    #[test]
    fn memory_on_demand_takes_only_what_is_used() {
        let preference = MemoryPreference { on_demand: true, ..MemoryPreference::default() };
        let memory = SharedMemory::create_as("test", 1 << 44, preference).unwrap();
        for offset in [0, (1 << 43) + 5, (1 << 44) - 1] {
            assert_eq!(write_and_read(&memory, offset, 7), 7);
        }
        let taken = rustix::fs::fstat(memory.fd()).unwrap().st_blocks * 512;
        assert!(taken <= 3 * HUGE_BYTES as i64, "{taken}");
    }

    #[test]
    fn memory_comes_for_every_wish_and_a_peer_can_map_it() {
        let kinds = [PageKind::Base, PageKind::Transparent, PageKind::Huge, PageKind::Gigantic];
        for (pages, bytes) in
            kinds.into_iter().flat_map(|kind| [1, 5000, 2 << 20, (4 << 20) + 1].map(|bytes| (kind, bytes)))
        {
            for node in [None, Some(NumaNodeId(0)), Some(NumaNodeId(999)), Some(NumaNodeId(u32::MAX))] {
                let first = SharedMemory::create_as(
                    "test",
                    bytes,
                    MemoryPreference { pages, node, ..MemoryPreference::default() },
                )
                .unwrap();
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
            assert_eq!(memory.pages(), Pages::default(), "no larger pages were requested");
        }
    }

    /// Checks what this machine really does, which depends on its administrator.
    #[test]
    fn reported_pages_match_the_kernels_list() {
        let preference =
            MemoryPreference { pages: PageKind::Gigantic, node: Some(NumaNodeId(0)), ..MemoryPreference::default() };
        let memory = SharedMemory::create_as("farside-pages-test", 8 << 20, preference).unwrap();
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
