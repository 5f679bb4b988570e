//! Reading and writing the memory of another process by system calls: `process_vm_readv` and
//! `process_vm_writev`.
//!
//! The other process need not cooperate, but this process needs the right to trace it: the same
//! user, and more than that where the system is strict (Yama's `ptrace_scope`). Callers try the
//! call once before they rely on it.

use std::io::{Error, Result};

/// Copies bytes from another process's memory. Returns the number of bytes copied. It is smaller
/// than requested if the following memory is not mapped there.
///
/// *Cost*: a system call, about 0.3 µs, and a copy.
///
/// # Errors
/// An error for which [`is_refusal`] or [`is_gone`] is true, or `EFAULT` if nothing is mapped at
/// `address`.
pub fn read(pid: i32, address: usize, into: &mut [u8]) -> Result<usize> {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: into.len() };
    // SAFETY: the kernel writes only into `into`, which is borrowed mutably, and reads one element
    // of each vector.
    let copied = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(copied).map_err(|_| Error::last_os_error())
}

/// Fills `into` with the bytes of several segments of another process's memory, each given by its
/// address and length. Returns the number of bytes copied, as [`read`] does. Reads no more than
/// [`SEGMENTS_MAX`] segments.
///
/// *Cost*: a system call, and a copy. The system pins the pages of each segment for itself.
///
/// # Errors
/// Those of [`read`].
pub fn read_segments(pid: i32, segments: &[(usize, usize)], into: &mut [u8]) -> Result<usize> {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there: Vec<_> = segments
        .iter()
        .take(SEGMENTS_MAX)
        .map(|(address, bytes)| libc::iovec { iov_base: std::ptr::without_provenance_mut(*address), iov_len: *bytes })
        .collect();
    // SAFETY: the kernel writes only into `into`, which is borrowed mutably. It reads one element
    // of the first vector, and the elements of the second, which lives during the call.
    let copied = unsafe { libc::process_vm_readv(pid, &raw const here, 1, there.as_ptr(), there.len() as _, 0) };
    usize::try_from(copied).map_err(|_| Error::last_os_error())
}

/// The largest number of segments that one system call reads.
pub const SEGMENTS_MAX: usize = 1024;

/// Copies bytes into another process's memory. Returns the number of bytes copied, as [`read`]
/// does.
///
/// # Errors
/// Those of [`read`].
///
/// # Safety
/// The memory that `pid` has at `address` may be written now as if by a racy copy, because the
/// process has offered it. (`pid` may be this process.)
pub unsafe fn write(pid: i32, address: usize, from: &[u8]) -> Result<usize> {
    let here = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: from.len() };
    // SAFETY: the kernel only reads `from`, and reads one element of each vector. The contract
    // allows what it writes.
    let copied = unsafe { libc::process_vm_writev(pid, &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(copied).map_err(|_| Error::last_os_error())
}

/// Copies bytes within this process by the system call of [`write`](fn@write). Callers use it to
/// measure the cost of that call.
///
/// # Errors
/// An error for which [`is_refusal`] is true.
pub fn write_here(into: &mut [u8], from: &[u8]) -> Result<usize> {
    let bytes = into.len().min(from.len());
    let place = into.as_mut_ptr().expose_provenance();
    // SAFETY: `into` has at least `bytes` bytes at `place`, and is borrowed mutably.
    unsafe { write(std::process::id().cast_signed(), place, &from[..bytes]) }
}

/// Returns whether an error means that the system forbids the call or does not have it.
pub fn is_refusal(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// Returns whether an error means that there is no such process.
pub fn is_gone(error: &Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reaches_itself_but_no_unknown_process() {
        let pid = std::process::id() as i32;
        let mut memory = vec![0_u8; 1 << 16];
        let address = memory.as_mut_ptr().expose_provenance();
        // SAFETY: the bytes belong to this test, and nothing else accesses them meanwhile.
        let written = unsafe { write(pid, address + 5, b"myself") };
        assert_eq!(written.unwrap(), 6);
        let mut found = [0; 6];
        assert_eq!(read(pid, address + 5, &mut found).unwrap(), 6);
        assert_eq!(&found, b"myself");
        assert_eq!(&memory[5..11], b"myself");
        assert_eq!(write_here(&mut memory[..3], b"here").unwrap(), 3);
        assert_eq!(&memory[..8], b"her\0\0mys");
        let nowhere = read(pid, 8, &mut found).unwrap_err();
        assert!(!is_refusal(&nowhere) && !is_gone(&nowhere), "{nowhere}");
    }

    #[test]
    fn a_missing_process_is_reported_as_gone() {
        // Process numbers are always smaller than this.
        let error = read(i32::MAX, 0x1000, &mut [0]).unwrap_err();
        assert!(is_gone(&error) || is_refusal(&error), "{error}");
    }
}
