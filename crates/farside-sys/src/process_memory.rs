//! The memory of another process, read and written by a system call: `process_vm_readv` and `process_vm_writev`.
//!
//! It needs no help of that process, but the right to trace it: the same user, and where the system is strict (Yama's
//! `ptrace_scope`) more than that. Whoever means to use it tries it first.

use std::io::{Error, Result};

/// Copies bytes from another process's memory. Returns how many were copied; fewer than asked for when what follows is not mapped
/// there.
///
/// *Cost*: a system call, about 0.3 µs, and a copy.
///
/// # Errors
/// [Refused](is_refusal), [gone](is_gone), or `EFAULT` when nothing is mapped there.
pub fn read(pid: i32, address: usize, into: &mut [u8]) -> Result<usize> {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: into.len() };
    // SAFETY: the kernel writes into `into` only, which is borrowed for that, and looks at each vector's one element.
    let copied = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(copied).map_err(|_| Error::last_os_error())
}

/// Copies bytes into another process's memory. As [`read`].
///
/// # Errors
/// Those of [`read`].
///
/// # Safety
/// Whatever `pid` has at `address` may be written now, as by a racy copy: the process has offered it. (`pid` may be this process.)
pub unsafe fn write(pid: i32, address: usize, from: &[u8]) -> Result<usize> {
    let here = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: from.len() };
    // SAFETY: the kernel reads `from` only, and looks at each vector's one element; what it writes, the contract allows.
    let copied = unsafe { libc::process_vm_writev(pid, &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(copied).map_err(|_| Error::last_os_error())
}

/// Copies bytes from one place of this process to another by the system call of [`write`](fn@write): for whoever wants to know what that costs.
///
/// # Errors
/// [Refused](is_refusal).
pub fn write_here(into: &mut [u8], from: &[u8]) -> Result<usize> {
    let bytes = into.len().min(from.len());
    let place = into.as_mut_ptr().expose_provenance();
    // SAFETY: `into` has so many bytes, and is borrowed for that.
    unsafe { write(std::process::id().cast_signed(), place, &from[..bytes]) }
}

/// Whether an error says that the system does not allow it, or has no such call.
pub fn is_refusal(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// Whether an error says that there is no such process.
pub fn is_gone(error: &Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reaches_itself_and_nothing_that_is_not_there() {
        let pid = std::process::id() as i32;
        let mut memory = vec![0_u8; 1 << 16];
        let address = memory.as_mut_ptr().expose_provenance();
        // SAFETY: the bytes are ours, and nobody looks at them meanwhile.
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
    fn nobody_is_gone() {
        // Numbers end below this.
        let error = read(i32::MAX, 0x1000, &mut [0]).unwrap_err();
        assert!(is_gone(&error) || is_refusal(&error), "{error}");
    }
}
