//! The pages that shared memory is made of.

use std::ffi::c_void;
use std::fmt;
use std::fs;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::mm::Advice;

/// The size of the smaller huge pages. A mapping that begins on a multiple of it can have them.
pub(super) const HUGE_BYTES: usize = 2 << 20;
const GIGANTIC_BYTES: usize = 1 << 30;

/// What `fstatfs` says of a file of reserved huge pages.
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
/// The kernel's number for gathering a range into huge pages now (Linux 6.1).
const MADV_COLLAPSE: libc::c_int = 25;

/// A kind of page. The larger it is, the fewer entries a processor or a network card needs to find its way about the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PageKind {
    /// The ordinary one, mostly of 4 KiB.
    #[default]
    Base,
    /// 2 MiB, put together by the kernel where it finds room ("transparent huge pages").
    Transparent,
    /// 2 MiB, set aside by the administrator (`/proc/sys/vm/nr_hugepages`).
    Huge,
    /// 1 GiB, set aside by the administrator, mostly when the machine was started.
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

/// What a piece of memory got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// The kind of its pages; [`PageKind::Transparent`] if at least one is.
    pub kind: PageKind,
    /// How much of it is on pages larger than the ordinary ones, as far as the kernel says.
    pub huge_bytes: usize,
}

impl Pages {
    fn reserved(kind: PageKind, bytes: usize) -> Self {
        Self { kind, huge_bytes: bytes }
    }
}

/// The kinds of reserved page that memory of this size can be made of without waste, the largest first, none larger than
/// `max`. Each with what a memory file is told to have them.
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

/// The size of the pages of a memory file, and what a mapping of `bytes` of it is made of as far as the file tells.
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

/// What memory is made of that was made with [`reserved_kinds`].
pub(super) fn of_reserved(kind: PageKind, bytes: usize) -> Pages {
    Pages::reserved(kind, bytes)
}

/// Asks for transparent huge pages for what is mapped here and not filled yet. What the kernel refuses stays unfilled.
///
/// # Safety
/// The range is a mapping of a shared memory file, of the caller's alone so far.
pub(super) unsafe fn fill_with_transparent(base: NonNull<u8>, bytes: usize) {
    // SAFETY: advice about a mapping that exists (the caller's duty); it neither moves it nor changes what it holds.
    let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    let huge_count = bytes / HUGE_BYTES;
    // One page of each huge one is enough: where advice is taken it comes as a whole, and where it is not there is something that can
    // be gathered.
    for huge in 0..huge_count {
        let page = base.as_ptr().wrapping_add(huge * HUGE_BYTES);
        // SAFETY: as above; filling writes to no page that holds something.
        let filled =
            unsafe { rustix::mm::madvise(page.cast(), rustix::param::page_size(), Advice::LinuxPopulateWrite) };
        if filled.is_err() {
            return;
        }
    }
    // It says that it failed also where it succeeded in part: what came of it is looked up later.
    // SAFETY: gathering moves pages below the mapping, which holds the same bytes before and after.
    let _ = unsafe { libc::madvise(base.as_ptr().cast::<c_void>(), huge_count * HUGE_BYTES, MADV_COLLAPSE) };
}

/// Has the kernel fill what is mapped here. What it refuses stays unfilled.
///
/// # Safety
/// As for [`fill_with_transparent`].
pub(super) unsafe fn fill(base: NonNull<u8>, bytes: usize) {
    // SAFETY: filling writes to no page that holds something.
    let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
}

/// What a filled mapping is made of that was to have transparent huge pages.
pub(super) fn of_filled(base: NonNull<u8>, bytes: usize) -> Pages {
    let huge_bytes = transparent_bytes(base, bytes);
    let kind = if huge_bytes > 0 { PageKind::Transparent } else { PageKind::Base };
    Pages { kind, huge_bytes }
}

/// How much of a range is mapped by transparent huge pages, according to the kernel's own list. 0 if it shows none.
fn transparent_bytes(base: NonNull<u8>, bytes: usize) -> usize {
    let list = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    huge_in(&list, base.addr().get(), bytes)
}

/// As above, from the text of the list.
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

/// The addresses at the beginning of a mapping's first line.
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
