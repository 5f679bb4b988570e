//! Shared work on one value: within a process, and across a job.
//!
//! Calls run one at a time on a worker, but a process may have several workers, and a job has many.
//! Seriema (§1 (viii), §2) leaves the solutions to the application and promises the means. This
//! module has them:
//!
//! | to | see |
//! |---|---|
//! | let many threads of a process work on one value | [`Combining`] |
//! | let one worker of the job at a time do something | [`LockManager`], [`LockGuard`] |
//! | refuse a worker that has lost its lock without noticing | [`Token`], [`Fenced`] |
//!
//! Use a lock of the job only if nothing else serves. The best way to change one worker's data is
//! to call that worker, since its calls run one at a time: `Remote` of `farside-containers` has
//! values that are reached so.
//!
//! # Hardware lock elision
//!
//! Seriema also names hardware transactional memory: a lock that is not taken, because the
//! processor notices when two holders touch the same cache line. Farside deliberately has none.
//!
//! - Intel's TSX is the only one that x86 programs ever had. Its elision prefixes (HLE) are absent
//!   from every processor since 2019, and microcode removed them from earlier ones.
//! - Its transactions (RTM) were disabled on most processors, because of a memory-ordering erratum
//!   (Skylake to Coffee Lake) and a leak (TSX Asynchronous Abort, CVE-2019-11135). No client
//!   processor has had them since. Some Xeons do (Cascade Lake, Ice Lake, Sapphire Rapids), but
//!   Linux disables them without `tsx=on`.
//! - AMD never had them, POWER10 dropped its own, and Arm's TME is in no processor on sale. Stable
//!   Rust has no intrinsics for them.
//!
//! Such code could not be run or tested anywhere, so there is no switch for it. [`Combining`]
//! serves the same purpose on every processor: the value of a contended lock should not move from
//! core to core.

mod atomics;
mod combining;
mod error;
mod fenced;
mod lock;
mod operation;
mod requests;

use farside_fabric::wait::WaitPolicy;

pub use combining::Combining;
pub use error::SyncError;
pub use fenced::Fenced;
pub use lock::{Lock, LockGuard, LockManager, Token};

thread_local! {
    static MARK: u8 = const { 0 };
}

/// Returns a number that identifies this thread while it lives, and is not 0.
fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// The time for which threads of a process spin before they sleep. Waits are short, and the number
/// of threads is unknown.
const WAIT_POLICY: WaitPolicy = WaitPolicy::OVERSUBSCRIBED;

#[cfg(test)]
mod tests;
