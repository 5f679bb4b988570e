//! The operating system as Farside needs it.
//!
//! This is the only crate of the workspace that makes system calls, and the home of the copies to and from memory that
//! another process may write at the same moment ([`racy`]). It knows nothing of jobs, rings or messages.
//!
//! Linux only. Nothing here prints, exits, or keeps state of its own.

pub mod fence;
pub mod file;
pub mod futex;
pub mod image;
pub mod library;
pub mod limits;
pub mod net;
pub mod pmix;
pub mod prefetch;
pub mod process;
pub mod process_memory;
pub mod racy;
pub mod shm;
pub mod topology;
