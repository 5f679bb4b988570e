//! Puts and gets whose local side is registered memory of this process, most of which report no
//! completion of their own.
//!
//! An operation that is [posted](farside_fabric::Carrier::post) has its own buffer and its own
//! completion: one allocation and one answer each. Here the bytes are sent in place, and one answer
//! covers many operations. An operation is posted *signalled* or not. When a signalled one is over,
//! so are all that were posted to that peer before it. There are two levels.
//!
//! **Manual**: a [`Queue`] is a raw endpoint to one peer. The program decides which operations are
//! signalled. It must not post more operations without a signal than [the queue
//! accepts](QueueLimits::unsignalled_max).
//!
//! **Automatic**: a [`Transmitter`] is shared by any number of threads and signals as often as
//! necessary. It tags the [units](Unit) that it was given, and they are free again when its
//! [`Frontier`] has passed the tag: one store frees all of them at once. `README.md` of this crate
//! shows why that is correct.
//!
//! ```
//! # use std::time::{Duration, Instant};
//! # use farside_fabric::sim::{SimFabric, SimOptions};
//! # use farside_fabric::{ProcessId, RemoteKey};
//! use farside_transmit::{Circular, CircularOptions, QueueOptions, Transmitter};
//!
//! # let fabric = SimFabric::new(2, 4096, 7, SimOptions::default())?;
//! # let [here, there] = [0, 1].map(|number| fabric.endpoint(ProcessId::new(number)));
//! # let deadline = Instant::now() + Duration::from_secs(10);
//! let region = here.attach(RemoteKey::starter(there.process(), 4096), deadline)?;
//! let transmitter = Transmitter::open(&here, there.process(), QueueOptions::default())?;
//! let options = CircularOptions { unit_bytes: 64, ..CircularOptions::default() };
//! let mut buffers = Circular::new(Box::new(here.clone()), options);
//!
//! for number in 0..100_u64 {
//!     let unit = buffers.take_by(deadline)?;
//!     unit.write(0, &number.to_le_bytes());
//!     transmitter.put_unit(&unit, 0..8, &region, 8 * number, deadline)?;
//!     // The unit may be dropped at once. It is reused when the put is over.
//! }
//! transmitter.flush(deadline)?;
//! # let mut last = [0; 8];
//! # there.starter().as_remote().get(8 * 99, &mut last, deadline)?;
//! # assert_eq!(u64::from_le_bytes(last), 99);
//! # Ok::<(), farside_fabric::FabricError>(())
//! ```
//!
//! The contract of a queue is that of [`farside_fabric::queue`].
//!
//! Where the peer's memory is mapped there is no queue: each operation is a copy by the caller, and
//! is over when it returns.
mod circular;
mod linear;
mod looks;
mod open;
mod posted;
mod queue;
mod signals;
mod sync;
mod transmitter;

pub use farside_fabric::queue::{Frontier, QueueLimits, QueueOptions, Span, Transfer, TransferKind, TransferQueue};

pub use self::circular::{Circular, CircularOptions, Unit};
pub use self::linear::LinearCircular;
pub use self::open::open_queue;
pub use self::posted::{PostedQueue, Poster};
pub use self::queue::Queue;
pub use self::signals::{Signals, Step, Ticket, TooMany};
pub use self::transmitter::Transmitter;
