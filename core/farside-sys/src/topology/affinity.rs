//! The CPUs that the current thread may run on.

use std::io;

use super::cpu_set::{CpuSet, MAX_CPUS};

/// Why a thread's CPUs could not be read or set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AffinityError {
    /// The kernel did not report the CPUs of this thread.
    #[error("cannot read the CPUs of this thread: {0}")]
    Read(#[source] io::Error),
    /// A thread needs at least one CPU.
    #[error("cannot bind this thread: the set of CPUs is empty; name at least one")]
    Empty,
    /// The kernel refused the CPUs.
    #[error("cannot bind this thread to CPUs {cpus}: {source}; name CPUs that are online and allowed")]
    Refused {
        /// The requested CPUs.
        cpus: CpuSet,
        /// The operating system's error.
        source: io::Error,
    },
}

/// The CPUs that the current thread may run on.
///
/// *Cost*: one system call.
///
/// # Errors
///
/// [`AffinityError::Read`] if a sandbox forbids the call.
pub fn current_affinity() -> Result<CpuSet, AffinityError> {
    // The kernel requires room for every CPU that it supports; this is enough for any kernel.
    let mut words = vec![0_u64; MAX_CPUS / 64];
    let bytes = size_of_val(words.as_slice());
    // SAFETY: 0 is the current thread, and `words` is writable for `bytes` bytes. The kernel's
    // words are `unsigned long`; words of 64 bits have the same bits in the same places where those
    // are as long, or little-endian.
    let status = unsafe { libc::sched_getaffinity(0, bytes, words.as_mut_ptr().cast()) };
    match status {
        0 => Ok(CpuSet::from_words(words)),
        _ => Err(AffinityError::Read(io::Error::last_os_error())),
    }
}

/// Restricts the current thread to `cpus`. Threads that it starts later inherit this.
///
/// *Cost*: one system call, and a migration if the thread runs elsewhere.
///
/// # Errors
///
/// [`AffinityError::Empty`] for an empty set; [`AffinityError::Refused`] if none of the CPUs is
/// online and allowed.
pub fn bind_current_thread(cpus: &CpuSet) -> Result<(), AffinityError> {
    if cpus.is_empty() {
        return Err(AffinityError::Empty);
    }
    let words = cpus.words();
    // SAFETY: 0 is the current thread, and `words` is readable for that many bytes. The order of
    // bits is that of the kernel's words, as in `current_affinity`.
    let status = unsafe { libc::sched_setaffinity(0, size_of_val(words), words.as_ptr().cast()) };
    match status {
        0 => Ok(()),
        _ => Err(AffinityError::Refused { cpus: cpus.clone(), source: io::Error::last_os_error() }),
    }
}
