//! Pipes between workers. The bodies run as processes, over whatever `FARSIDE_FABRIC` says, and in the simulator, which delivers puts in
//! pieces and out of order.

use std::time::Duration;

use farside::pipe::{INLINE_BYTES_MAX, PipeCause, PipeReader, PipeShape, PipeWriter, WIDTH_MAX};
use farside::prelude::*;
use farside::{Error, Result, Simulation};

/// Sizes around those of a flag's line, and, in the simulator, of what goes as one message.
const SIZES: [usize; 12] = [0, 1, 8, 55, 56, 57, 64, 100, 4000, 4096, 4097, 20_000];
const LONGEST: usize = 20_000;

fn pattern(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (number.wrapping_mul(0x9e37) + at.wrapping_mul(31)) as u8).collect()
}

/// The worker of the next process that has this one's place there.
fn next(me: &Worker) -> WorkerId {
    me.neighbor(me.threads_per_process())
}

/// The worker that has this one as its [`next`].
fn previous(me: &Worker) -> WorkerId {
    me.neighbor(me.worker_count() - me.threads_per_process())
}

fn cause<T: std::fmt::Debug>(result: Result<T>) -> PipeCause {
    match result {
        Err(Error::Pipe { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

fn is_full<T: std::fmt::Debug>(result: Result<T>) -> bool {
    matches!(cause(result), PipeCause::Full { .. })
}

/// Half of the workers write, the others read, and all of them wait for each other.
fn messages_arrive_whole_and_in_order(me: &Worker) -> Result<()> {
    for width in [1, 3, 16] {
        let mut writer = me.pipe(next(me)).width(width).message_bytes(LONGEST).writer()?;
        let mut reader = me.pipe(previous(me)).width(width).message_bytes(LONGEST).reader()?;
        let (mut sent, mut got) = (0, 0);
        let count = 3 * SIZES.len() as u64;
        let size = |number: u64| SIZES[number as usize % SIZES.len()];
        let end = me.now() + Duration::from_secs(30);
        while sent < count || got < count {
            assert!(me.now() < end, "{sent} sent, {got} received");
            if sent < count && writer.ready()? {
                let message = pattern(sent, size(sent));
                match sent % 2 {
                    0 => writer.write(&message)?,
                    _ => {
                        let mut loan = writer.try_loan(message.len())?;
                        loan.copy_from_slice(&message);
                        loan.commit()?;
                    }
                }
                sent += 1;
            }
            if got < count
                && let Some(message) = reader.try_recv()?
            {
                assert!(*message == pattern(got, size(got)), "message {got} of width {width}");
                got += 1;
            }
            me.progress()?;
        }
        assert_eq!((writer.written(), reader.read_count()), (count, count));
        drop(writer);
        let after = reader.recv();
        assert_eq!(cause(after), PipeCause::Closed);
        me.barrier()?;
    }
    Ok(())
}

/// The same with ends that wait, each in a worker of its own.
fn both_ends_wait(me: &Worker) -> Result<()> {
    const COUNT: u64 = 200;
    let write = |writer: &mut PipeWriter<'_>| {
        (0..COUNT).try_for_each(|number| writer.write(&pattern(number, number as usize % 61)))
    };
    let read = |reader: &mut PipeReader<'_>| {
        for number in 0..COUNT {
            let message = reader.recv()?;
            assert!(*message == pattern(number, number as usize % 61), "message {number}");
            message.release();
        }
        Ok(())
    };
    let mut writer = me.pipe(next(me)).number(7).width(2).writer()?;
    let mut reader = me.pipe(previous(me)).number(7).width(2).reader()?;
    if me.process().number() == 0 {
        write(&mut writer)?;
        read(&mut reader)
    } else {
        read(&mut reader)?;
        write(&mut writer)
    }
}

/// A message is one, whatever its reader has room for.
fn a_short_buffer_gets_the_beginning(me: &Worker) -> Result<()> {
    let mut writer = me.pipe(next(me)).writer()?;
    let mut reader = me.pipe(previous(me)).reader()?;
    writer.write(b"123456789")?;
    writer.write(b"next")?;
    let mut buffer = [0; 4];
    assert_eq!((reader.read(&mut buffer)?, buffer), (9, *b"1234"));
    assert_eq!((reader.read(&mut buffer)?, buffer), (4, *b"next"));
    me.barrier()
}

/// A pipe holds as many messages as it is wide, says so, and goes on when one is taken.
fn a_full_pipe_says_so(me: &Worker) -> Result<()> {
    const WIDTH: usize = 4;
    let mut writer = me.pipe(next(me)).width(WIDTH).message_bytes(INLINE_BYTES_MAX).writer()?;
    let mut reader = me.pipe(previous(me)).width(WIDTH).message_bytes(INLINE_BYTES_MAX).reader()?;
    for number in 0..WIDTH as u64 {
        writer.write(&number.to_le_bytes())?;
    }
    assert!(is_full(writer.try_write(b"x")) && is_full(writer.try_loan(1).map(drop)));
    let late = writer.write_for(b"x", Duration::from_millis(20));
    assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
    me.barrier()?;
    assert_eq!(*reader.recv()?, 0_u64.to_le_bytes());
    me.barrier()?;
    // There is room for one, and not for two.
    writer.write(&9_u64.to_le_bytes())?;
    assert!(is_full(writer.try_write(b"x")));
    assert_eq!(writer.taken()?, 1);
    me.barrier()?;
    for number in [1, 2, 3, 9_u64] {
        assert_eq!(*reader.recv()?, number.to_le_bytes());
    }
    assert!(reader.try_recv()?.is_none());
    me.barrier()
}

/// A loan that is dropped was never made, and a message that is looked at again is the same.
fn a_slot_is_whoever_has_its(me: &Worker) -> Result<()> {
    let mut writer = me.pipe(next(me)).width(1).message_bytes(100).writer()?;
    let mut reader = me.pipe(previous(me)).width(1).message_bytes(100).reader()?;
    writer.loan(100)?.fill(1);
    writer.loan(56)?.fill(2);
    assert!(reader.try_recv()?.is_none());
    me.barrier()?;
    let mut loan = writer.loan(57)?;
    loan.fill(3);
    assert_eq!(*loan, [3; 57]);
    loan.commit()?;
    let message = reader.recv()?;
    assert_eq!(*message, [3; 57]);
    me.barrier()?;
    assert!(is_full(writer.try_write(b"x")), "it is not released yet");
    me.barrier()?;
    message.release();
    writer.write(b"x")?;
    assert_eq!(*reader.recv()?, *b"x");
    me.barrier()
}

/// Every pair has several pipes, each with its own messages, whichever end is opened first.
fn pipes_of_a_pair_are_apart(me: &Worker) -> Result<()> {
    const PIPES: u32 = 5;
    let shape = |number: u32| (1 + number as usize, 40 * number as usize + 8);
    let open = |number: u32| {
        let (width, bytes) = shape(number);
        let (to, from) = (me.pipe(next(me)), me.pipe(previous(me)));
        let writer = || to.number(number).width(width).message_bytes(bytes).writer();
        let reader = || from.number(number).width(width).message_bytes(bytes).reader();
        Ok(match number % 2 {
            0 => (writer()?, reader()?),
            _ => {
                let reader = reader()?;
                (writer()?, reader)
            }
        })
    };
    let mut ends: Vec<_> = (0..PIPES).map(open).collect::<Result<_>>()?;
    for round in 0..4_u64 {
        for (writer, _) in &mut ends {
            writer.write(&pattern(round + u64::from(writer.name().number), writer.shape().message_bytes))?;
        }
        for (_, reader) in ends.iter_mut().rev() {
            let (name, shape) = (reader.name(), reader.shape());
            assert_eq!(*reader.recv()?, pattern(round + u64::from(name.number), shape.message_bytes));
            assert_eq!((name.writer, name.reader), (previous(me), me.id()));
        }
    }
    me.barrier()
}

/// Pipes within a process, and of a worker with itself.
fn pipes_are_also_at_home(me: &Worker) -> Result<()> {
    let threads = me.threads_per_process();
    let first = me.process().number() * threads;
    let other = WorkerId::new(first + (me.id().number() - first + 1) % threads);
    let back = WorkerId::new(first + (me.id().number() - first + threads - 1) % threads);
    for (to, from, number) in [(other, back, 0), (me.id(), me.id(), 1)] {
        let mut writer = me.pipe(to).number(number).width(2).writer()?;
        let mut reader = me.pipe(from).number(number).width(2).reader()?;
        for round in 0..10 {
            writer.write(&pattern(round, 10))?;
            writer.write(&pattern(round, 1000))?;
            assert_eq!(*reader.recv()?, pattern(round, 10));
            assert_eq!(*reader.recv()?, pattern(round, 1000));
        }
        drop(writer);
        assert_eq!(cause(reader.recv()), PipeCause::Closed);
    }
    let mut alone = me.pipe(me.id()).number(2).width(1).writer()?;
    alone.write(b"for nobody yet")?;
    assert!(matches!(alone.write_for(b"x", Duration::from_millis(5)), Err(Error::Deadline { .. })));
    me.barrier()
}

/// Whoever closes tells the other, in whatever state the pipe is, and the name can be used again.
fn the_other_end_is_told(me: &Worker) -> Result<()> {
    let (to, from) = (me.pipe(next(me)).width(2), me.pipe(previous(me)).width(2));
    // Never used at all.
    drop(to.writer()?);
    drop(from.reader()?);
    me.barrier()?;
    // The writer goes first: what it wrote is read.
    let mut writer = to.writer()?;
    writer.write(b"last")?;
    writer.write(&pattern(1, 3000))?;
    drop(writer);
    me.barrier()?;
    let mut reader = from.reader()?;
    assert_eq!(*reader.recv()?, *b"last");
    assert_eq!(*reader.recv()?, pattern(1, 3000));
    assert_eq!(cause(reader.recv()), PipeCause::Closed);
    assert_eq!(cause(reader.try_recv()), PipeCause::Closed);
    // The next pipe of this name waits until this one is over.
    let mut writer = to.writer()?;
    assert!(is_full(writer.try_write(b"early")));
    drop(reader);
    writer.write(b"second")?;
    let mut reader = from.reader()?;
    assert_eq!(*reader.recv()?, *b"second");
    me.barrier()?;
    // The reader goes first, with messages that it has not read.
    writer.write(b"unread")?;
    me.barrier()?;
    drop(reader);
    let closed = loop {
        match writer.write(b"x") {
            Ok(()) => _ = me.progress()?,
            Err(error) => break Err::<(), _>(error),
        }
    };
    assert_eq!(cause(closed), PipeCause::Closed);
    // Its memory is still the writer's, and the next pipe has other memory.
    let mut reader = from.reader()?;
    drop(writer);
    let mut writer = to.writer()?;
    writer.write(b"third")?;
    assert_eq!(*reader.recv()?, *b"third");
    me.barrier()?;
    // A writer that waits for room learns of it.
    writer.write(b"1")?;
    writer.write(b"2")?;
    me.barrier()?;
    drop(reader);
    assert_eq!(cause(writer.write(b"3")), PipeCause::Closed);
    drop(writer);
    // And a reader that waits for a message.
    let mut reader = from.reader()?;
    let mut writer = to.writer()?;
    writer.write(b"")?;
    assert_eq!(*reader.recv()?, *b"");
    drop(writer);
    assert_eq!(cause(reader.recv()), PipeCause::Closed);
    me.barrier()
}

/// What cannot be is refused, with the facts.
fn refusals_are_typed(me: &Worker) -> Result<()> {
    let (to, from) = (me.pipe(next(me)), me.pipe(previous(me)));
    for width in [0, WIDTH_MAX + 1, usize::MAX] {
        assert_eq!(cause(to.width(width).writer()), PipeCause::Width { width });
        assert_eq!(cause(from.width(width).reader()), PipeCause::Width { width });
    }
    assert_eq!(cause(to.message_bytes(1 << 30).writer()), PipeCause::MessageBytes { bytes: 1 << 30 });
    let unknown = me.pipe(WorkerId::new(99)).writer();
    assert!(matches!(unknown, Err(Error::UnknownWorker { .. })), "{unknown:?}");
    let mut writer = to.message_bytes(100).writer()?;
    let long = writer.write(&[0; 101]);
    assert!(matches!(long, Err(Error::TooLarge { bytes: 101, max: 100, .. })), "{long:?}");
    let long = writer.try_loan(usize::MAX);
    assert!(matches!(long, Err(Error::TooLarge { bytes: usize::MAX, max: 100, .. })), "{long:?}");
    assert_eq!(cause(to.message_bytes(100).writer()), PipeCause::Taken);
    let mut reader = from.message_bytes(100).reader()?;
    assert_eq!(cause(from.message_bytes(100).reader()), PipeCause::Taken);
    writer.write(b"it works all the same")?;
    assert_eq!(reader.recv()?.len(), 21);
    me.barrier()?;
    drop((writer, reader));
    // Both ends learn that they do not fit, whichever comes first.
    let (here, there) = (PipeShape { width: 16, message_bytes: 8 }, PipeShape { width: 17, message_bytes: 9 });
    let mut reader = from.number(1).message_bytes(8).reader()?;
    me.barrier()?;
    let mut writer = to.number(1).width(17).message_bytes(9).writer()?;
    assert_eq!(cause(writer.write(b"x")), PipeCause::Mismatch { here: there, there: here });
    assert_eq!(cause(reader.recv()), PipeCause::Mismatch { here, there });
    let mut writer = to.number(2).message_bytes(8).writer()?;
    writer.write(b"x")?;
    me.barrier()?;
    let second = from.number(2).width(17).message_bytes(9).reader();
    assert_eq!(cause(second), PipeCause::Mismatch { here: there, there: here });
    me.barrier()?;
    // A handler must not wait, and may do everything else.
    let handled = me.call_return(next(me), me.id(), |there, asker| {
        let mut reader = there.pipe(asker).number(3).reader().expect("nobody else has it");
        matches!(reader.recv(), Err(Error::InHandler { .. })) && matches!(reader.try_recv(), Ok(None))
    });
    assert!(handled?.wait()?);
    me.barrier()
}

/// Others have no more of a process's memory than they may.
fn memory_for_pipes_has_a_limit(me: &Worker) -> Result<()> {
    let mut writer = me.pipe(next(me)).width(1 << 10).message_bytes(1 << 20).writer()?;
    let refused = cause(writer.write(b"x"));
    assert!(matches!(refused, PipeCause::Memory(farside::memory::MemoryRefusal::Limit { .. })), "{refused:?}");
    me.barrier()
}

macro_rules! everywhere {
    ($($body:ident)*) => {
        mod as_processes {
            use super::*;
            $(
                #[farside::test(processes = 2, threads = 2)]
                fn $body(me: &Worker) -> Result<()> {
                    super::$body(me)
                }
            )*
        }

        mod simulated {
            $(
                #[test]
                fn $body() {
                    for seed in 0..6 {
                        farside::simulate(3, 2, seed, super::$body).unwrap();
                    }
                }
            )*
        }
    };
}

everywhere! {
    messages_arrive_whole_and_in_order
    both_ends_wait
    a_short_buffer_gets_the_beginning
    a_full_pipe_says_so
    a_slot_is_whoever_has_its
    pipes_of_a_pair_are_apart
    pipes_are_also_at_home
    the_other_end_is_told
    refusals_are_typed
    memory_for_pipes_has_a_limit
}

#[test]
fn what_a_lost_writer_has_written_is_read_first() {
    for seed in 0..8 {
        let simulation = Simulation::new(2, 1, seed).kill(ProcessId::new(1), Duration::from_millis(1));
        let well = std::sync::atomic::AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let other = me.neighbor(1);
            if me.id().number() == 1 {
                let mut writer = me.pipe(other).width(4).message_bytes(LONGEST).writer()?;
                let mut reader = me.pipe(other).reader()?;
                for number in 0.. {
                    writer.write(&pattern(number, SIZES[number as usize % SIZES.len()]))?;
                }
                return reader.recv().map(drop);
            }
            let mut reader = me.pipe(other).width(4).message_bytes(LONGEST).reader()?;
            let mut writer = me.pipe(other).writer()?;
            let lost = loop {
                let number = reader.read_count();
                match reader.recv() {
                    Ok(message) => assert!(*message == pattern(number, SIZES[number as usize % SIZES.len()])),
                    Err(error) => break error,
                }
            };
            assert!(matches!(lost, Error::PeerLost { process, .. } if process.number() == 1), "{lost:?}");
            assert!(reader.read_count() > 10);
            let lost = writer.write(b"x");
            assert!(matches!(lost, Err(Error::PeerLost { .. })), "{lost:?}");
            well.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        });
        let verdict = simulated.unwrap().verdict;
        assert!(matches!(verdict, Err(Error::ProcessFailed { process, .. }) if process.number() == 1), "{verdict:?}");
        assert_eq!(well.into_inner(), 1);
    }
}
