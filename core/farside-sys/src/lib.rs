//! The operating system interface of Farside.
//!
//! Only this crate of the workspace makes system calls. It also holds the copies to and from memory
//! that another process may write at the same time ([`racy`]). It knows nothing of jobs, rings or
//! messages.
//!
//! Linux on x86-64 only. Nothing here prints, exits, or keeps global state, but for the number of
//! this process ([`process::Origin`]).

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "Farside runs on Linux on x86-64 only: it copies shared memory and lists remote functions in x86-64 assembly"
);

pub mod fence;
pub mod file;
pub mod futex;
pub mod image;
pub mod library;
pub mod limits;
pub mod net;
mod origin;
pub mod pmix;
pub mod poller;
pub mod prefetch;
pub mod process;
pub mod process_memory;
pub mod racy;
pub mod shm;
pub mod topology;
