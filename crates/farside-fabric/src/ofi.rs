//! Processes of several machines, over libfabric.
//!
//! Each process has one endpoint, shared by its threads. A peer is connected when it is first used. Puts and gets are libfabric's
//! own; atomics are carried out by the owner's processor when a message asks for it ([`by_message`](crate::by_message)), so that
//! they are atomic with those of peers that have the memory mapped. So are puts and gets of up to eight bytes where libfabric itself
//! works in software, since it promises no whole words.
//!
//! libfabric is opened at run time and need not be there when a program is built or started. It is asked for API version 1.17;
//! 1.17 and 2.5 are tested, with the providers `tcp;ofi_rxm` of 1.17, `tcp` of 2.5, `verbs;ofi_rxm` (on soft-RoCE) and `shm`.
//!
//! # Who makes progress
//!
//! Over `tcp` nothing happens at a process that does not make [`progress`](crate::Transport::progress), not even to its memory.
//! Somebody has to: the thread that sleeps in [`wait`](crate::Transport::wait) blocks on libfabric's descriptor and is woken by
//! whatever arrives. While another thread makes progress again and again, that one stands back, so that the two do not wake each other
//! for every message; it does not even ask for the lock then, which the other has nearly all the time.
//!
//! A thread that waits for its own operation polls the completion queue itself, for a while, and is handed nothing: over `tcp` a put of some bytes is
//! two messages and takes twelve microseconds, and to be woken takes longer than that. What is posted goes out at once, and is polled for only after that.
//!
//! # What is under way belongs to libfabric
//!
//! An end is closed while peers are still connected to it, and peers go while it is open. With a queue of receives for each connection,
//! which is its default over `verbs`, libfabric's layer `rxm` frees a connection that ends, and then looks for what had arrived on it: it
//! offers receives on the freed connection and counts credits into it. It did so under the address sanitizer, in 1.17, and the lines are the
//! same in 2.5. One queue for all connections leaves nothing to be offered on one of them, and costs a process
//! up to 140 MiB, for all connections together, unless it is made shorter ([`ENVIRONMENT`]).
//!
//! Version 2 has a `tcp` that does without `rxm`. It is the better one: quicker, and a twentieth of the memory.
//!
//! Over `verbs` it also keeps registrations of memory in a cache, and for its sake wants to know what is unmapped: it writes 13 bytes over the
//! beginning of `munmap`, `mmap` and others when the first endpoint is opened, and the old ones back when the last is closed. A thread that
//! returns from the system call meanwhile finds other instructions there. (Seen: `add %al,-1(%rcx)`, in the middle of the new ones.)
//!
//! Neither can be prevented by calls, so such providers are refused unless the environment says what they must not do ([`REQUIRED`]). The
//! launcher sets it for the processes that it starts, and a process that another launcher has started sets it for itself
//! before it opens libfabric, if it has but one thread then ([`ENVIRONMENT`]).
//!
//! libfabric's `shm` follows pointers into ends of its own process, also when they are closed. So it is refused between these.
//!
//! A put or get cannot be recalled. When its peer is lost its completion ends at once, but its buffer stays in *quarantine* until
//! libfabric lets go of it, or the endpoint is closed ([`OfiEndpoint::quarantined`]).

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
mod queue;
mod queues;
pub mod raw;
mod staging;
mod state;
mod transfer;

pub use cost::library_bytes;
pub use endpoint::{OfiConfig, OfiEndpoint};
pub use message::fuzz_decode;
pub use provider::{ENVIRONMENT, Provider, REQUIRED, library_version, providers};
pub use staging::PROCESS_BYTES;
