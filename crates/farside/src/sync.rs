//! Several working on one thing: in a process, and in a job.
//!
//! Functions that are called from elsewhere run one at a time on a worker; but a process may have several workers, and a job has many. Seriema
//! (§1 (viii), §2) leaves the answers to the application, and promises the means. These are they:
//!
//! | to | see |
//! |---|---|
//! | have many threads of a process work on one value | [`Combining`], [`Delegated`] |
//! | let one worker of the job at a time do something | [`LockManager`], [`LockGuard`] |
//! | keep out one that has lost its lock and does not know | [`Token`], [`Fenced`] |
//! | change what another worker has, in one step | [`Structures`], [`Operation`] |
//!
//! A lock of the job is the last of them to think of. What is done to one worker's data is done best by calling that worker: calls are one at a time by
//! themselves.
//!
//! # Hardware lock elision
//!
//! Seriema names transactional memory of the hardware, too: a lock that is not taken, since the processor notices when two of its holders touch
//! the same line. Farside has none, on purpose. Intel's TSX is the only one that programs for x86 ever had. Its elision prefixes (HLE) are gone
//! from every processor since 2019, and microcode took them from those before. Its transactions (RTM) were disabled on most processors for
//! two reasons, an erratum of memory ordering (Skylake to Coffee Lake) and a leak (TSX Asynchronous Abort, CVE-2019-11135), and no client
//! processor has had them since; some Xeons still do (Cascade Lake, Ice Lake, Sapphire Rapids), where Linux
//! leaves them off unless it is told `tsx=on`. AMD never had them, POWER10 dropped its own, and Arm's (TME) is in no processor that is sold. Rust's
//! stable library has no intrinsics for them either. Nobody could run such code, and it would be tested nowhere: so there is no
//! switch that seems to turn it on. [`Combining`] answers the same need on every processor: that a lock which many want should not have
//! its value go from core to core.

mod atomics;
mod combining;
mod delegated;
mod error;
mod fenced;
mod lock;
mod operation;
mod requests;
mod structure;
mod ticket;

use farside_fabric::wait::WaitPolicy;

pub use combining::Combining;
pub use delegated::Delegated;
pub use error::SyncError;
pub use fenced::Fenced;
pub use lock::{Lock, LockGuard, LockManager, Token};
pub use structure::{NewStructure, Operation, OperationResult, Structure, Structures};
pub use ticket::Ticket;

thread_local! {
    static MARK: u8 = const { 0 };
}

/// A number that is this thread's own while it lives, and not 0.
fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// How long threads of a process look before they sleep: what they wait for is short, and how many they are nobody knows.
const WAIT_POLICY: WaitPolicy = WaitPolicy::OVERSUBSCRIBED;

#[cfg(test)]
mod tests;
