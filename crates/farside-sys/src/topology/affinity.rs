//! Where the current thread may run.

use std::io;

use super::cpu_set::{CpuSet, MAX_CPUS};

/// Why a thread's CPUs could not be read or set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AffinityError {
    /// The kernel did not give the CPUs of this thread.
    #[error("the kernel does not say on which CPUs this thread may run: {0}")]
    Read(#[source] io::Error),
    /// A thread must be left at least one CPU.
    #[error("a thread cannot be bound to no CPU at all; name at least one")]
    Empty,
    /// The kernel did not take the CPUs.
    #[error("the kernel refuses to bind this thread to CPUs {cpus}: {source}; name CPUs that are online and allowed")]
    Refused {
        /// The CPUs that were asked for.
        cpus: CpuSet,
        /// What the system said.
        source: io::Error,
    },
}

/// The CPUs that the current thread may run on.
///
/// *Cost*: one system call.
///
/// # Errors
///
/// [`AffinityError::Read`], where a sandbox forbids the question.
pub fn current_affinity() -> Result<CpuSet, AffinityError> {
    // The kernel wants room for every CPU that it could ever have; this is room for any kernel.
    let mut words = vec![0_u64; MAX_CPUS / 64];
    let bytes = size_of_val(words.as_slice());
    // SAFETY: 0 is the current thread, and `words` is writable for `bytes` bytes. The kernel's words are `unsigned
    // long`; words of 64 bits have the same bits in the same places where those are as long, or little-endian.
    let status = unsafe { libc::sched_getaffinity(0, bytes, words.as_mut_ptr().cast()) };
    match status {
        0 => Ok(CpuSet::from_words(words)),
        _ => Err(AffinityError::Read(io::Error::last_os_error())),
    }
}

/// Lets the current thread run on `cpus` only. Threads that it starts later inherit this.
///
/// *Cost*: one system call, and a move if the thread is elsewhere.
///
/// # Errors
///
/// [`AffinityError::Empty`] for no CPU; [`AffinityError::Refused`] if none of them is online and allowed.
pub fn bind_current_thread(cpus: &CpuSet) -> Result<(), AffinityError> {
    if cpus.is_empty() {
        return Err(AffinityError::Empty);
    }
    let words = cpus.words();
    // SAFETY: 0 is the current thread, and `words` is readable for that many bytes; see above for the order of bits.
    let status = unsafe { libc::sched_setaffinity(0, size_of_val(words), words.as_ptr().cast()) };
    match status {
        0 => Ok(()),
        _ => Err(AffinityError::Refused { cpus: cpus.clone(), source: io::Error::last_os_error() }),
    }
}
