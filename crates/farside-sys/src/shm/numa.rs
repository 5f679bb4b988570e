//! On which NUMA node memory lies.

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::io;
use std::ptr::NonNull;

use crate::topology::NumaNodeId;

/// The kernel's number for "from this node, and from another when it is full".
const MPOL_PREFERRED: c_int = 1;
/// Pages of a range that are looked at to see where it lies.
const SAMPLES: usize = 64;
/// The kernel knows no nodes beyond (its largest configuration).
const NODES_MAX: u32 = 1024;

/// Has the pages of a shared memory file come from a node, from now on, for whoever fills them. A node that is full gives way
/// to others: the alternative is that the kernel kills processes.
///
/// # Errors
/// What the system said: there is no such node, or it forbids the call (containers do).
///
/// # Safety
/// The range is a mapping of the caller's.
pub(super) unsafe fn prefer(base: NonNull<u8>, bytes: usize, node: NumaNodeId) -> io::Result<()> {
    const WORD_BITS: u32 = c_ulong::BITS;
    if node.0 >= NODES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut mask = [0 as c_ulong; (NODES_MAX / WORD_BITS) as usize];
    mask[(node.0 / WORD_BITS) as usize] = 1 << (node.0 % WORD_BITS);
    let flags: c_ulong = 0;
    // The kernel takes one bit less than it is told.
    let mask_bits: c_ulong = (NODES_MAX + 1).into();
    // SAFETY: a policy for a range that is mapped (the caller's duty); the mask is as long as said, and only read.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            base.as_ptr(),
            bytes,
            c_long::from(MPOL_PREFERRED),
            mask.as_ptr(),
            mask_bits,
            flags,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The node that a filled range lies on; `None` if it lies on several, or the kernel does not say. A sample of its pages is looked
/// at.
pub(super) fn node_of(base: NonNull<u8>, bytes: usize, page_bytes: usize) -> Option<NumaNodeId> {
    let page_count = bytes.div_ceil(page_bytes);
    let sample_count = page_count.min(SAMPLES);
    let page = |sample: usize| base.as_ptr().wrapping_add(page_count * sample / sample_count * page_bytes).cast();
    let pages: Vec<*mut c_void> = (0..sample_count).map(page).collect();
    let mut nodes = vec![-1 as c_int; sample_count];
    let (this_process, flags): (c_long, c_long) = (0, 0);
    let no_nodes = std::ptr::null::<c_int>();
    // SAFETY: without nodes to move to, the call only tells where pages are; the two lists have as many places as said.
    let told = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            this_process,
            sample_count,
            pages.as_ptr(),
            no_nodes,
            nodes.as_mut_ptr(),
            flags,
        )
    };
    let first = *nodes.first()?;
    let all_alike = told == 0 && nodes.iter().all(|node| *node == first);
    u32::try_from(first).ok().filter(|_| all_alike).map(NumaNodeId)
}
