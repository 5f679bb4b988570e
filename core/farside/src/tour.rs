//! A tour, level by level: from a raw endpoint to aggregated closures.
//!
//! Each level is made of the one below it, and none hides the one below. A program uses whichever
//! level suits its purpose, and several at once if need be (Seriema §1 calls that
//! *unobtrusiveness*). Each level leaves less of the work on buffers and completions to the
//! program.
//!
//! | level | what it gives | what handles buffers and completions |
//! |---|---|---|
//! | [a raw endpoint](#a-a-raw-endpoint) | puts and gets between local and remote registered memory | the program, operation by operation |
//! | [a transmitter](#b-a-transmitter) | the same, from any number of threads, with as few signals as possible | the transmitter, which frees completed buffers |
//! | [memory and names](#c-memory-workers-and-calls-without-set-up) | memory of any process, workers with names, calls that need no set-up | the job |
//! | [global memory](#global-memory) | one address for every byte; arrays over all processes; any memory registered | no one: puts and gets are complete when they return |
//! | [heaps and pipes](#heaps-and-pipes) | memory at one peer, allocated without asking; messages to it | the heap's books, the pipe's slots |
//! | [calls through rings](#d-calls-through-rings) | functions that run where the data is, tens of nanoseconds apiece | the rings |
//! | [aggregated calls](#e-aggregated-calls) | some nanoseconds apiece | the rings, a batch at a time |
//!
//! The first two levels use the crates `farside-fabric` and `farside-transmit`, without a job. The
//! other pieces are one program: `me` is the [`Worker`](crate::Worker) that a job passes to its
//! body, and all pieces may stand in that body, side by side.
//!
//! # (a) A raw endpoint
//!
//! A `Queue` leads to one peer. The program chooses which of its operations are signalled. When a
//! signalled operation is complete, so are all before it.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::{Duration, Instant};
//!
//! use farside_fabric::sim::{SimFabric, SimOptions};
//! use farside_fabric::{ProcessId, Transport};
//! use farside_transmit::{Queue, QueueOptions, Span};
//! # fn level() -> farside::Result<()> {
//! // Two endpoints in one program; shared memory and libfabric have the same trait.
//! let fabric = SimFabric::new(2, 4096, 1, SimOptions::default())?;
//! let (near, far) = (ProcessId::new(0), ProcessId::new(1));
//! let here: Arc<dyn Transport> = fabric.endpoint(near);
//! let deadline = Instant::now() + Duration::from_secs(10);
//! let region = here.attach(fabric.endpoint(far).starter().key(), deadline)?;
//! let local = here.register(4096)?;
//!
//! let queue = Queue::open(&here, far, QueueOptions::default())?;
//! for offset in (0..4096 - 64).step_by(64) {
//!     queue.put(Span::new(&local, offset, 64)?, &region, offset, None)?;
//! }
//! queue.put(Span::new(&local, 4032, 64)?, &region, 4032, Some(1))?;
//! queue.wait(1, deadline)?;
//! // All 64 are over, and `local` may be written again.
//! # Ok(())
//! # }
//! ```
//!
//! # (b) A transmitter
//!
//! A `Transmitter` makes that choice itself, for any number of threads, without a lock of its own.
//! It tags the units of a `Circular` allocator as it posts them. One store frees all completed
//! units, and the allocator reuses them in its next round.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::{Duration, Instant};
//!
//! use farside_fabric::{ProcessId, RemoteRegion, Transport};
//! use farside_transmit::{Circular, CircularOptions, QueueOptions, Transmitter};
//! # type Endpoint = Arc<dyn Transport>;
//! # fn level(here: &Endpoint, far: ProcessId, region: RemoteRegion) -> farside::Result<()> {
//! let transmitter = Transmitter::open(here, far, QueueOptions::default())?;
//! let mut buffers = Circular::new(Box::new(here.clone()), CircularOptions::default());
//! let deadline = Instant::now() + Duration::from_secs(10);
//! for number in 0..1000_u64 {
//!     let unit = buffers.take_by(deadline)?;
//!     unit.write(0, &number.to_le_bytes());
//!     transmitter.put_unit(&unit, 0..8, &region, 8 * number, deadline)?;
//! }
//! transmitter.flush(deadline)?;
//! # Ok(())
//! # }
//! ```
//!
//! # (c) Memory, workers, and calls without set-up
//!
//! A job has names for its processes and workers. A program allocates and uses memory of any
//! process without attention there. Send-based calls reach any worker at once, also from threads
//! that are not workers.
//!
//! ```no_run
//! use farside::AtomicChange;
//! # use farside::prelude::*;
//! # fn level(me: &Worker) -> farside::Result<()> {
//! let counter = me.allocate_at(me.process_of(me.neighbor(1)), 8)?;
//! counter.put(me, 0, &0_u64.to_le_bytes())?;
//! counter.atomic64(me, 0, AtomicChange::Add(1))?;
//!
//! let peer = me.neighbor(1);
//! me.to(peer).send_based().call(me.id(), |there, from| {
//!     println!("{} heard of {from}", there.id());
//! })?;
//! me.scope(|scope| {
//!     scope.spawn(move |caller| {
//!         let sum = caller.call_return(peer, (20_u64, 22_u64), |_, (a, b)| a + b).unwrap().wait();
//!         assert_eq!(sum.unwrap(), 42);
//!     })
//! })??;
//! me.release(counter)
//! # }
//! ```
//!
//! ## Global memory
//!
//! Besides calls there is one address space. A worker that has a [`GlobalPtr`] puts, gets and
//! changes words, and no function runs at the owner. Arrays lie in all processes. A vector, or a
//! variable on the stack, has an address while it is registered.
//!
//! ```no_run
//! # use farside::prelude::*;
//! # fn level(me: &Worker) -> farside::Result<()> {
//! let counts = me.global_array::<u64>(1 << 20)?;
//! counts.at(4711)?.fetch_add(me, 1)?;
//! me.barrier()?;
//! let own: u64 = counts.local(me).iter().sum();
//! assert_eq!(me.all_reduce(own, |a, b| a + b)?, u64::from(me.worker_count()));
//!
//! let mut answer = [0_u64];
//! me.lend(&mut answer, |lent| {
//!     let place = lent.slice().start();
//!     me.call_return(me.id(), place, |there, place| place.put(there, 42).is_ok())?.wait()
//! })??;
//! assert_eq!(answer, [42]);
//! # counts.free(me)
//! # }
//! ```
//!
//! ## Collectives and teams
//!
//! All workers meet, combine values and exchange them. A [`Team`] does so among its members. When a
//! process is lost, the collectives of its teams end with an error, and the survivors go on with a
//! team of their own.
//!
//! ```no_run
//! # use farside::prelude::*;
//! # use farside::Error;
//! # fn level(me: &Worker) -> farside::Result<()> {
//! let row = me.split(u64::from(me.id().number() / 4), 0)?;
//! let length = row.all_reduce(me, me.counters().executed, u64::max)?;
//! let start = me.exclusive_scan(length, |a, b| a + b)?.unwrap_or(0);
//!
//! // After a loss the survivors go on from the earliest step that one of them has reached.
//! let (mut team, mut step) = (me.survivors()?, start);
//! while step < 100 {
//!     match team.all_reduce(me, step, u64::min) {
//!         Ok(earliest) => step = earliest + 1,
//!         Err(Error::PeerLost { .. }) => team = me.survivors()?,
//!         Err(other) => return Err(other),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ## Heaps and pipes
//!
//! A worker that sends to one peer repeatedly need not ask it for memory each time. A pipe has
//! slots in the reader's memory, which are reused in turn. A remote heap has blocks there that are
//! allocated here, and freed by the worker that used them there. Both are in the crate
//! `farside-kit`, whose documentation has the example.
//!
//! # (d) Calls through rings
//!
//! This is the usual way to call. The sender writes the arguments into the receiver's memory,
//! one-sidedly, and the function runs there when the receiver makes progress. A buffer travels with
//! a call in [several ways](crate::To#the-forms-of-calls). A result comes back. A tree of calls
//! reaches all workers.
//!
//! ```no_run
//! # use farside::prelude::*;
//! # fn level(me: &Worker) -> farside::Result<()> {
//! let peer = me.neighbor(1);
//! let executed = me.synchronizer(1)?;
//! me.to(peer).notify(&executed, On::Executed).call_buffer((), &[7; 1000], |_, (), sevens| {
//!     assert_eq!(sevens.len(), 1000);
//! })?;
//! executed.wait()?;
//! let sum = me.call_return(peer, (20_u64, 22_u64), |_, (a, b)| a + b)?.wait()?;
//! assert_eq!(sum, 42);
//! # Ok(())
//! # }
//! ```
//!
//! # (e) Aggregated calls
//!
//! Many small calls share the cost of publishing: always, up to a size, or only when the receiver
//! is behind.
//!
//! ```no_run
//! # use farside::prelude::*;
//! # fn level(me: &Worker) -> farside::Result<()> {
//! let counts = PerWorker::new(me, std::cell::Cell::new(0_u64))?;
//! let aggregator = me.aggregate(me.neighbor(1));
//! for x in 0..1_000_000_u64 {
//!     aggregator.call((counts, x), |there, (counts, x)| {
//!         let count = counts.here(there);
//!         count.set(count.get() + x);
//!     })?;
//! }
//! let overflow = me.aggregate(me.neighbor(1)).overflow(1 << 20);
//! overflow.call((), |_, ()| ())?;
//! // All calls of all workers have run, and those that they made.
//! me.quiesce()?;
//! assert_eq!(counts.here(me).get(), 499_999_500_000);
//! # Ok(())
//! # }
//! ```
//!
//! A program in phases makes the calls of each phase in a
//! [superstep](crate::Worker::superstep).
//!
//! Next steps: [`Worker`](crate::Worker) has all of this as methods, and `docs/memory-model.md`
//! says what is visible when. The examples `demonstration` (Seriema's Listing 1), `histogram`,
//! `linked_list` and `stencil` are whole programs.
//!
//! [`GlobalPtr`]: crate::GlobalPtr
//! [`Team`]: crate::Team
