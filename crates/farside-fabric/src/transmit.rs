//! Puts and gets whose local side is registered memory of this process, of which most tell nothing when they end.
//!
//! An operation that is [posted](crate::Transport::post) brings its own buffer and its own completion. That is one allocation and
//! one answer for each. Here the bytes go from where they lie, and one answer speaks for many: an operation is posted *signalled* or
//! not, and when a signalled one is over, so are all that were posted to that peer before. There are two levels.
//!
//! **By hand**: a [`Queue`] is a raw endpoint to one peer. The program says which operations are signalled, and must not post more
//! without a signal than [the queue takes](QueueLimits::unsignalled_max).
//!
//! **By itself**: a [`Transmitter`] is shared by any number of threads and signals as often as is needed. It tags the
//! [units](crate::memory::Unit) that it was given, and they are free again when its [`Frontier`] has passed the tag: one store frees
//! all of them at once. `README.md` beside this file shows why that is right.
//!
//! ```
//! # use std::time::{Duration, Instant};
//! # use farside_fabric::sim::{SimFabric, SimOptions};
//! # use farside_fabric::{ProcessId, RemoteKey};
//! use farside_fabric::memory::{Circular, CircularOptions};
//! use farside_fabric::transmit::{QueueOptions, Transmitter};
//!
//! # let fabric = SimFabric::new(2, 4096, 7, SimOptions::default())?;
//! # let [here, there] = [0, 1].map(|number| fabric.endpoint(ProcessId::new(number)));
//! # let deadline = Instant::now() + Duration::from_secs(10);
//! let region = here.attach(RemoteKey::starter(there.process(), 4096), deadline)?;
//! let transmitter = Transmitter::open(&here, there.process(), QueueOptions::default())?;
//! let mut buffers = Circular::new(Box::new(here.clone()), CircularOptions { unit_bytes: 64, ..CircularOptions::default() });
//!
//! for number in 0..100_u64 {
//!     let unit = buffers.take_by(deadline)?;
//!     unit.write(0, &number.to_le_bytes());
//!     transmitter.put_unit(&unit, 0..8, &region, 8 * number, deadline)?;
//!     // The unit may be dropped at once. It is handed out again when the put is over.
//! }
//! transmitter.flush(deadline)?;
//! # let mut last = [0; 8];
//! # there.starter().as_remote().get(8 * 99, &mut last, deadline)?;
//! # assert_eq!(u64::from_le_bytes(last), 99);
//! # Ok::<(), farside_fabric::FabricError>(())
//! ```
//!
//! # The contract of a queue
//!
//! 1. Operations are numbered in the order in which they are posted. When a signalled one is over, all before it on this queue are:
//!    their local memory may be used again, what the gets read is there, and what the puts wrote is visible to whoever is told so.
//! 2. What is not followed by a signalled operation that is over may be under way, for ever.
//! 3. A put is seen in pieces, whatever its length. (Words that others use atomically are not put here, but posted.)
//! 4. The queue takes [a known number](QueueLimits) of operations. What it refuses has not happened: [`FabricError::QueueFull`] when
//!    polling makes room, [`FabricError::QueueOverrun`] when only a signalled operation may follow. More signalled operations than it
//!    has completions for must not be under way. A queue may break when either is not minded: hardware does, and so does
//!    [`sim`](crate::sim).
//! 5. The first operation that fails ends the queue. Its error is returned from then on, and which of the operations under way have
//!    taken effect is not known. Local memory is released as soon as the transport has let go of it, and counted as
//!    [quarantined](Queue::quarantined) until then.
//!
//! Where the peer's memory is mapped there is no queue: each operation is a copy by the caller, and over when it returns.
//!
//! [`FabricError::QueueFull`]: crate::FabricError::QueueFull
//! [`FabricError::QueueOverrun`]: crate::FabricError::QueueOverrun

mod frontier;
mod ledger;
mod looks;
mod posted;
mod queue;
mod signals;
mod transmitter;

pub use frontier::Frontier;
pub use ledger::{Ledger, Refusal};
pub use posted::{PostedQueue, Poster};
pub(crate) use queue::overrun;
pub use queue::{Queue, QueueLimits, QueueOptions, Span, Transfer, TransferKind, TransferQueue};
pub use signals::{Signals, Step, Ticket, TooMany};
pub use transmitter::Transmitter;
