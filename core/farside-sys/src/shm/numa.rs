//! The NUMA node that memory lies on.

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::io;
use std::ptr::NonNull;

use crate::topology::NumaNodeId;

/// The kernel's number for "from this node, and from another when it is full".
const MPOL_PREFERRED: c_int = 1;
/// Number of pages that are sampled to find the node of a range.
const SAMPLES: usize = 64;
/// The kernel's largest configuration has no nodes beyond this.
const NODES_MAX: u32 = 1024;

/// Makes the pages of a shared memory file come from `node` from now on, whichever process fills
/// them. If the node is full, other nodes are used: the alternative is that the kernel kills
/// processes.
///
/// # Errors
/// The operating system's error: there is no such node, or a container forbids the call.
///
/// # Safety
/// The range is a mapping that belongs to the caller.
pub(super) unsafe fn prefer(base: NonNull<u8>, bytes: usize, node: NumaNodeId) -> io::Result<()> {
    const WORD_BITS: u32 = c_ulong::BITS;
    if node.0 >= NODES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut mask = [0 as c_ulong; (NODES_MAX / WORD_BITS) as usize];
    mask[(node.0 / WORD_BITS) as usize] = 1 << (node.0 % WORD_BITS);
    let flags: c_ulong = 0;
    // The kernel uses one bit less than the length it is given.
    let mask_bits: c_ulong = (NODES_MAX + 1).into();
    // SAFETY: this sets a policy for a range that is mapped (the caller's duty); the mask has
    // `mask_bits` bits and is only read.
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

/// The node that a filled range lies on. `None` if it lies on several nodes, or the kernel does not
/// report it. The call samples up to [`SAMPLES`] pages.
pub(super) fn node_of(base: NonNull<u8>, bytes: usize, page_bytes: usize) -> Option<NumaNodeId> {
    let page_count = bytes.div_ceil(page_bytes);
    let sample_count = page_count.min(SAMPLES);
    let page = |sample: usize| base.as_ptr().wrapping_add(page_count * sample / sample_count * page_bytes).cast();
    let pages: Vec<*mut c_void> = (0..sample_count).map(page).collect();
    let mut nodes = vec![-1 as c_int; sample_count];
    let (this_process, flags): (c_long, c_long) = (0, 0);
    let no_nodes = std::ptr::null::<c_int>();
    // SAFETY: without target nodes, the call only reports where pages are; both lists have
    // `sample_count` elements.
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
