//! Data with signals, and waits for signals. The bodies run as processes, over the fabric that
//! `FARSIDE_FABRIC` names, and in the simulator.

use farside::global::GlobalError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside::prelude::*;
use farside::{
    AddressFault, Comparison, Error, GlobalAddress, GlobalPtr, Handle, Incoming, LogGp, MovementError, Order, Result,
    Signal, SimOptions, Simulation, Until,
};
use farside_kit::notifications::Notifications;
use farside_kit::prelude::*;
use farside_kit::section::Section;
use farside_testbed::{limit, scaled};

use crate::support::{room, spread, verdict};

const STARTER_BYTES: u32 = 64 << 10;
/// The size of the area of signals. Data begins behind it.
const DATA: u32 = 4096;
const DATA_BYTES: u32 = 8192;

/// Returns a word of a process's starter memory.
fn word(process: ProcessId, number: u32) -> GlobalPtr<u64> {
    GlobalAddress::starter(process, number * 8).cast()
}

/// Returns the place of a worker's data in a process.
fn place(process: ProcessId, worker: WorkerId) -> GlobalAddress {
    GlobalAddress::starter(process, DATA + worker.number() * DATA_BYTES)
}

/// Returns the data of one round. Every word names its round and sender.
fn data(round: u64, from: WorkerId, words: usize) -> Vec<u64> {
    (0..words as u64).map(|index| round << 32 | u64::from(from.number()) << 16 | index).collect()
}

fn previous(me: &Worker) -> WorkerId {
    me.neighbor(me.worker_count() - 1)
}

/// Each worker sends to the next in a ring and goes on when the previous one has sent. A worker
/// that sees the signal sees the data.
fn data_comes_before_its_signal(me: &Worker) -> Result<()> {
    let (next, from) = (me.neighbor(1), previous(me));
    let there = me.process_of(next);
    let mut round = 0;
    for words in [1, 2, 6, 7, 8, 100, 1000] {
        for what in [Signal::Set, Signal::Add] {
            round += 1;
            let sent = data(round, me.id(), words);
            let increment = if what(0) == Signal::Set(0) { round } else { 1 };
            let slice = place(there, me.id()).cast().slice(words);
            slice.put_signal(me, 0, &sent, word(there, next.number()), what(increment))?;
            let own = word(me.process(), me.id().number());
            assert_eq!(own.wait_until(me, Comparison::Ge, round)?, round);
            let came = place(me.process(), from).cast::<u64>().slice(words).to_vec(me)?;
            assert_eq!(came, data(round, from, words), "round {round}");
            // The next round overwrites the data.
            me.barrier()?;
        }
    }
    reset(me)
}

/// A worker that only looks at the signal word finds the last of the data with the signal.
fn the_end_of_the_data_is_visible_with_the_signal(me: &Worker) -> Result<()> {
    const WORDS: usize = 1000;
    let (from, to) = (WorkerId::new(0), WorkerId::new(me.threads_per_process()));
    let (back, there) = (word(me.process_of(from), 0), word(me.process_of(to), 0));
    let place = place(me.process_of(to), from).cast::<u64>();
    for round in 1..=300 {
        if me.id() == from {
            place.slice(WORDS).put_signal(me, 0, &data(round, from, WORDS), there, Signal::Set(round))?;
            back.wait_until(me, Comparison::Ge, round)?;
        } else if me.id() == to {
            let (came, last, end) = (there.until(Comparison::Ge, round), place.add(WORDS - 1)?, me.now() + limit());
            while came.test(me)?.is_none() {
                assert!(me.now() < end, "round {round} does not come");
                me.progress()?;
            }
            assert_eq!(last.get(me)?, round << 32 | (WORDS as u64 - 1), "round {round}");
            back.signal(me, Signal::Set(round))?;
        }
    }
    reset(me)
}

/// A word that holds another value stays, and so does the data that travels with the request.
fn words_are_replaced_if_they_are_as_expected(me: &Worker) -> Result<()> {
    let (next, from) = (me.neighbor(1), previous(me));
    let there = me.process_of(next);
    let (own, word) = (word(me.process(), me.id().number()), word(there, next.number()));
    for (round, words) in (1..).zip([0, 1, 7, 100, 1000]) {
        let (target, sent) = (place(there, me.id()), data(round, me.id(), words));
        let replace = |words: &[u64], expected, new| {
            me.put_compare_swap(target, bytemuck::cast_slice(words), word, expected, new)
        };
        assert_eq!(replace(&sent, round - 1, round)?, round - 1);
        assert_eq!(own.wait_until(me, Comparison::Ge, round)?, round);
        assert_eq!(place(me.process(), from).cast::<u64>().slice(words).to_vec(me)?, data(round, from, words));
        me.barrier()?;
        assert_eq!(replace(&vec![9; words], round - 1, 99)?, round);
        assert_eq!(word.load(me)?, round);
        if words < 500 && !me.is_mapped(target)? {
            assert_eq!(target.cast::<u64>().slice(words).to_vec(me)?, sent);
        }
        me.barrier()?;
    }
    reset(me)
}

/// Sets all starter memory to zero between two bodies.
fn reset(me: &Worker) -> Result<()> {
    me.barrier()?;
    if me.thread_index() == 0 {
        me.put_bytes(GlobalAddress::starter(me.process(), 0), &[0; STARTER_BYTES as usize])?;
    }
    me.barrier()
}

/// All workers put a value to process 0 and count one signal word up.
fn several_count_one_signal(me: &Worker) -> Result<()> {
    let root = ProcessId::new(0);
    let rounds = 20;
    for round in 1..=rounds {
        place(root, me.id()).cast::<u64>().put_signal(me, round, word(root, 0), Signal::Add(1))?;
        if me.id().number() == 0 {
            word(root, 0).wait_until(me, Comparison::Ge, round * u64::from(me.worker_count()))?;
            for worker in me.workers() {
                assert!(place(root, worker).cast::<u64>().get(me)? >= round);
            }
        }
        me.barrier()?;
    }
    reset(me)
}

/// Waits for a list of words, each of which another worker signals.
fn any_some_and_all_are_waited_for(me: &Worker) -> Result<()> {
    let root = WorkerId::new(0);
    let home = me.process_of(root);
    let flag = |worker: WorkerId| word(home, worker.number());
    let turn = word(home, 100);
    let of_worker = |worker| flag(worker).until(Comparison::Eq, 7).signalled_by(me.process_of(worker));
    let others: Vec<WorkerId> = me.workers().filter(|worker| *worker != root).collect();
    if me.id() == root {
        assert_eq!(me.wait_any::<u64>(&[])?, None);
        assert_eq!(me.wait_some::<u64>(&[])?, []);
        assert_eq!(me.wait_all::<u64>(&[])?, [0_u64; 0]);
        let mut open: Vec<Until<u64>> = others.iter().map(|worker| of_worker(*worker)).collect();
        assert_eq!(open[0].test(me)?, None);
        let late = me.wait_any_for(&open, Duration::from_millis(1));
        assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
        // They signal one after another, in the order that this worker chooses.
        for worker in others.iter().rev() {
            turn.signal(me, Signal::Set(u64::from(worker.number())))?;
            let Some((index, value)) = me.wait_any(&open)? else { panic!("there are some left") };
            let came = open.remove(index);
            assert_eq!((came.word(), came.signaller(), value), (flag(*worker), Some(me.process_of(*worker)), 7));
            assert_eq!(came.test(me)?, Some(7));
        }
        turn.signal(me, Signal::Set(1000))?;
        let mut open: Vec<Until<u64>> = others.iter().map(|worker| flag(*worker).until(Comparison::Gt, 7)).collect();
        while !open.is_empty() {
            let some = me.wait_some(&open)?;
            assert!(!some.is_empty() && some.iter().all(|(_, value)| *value == 8));
            for (index, _) in some.iter().rev() {
                open.remove(*index);
            }
        }
        turn.signal(me, Signal::Set(2000))?;
        let all: Vec<Until<u64>> = others.iter().map(|worker| flag(*worker).until(Comparison::Le, 1)).collect();
        assert_eq!(me.wait_all(&all)?, vec![1; others.len()]);
    } else {
        // For most workers this is memory of another process.
        turn.wait_until(me, Comparison::Eq, u64::from(me.id().number()))?;
        flag(me.id()).signal(me, Signal::Set(7))?;
        turn.wait_until(me, Comparison::Ge, 1000)?;
        flag(me.id()).signal(me, Signal::Add(1))?;
        turn.wait_until(me, Comparison::Ge, 2000)?;
        flag(me.id()).signal(me, Signal::Set(1))?;
    }
    reset(me)
}

/// A worker that waits for a signal runs calls of others.
fn calls_are_served_meanwhile(me: &Worker) -> Result<()> {
    let own = word(me.process(), me.id().number());
    let next = me.neighbor(1);
    // The function runs on the waiting worker and signals to it.
    me.call(next, word(me.process_of(next), next.number()), |there, flag| {
        flag.signal(there, Signal::Set(5)).expect("its own memory");
        let waits = flag.wait_until(there, Comparison::Eq, 5);
        assert!(matches!(waits, Err(Error::InHandler { .. })), "{waits:?}");
    })?;
    own.wait_until(me, Comparison::Eq, 5)?;
    reset(me)
}

fn why<T: std::fmt::Debug>(result: Result<T>) -> AddressFault {
    match room(&result) {
        Some(GlobalError::Address { why, .. }) => *why,
        _ => panic!("{result:?} is not about an address"),
    }
}

/// If the signal is refused, no data is written. If the data is refused, there is no signal.
fn bad_addresses_are_refused(me: &Worker) -> Result<()> {
    let peer = me.process_of(me.neighbor(me.threads_per_process()));
    let (data, good) = (place(peer, me.id()), word(peer, me.id().number()));
    let set = Signal::Set(1);
    let misaligned = GlobalAddress::starter(peer, 4).cast();
    let inside = data.checked_add(24).unwrap().cast();
    assert_eq!(why(me.put_signal(data, &[1; 32], GlobalPtr::NULL, set)), AddressFault::Null);
    assert_eq!(why(me.put_signal(data, &[1; 32], misaligned, set)), AddressFault::Misaligned { align: 8 });
    assert_eq!(why(me.put_signal(data, &[1; 32], inside, set)), AddressFault::InsideOfData { bytes: 32 });
    let end = GlobalAddress::starter(peer, STARTER_BYTES);
    let outside = |bytes| AddressFault::OutOfRange { bytes, region_bytes: STARTER_BYTES.into() };
    assert_eq!(why(me.put_signal(data, &[1; 32], end.cast(), set)), outside(8));
    assert_eq!(why(me.put_signal(end, &[1; 32], good, set)), outside(32));
    assert_eq!(
        why(data.checked_add(4).unwrap().cast::<u64>().put_signal(me, 1, good, set)),
        AddressFault::Misaligned { align: 8 }
    );
    assert!(data.cast::<u64>().slice(3).put_signal(me, 2, &[1, 2], good, set).is_err());
    assert_eq!(why(misaligned.signal(me, set)), AddressFault::Misaligned { align: 8 });
    assert_eq!(why(misaligned.wait_until(me, Comparison::Eq, 0)), AddressFault::Misaligned { align: 8 });
    assert_eq!(why(end.cast::<u64>().wait_until(me, Comparison::Eq, 0)), outside(8));
    let mut found = [0; 32];
    me.get_bytes(data, &mut found)?;
    assert_eq!((found, good.load(me)?), ([0; 32], 0));
    // Data may end just before its signal.
    me.put_signal(data, &[1; 24], inside, set)?;
    assert_eq!(inside.load(me)?, 1);
    reset(me)
}

/// Words, notifications and sections in memory that its users have not mapped.
fn registered_memory_takes_part(me: &Worker) -> Result<()> {
    let (own, root) = (me.register(vec![0_u64; 2000])?, WorkerId::new(0));
    let fixed = me.register_read_only(vec![7_u64; 8])?;
    let all = me.gather(root, (own.slice().start(), fixed.slice().start()))?;
    let (there, fixed_there) = me.broadcast(root, all)?[me.neighbor(1).index()];
    let from = previous(me);
    for (round, words) in [(1, 7), (2, 1000)] {
        there.slice(2000).put_signal(me, 64, &data(round, me.id(), words), there, Signal::Add(1))?;
        assert_eq!(own.slice().start().wait_until(me, Comparison::Ge, round)?, round);
        assert_eq!(own.slice().part(64..64 + words)?.to_vec(me)?, data(round, from, words));
        me.barrier()?;
    }
    there.add(11)?.signal(me, Signal::Set(9))?;
    assert_eq!(own.slice().part(8..16)?.take_any(me)?, (3, 9));
    let (every_third, together) = (Section::strided(100, 2, 3)?.shifted(64)?, Section::contiguous(200));
    there.slice(2000).put_section(me, &every_third, &data(3, me.id(), 200), &together)?;
    me.barrier()?;
    let mut came = vec![0; 200];
    own.slice().get_section(me, &every_third, &mut came, &together)?;
    assert_eq!(came, data(3, from, 200));
    assert_eq!(why(me.put_signal(fixed_there.address(), &[1; 8], there, Signal::Set(1))), AddressFault::ReadOnly);
    assert_eq!(why(fixed_there.signal(me, Signal::Set(1))), AddressFault::ReadOnly);
    let eight = Section::contiguous(8);
    assert_eq!(why(fixed_there.slice(8).put_section(me, &eight, &[1; 8], &eight)), AddressFault::ReadOnly);
    assert_eq!(there.load(me)?, 2);
    me.barrier()?;
    own.deregister(me)?;
    fixed.deregister(me)?;
    me.barrier()?;
    let gone = there.signal(me, Signal::Set(1));
    assert_eq!(why(gone), AddressFault::Stale);
    me.barrier()
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn start(
    me: &Worker,
    to: GlobalAddress,
    data: &[u64],
    signal: GlobalPtr<u64>,
    what: Signal,
    order: Order,
) -> Result<Incoming<Vec<u8>>> {
    me.start_put_signal(to, bytes(data), signal, what, order).map_err(|refused| refused.error)
}

/// As `data_comes_before_its_signal`, but started, under every order. Large data goes in several
/// puts.
fn started_data_comes_before_its_signal(me: &Worker) -> Result<()> {
    let (next, from) = (me.neighbor(1), previous(me));
    let there = me.process_of(next);
    let memory = me.allocate_at(there, 400_000)?;
    let given = memory.address()?;
    let came_to = {
        let all = me.gather(WorkerId::new(0), given)?;
        me.broadcast(WorkerId::new(0), all)?[from.index()]
    };
    let mut round = 0;
    let mut last: Option<Handle> = None;
    for words in [0, 1, 7, 500, 1000, 1500, 50_000] {
        for kind in 0..4 {
            round += 1;
            let order = match (kind, last) {
                (0, Some(last)) => Order::After(last),
                (1, _) => Order::All,
                (2, _) => Order::Continuing,
                _ => Order::None,
            };
            let (sent, what) = (data(round, me.id(), words), [Signal::Add(1), Signal::Set(round)][kind % 2]);
            let going = start(me, given, &sent, word(there, next.number()), what, order)?;
            last = Some(going.handle());
            let own = word(me.process(), me.id().number());
            assert_eq!(own.wait_until(me, Comparison::Ge, round)?, round);
            assert_eq!(came_to.cast::<u64>().slice(words).to_vec(me)?, data(round, from, words), "round {round}");
            assert!(going.take(me)? == bytes(&sent), "the buffer of round {round}");
            // The next round overwrites the data.
            me.barrier()?;
        }
    }
    me.release(memory)?;
    reset(me)
}

/// Started signals keep their order without waits: no later signal arrives before the data of an
/// earlier one.
fn started_signals_keep_their_order(me: &Worker) -> Result<()> {
    let (next, from) = (me.neighbor(1), previous(me));
    let there = me.process_of(next);
    let (count, slots) = (24_u64, 4);
    let slot = |address: GlobalAddress, number: u64| address.checked_add(number % slots * 1024).unwrap();
    for kind in 0..2 {
        let mut last = None;
        for number in 1..=count {
            let order = last.map_or(Order::None, |last| if kind == 0 { Order::After(last) } else { Order::All });
            let words = 1 + 50 * (number as usize % 3);
            let what = Signal::Set(number);
            let target = slot(place(there, me.id()), number);
            let sent = start(me, target, &data(number, me.id(), words), word(there, next.number()), what, order)?;
            last = Some(sent.handle());
        }
        let own = word(me.process(), me.id().number());
        let mut seen = 0;
        while seen < count {
            seen = own.wait_until(me, Comparison::Gt, seen)?;
            // The data is that of the seen signal, or of a later one that has overwritten it.
            let first = slot(place(me.process(), from), seen).cast::<u64>().get(me)?;
            assert!(first >> 32 >= seen && (first >> 32) % slots == seen % slots, "{first:x} behind signal {seen}");
        }
        me.complete(last.unwrap())?;
        reset(me)?;
    }
    Ok(())
}

/// The data goes to one process and the signal to another, which then reads the data.
fn a_third_process_is_told(me: &Worker) -> Result<()> {
    let holder = |of: WorkerId| ProcessId::new((me.process_of(of).number() + 2) % me.process_count());
    let (next, from) =
        (me.neighbor(me.threads_per_process()), me.neighbor(me.worker_count() - me.threads_per_process()));
    for (round, words) in [(1, 3), (2, 1000)] {
        let sent = data(round, me.id(), words);
        let flag = word(me.process_of(next), next.number());
        let going = start(me, place(holder(me.id()), me.id()), &sent, flag, Signal::Add(1), Order::All)?;
        word(me.process(), me.id().number()).wait_until(me, Comparison::Ge, round)?;
        let came = place(holder(from), from).cast::<u64>().slice(words).to_vec(me)?;
        assert_eq!(came, data(round, from, words));
        me.complete(going.handle())?;
        me.barrier()?;
    }
    reset(me)
}

/// A wrong put fails at once and returns its buffer, or fails on completion. In both cases there is
/// no signal.
fn started_signals_are_refused_or_fail(me: &Worker) -> Result<()> {
    let peer = me.process_of(me.neighbor(me.threads_per_process()));
    let (to, good) = (place(peer, me.id()), word(peer, me.id().number()));
    let refused = |to: GlobalAddress, signal: GlobalPtr<u64>| {
        let refused = me.start_put_signal(to, vec![1; 32], signal, Signal::Set(1), Order::None).unwrap_err();
        assert_eq!(refused.arguments, [1; 32]);
        why::<()>(Err(refused.error))
    };
    let inside = to.checked_add(24).unwrap().cast();
    assert_eq!(refused(to, GlobalPtr::NULL), AddressFault::Null);
    assert_eq!(refused(GlobalAddress::NULL, good), AddressFault::Null);
    assert_eq!(refused(to, GlobalAddress::starter(peer, 4).cast()), AddressFault::Misaligned { align: 8 });
    assert_eq!(refused(to, inside), AddressFault::InsideOfData { bytes: 32 });
    let end = GlobalAddress::starter(peer, STARTER_BYTES);
    assert!(matches!(refused(end, good), AddressFault::OutOfRange { bytes: 32, .. }));
    assert!(matches!(refused(to, end.cast()), AddressFault::OutOfRange { bytes: 8, .. }));
    assert_eq!(good.load(me)?, 0);

    let (own, fixed) = (me.register(vec![0_u64; 4000])?, me.register_read_only(vec![7_u64; 4000])?);
    let root = WorkerId::new(0);
    let all = me.gather(root, (own.slice().start(), fixed.slice().start()))?;
    let (there, fixed_there) = me.broadcast(root, all)?[me.neighbor(me.threads_per_process()).index()];
    for words in [3_usize, 3000] {
        // The error names the address at fault.
        let fails = |to: GlobalPtr<u64>, signal: GlobalPtr<u64>, fault: GlobalPtr<u64>| -> Result<Handle> {
            let sent = start(me, to.address(), &vec![1; words], signal, Signal::Set(1), Order::None)?;
            let handle = sent.handle();
            let after = start(me, to_of(there), &[1], good, Signal::Set(1), Order::After(handle))?;
            let told = sent.take(me);
            let Some(GlobalError::Movement(MovementError::Failed { cause, .. })) = room(&told) else {
                panic!("{told:?}")
            };
            let is_told = matches!(cause.room_error(), Some(GlobalError::Address { address, why: AddressFault::ReadOnly }) if *address == fault.address());
            assert!(is_told, "{cause}");
            let told = after.take(me);
            assert!(matches!(room(&told), Some(GlobalError::Movement(MovementError::NotStarted { .. }))), "{told:?}");
            Ok(handle)
        };
        fails(fixed_there, there, fixed_there)?;
        fails(there.add(8)?, fixed_there, fixed_there)?;
        assert_eq!((there.load(me)?, good.load(me)?), (0, 0));
        let sent = start(me, there.add(8)?.address(), &vec![5; words], there, Signal::Set(0), Order::None)?;
        assert_eq!(sent.take(me)?.len(), words * 8);
        assert_eq!(there.add(8)?.slice(words).to_vec(me)?, vec![5; words]);
    }
    me.barrier()?;
    own.deregister(me)?;
    fixed.deregister(me)?;
    reset(me)
}

/// Returns a place that is never read.
fn to_of(memory: GlobalPtr<u64>) -> GlobalAddress {
    memory.add(3900).unwrap().address()
}

type Body = fn(&Worker) -> Result<()>;

const BODIES: [Body; 12] = [
    started_data_comes_before_its_signal,
    started_signals_keep_their_order,
    a_third_process_is_told,
    started_signals_are_refused_or_fail,
    registered_memory_takes_part,
    data_comes_before_its_signal,
    the_end_of_the_data_is_visible_with_the_signal,
    several_count_one_signal,
    any_some_and_all_are_waited_for,
    calls_are_served_meanwhile,
    bad_addresses_are_refused,
    words_are_replaced_if_they_are_as_expected,
];

#[test]
fn everything_by_processes() {
    let job = farside::job().processes(3).threads_per_process(2).starter_bytes(STARTER_BYTES);
    verdict("signals::everything_by_processes", job, |me| BODIES.into_iter().try_for_each(|body| body(me))).unwrap();
}

#[test]
fn everything_in_the_simulator() {
    for seed in 0..scaled(2) {
        let simulation = Simulation::new(3, 1, seed).starter_bytes(STARTER_BYTES);
        let simulated = simulation.run(|me| BODIES.into_iter().try_for_each(|body| body(me)));
        simulated.unwrap().verdict.unwrap();
    }
}

/// Worker 0 starts a put with its signal, and then only reads a word that the receiver of the
/// signal sets. So no worker of its process continues what it has started.
#[farside::test(processes = 2, threads = 1)]
fn a_signal_goes_out_while_its_worker_only_reads(me: &Worker) -> Result<()> {
    let values = me.symmetric::<u8>(1 << 20)?;
    let (first, second) = (WorkerId::new(0), WorkerId::new(1));
    if me.id() == first {
        let there = me.process_of(second);
        let to = values.at(there)?.start().address();
        for round in 1..=20 {
            let sent = me.start_put_signal(to, vec![7; 1 << 20], word(there, 0), Signal::Set(round), Order::None);
            let sent = sent.map_err(|refused| refused.error)?;
            let begun = me.now();
            while word(there, 1).load(me)? < round {
                assert!(me.now() - begun < limit(), "the signal of round {round} does not go out");
            }
            sent.take(me)?;
        }
    } else if me.id() == second {
        for round in 1..=20 {
            word(me.process(), 0).wait_until(me, Comparison::Ge, round)?;
            word(me.process(), 1).store(me, round)?;
        }
    }
    me.barrier()?;
    values.free(me)
}

/// A wait that names a dying process as the signaller ends at once, and another at its deadline.
/// Signals before the loss count.
#[test]
fn waiting_for_a_lost_process_ends() {
    let dying = ProcessId::new(2);
    for seed in 0..scaled(6) {
        let simulation = Simulation::new(3, 1, seed).kill(dying, Duration::from_millis(5));
        let well = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let own = word(me.process(), 0);
            if me.process() == dying {
                for peer in [0, 1] {
                    word(ProcessId::new(peer), 1).signal(me, Signal::Add(3))?;
                }
                return me.wait_while_serving(|| false);
            }
            let never = own.until(Comparison::Ne, 0);
            let deadline = Duration::from_secs(1);
            let before = me.now();
            let told = never.signalled_by(dying).wait_for(me, deadline);
            assert!(matches!(told, Err(Error::PeerLost { process, .. }) if process == dying), "{told:?}");
            assert!(me.now() - before < deadline / 2);
            assert_eq!(word(me.process(), 1).until(Comparison::Ge, 1).signalled_by(dying).wait(me)?, 3);
            let told = me.wait_all_for(&[never.signalled_by(dying)], deadline);
            assert!(matches!(told, Err(Error::PeerLost { .. })), "{told:?}");
            // The loss ends the wait although an earlier word may still be signalled. A word that
            // was signalled counts before the loss.
            let told = me.wait_all_for(&[never, never.signalled_by(dying)], deadline);
            assert!(matches!(told, Err(Error::PeerLost { .. })), "{told:?}");
            let came = word(me.process(), 1).until(Comparison::Ge, 1);
            let both = [never.signalled_by(dying), came.signalled_by(dying)];
            assert_eq!(me.wait_some(&both)?, [(1, 3)]);
            assert_eq!(me.wait_any(&both)?, Some((1, 3)));
            let there = word(dying, 0).wait_until(me, Comparison::Ne, 0);
            assert!(matches!(there, Err(Error::PeerLost { .. })), "{there:?}");
            let late = never.wait_for(me, Duration::from_millis(3));
            assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(well.into_inner(), 2);
    }
}

/// Two workers of one process, and of two, signal to each other. The signal wakes the sleeping one.
/// Without it a worker would look only every 100 µs.
#[test]
fn sleepers_are_woken_by_signals() {
    for processes in [1, 2] {
        let options = SimOptions { network: LogGp::FDR, delay_max_ns: 0, ..SimOptions::default() };
        let simulation = Simulation::new(processes, 2 / processes, 1).options(options);
        simulation.run(signal_to_and_fro).unwrap().verdict.unwrap();
    }
}

fn signal_to_and_fro(me: &Worker) -> Result<()> {
    let rounds = 100;
    let peer = me.neighbor(1);
    let (own, other) = (word(me.process(), me.id().number()), word(me.process_of(peer), peer.number()));
    me.barrier()?;
    let before = me.now();
    for round in 1..=rounds {
        let what = if round % 2 == 0 { Signal::Add(1) } else { Signal::Set(round) };
        let computes = Duration::from_micros(20);
        if me.id().number() == 0 {
            // The other worker sleeps by then.
            me.charge(computes);
            other.signal(me, what)?;
            own.wait_until(me, Comparison::Ge, round)?;
        } else {
            own.wait_until(me, Comparison::Ge, round)?;
            me.charge(computes);
            other.signal(me, what)?;
        }
    }
    let took = me.now() - before;
    assert!(took < Duration::from_micros(60) * rounds as u32, "{took:?}");
    me.barrier()
}

/// A started put goes on while its worker computes, even one of two round trips. A put that waits
/// does not.
#[test]
fn started_operations_continue_while_the_worker_computes() {
    let options = SimOptions { network: LogGp::FDR, delay_max_ns: 0, ..SimOptions::default() };
    for words in [100, 1000] {
        let [alone, beside] = [0, 1].map(|started| {
            let took = AtomicU32::new(0);
            let simulation = Simulation::new(2, 1, 1).options(options).starter_bytes(STARTER_BYTES);
            let simulated = simulation.run(|me| {
                let (rounds, computes) = (20, Duration::from_micros(50));
                let peer = me.process_of(me.neighbor(1));
                let (to, flag, own) = (place(peer, me.id()), word(peer, 0), word(me.process(), 0));
                me.barrier()?;
                let before = me.now();
                for round in 1..=rounds {
                    let content = data(round, me.id(), words);
                    if started == 1 {
                        let sent = start(me, to, &content, flag, Signal::Set(round), Order::None)?;
                        me.charge(computes);
                        sent.take(me)?;
                    } else {
                        me.put_signal(to, &bytes(&content), flag, Signal::Set(round))?;
                        me.charge(computes);
                    }
                    own.wait_until(me, Comparison::Ge, round)?;
                }
                took.fetch_max((me.now() - before).as_nanos() as u32 / rounds as u32, Ordering::Relaxed);
                me.barrier()
            });
            simulated.unwrap().verdict.unwrap();
            took.into_inner()
        });
        let (added, left) = (alone - 50_000, beside.saturating_sub(50_000));
        assert!(added > 2_000 && left < added / 4, "{words} words: {left} ns of {added} ns are left");
    }
}

/// A process dies while others put data with signals to it. All operations end, with the reason.
#[test]
fn started_signals_to_a_lost_process_end() {
    let dying = ProcessId::new(2);
    let (mut lost_in_all, seeds) = (0, spread(8));
    for seed in seeds.clone() {
        let after = Duration::from_micros(200 + 150 * seed);
        let simulation = Simulation::new(3, 1, seed).kill(dying, after).starter_bytes(STARTER_BYTES);
        let lost = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            if me.process() == dying {
                return me.wait_while_serving(|| false);
            }
            let other = ProcessId::new(1 - me.process().number());
            for round in 1..=20_000_u64 {
                let words = if round % 2 == 0 { 10 } else { 1000 };
                let content = data(round, me.id(), words);
                let doomed = start(me, place(dying, me.id()), &content, word(dying, 0), Signal::Add(1), Order::None);
                let kept = start(me, place(other, me.id()), &content, word(other, 1), Signal::Set(round), Order::None)?;
                kept.take(me)?;
                let told = doomed.and_then(|doomed| doomed.take(me));
                match told {
                    Ok(buffer) => assert_eq!(buffer.len(), words * 8),
                    Err(Error::PeerLost { process, .. }) if process == dying => {
                        lost.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    Err(error) => {
                        let Some(GlobalError::Movement(MovementError::Failed { cause, .. })) = error.room_error()
                        else {
                            panic!("{error}")
                        };
                        assert!(matches!(**cause, Error::PeerLost { process, .. } if process == dying), "{cause}");
                        lost.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                }
            }
            me.flush_all()
        });
        assert!(simulated.unwrap().verdict.is_err());
        lost_in_all += lost.into_inner();
    }
    assert_eq!(lost_in_all as usize, 2 * seeds.count());
}
