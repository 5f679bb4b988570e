//! A tour, level by level: from a raw endpoint to aggregated closures.
//!
//! Each level is made of the one below it, and none is hidden by the one above: a program uses whichever suits what it does, several at once if
//! need be (Seriema §1 calls that *unobtrusiveness*). On the way up a program says less and less about buffers and completions.
//!
//! | level | what it gives | who sees to buffers and completions |
//! |---|---|---|
//! | [a raw endpoint](#a-a-raw-endpoint) | puts and gets between registered memory here and there | the program, operation by operation |
//! | [a transmitter](#b-a-transmitter) | the same, from any number of threads, signalled as seldom as can be | the transmitter frees what is over |
//! | [memory and names](#c-memory-workers-and-calls-without-set-up) | memory of any process, workers with names, calls that need no set-up | the job |
//! | [global memory](#global-memory) | one address for every byte; arrays over all processes; any memory registered | nobody: puts and gets are over when they return |
//! | [heaps and pipes](#heaps-and-pipes) | memory at one peer, taken without asking; messages to it | the heap's books, the pipe's slots |
//! | [calls through rings](#d-calls-through-rings) | functions run where the data is, tens of nanoseconds apiece | the rings |
//! | [aggregated calls](#e-aggregated-calls) | some nanoseconds apiece | the rings, a batch at a time |
//!
//! The pieces of this page are one program: `me` is the [`Worker`](crate::Worker) that a job gives to its body, and all of them may stand in that
//! body, side by side.
//!
//! # (a) A raw endpoint
//!
//! A `Queue` goes to one peer. Of what is posted to it, the program says which operations are signalled; when one of those is over,
//! so are all before it.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use farside_transmit::{Queue, QueueOptions, Span};
//! # use farside::prelude::*;
//! # fn level(me: &Worker) -> farside::Result<()> {
//! let there = me.process_of(me.neighbor(1));
//! let memory = me.allocate_at(there, 4096)?;
//! let (region, start) = memory.region(me)?;
//! let local = me.transport().register(4096)?;
//!
//! let queue = Queue::open(me.transport(), there, QueueOptions::default())?;
//! for offset in (0..4096 - 64).step_by(64) {
//!     queue.put(Span::new(&local, offset, 64)?, &region, start + offset, None)?;
//! }
//! queue.put(Span::new(&local, 4032, 64)?, &region, start + 4032, Some(1))?;
//! queue.wait(1, me.now() + Duration::from_secs(10))?;
//! // All 64 are over, and `local` may be written again.
//! # me.release(memory)
//! # }
//! ```
//!
//! # (b) A transmitter
//!
//! A `Transmitter` decides that by itself, for any number of threads, without a lock of its own. It tags the units of a `Circular` allocator
//! as it posts them; one store frees all that are over, and the allocator comes round to them again.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use farside_transmit::{Circular, CircularOptions, QueueOptions, Transmitter};
//! # use farside::prelude::*;
//! # fn level(me: &Worker) -> farside::Result<()> {
//! # let there = me.process_of(me.neighbor(1));
//! # let memory = me.allocate_at(there, 8000)?;
//! # let (region, start) = memory.region(me)?;
//! let transmitter = Transmitter::open(me.transport(), there, QueueOptions::default())?;
//! let mut buffers = Circular::new(Box::new(me.transport().clone()), CircularOptions::default());
//! let deadline = me.now() + Duration::from_secs(10);
//! for number in 0..1000_u64 {
//!     let unit = buffers.take_by(deadline)?;
//!     unit.write(0, &number.to_le_bytes());
//!     transmitter.put_unit(&unit, 0..8, &region, start + 8 * number, deadline)?;
//! }
//! transmitter.flush(deadline)?;
//! # me.release(memory)
//! # }
//! ```
//!
//! # (c) Memory, workers, and calls without set-up
//!
//! A job has names for its processes and workers. Memory of any process is asked for and used without anybody's attention there, and
//! send-based calls reach any worker at once, also from threads that are none.
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
//! me.to(peer).send_based().call(me.id(), |there, from| println!("{} heard of {from}", there.id()))?;
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
//! Beside calls there is one address space. Whoever has a [`GlobalPtr`] puts, gets and changes words, without a function that runs there. Arrays lie in all processes; a
//! vector, or a variable on the stack, has an address as long as it is registered.
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
//! ## Heaps and pipes
//!
//! What goes to one worker again and again need not ask it for memory each time. A [pipe](crate::pipe) has slots in the reader's memory, which come
//! round. A [remote heap](crate::heap) has blocks there that are allocated here, and freed by whoever used them there.
//!
//! ```no_run
//! use farside::heap::{HeapOptions, RemoteBlock, RemoteHeap};
//! # use farside::prelude::*;
//! # fn level(me: &Worker) -> farside::Result<()> {
//! let (next, previous) = (me.neighbor(1), me.neighbor(me.worker_count() - 1));
//! let mut names = me.pipe(next).sender::<RemoteBlock>()?;
//! let mut from_previous = me.pipe(previous).receiver::<RemoteBlock>()?;
//!
//! let heap = RemoteHeap::open(me, next, HeapOptions::new(1 << 20))?;
//! let mut block = heap.alloc(64)?;
//! block.local_mut().fill(7);
//! block.put()?;
//! names.send(block.hand_over()?)?;
//!
//! let block = from_previous.recv()?.open(me)?;
//! assert_eq!(block.to_vec()?, [7; 64]);
//! block.free()?;
//! // Waits until its blocks are freed.
//! heap.close()
//! # }
//! ```
//!
//! # (d) Calls through rings
//!
//! The usual way to call. Arguments are written into memory of the receiver, one-sidedly, and the function runs there when the worker makes
//! progress. A buffer goes with a call in [several ways](crate::To#the-forms-of-calls), a result comes back, and all workers are called by
//! a tree.
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
//! Many small calls share what publishing costs: always, up to a size, or only when the receiver is behind.
//!
//! ```no_run
//! # use farside::prelude::*;
//! # fn level(me: &Worker) -> farside::Result<()> {
//! let counts = PerWorker::new(me, std::cell::Cell::new(0_u64))?;
//! let aggregator = me.aggregate(me.neighbor(1));
//! for x in 0..1_000_000_u64 {
//!     aggregator.call((counts, x), |there, (counts, x)| counts.here(there).set(counts.here(there).get() + x))?;
//! }
//! drop(aggregator);
//! let overflow = me.aggregate(me.neighbor(1)).overflow(1 << 20);
//! overflow.call((), |_, ()| ())?;
//! # drop(overflow);
//! me.barrier()
//! # }
//! ```
//!
//! Where to go from here: [`Worker`](crate::Worker) has all of this as methods, `docs/memory-model.md` says what is visible when, and the examples
//! `demonstration` (Seriema's Listing 1), `histogram`, `work_stealing`, `lock_service`, `linked_list`, `pipe` and `stencil` are whole programs.
//!
//! [`GlobalPtr`]: crate::GlobalPtr
