//! Calls with registered memory: buffers that the sender writes or the receiver reads, results and
//! signals. Each runs over shared memory, libfabric and the simulator, through rings and shared
//! rings.

use farside::memory::MemoryError;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside::job::FabricChoice;
use farside::prelude::*;
use farside::{
    Comparison, Error, GlobalPtr, LaunchError, Registered, Result, ResultPlace, Signal, Simulation, To, simulate,
};
use farside_testbed::scaled;

use crate::support::{is_over_missing_libfabric, verdict};

/// Makes a test of a body for each fabric.
macro_rules! over_all_fabrics {
    ($name:ident, $processes:expr, $body:path) => {
        mod $name {
            const BODY: fn(&farside::Worker) -> farside::Result<()> = $body;

            #[test]
            fn shm() {
                super::run(concat!("buffers::", stringify!($name), "::shm"), "shm", $processes, BODY);
            }

            mod deep {
                #[test]
                fn ofi() {
                    let test = concat!("buffers::", stringify!($name), "::deep::ofi");
                    super::super::run(test, "ofi:tcp", $processes, super::BODY);
                }
            }

            #[test]
            fn sim() {
                farside::simulate($processes, 1, 61, BODY).unwrap();
            }
        }
    };
}

/// Runs a job whose processes reach this call by running the test of this name.
fn run(test: &str, fabric: &str, processes: u32, body: fn(&Worker) -> Result<()>) {
    if is_over_missing_libfabric(fabric) {
        return;
    }
    let fabric: FabricChoice = fabric.parse().unwrap();
    verdict(test, farside::job().processes(processes).force_fabric(fabric), body).unwrap();
}

/// Returns a buffer of registered memory with these bytes.
fn buffer_of(me: &Worker, bytes: &[u8]) -> Result<Registered> {
    let buffer = me.allocate(bytes.len())?;
    buffer.write_at(0, bytes)?;
    Ok(buffer)
}

const SIZES: [usize; 9] = [0, 1, 7, 8, 4095, 4096, 65_537, 1 << 20, (3 << 19) + 1];

fn pattern(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 251 + salt) as u8).collect()
}

type Log = PerWorker<RefCell<Vec<(usize, usize)>>>;

fn arrive(there: &Worker, (log, salt): (Log, usize), buffer: &[u8]) {
    assert_eq!(buffer, pattern(buffer.len(), salt), "{salt}");
    log.here(there).borrow_mut().push((salt, buffer.len()));
}

fn arrive_written(there: &Worker, ((log, salt), written): ((Log, usize), farside::Written)) {
    let bytes = written.to_vec(there).expect("it is memory of this process");
    arrive(there, (log, salt), &bytes);
}

/// Returns the two ways to a worker: its own ring and the shared ring.
fn ways(me: &Worker, to: WorkerId) -> [To<'_>; 2] {
    [me.to(to), me.to(to).send_based()]
}

/// Calls with buffers of all forms and sizes keep their order among the calls of their way.
fn buffers_of_all_forms(me: &Worker) -> Result<()> {
    let log: Log = PerWorker::new(me, RefCell::default())?;
    let to = me.neighbor(1);
    let there = me.process_of(to);
    for shared in [0, 1] {
        let mut salt = 0;
        for bytes in SIZES {
            let way = || ways(me, to)[shared];
            let next = |salt: &mut usize| {
                *salt += 1;
                (pattern(bytes, *salt), (log, *salt))
            };
            let executed = me.synchronizer(2)?;
            let sent = me.synchronizer(1)?;

            let (content, call) = next(&mut salt);
            let place = me.allocate_at(there, bytes as u64 + 64)?;
            way().notify(&executed, On::Executed).call_buffer_put(call, &content, (place, 64), arrive_written)?;

            let (content, call) = next(&mut salt);
            let lent = way().notify(&executed, On::Executed).call_buffer_get(call, buffer_of(me, &content)?, arrive)?;

            let (content, call) = next(&mut salt);
            way().call_buffer(call, &content, arrive)?;

            let (content, call) = next(&mut salt);
            let second = way().notify(&sent, On::Sent).call_buffer_get(call, buffer_of(me, &content)?, arrive)?;
            sent.wait()?;
            // A sent buffer has been read, so it is available without waiting.
            let buffer = second.try_take().unwrap_or_else(|_| panic!("it was read"))?;
            assert_eq!(buffer.bytes(), bytes);

            let buffer = lent.wait()?;
            let mut back = vec![0; bytes];
            buffer.read_at(0, &mut back)?;
            assert_eq!(back, pattern(bytes, salt - 2), "a buffer comes back as it went");
            executed.wait()?;
            me.release(place)?;
        }
        me.barrier()?;
        let expected: Vec<_> = (1..=salt).map(|salt| (salt, SIZES[(salt - 1) / 4])).collect();
        me.wait_while_serving(|| log.here(me).borrow().len() == expected.len())?;
        assert_eq!(log.here(me).take(), expected);
        me.barrier()?;
    }
    Ok(())
}

over_all_fabrics!(buffers_of_all_forms_arrive_in_order, 2, super::buffers_of_all_forms);

/// Every worker makes many calls at once, some of them by `call_buffer_get_unordered`.
fn many_at_once(me: &Worker) -> Result<()> {
    const CALLS: usize = 20;
    let log: Log = PerWorker::new(me, RefCell::default())?;
    let executed = me.synchronizer(0)?;
    for salt in 0..CALLS {
        for to in me.workers() {
            for way in ways(me, to) {
                executed.add(3);
                let content = pattern(5000 + salt, salt);
                let way = way.notify(&executed, On::Executed);
                // The handle is dropped. The library keeps the buffer until the receiver has read
                // it.
                drop(way.call_buffer_get((log, salt), buffer_of(me, &content)?, arrive)?);
                drop(way.call_buffer_get_unordered((log, salt), buffer_of(me, &content)?, arrive)?);
                way.call_buffer((log, salt), &content, arrive)?;
            }
        }
    }
    executed.wait()?;
    me.barrier()?;
    let mut got = log.here(me).take();
    got.sort_unstable();
    let times = 6 * me.worker_count() as usize;
    let expected: Vec<_> = (0..CALLS).flat_map(|salt| vec![(salt, 5000 + salt); times]).collect();
    assert_eq!(got, expected);
    me.barrier()
}

over_all_fabrics!(many_buffers_are_under_way_at_once, 3, super::many_at_once);

/// Results of all kinds in memory of the caller, of the called process and of a third.
fn results_into_memory(me: &Worker) -> Result<()> {
    let to = me.neighbor(1);
    for owner in 0..me.process_count() {
        let memory = me.allocate_at(ProcessId::new(owner), 20_000)?;
        for way in ways(me, to) {
            let executed = me.synchronizer(1)?;
            let sum = ResultPlace::<u64>::new(me, memory, 8, 16)?;
            assert_eq!(sum.poll(me)?, None);
            way.notify(&executed, On::Executed).call_into((20_u64, 22_u64), |_, (a, b)| a + b, sum)?;
            executed.wait()?;
            assert_eq!(sum.poll(me)?, Some(42));

            let text = ResultPlace::<(String, WorkerId)>::new(me, memory, 64, 10_000)?;
            let repeat = |there: &Worker, (word, times): (String, usize)| (word.repeat(times), there.id());
            way.call_into(("far".to_owned(), 3000), repeat, text)?;
            assert_eq!(text.wait(me)?, ("far".repeat(3000), to));
            text.clear(me)?;
            way.call_into(("far".to_owned(), 4000), repeat, text)?;
            let too_long = text.wait(me);
            assert!(matches!(too_long, Err(Error::TooLarge { max: 9992, .. })), "{too_long:?}");

            let panicked = ResultPlace::<u8>::new(me, memory, 0, 20)?;
            way.call_into(3_u8, |_, x| -> u8 { panic!("{x} is too many, as all know") }, panicked)?;
            let message = panicked.wait(me);
            assert!(
                matches!(&message, Err(Error::RemotePanic { message, .. }) if message == "3 is too man"),
                "{message:?}"
            );
        }
        me.release(memory)?;
    }
    me.barrier()
}

over_all_fabrics!(results_go_into_memory_of_anybody, 3, super::results_into_memory);

/// The calls of all workers signal one word, and all watch it.
fn signals_of_calls(me: &Worker) -> Result<()> {
    let root = WorkerId::new(0);
    let calls = u64::from(me.worker_count() * me.worker_count()) * 8;
    let made = match me.id() == root {
        // In memory of the last process.
        true => {
            let memory = me.allocate_at(ProcessId::new(me.process_count() - 1), 128)?;
            let word: GlobalPtr<u64> = memory.address()?.cast();
            word.store(me, 0)?;
            Some((word, memory))
        }
        false => None,
    };
    let (word, memory) = me.broadcast(root, made)?;
    let hits = PerWorker::new(me, Cell::new(0_u64))?;
    let hit = |there: &Worker, hits: PerWorker<Cell<u64>>| hits.here(there).set(hits.here(there).get() + 1);
    let hit_with =
        |there: &Worker, hits: PerWorker<Cell<u64>>, _: &[u8]| hits.here(there).set(hits.here(there).get() + 1);
    let place = ResultPlace::<()>::new(me, me.allocate_at(me.process(), 8)?, 0, 8)?;
    for to in me.workers() {
        for way in ways(me, to) {
            let way = way.signalling(word, Signal::Add(1));
            way.call(hits, hit)?;
            way.call_buffer(hits, &[1; 3000], hit_with)?;
            way.call_buffer_get(hits, buffer_of(me, &[2; 300])?, hit_with)?.wait()?;
            way.call_into(hits, hit, place)?;
        }
    }
    word.wait_until(me, Comparison::Ge, calls)?;
    assert_eq!(word.load(me)?, calls);
    me.barrier()?;
    assert_eq!(hits.here(me).get(), calls / u64::from(me.worker_count()));
    me.barrier()?;
    if me.id() == root {
        let late = word.until(Comparison::Gt, calls).wait_for(me, Duration::from_millis(5));
        assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
        me.release(memory)?;
    }
    me.barrier()
}

over_all_fabrics!(anybody_watches_signals_of_calls, 3, super::signals_of_calls);

/// A wrong call fails before it is sent, and its arguments come back.
fn bad_input(me: &Worker) -> Result<()> {
    let to = me.neighbor(1);
    let unknown = WorkerId::new(99);
    let here = me.allocate_at(me.process(), 64)?;
    let there = me.allocate_at(me.process_of(to), 64)?;
    let nothing = |_: &Worker, _: (u8, farside::Written)| ();
    let put = |to, place, bytes: usize| me.to(to).call_buffer_put(7_u8, &vec![0; bytes], place, nothing);
    let error = put(to, (here, 0), 8).unwrap_err();
    assert!(matches!(error.error, Error::WrongProcess { .. }) && error.arguments == 7, "{error:?}");
    assert!(matches!(put(unknown, (there, 0), 8).unwrap_err().error, Error::UnknownWorker { .. }));
    for (offset, bytes) in [(0, 65), (64, 1), (u64::MAX, 2)] {
        assert!(matches!(put(to, (there, offset), bytes).unwrap_err().error, Error::Fabric(_)));
    }
    for (offset, bytes) in [(0, u64::MAX), (1, 64), (u64::MAX, 1)] {
        let claimed = farside::Written { memory: here, offset, bytes };
        assert!(matches!(claimed.to_vec(me), Err(Error::Fabric(_))), "{claimed:?}");
    }
    let buffer = buffer_of(me, &[5; 100])?;
    let ignore = |_: &Worker, _: u8, _: &[u8]| ();
    let refused = me.to(unknown).call_buffer_get(7, buffer, ignore).unwrap_err();
    assert!(matches!(refused.error, Error::UnknownWorker { .. }));
    let (seven, buffer): (u8, Registered) = *refused.arguments;
    let mut back = [0; 100];
    buffer.read_at(0, &mut back)?;
    assert_eq!((seven, back), (7, [5; 100]));
    assert!(buffer.read_at(1, &mut back).is_err());
    assert!(matches!(ResultPlace::<u8>::new(me, here, 60, 16), Err(Error::Fabric(_))));
    assert!(matches!(ResultPlace::<Reply<u8>>::new(me, here, 0, 64), Err(Error::NotPortable { .. })));
    // Any content of the memory is a result of this type or an error.
    let place = ResultPlace::<bool>::new(me, here, 0, 64)?;
    for head in [1_u64, 3, 3 | 1 << 8, 3 | 56 << 8, 3 | 57 << 8, u64::MAX] {
        here.put(me, 0, &head.to_ne_bytes())?;
        here.put(me, 8, &[0xee; 56])?;
        assert!(place.poll(me).is_err(), "{head:#x}");
    }
    me.barrier()?;
    me.release(there)?;
    let late = put(to, (there, 0), 8).unwrap_err();
    assert!(matches!(late.error.room_error(), Some(MemoryError::Released { .. })), "{late:?}");
    // A handler may call, but not wait.
    let in_handler = me.call_return(to, me.id(), |there, back| {
        let buffer = buffer_of(there, &[1; 10]).expect("there is memory");
        let lent = there.to(back).call_buffer_get((), buffer, |_, (), bytes| assert_eq!(bytes, [1; 10]));
        matches!(lent.expect("it is queued").wait(), Err(Error::InHandler { .. }))
    })?;
    assert!(in_handler.wait()?);
    me.barrier()
}

over_all_fabrics!(bad_input_is_refused, 2, super::bad_input);

/// A way is shut down while its receiver reads a buffer.
fn shut_down_while_reading(me: &Worker) -> Result<()> {
    let log: Log = PerWorker::new(me, RefCell::default())?;
    let to = me.neighbor(1);
    me.barrier()?;
    for salt in (0..8).step_by(2) {
        let buffer = buffer_of(me, &pattern(300_000, salt))?;
        let lent = me.to(to).call_buffer_get((log, salt), buffer, arrive)?;
        me.call_buffer(to, (log, salt + 1), &pattern(100, salt + 1), arrive)?;
        me.shutdown(to)?;
        // All calls have run there, so the buffer has been read.
        lent.try_take().unwrap_or_else(|_| panic!("it was read"))?;
    }
    me.barrier()?;
    let expected: Vec<_> = (0..8).map(|salt| (salt, [300_000, 100][salt % 2])).collect();
    assert_eq!(log.here(me).take(), expected);
    me.barrier()
}

over_all_fabrics!(a_way_is_shut_down_when_its_buffers_were_read, 2, super::shut_down_while_reading);

/// The receiver dies with buffers of every form under way.
#[test]
fn a_receiver_that_dies_in_the_middle_is_lost_to_all_forms() {
    for seed in 0..scaled(6) {
        let doomed = ProcessId::new(1);
        let simulation = Simulation::new(2, 1, 70 + seed).kill(doomed, Duration::from_micros(200 + 150 * (seed % 6)));
        // The verdict is the first failure and would hide a later one.
        let well = AtomicU64::new(0);
        let simulated = simulation.deadline(Duration::from_secs(5)).run(|me| {
            if me.process() == doomed {
                return me.wait_while_serving(|| false);
            }
            let to = WorkerId::new(1);
            let is_lost = |error: &Error| matches!(error, Error::PeerLost { process, .. } if *process == doomed);
            let calls = || -> Result<()> {
                let place = me.allocate_at(doomed, 10_000)?;
                let result = me.allocate_at(me.process(), 64)?;
                let result = ResultPlace::<u8>::new(me, result, 0, 64)?;
                loop {
                    me.to(to).call_buffer_put((), &[1; 10_000], (place, 0), |_, ((), _)| ())?;
                    let lent = me.to(to).call_buffer_get((), buffer_of(me, &[1; 10_000])?, |_, (), _| ())?;
                    let unordered =
                        me.to(to).call_buffer_get_unordered((), buffer_of(me, &[1; 10_000])?, |_, (), _| ())?;
                    me.to(to).call_into((), |_, ()| 1_u8, result)?;
                    lent.wait()?;
                    unordered.wait()?;
                }
            };
            let error = calls().unwrap_err();
            assert!(is_lost(&error), "{error}");
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(well.load(Ordering::Relaxed), 1, "seed {seed}");
        let verdict = simulated.unwrap().verdict;
        assert!(
            matches!(verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process == doomed),
            "{verdict:?}"
        );
    }
}

/// The sender dies while its buffer is read. That call does not run. The calls before it have run.
#[test]
fn a_sender_that_dies_takes_its_buffer_along() {
    for seed in 0..scaled(6) {
        let doomed = ProcessId::new(1);
        let simulation = Simulation::new(2, 1, 80 + seed).kill(doomed, Duration::from_micros(300 + 40 * seed));
        // The verdict is the first failure and would hide a later one.
        let well = AtomicU64::new(0);
        let simulated = simulation.deadline(Duration::from_secs(5)).run(|me| {
            thread_local!(static RAN: Cell<(u64, u64)> = const { Cell::new((0, 0)) });
            if me.process() == doomed {
                loop {
                    let lent =
                        me.to(WorkerId::new(0)).call_buffer_get((), buffer_of(me, &[1; 50_000])?, |_, (), bytes| {
                            assert_eq!(bytes, [1; 50_000]);
                            let (with, without) = RAN.get();
                            assert_eq!(with, without);
                            RAN.set((with + 1, without));
                        })?;
                    me.call(WorkerId::new(0), (), |_, ()| {
                        let (with, without) = RAN.get();
                        assert!(with == without + 1 || with == without, "{with} and {without}");
                        RAN.set((with, with));
                    })?;
                    lent.wait()?;
                }
            }
            me.wait_while_serving(|| me.lost_processes() == [doomed])?;
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(well.load(Ordering::Relaxed), 1, "seed {seed}");
        let verdict = simulated.unwrap().verdict;
        assert!(
            matches!(verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process == doomed),
            "{verdict:?}"
        );
    }
}

/// No worker waits for its calls. The job becomes quiescent when all have run.
#[test]
fn operations_under_way_at_the_end_are_drained() {
    let ran = AtomicU64::new(0);
    simulate(3, 1, 90, |me| {
        let ran_here = Dist::new(me, || AtomicU64::new(0))?;
        for to in me.workers() {
            for unordered in [false, true] {
                let buffer = buffer_of(me, &[3; 20_000])?;
                let run = |there: &Worker, ran: Dist<AtomicU64>, bytes: &[u8]| {
                    assert_eq!(bytes, [3; 20_000]);
                    ran.here(there).fetch_add(1, Ordering::Relaxed);
                };
                let way = me.to(to);
                drop(if unordered {
                    way.call_buffer_get_unordered(ran_here, buffer, run)?
                } else {
                    way.call_buffer_get(ran_here, buffer, run)?
                });
            }
        }
        if me.id().number() == 0 {
            me.wait_while_serving(|| ran_here.here(me).load(Ordering::Relaxed) == 6)?;
            ran.store(1, Ordering::Relaxed);
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(ran.into_inner(), 1);
}
