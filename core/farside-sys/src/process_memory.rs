//! Reading and writing the memory of another process by system calls: `process_vm_readv` and
//! `process_vm_writev`.
//!
//! The other process need not cooperate, but this process needs the right to trace it: the same
//! user, and more than that where the system is strict (Yama's `ptrace_scope`). Callers try the
//! call once before they rely on it.

use std::io::{Error, ErrorKind, IoSliceMut, Result};
use std::ptr;

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

/// Copies segments of another process's memory, each given by its address and length, into slices
/// which have as many bytes together.
///
/// *Cost*: a system call for each 1024 segments or slices, and a copy. The system pins
/// the pages of each segment for itself.
///
/// # Errors
/// `UnexpectedEof` or `EFAULT` if a part of the memory is not mapped there; `InvalidInput` if the
/// numbers of bytes differ; otherwise an error for which [`is_refusal`] or [`is_gone`] is true.
pub fn read_exact(pid: i32, segments: &[(usize, usize)], into: &mut [IoSliceMut<'_>]) -> Result<()> {
    let wanted = into.iter().map(|slice| slice.len()).sum::<usize>();
    if segments.iter().try_fold(0_usize, |sum, (_, bytes)| sum.checked_add(*bytes)) != Some(wanted) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let part = |iov_base: *mut libc::c_void, iov_len| (iov_len > 0).then_some(libc::iovec { iov_base, iov_len });
    let mut here: Vec<_> = into.iter_mut().filter_map(|slice| part(slice.as_mut_ptr().cast(), slice.len())).collect();
    let there = segments.iter().filter_map(|(address, bytes)| part(ptr::without_provenance_mut(*address), *bytes));
    let mut there: Vec<_> = there.collect();
    let (mut here, mut there) = (&mut here[..], &mut there[..]);
    while !here.is_empty() {
        let (to, from) = (&here[..here.len().min(SEGMENTS_MAX)], &there[..there.len().min(SEGMENTS_MAX)]);
        // SAFETY: the kernel writes only into `into`, which is borrowed mutably: the parts of `to`
        // lie in it. It reads the elements of both vectors, which live during the call.
        let copied =
            unsafe { libc::process_vm_readv(pid, to.as_ptr(), to.len() as _, from.as_ptr(), from.len() as _, 0) };
        let copied = usize::try_from(copied).map_err(|_| Error::last_os_error())?;
        if copied == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        advance(&mut here, copied);
        advance(&mut there, copied);
    }
    Ok(())
}

/// Removes this number of bytes from the front.
fn advance(parts: &mut &mut [libc::iovec], mut bytes: usize) {
    while let Some(first) = parts.first_mut() {
        if first.iov_len > bytes {
            first.iov_base = first.iov_base.wrapping_byte_add(bytes);
            first.iov_len -= bytes;
            return;
        }
        bytes -= first.iov_len;
        *parts = &mut std::mem::take(parts)[1..];
    }
}

/// The largest number of segments that one system call reads.
const SEGMENTS_MAX: usize = 1024;

/// Copies bytes into another process's memory. Returns the number of bytes copied, as [`read`]
/// does.
///
/// # Errors
/// An error for which [`is_refusal`] or [`is_gone`] is true, or `EFAULT` if nothing is mapped at
/// `address`.
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
    fn segments_fill_slices_of_other_lengths() {
        let pid = std::process::id() as i32;
        let memory: Vec<u32> = (0..10_000).collect();
        let address = memory.as_ptr().expose_provenance();
        // Every second number, in slices of three bytes.
        let segments: Vec<_> = (0..5000).map(|index| (address + 8 * index, 4)).chain([(0, 0), (address, 0)]).collect();
        let mut found = vec![0_u8; 20_000];
        let mut slices: Vec<_> = found.chunks_mut(3).map(IoSliceMut::new).collect();
        read_exact(pid, &segments, &mut slices).unwrap();
        let (numbers, _) = found.as_chunks::<4>();
        assert!(numbers.iter().map(|bytes| u32::from_ne_bytes(*bytes)).eq((0..10_000).step_by(2)));
        let mut rest = [0; 4];
        let mut read = |segments: &[_]| read_exact(pid, segments, &mut [IoSliceMut::new(&mut rest)]);
        assert_eq!(read(&[(address, 3)]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(read(&[(address, usize::MAX), (address, 5)]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(read(&[(address, 3), (8, 1)]).is_err());
        read(&[(address + 4, 4)]).unwrap();
        assert_eq!(rest, 1_u32.to_ne_bytes());
    }

    #[test]
    fn a_missing_process_is_reported_as_gone() {
        // Process numbers are always smaller than this.
        let error = read(i32::MAX, 0x1000, &mut [0]).unwrap_err();
        assert!(is_gone(&error) || is_refusal(&error), "{error}");
    }
}
