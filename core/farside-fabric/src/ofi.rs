//! The transport between processes of several machines, over libfabric.
//!
//! Each process has one endpoint, shared by its threads. A peer is connected on first use. Puts and
//! gets use libfabric's own operations. Atomics are executed by the owner's processor when a
//! message requests them ([`emulated`](crate::emulated)), so that they are atomic with those of
//! peers that map the memory. Puts and gets of up to eight bytes are executed in the same way where
//! libfabric itself works in software, because it does not guarantee whole words.
//!
//! libfabric is opened at run time and is not needed to build or start a program. Farside requests
//! API version 1.17. Versions 1.17 and 2.5 are tested, with the providers `tcp;ofi_rxm` of 1.17,
//! `tcp` of 2.5, `verbs;ofi_rxm` (on soft-RoCE) and `shm`.
//!
//! [`connected`] has endpoints for two programs that are not of one job.
//!
//! # Progress
//!
//! Over `tcp`, nothing happens at a process that does not make
//! [`progress`](crate::Carrier::progress), not even to its memory. The thread that sleeps in
//! [`wait`](crate::Transport::wait) blocks on libfabric's descriptor, and every arrival wakes it.
//! While another thread makes progress repeatedly, the sleeping thread stands back, so that the two
//! do not wake each other for every message. It does not even request the lock then, which the
//! other thread holds nearly all the time.
//!
//! A thread that waits for its own operation polls the completion queue itself, for a while. Over
//! `tcp` a put of some bytes is two messages and takes twelve microseconds; waking a thread would
//! take longer. A posted operation goes out at once, before the thread begins to poll.
//!
//! # Operations in flight belong to libfabric
//!
//! An endpoint is closed while peers are still connected to it, and peers go while it is open. With
//! one receive queue per connection, which is the default over `verbs`, libfabric's layer `rxm`
//! frees a connection that ends, and then handles what had arrived on it. It offers receives on the
//! freed connection and counts credits into it. The address sanitizer showed this in 1.17, and the
//! lines are the same in 2.5. One queue for all connections avoids these accesses. It costs a
//! process up to 140 MiB, for all connections together, unless it is made shorter
//! ([`ENVIRONMENT`]).
//!
//! Version 2 has a `tcp` provider that does not need `rxm`. It is faster, and uses a twentieth of
//! the memory.
//!
//! Over `verbs`, libfabric also keeps registrations of memory in a cache, for which it needs to
//! know about unmapped memory. It overwrites the first 13 bytes of `munmap`, `mmap` and others when
//! the first endpoint is opened, and restores them when the last one is closed. A thread that
//! returns from the system call meanwhile executes other instructions. (Seen: `add %al,-1(%rcx)`,
//! in the middle of the new ones.)
//!
//! Function calls can prevent neither. Such providers are therefore refused unless the environment
//! disables both behaviours ([`REQUIRED`]). The launcher sets these variables for the processes
//! that it starts. A process that another launcher has started sets them itself before it opens
//! libfabric, if it has a single thread then ([`ENVIRONMENT`]).
//!
//! libfabric's `shm` follows pointers into endpoints of its own process, even after they are
//! closed. It is therefore refused between such endpoints.
//!
//! A put or get cannot be recalled. When its peer is lost, its completion ends at once, but its
//! buffer stays in *quarantine* until libfabric releases it, or the endpoint is closed
//! ([`OfiEndpoint::quarantined`]).

pub mod connected;
mod cost;
mod endpoint;
mod events;
mod ffi;
mod flights;
mod library;
mod message;
mod pool;
mod port;
mod provider;
mod queues;
pub mod raw;
mod staging;
mod state;
mod transfer;

pub use cost::library_bytes;
pub use endpoint::{OfiConfig, OfiEndpoint};
pub use provider::{ENVIRONMENT, Provider, REQUIRED, library_version, providers};
pub use staging::PROCESS_BYTES;

use farside_wire::check::MessageKind;

/// The messages of this transport, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    vec![message::header_kind(), message::card_kind(), raw::message_kind()]
}
