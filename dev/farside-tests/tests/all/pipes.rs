//! Pipes between workers. The bodies run as processes, over the fabric that `FARSIDE_FABRIC` names,
//! and in the simulator. The simulator delivers puts in pieces and out of order.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::support::spread;
use farside::prelude::*;
use farside::{Error, LaunchError, Result, Simulation};
use farside_kit::pipe::{
    Delivery, INLINE_BYTES_MAX, PipeCause, PipeError, PipeReader, PipeShape, PipeWriter, WIDTH_MAX,
};
use farside_kit::prelude::*;
use farside_testbed::limit;

mod losses;

/// Sizes around those of a flag's line and, in the simulator, of one message.
const SIZES: [usize; 12] = [0, 1, 8, 55, 56, 57, 64, 100, 4000, 4096, 4097, 20_000];
const LONGEST: usize = 20_000;

fn pattern(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (number.wrapping_mul(0x9e37) + at.wrapping_mul(31)) as u8).collect()
}

/// Returns the worker at this worker's place in the next process.
fn next(me: &Worker) -> WorkerId {
    me.neighbor(me.threads_per_process())
}

/// Returns the worker that has this one as its [`next`].
fn previous(me: &Worker) -> WorkerId {
    me.neighbor(me.worker_count() - me.threads_per_process())
}

fn cause<T: std::fmt::Debug>(result: Result<T, PipeError>) -> PipeCause {
    match result {
        Err(PipeError::Pipe { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

fn is_full<T: std::fmt::Debug>(result: Result<T, PipeError>) -> bool {
    matches!(cause(result), PipeCause::Full { .. })
}

/// Every worker writes to the next one and reads from the previous one at the same time.
fn messages_arrive_whole_and_in_order(me: &Worker) -> Result<()> {
    for width in [1, 3, 16] {
        let mut writer = me.pipe(next(me)).width(width).message_bytes(LONGEST).writer()?;
        let mut reader = me.pipe(previous(me)).width(width).message_bytes(LONGEST).reader()?;
        let (mut sent, mut got) = (0, 0);
        let count = 3 * SIZES.len() as u64;
        let size = |number: u64| SIZES[number as usize % SIZES.len()];
        let end = me.now() + limit();
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
        Ok(write(&mut writer)?)
    }
}

/// A buffer too short for a message gets its beginning.
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
    assert!(matches!(late, Err(PipeError::Job(Error::Deadline { .. }))), "{late:?}");
    me.barrier()?;
    assert_eq!(*reader.recv()?, 0_u64.to_le_bytes());
    me.barrier()?;
    // There is room for one message, and not for two.
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

/// A dropped loan has no effect, and a message can be read again until it is released.
fn slots_belong_to_open_loans_and_messages(me: &Worker) -> Result<()> {
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

/// Every pair has several pipes, each with its own messages, whichever end opens first.
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
    alone.write(b"not read yet")?;
    assert!(matches!(alone.write_for(b"x", Duration::from_millis(5)), Err(PipeError::Job(Error::Deadline { .. }))));
    me.barrier()
}

/// An end that closes tells the other, in any state of the pipe. The name can be used again.
fn the_other_end_is_told(me: &Worker) -> Result<()> {
    let (to, from) = (me.pipe(next(me)).width(2), me.pipe(previous(me)).width(2));
    // A pipe that was never used.
    drop(to.writer()?);
    assert_eq!(cause(from.reader()?.recv()), PipeCause::Closed);
    me.barrier()?;
    // The writer closes first. The reader reads all its messages.
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
    me.barrier()?;
    drop(reader);
    writer.write(b"second")?;
    let mut reader = from.reader()?;
    assert_eq!(*reader.recv()?, *b"second");
    me.barrier()?;
    // The reader closes first, with unread messages.
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
    // Its memory still belongs to the writer, and the next pipe has other memory.
    let mut reader = from.reader()?;
    drop(writer);
    let mut writer = to.writer()?;
    writer.write(b"third")?;
    assert_eq!(*reader.recv()?, *b"third");
    me.barrier()?;
    // A writer that waits for room learns of the closed reader.
    writer.write(b"1")?;
    writer.write(b"2")?;
    me.barrier()?;
    drop(reader);
    assert_eq!(cause(writer.write(b"3")), PipeCause::Closed);
    drop(writer);
    // A reader that waits for a message learns of the closed writer.
    let mut reader = from.reader()?;
    let mut writer = to.writer()?;
    writer.write(b"")?;
    assert_eq!(*reader.recv()?, *b"");
    drop(writer);
    assert_eq!(cause(reader.recv()), PipeCause::Closed);
    me.barrier()
}

/// Impossible requests are refused, with the facts.
fn refusals_are_typed(me: &Worker) -> Result<()> {
    let (to, from) = (me.pipe(next(me)), me.pipe(previous(me)));
    for width in [0, WIDTH_MAX + 1, usize::MAX] {
        assert_eq!(cause(to.width(width).writer()), PipeCause::Width { width });
        assert_eq!(cause(from.width(width).reader()), PipeCause::Width { width });
    }
    assert_eq!(cause(to.message_bytes(1 << 30).writer()), PipeCause::MessageBytes { bytes: 1 << 30 });
    let unknown = me.pipe(WorkerId::new(99)).writer();
    assert!(matches!(unknown, Err(PipeError::Job(Error::UnknownWorker { .. }))), "{unknown:?}");
    let mut writer = to.message_bytes(100).writer()?;
    let long = writer.write(&[0; 101]);
    assert!(matches!(long, Err(PipeError::Job(Error::TooLarge { bytes: 101, max: 100, .. }))), "{long:?}");
    assert!(long.unwrap_err().to_string().ends_with("raise `Pipe::message_bytes`"));
    let long = writer.try_loan(usize::MAX);
    assert!(matches!(long, Err(PipeError::Job(Error::TooLarge { bytes: usize::MAX, max: 100, .. }))), "{long:?}");
    assert_eq!(cause(to.message_bytes(100).writer()), PipeCause::Taken);
    let mut reader = from.message_bytes(100).reader()?;
    assert_eq!(cause(from.message_bytes(100).reader()), PipeCause::Taken);
    writer.write(b"it works all the same")?;
    assert_eq!(reader.recv()?.len(), 21);
    me.barrier()?;
    drop((writer, reader));
    // Both ends learn that their shapes differ, whichever comes first.
    let shapes = |cause| match cause {
        PipeCause::Mismatch { here, there, .. } => {
            let numbers = |shape: PipeShape| (shape.width, shape.message_bytes);
            (numbers(here), numbers(there))
        }
        other => panic!("{other:?}"),
    };
    let mut reader = from.number(1).message_bytes(8).reader()?;
    me.barrier()?;
    let mut writer = to.number(1).width(17).message_bytes(9).writer()?;
    assert_eq!(shapes(cause(writer.write(b"x"))), ((17, 9), (16, 8)));
    assert_eq!(shapes(cause(reader.recv())), ((16, 8), (17, 9)));
    let mut writer = to.number(2).message_bytes(8).writer()?;
    writer.write(b"x")?;
    me.barrier()?;
    let second = from.number(2).width(17).message_bytes(9).reader();
    assert_eq!(shapes(cause(second)), ((17, 9), (16, 8)));
    me.barrier()?;
    // Values of another type are a mismatch, too.
    let mut sender = to.number(4).sender::<u64>()?;
    sender.send(1)?;
    me.barrier()?;
    assert!(matches!(cause(from.number(4).receiver::<i64>()), PipeCause::Mismatch { .. }));
    assert_eq!(cause(me.pipe(me.id()).duplex()), PipeCause::WithItself);
    me.barrier()?;
    // A handler must not wait, but may do everything else.
    let handled = me.call_return(next(me), me.id(), |there, asker| {
        let mut reader = there.pipe(asker).number(3).reader().expect("no other worker has it");
        matches!(reader.recv(), Err(PipeError::Job(Error::InHandler { .. }))) && matches!(reader.try_recv(), Ok(None))
    });
    assert!(handled?.wait()?);
    me.barrier()
}

/// An offered buffer stays where it is until the reader has fetched it, and comes back afterwards.
fn offers_are_fetched(me: &Worker) -> Result<()> {
    for (to, from) in [(next(me), previous(me)), (me.id(), me.id())] {
        let mut writer = me.pipe(to).width(4).message_bytes(100).writer()?;
        let mut reader = me.pipe(from).width(4).message_bytes(100).reader()?;
        assert!(writer.take_back()?.is_none());
        for size in [0, 1, 56, 57, 1000, 100_000] {
            let buffer = me.allocate(size)?;
            buffer.write_at(0, &pattern(1, size))?;
            writer.offer(buffer)?;
            assert!(*reader.recv()? == pattern(1, size));
            let back = writer.take_back()?.expect("it was offered");
            assert!(back.bytes() == size && writer.try_take_back()?.is_none());
            // The reader reads the next message straight into its own buffer, which takes only the
            // beginning.
            back.write_at(0, &pattern(2, size))?;
            writer.offer(back)?;
            let mut wanted = vec![9; size / 2 + 1];
            assert_eq!(reader.read(&mut wanted)?, size);
            let length = wanted.len().min(size);
            assert!(wanted[..length] == pattern(2, size)[..length]);
            writer.take_back()?.expect("it was offered");
        }
        // The reader uses the buffer until it releases the message.
        writer.offer(me.allocate(1000)?)?;
        me.barrier()?;
        let message = reader.recv()?;
        assert!(writer.try_take_back()?.is_none());
        me.barrier()?;
        message.release();
        assert!(writer.take_back()?.is_some());
        me.barrier()?;
        // A full pipe gives a buffer back, and so does a pipe without a reader.
        for _ in 0..4 {
            writer.offer(me.allocate(1000)?)?;
        }
        let refused = writer.try_offer(me.allocate(321)?).unwrap_err();
        assert_eq!(refused.arguments.bytes(), 321);
        assert!(matches!(refused.error, PipeError::Pipe { cause: PipeCause::Full { .. }, .. }));
        me.barrier()?;
        drop(reader);
        for _ in 0..4 {
            assert_eq!(writer.take_back()?.expect("no reader has it").bytes(), 1000);
        }
        me.barrier()?;
        // The reader reads buffers that a writer has offered before it closed.
        drop(writer);
        let mut writer = me.pipe(to).number(1).writer()?;
        let mut reader = me.pipe(from).number(1).reader()?;
        let buffer = me.allocate(5000)?;
        buffer.write_at(0, &pattern(3, 5000))?;
        writer.offer(buffer)?;
        drop(writer);
        // No other allocation gets its memory meanwhile.
        let others: Vec<_> = (0..4).map(|_| me.allocate(5000)).collect::<Result<_>>()?;
        others.iter().for_each(|other| other.fill(0));
        me.barrier()?;
        assert!(*reader.recv()? == pattern(3, 5000));
        assert_eq!(cause(reader.recv()), PipeCause::Closed);
        me.barrier()?;
    }
    Ok(())
}

/// Values, including those on the heap, arrive one by one and in order. Values that do not fit come
/// back.
fn channels_carry_values(me: &Worker) -> Result<()> {
    type Value = (u64, Option<String>, Vec<u16>);
    let value = |number: u64| -> Value {
        (number, (!number.is_multiple_of(3)).then(|| "x".repeat(number as usize)), vec![7; number as usize % 5])
    };
    let mut sender = me.pipe(next(me)).width(3).message_bytes(200).sender::<Value>()?;
    let mut receiver = me.pipe(previous(me)).width(3).message_bytes(200).receiver::<Value>()?;
    let (mut sent, mut received) = (0, 0);
    while sent < 50 || received < 50 {
        if sent < 50 {
            match sender.try_send(value(sent)) {
                Ok(()) => sent += 1,
                Err(refused) => assert_eq!(refused.arguments, value(sent), "{}", refused.error),
            }
        }
        if received < 50
            && let Some(got) = receiver.try_recv()?
        {
            assert_eq!(got, value(received));
            received += 1;
        }
        me.progress()?;
    }
    let long = (1, Some("y".repeat(200)), Vec::new());
    let refused = sender.send(long.clone()).unwrap_err();
    assert!(refused.arguments == long && matches!(refused.error, PipeError::Job(Error::TooLarge { max: 200, .. })));
    sender.send(value(7))?;
    assert_eq!(receiver.recv()?, value(7));
    let channel = async {
        for number in 8..30 {
            sender.send_async(value(number)).await?;
            assert_eq!(receiver.recv_async().await?, value(number));
        }
        let refused = sender.send_async(long.clone()).await.unwrap_err();
        assert!(refused.arguments == long && matches!(refused.error, PipeError::Job(Error::TooLarge { max: 200, .. })));
        Ok::<_, Error>(())
    };
    me.block_on(channel)??;
    let last: Vec<Value> = (30..33).map(value).collect();
    last.iter().cloned().try_for_each(|value| sender.send(value).map_err(Error::from))?;
    drop(sender);
    assert_eq!(receiver.iter().collect::<Result<Vec<Value>, _>>()?, last);
    assert_eq!(cause(receiver.recv()), PipeCause::Closed);
    // An error is the last.
    let _silent = me.pipe(next(me)).number(1).sender::<Value>()?;
    let mut waiting = me.pipe(previous(me)).number(1).receiver::<Value>()?;
    let state = PerWorker::new(me, RefCell::new(()))?;
    let all: Vec<_> = state.with(me, |()| waiting.iter().take(5).collect());
    assert!(matches!(all[..], [Err(PipeError::Job(Error::Borrowed { .. }))]), "{all:?}");
    me.barrier()
}

/// A stream has no messages: reads may split it differently than writes.
fn streams_carry_bytes(me: &Worker) -> Result<()> {
    use std::io::{ErrorKind, Read, Write};
    let all = pattern(5, 10_000);
    let mut out = me.pipe(next(me)).width(200).message_bytes(64).byte_writer()?;
    let mut input = me.pipe(previous(me)).width(200).message_bytes(64).byte_reader()?;
    for piece in all.chunks(333) {
        out.write_all(piece).unwrap();
    }
    out.flush().unwrap();
    let mut got = vec![0; 9_000];
    for piece in got.chunks_mut(47) {
        input.read_exact(piece).unwrap();
    }
    write!(out, "the end").unwrap();
    drop(out);
    input.read_to_end(&mut got).unwrap();
    assert!(got[..10_000] == all && got[10_000..] == *b"the end");
    me.barrier()?;
    drop(input);
    // This stream has no reader any more.
    let mut out = me.pipe(next(me)).number(1).width(1).byte_writer()?;
    let input = me.pipe(previous(me)).number(1).width(1).byte_reader()?;
    out.write_all(b"unread").unwrap();
    out.flush().unwrap();
    me.barrier()?;
    drop(input);
    // A short stream that is never flushed.
    let mut short = me.pipe(next(me)).number(2).byte_writer()?;
    let mut input = me.pipe(previous(me)).number(2).byte_reader()?;
    write!(short, "short").unwrap();
    drop(short);
    got.clear();
    input.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"short");
    me.barrier()?;
    let broken = loop {
        if let Err(error) = out.write_all(b"x").and_then(|()| out.flush()) {
            break error;
        }
    };
    assert_eq!(broken.kind(), ErrorKind::BrokenPipe, "{broken}");
    let source = broken.get_ref().and_then(|source| source.downcast_ref::<PipeError>());
    assert!(matches!(source, Some(PipeError::Pipe { cause: PipeCause::Closed, .. })));
    me.barrier()
}

/// An end that closes learns of the fate of its messages. The other end sees it as a drop.
fn closing_says_what_became_of_it(me: &Worker) -> Result<()> {
    let (to, from) = (me.pipe(next(me)).message_bytes(LONGEST), me.pipe(previous(me)).message_bytes(LONGEST));
    // A pipe that was never used.
    assert_eq!(to.writer()?.close()?, Delivery::Taken);
    let mut reader = from.reader()?;
    assert_eq!(cause(reader.recv()), PipeCause::Closed);
    reader.close()?;
    me.barrier()?;
    // All messages are delivered and none is taken.
    let mut writer = to.writer()?;
    for number in 0..SIZES.len() as u64 {
        writer.write(&pattern(number, SIZES[number as usize]))?;
    }
    assert_eq!(writer.close()?, Delivery::Delivered { left: SIZES.len() as u64 });
    let mut reader = from.reader()?;
    me.barrier()?;
    for number in 0..SIZES.len() as u64 {
        assert_eq!(*reader.recv()?, pattern(number, SIZES[number as usize]));
    }
    assert_eq!(cause(reader.recv()), PipeCause::Closed);
    reader.close()?;
    me.barrier()?;
    // The message was taken.
    let (mut writer, mut reader) = (to.writer()?, from.reader()?);
    writer.write(b"heard")?;
    assert_eq!(*reader.recv()?, *b"heard");
    while writer.taken()? < 1 {
        me.progress()?;
    }
    assert_eq!(writer.close()?, Delivery::Taken);
    reader.close()?;
    me.barrier()?;
    // The reader closes and leaves some messages.
    let (mut writer, mut reader) = (to.writer()?, from.reader()?);
    writer.write(b"read")?;
    writer.write(b"unread")?;
    writer.write(&pattern(1, LONGEST))?;
    assert_eq!(*reader.recv()?, *b"read");
    // All messages have been written by now.
    me.barrier()?;
    reader.close()?;
    while writer.ready().is_ok() {
        me.progress()?;
    }
    let lost = cause(writer.close());
    assert!(matches!(lost, PipeCause::Undelivered { messages: 2, .. }), "{lost:?}");
    me.barrier()?;
    // Channels, and pipes with both directions.
    let mut sender = to.sender::<u32>()?;
    let mut receiver = from.receiver::<u32>()?;
    sender.send(7)?;
    // The receiver may have taken the value already.
    let _: Delivery = sender.close()?;
    assert_eq!(receiver.recv()?, 7);
    assert_eq!(cause(receiver.recv()), PipeCause::Closed);
    receiver.close()?;
    me.barrier()?;
    if me.process().number() < 2 {
        let threads = me.threads_per_process();
        let mut pipe = me.pipe(WorkerId::new((me.id().number() + threads) % (2 * threads))).number(1).duplex()?;
        pipe.writer.write(b"there")?;
        assert_eq!(*pipe.reader.recv()?, *b"there");
        let _: Delivery = pipe.close()?;
    }
    me.barrier()
}

/// A closed stream is flushed, or reports why not.
fn streams_are_closed(me: &Worker) -> Result<()> {
    use std::io::{ErrorKind, Read, Write};
    let (to, from) = (me.pipe(next(me)).message_bytes(64), me.pipe(previous(me)).message_bytes(64));
    let (mut out, mut input) = (to.byte_writer()?, from.byte_reader()?);
    out.write_all(&pattern(1, 100)).unwrap();
    out.close().unwrap();
    let mut got = Vec::new();
    input.read_to_end(&mut got).unwrap();
    assert_eq!(got, pattern(1, 100));
    input.close().unwrap();
    me.barrier()?;
    // The stream has no reader any more, so its bytes are lost, whether they were flushed or not.
    for gathers in [false, true] {
        let (mut out, input) = (to.byte_writer()?, from.byte_reader()?);
        out.write_all(b"unread").unwrap();
        out.flush().unwrap();
        me.barrier()?;
        input.close().unwrap();
        if gathers {
            out.write_all(b"unsent").unwrap();
        }
        me.barrier()?;
        // The news of the closed reader is a service message, and the barrier may overtake it. A
        // message on a new pipe needs later service messages of the same process, which do not
        // overtake it.
        let mut told = me.pipe(previous(me)).number(1).writer()?;
        told.write(b"closed")?;
        assert_eq!(*me.pipe(next(me)).number(1).reader()?.recv()?, *b"closed");
        let broken = out.close().expect_err("no reader has read it");
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe, "{broken}");
        me.barrier()?;
    }
    Ok(())
}

/// The duty to reply to a call can travel through a channel.
fn channels_carry_duties(me: &Worker) -> Result<()> {
    let duties = PerWorker::new(me, RefCell::new(Vec::<Reply<u64>>::new()))?;
    let mut sender = me.pipe(next(me)).sender::<Reply<u64>>()?;
    let mut receiver = me.pipe(previous(me)).receiver::<Reply<u64>>()?;
    let asked = me.call_with_reply(previous(me), duties, |there, duties, reply| {
        duties.here(there).borrow_mut().push(reply);
    })?;
    me.wait_while_serving(|| !duties.here(me).borrow().is_empty())?;
    let duty = duties.here(me).borrow_mut().remove(0);
    sender.send(duty)?;
    receiver.recv()?.send(42);
    assert_eq!(asked.wait()?, 42);
    me.barrier()
}

/// Counts its wake-ups.
#[derive(Default)]
struct Counted(AtomicU32);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Futures of both ends, polled by hand. A future is woken when there is something for it, and not
/// before.
fn futures_are_woken(me: &Worker) -> Result<()> {
    let mut writer = me.pipe(next(me)).width(1).message_bytes(8).writer()?;
    let mut reader = me.pipe(previous(me)).width(1).message_bytes(8).reader()?;
    let woken = Arc::new(Counted::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let count = || woken.0.load(Ordering::Relaxed);
    // A message comes.
    assert!(reader.poll_ready(&mut context).is_pending());
    for _ in 0..100 {
        me.progress()?;
    }
    assert_eq!(count(), 0);
    me.barrier()?;
    me.block_on(writer.write_async(b"1"))??;
    me.wait_while_serving(|| count() == 1)?;
    assert!(reader.poll_ready(&mut context).is_ready());
    // There is room again.
    assert!(writer.poll_ready(&mut context).is_pending());
    me.barrier()?;
    assert_eq!(*me.block_on(reader.recv_async())??, *b"1");
    me.wait_while_serving(|| count() == 2)?;
    assert!(writer.poll_ready(&mut context).is_ready());
    // Both ends in one future.
    me.block_on(async {
        for number in 0..20_u64 {
            writer.write_async(&number.to_le_bytes()).await?;
            assert_eq!(*reader.recv_async().await?, number.to_le_bytes());
            let mut loan = writer.loan_async(8).await?;
            loan.copy_from_slice(&number.to_le_bytes());
            loan.commit()?;
            assert_eq!(*reader.recv_async().await?, number.to_le_bytes());
            let buffer = me.allocate(100)?;
            buffer.write_at(0, &[number as u8; 100])?;
            writer.offer_async(buffer).await.map_err(|refused| refused.error)?;
            assert_eq!(*reader.recv_async().await?, [number as u8; 100]);
        }
        Ok::<_, Error>(())
    })??;
    // A forgotten future does not keep its waker.
    assert!(reader.poll_ready(&mut context).is_pending());
    let too_long = me.block_on(writer.write_async(&[0; 9]))?;
    assert!(matches!(too_long, Err(PipeError::Job(Error::TooLarge { .. }))));
    me.barrier()
}

/// Messages in both directions of one pipe.
fn both_directions_at_once(me: &Worker) -> Result<()> {
    // Other workers of a larger job have no partner.
    if me.process().number() < 2 {
        let threads = me.threads_per_process();
        let partner = WorkerId::new((me.id().number() + threads) % (2 * threads));
        let mut pipe = me.pipe(partner).number(9).width(4).duplex()?;
        for round in 0..50 {
            pipe.writer.write(&pattern(round, round as usize * 3))?;
            assert_eq!(*pipe.reader.recv()?, pattern(round, round as usize * 3));
        }
    }
    me.barrier()
}

/// Other processes have no more of a process's memory than the limit.
fn memory_for_pipes_has_a_limit(me: &Worker) -> Result<()> {
    let mut writer = me.pipe(next(me)).width(1 << 10).message_bytes(1 << 20).writer()?;
    let refused = cause(writer.write(b"x"));
    assert!(matches!(refused, PipeCause::Memory(farside::memory::MemoryRefusal::Limit { .. })), "{refused:?}");
    me.barrier()
}

everywhere! {
    as_processes(processes = 2, threads = 2),
    simulated(processes = 3, threads = 2, seeds = 6);
    messages_arrive_whole_and_in_order
    both_ends_wait
    a_short_buffer_gets_the_beginning
    a_full_pipe_says_so
    slots_belong_to_open_loans_and_messages
    pipes_of_a_pair_are_apart
    pipes_are_also_at_home
    the_other_end_is_told
    refusals_are_typed
    memory_for_pipes_has_a_limit
    offers_are_fetched
    channels_carry_values
    channels_carry_duties
    streams_carry_bytes
    streams_are_closed
    closing_says_what_became_of_it
    futures_are_woken
    both_directions_at_once
}

#[test]
fn messages_of_a_lost_writer_are_read_before_the_error() {
    for seed in spread(8) {
        let simulation = Simulation::new(2, 1, seed).kill(ProcessId::new(1), Duration::from_millis(1));
        let well = AtomicU32::new(0);
        let simulated = simulation.run(|me| {
            let other = me.neighbor(1);
            if me.id().number() == 1 {
                let mut writer = me.pipe(other).width(4).message_bytes(LONGEST).writer()?;
                let mut reader = me.pipe(other).reader()?;
                for number in 0.. {
                    writer.write(&pattern(number, SIZES[number as usize % SIZES.len()]))?;
                }
                return Ok(reader.recv().map(drop)?);
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
            assert!(
                matches!(lost, PipeError::Job(Error::PeerLost { process, .. }) if process.number() == 1),
                "{lost:?}"
            );
            assert!(reader.read_count() > 10);
            let lost = writer.write(b"x");
            assert!(matches!(lost, Err(PipeError::Job(Error::PeerLost { .. }))), "{lost:?}");
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let verdict = simulated.unwrap().verdict;
        assert!(
            matches!(verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process.number() == 1),
            "{verdict:?}"
        );
        assert_eq!(well.into_inner(), 1);
    }
}
