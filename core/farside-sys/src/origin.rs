//! [`Origin`]: whether this is the process in which a value was made, or a forked child of it.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::param::page_size;

/// The process in which a value was made.
///
/// A fork copies values, but no threads: a lock that another thread held stays locked in the child,
/// shared memory is missing there, and sockets are those of the parent. So what has such parts
/// keeps its origin, and refuses to work in another process.
///
/// ```
/// use farside_sys::process::Origin;
///
/// assert!(Origin::here().is_here());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u32);

impl Origin {
    /// This process.
    #[must_use]
    pub fn here() -> Self {
        Self(number())
    }

    /// Returns whether this process is it. *Cost*: two loads.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        self.0 == number()
    }
}

/// A page with this process's number, or 0. A forked child finds 0 there. Null until the first use.
/// Written once.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// The number of this process.
#[inline]
fn number() -> u32 {
    // SYNC: pairs with the exchange in `ask`.
    let page = PAGE.load(Ordering::Acquire);
    if !page.is_null() {
        // SAFETY: `PAGE` holds null or a page that `ask` has mapped, which is never unmapped. Any
        // bytes are an `AtomicU32`, and the page is accessed by that alone.
        let known = unsafe { &*page }.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
    }
    ask(page)
}

/// Asks the system, and notes the answer where the page is there.
#[cold]
fn ask(mut page: *mut AtomicU32) -> u32 {
    let number = std::process::id();
    if page.is_null() {
        let Some(new) = map() else { return number };
        // SYNC: pairs with the load in `number`, which finds the page mapped and marked.
        match PAGE.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => page = new,
            Err(first) => {
                // SAFETY: the page is new, and only this function knows it.
                let _ = unsafe { rustix::mm::munmap(new.cast(), page_size()) };
                page = first;
            }
        }
    }
    // SAFETY: as in `number`.
    unsafe { &*page }.store(number, Ordering::Relaxed);
    number
}

/// Maps a page that is empty in forked children. `None` if the system does not do that.
fn map() -> Option<*mut AtomicU32> {
    let (bytes, protection) = (page_size(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice overlays nothing.
    let page = unsafe { rustix::mm::mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the mapping is new, and only this function knows it; it stays as it is here.
    if unsafe { rustix::mm::madvise(page, bytes, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::munmap(page, bytes) };
        return None;
    }
    Some(page.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_another_process() {
        let origin = Origin::here();
        assert_eq!(origin.0, std::process::id());
        let look = || {
            let is_right = !origin.is_here() && Origin::here().is_here() && Origin::here().0 == std::process::id();
            if is_right { 7 } else { 1 }
        };
        // SAFETY: `look` uses the page and system calls alone.
        let status = unsafe { crate::process::in_child(look) };
        assert_eq!(status.unwrap().code(), Some(7));
        assert!(origin.is_here());
    }
}
