//! The pages of shared memory.

use std::ffi::c_void;
use std::fmt;
use std::fs;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::mm::Advice;

/// The size of the smaller huge pages. A mapping that begins at a multiple of it can use them.
pub(super) const HUGE_BYTES: usize = 2 << 20;
const GIGANTIC_BYTES: usize = 1 << 30;

/// The type that `fstatfs` reports for a file of reserved huge pages.
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
/// The kernel's number for collapsing a range into huge pages now (Linux 6.1).
const MADV_COLLAPSE: libc::c_int = 25;

/// A kind of page. With larger pages, a processor or a network card needs fewer entries to
/// translate addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PageKind {
    /// The ordinary page, usually of 4 KiB.
    #[default]
    Base,
    /// 2 MiB, assembled by the kernel where it finds free memory ("transparent huge pages").
    Transparent,
    /// 2 MiB, reserved by the administrator (`/proc/sys/vm/nr_hugepages`).
    Huge,
    /// 1 GiB, reserved by the administrator, usually at boot.
    Gigantic,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Base => "ordinary pages",
            Self::Transparent => "transparent huge pages",
            Self::Huge => "huge pages of 2 MiB",
            Self::Gigantic => "huge pages of 1 GiB",
        })
    }
}

/// The pages that a piece of memory got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// The kind of its pages; [`PageKind::Transparent`] if at least one page is of that kind.
    pub kind: PageKind,
    /// Bytes on pages larger than the ordinary ones, as far as the kernel reports them.
    pub huge_bytes: usize,
}

impl Pages {
    fn reserved(kind: PageKind, bytes: usize) -> Self {
        Self { kind, huge_bytes: bytes }
    }
}

/// The kinds of reserved page that can hold `bytes` bytes without waste, largest first, none larger
/// than `max`. Each comes with the flags that request it for a memory file.
pub(super) fn reserved_kinds(max: PageKind, bytes: usize) -> impl Iterator<Item = (PageKind, MemfdFlags)> {
    let kinds = [
        (PageKind::Gigantic, GIGANTIC_BYTES, MemfdFlags::HUGE_1GB),
        (PageKind::Huge, HUGE_BYTES, MemfdFlags::HUGE_2MB),
    ];
    let fits = move |(kind, page_bytes, flag): (PageKind, usize, MemfdFlags)| {
        (kind <= max && bytes.is_multiple_of(page_bytes)).then_some((kind, MemfdFlags::HUGETLB | flag))
    };
    kinds.into_iter().filter_map(fits)
}

/// The page size of a memory file, and the pages of a mapping of `bytes` bytes of it, as far as the
/// file reports them.
pub(super) fn of_file(fd: impl AsFd, bytes: usize) -> rustix::io::Result<(usize, Pages)> {
    let stat = rustix::fs::fstatfs(fd)?;
    if stat.f_type as i64 != HUGETLBFS_MAGIC {
        return Ok((rustix::param::page_size(), Pages::default()));
    }
    let page_bytes = usize::try_from(stat.f_bsize).ok().filter(|bytes| bytes.is_power_of_two());
    let page_bytes = page_bytes.ok_or(rustix::io::Errno::INVAL)?;
    let kind = if page_bytes >= GIGANTIC_BYTES { PageKind::Gigantic } else { PageKind::Huge };
    Ok((page_bytes, Pages::reserved(kind, bytes)))
}

/// The pages of memory that was created with one of the [`reserved_kinds`].
pub(super) fn of_reserved(kind: PageKind, bytes: usize) -> Pages {
    Pages::reserved(kind, bytes)
}

/// Requests transparent huge pages for a mapping that is not filled yet. What the kernel refuses
/// stays unfilled.
///
/// # Safety
/// The range is a mapping of a shared memory file that only the caller knows so far.
pub(super) unsafe fn fill_with_transparent(base: NonNull<u8>, bytes: usize) {
    // SAFETY: this is advice about an existing mapping (the caller's duty); it neither moves the
    // mapping nor changes its bytes.
    let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    let huge_count = bytes / HUGE_BYTES;
    // One page of each huge page is enough. Where the kernel follows the advice, the huge page
    // comes as a whole; elsewhere the page gives MADV_COLLAPSE something to collapse.
    for huge in 0..huge_count {
        let page = base.as_ptr().wrapping_add(huge * HUGE_BYTES);
        // SAFETY: the range lies in the caller's mapping; filling changes no page that already
        // holds data.
        let filled =
            unsafe { rustix::mm::madvise(page.cast(), rustix::param::page_size(), Advice::LinuxPopulateWrite) };
        if filled.is_err() {
            return;
        }
    }
    // The call reports failure even after partial success; the result is checked later.
    // SAFETY: collapsing moves pages below the mapping, which holds the same bytes before and
    // after.
    let _ = unsafe { libc::madvise(base.as_ptr().cast::<c_void>(), huge_count * HUGE_BYTES, MADV_COLLAPSE) };
}

/// Makes the kernel fill a mapping. What it refuses stays unfilled.
///
/// # Safety
/// As for [`fill_with_transparent`]: a mapping of a shared memory file that only the caller knows
/// so far.
pub(super) unsafe fn fill(base: NonNull<u8>, bytes: usize) {
    // SAFETY: filling changes no page that already holds data.
    let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
}

/// The pages of a filled mapping for which transparent huge pages were requested.
pub(super) fn of_filled(base: NonNull<u8>, bytes: usize) -> Pages {
    let huge_bytes = transparent_bytes(base, bytes);
    let kind = if huge_bytes > 0 { PageKind::Transparent } else { PageKind::Base };
    Pages { kind, huge_bytes }
}

/// Bytes of a range that are mapped by transparent huge pages, according to the kernel's list of
/// mappings. 0 if it lists none.
fn transparent_bytes(base: NonNull<u8>, bytes: usize) -> usize {
    let list = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    huge_in(&list, base.addr().get(), bytes)
}

/// Implements [`transparent_bytes`] on the text of the list.
fn huge_in(list: &str, base: usize, bytes: usize) -> usize {
    let mut inside = false;
    let mut sum = 0;
    for line in list.lines() {
        if let Some((start, end)) = range_of(line) {
            inside = start < base + bytes && end > base;
        } else if inside && let Some(amount) = line.strip_prefix("ShmemPmdMapped:") {
            let kib = amount.trim().strip_suffix("kB").and_then(|kib| kib.trim().parse::<usize>().ok());
            sum += kib.unwrap_or(0) << 10;
        }
    }
    sum.min(bytes)
}

/// The address range at the beginning of a mapping's first line.
fn range_of(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read() {
        let list = "7f0000000000-7f0000400000 rw-s 00000000 00:01 1033 /memfd:x (deleted)\nSize: 4096 kB\nShmemPmdMapped:     2048 kB\n\
                    7f0000400000-7f0000800000 rw-s 00000000 00:01 1034 /memfd:y (deleted)\nShmemPmdMapped:     4096 kB\n";
        assert_eq!(huge_in(list, 0x7f00_0000_0000, 4 << 20), 2 << 20);
        assert_eq!(huge_in(list, 0x7f00_0040_0000, 4 << 20), 4 << 20);
        assert_eq!(huge_in(list, 0x7f00_0080_0000, 4 << 20), 0);
        assert_eq!(huge_in("ShmemPmdMapped: none\nx-y\n-\n", 0, usize::MAX), 0);
    }

    #[test]
    fn reserved_pages_are_tried_largest_first_and_without_waste() {
        let kinds = |max, bytes| reserved_kinds(max, bytes).map(|(kind, _)| kind).collect::<Vec<_>>();
        assert_eq!(kinds(PageKind::Gigantic, 2 << 30), [PageKind::Gigantic, PageKind::Huge]);
        assert_eq!(kinds(PageKind::Gigantic, 4 << 20), [PageKind::Huge]);
        assert_eq!(kinds(PageKind::Huge, 2 << 30), [PageKind::Huge]);
        assert_eq!(kinds(PageKind::Gigantic, 3 << 20), []);
        assert_eq!(kinds(PageKind::Transparent, 2 << 30), []);
    }
}
