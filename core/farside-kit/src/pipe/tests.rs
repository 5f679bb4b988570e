//! Tests of a faulty end of a pipe: the other end notices what it says and writes, does not believe
//! it, and does not panic.

use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside::Result;
use farside::kit::{Extent, Room as _, WorkerParts as _};
use farside_fabric::RemoteKey;

use super::meeting::{Meeting, Pipes};
use super::message::{PipeBody, PipeMessage};
use super::protocol::{Flag, Kind, Words};
use super::*;

const WRITER: WorkerId = WorkerId::new(0);
const READER: WorkerId = WorkerId::new(1);

/// Runs two workers: one writes `message`, the other has the reading end.
fn with_reader(message: &[u8], work: impl Fn(&Worker, Pipe<'_>) -> Result<()> + Send + Sync) {
    let body = |me: &Worker| -> Result<()> {
        if me.id() == WRITER {
            let mut writer = me.pipe(READER).width(4).message_bytes(8).writer()?;
            writer.write(message)?;
            me.barrier()?;
            return match writer.write(b"next") {
                // The reader may have closed by then.
                Err(PipeError::Pipe { cause: PipeCause::Closed, .. }) => Ok(()),
                written => Ok(written?),
            };
        }
        work(me, me.pipe(WRITER).width(4).message_bytes(8))
    };
    farside::simulate(2, 1, 1, body).unwrap();
}

#[test]
fn an_invalid_message_is_ignored() {
    with_reader(b"first", |me, pipe| {
        let mut reader = pipe.reader()?;
        // Messages of these pipes lie behind their flags only, so the bytes behind the first flag
        // are the second message.
        let behind = pipe.number(1).reader()?;
        let (first, second) = (&reader.inlet.piece, &behind.inlet.piece);
        assert_eq!((first.key, first.offset + first.bytes), (second.key, second.offset));
        assert_eq!(*reader.recv()?, *b"first");
        let wrong = [
            (Kind::Slot, 8, vec![0xff; 8]),
            (Kind::Slot, 0, Vec::new()),
            (Kind::Slot, 100, vec![0xff; 100]),
            (Kind::Inline, 57, vec![0xff; 57]),
            (Kind::Inline, 9, vec![0xff; 9]),
            (Kind::Inline, 3, vec![0xff; 4]),
            (Kind::Offered, u32::MAX, Vec::new()),
            (Kind::Offered, 100, vec![0xff; 57]),
        ];
        let session = reader.inlet.session().expect("its writer has come");
        for (kind, bytes, inside) in wrong {
            let body = PipeBody::Data { number: 1, kind: kind as u8, bytes, inside };
            let message = PipeMessage { name: reader.name(), session, body };
            Meeting(me.process_handle()).take_pipe_message(me.process_of(WRITER), message);
            assert!(reader.try_recv()?.is_none());
            assert_eq!(behind.inlet.slots.taken().load(Ordering::Relaxed), 0);
        }
        me.barrier()?;
        assert_eq!(*reader.recv()?, *b"next");
        Ok(())
    });
}

#[test]
fn a_message_that_becomes_shorter_is_an_error() {
    with_reader(b"12345678", |me, pipe| {
        let mut reader = pipe.byte_reader()?;
        let mut bytes = [0; 5];
        reader.read_exact(&mut bytes).expect("there are as many");
        let short = Flag { kind: Kind::Inline, bytes: 4 };
        reader.reader.inlet.slots.flag(0).store(short.word(0), Ordering::Relaxed);
        let refused = reader.read(&mut bytes).expect_err("five of four were read");
        let source = refused.get_ref().and_then(|source| source.downcast_ref::<PipeError>());
        assert!(matches!(source, Some(PipeError::Pipe { cause: PipeCause::Corrupt { .. }, .. })), "{refused}");
        me.barrier()
    });
}

/// A false offer costs the reader an error and no memory, whether the memory is missing or too
/// short.
#[test]
fn an_offer_of_missing_memory_allocates_nothing() {
    const BYTES: u64 = 1 << 29;
    for case in 0..3 {
        with_reader(b"first", |me, pipe| {
            let mut reader = pipe.reader()?;
            assert_eq!(*reader.recv()?, *b"first");
            let there = RemoteKey::starter(me.process_of(WRITER), me.process_handle().home().layout().bytes() as u64);
            let key = match case {
                0 => RemoteKey { bytes: 1 << 40, ..there },
                1 => RemoteKey { slot: 777, bytes: 1 << 40, ..there },
                _ => there,
            };
            let inside = farside::wire::encode(&Extent { key, offset: 64, bytes: BYTES }, Vec::new());
            let body = PipeBody::Data { number: 1, kind: Kind::Offered as u8, bytes: BYTES as u32, inside };
            let session = reader.inlet.session().expect("its writer has come");
            let message = PipeMessage { name: reader.name(), session, body };
            Meeting(me.process_handle()).take_pipe_message(me.process_of(WRITER), message);
            let refused = reader.try_recv().map(|message| message.map(Received::keep));
            assert!(
                matches!(refused, Err(PipeError::Job(Error::Fabric(_)) | PipeError::Pipe { .. })),
                "{case}: {refused:?}"
            );
            assert_eq!(reader.fetched.capacity(), 0);
            reader.read(&mut [0; 8]).expect_err("it is refused again");
            me.barrier()
        });
    }
}

/// A buffer for one huge message is not kept for short ones.
#[test]
fn memory_of_a_huge_offer_is_given_back() {
    const HUGE: usize = 8 << 20;
    let body = |me: &Worker| -> Result<()> {
        if me.id() == WRITER {
            let mut writer = me.pipe(READER).message_bytes(8).writer()?;
            for bytes in [HUGE, HUGE, 100, HUGE] {
                writer.offer(me.allocate(bytes)?).map_err(|refused| refused.error)?;
            }
            for _ in 0..40 {
                me.barrier()?;
                writer.write(b"short")?;
            }
            return me.barrier();
        }
        let mut reader = me.pipe(WRITER).message_bytes(8).reader()?;
        for (bytes, kept) in [(HUGE, HUGE), (HUGE, HUGE), (100, 100), (HUGE, HUGE)] {
            assert_eq!(reader.recv()?.len(), bytes);
            assert!((kept..=kept * 2).contains(&reader.fetched.capacity()), "{}", reader.fetched.capacity());
        }
        for _ in 0..40 {
            // By now the writer waits for this.
            let early = reader.recv_for(Duration::from_micros(1)).map(Received::keep);
            assert!(matches!(early, Err(PipeError::Job(Error::Deadline { .. }))), "{early:?}");
            me.barrier()?;
            assert_eq!(*reader.recv()?, *b"short");
        }
        assert_eq!(reader.fetched.capacity(), 0);
        me.barrier()
    };
    farside::simulate(2, 1, 1, body).unwrap();
}

/// A value that the transport refuses comes back, like one that finds no room.
#[test]
fn a_value_that_is_not_sent_is_given_back() {
    let body = |me: &Worker| -> Result<()> {
        let pipe = |peer| me.pipe(peer).message_bytes(1 << 20);
        if me.id() == READER {
            let mut receiver = pipe(WRITER).receiver::<(u64, Vec<u8>)>()?;
            assert_eq!(receiver.recv()?, (1, vec![7; 100_000]));
            return me.barrier();
        }
        let mut sender = pipe(READER).sender::<(u64, Vec<u8>)>()?;
        sender.writer.wait_ready(me.default_deadline())?;
        // Makes the value one message of the transport, which is too long.
        let frame_bytes_max = std::mem::replace(&mut sender.writer.frame_bytes_max, usize::MAX);
        let refused = sender.try_send((1, vec![7; 100_000])).expect_err("messages are not as long");
        assert!(matches!(refused.error, PipeError::Job(Error::Fabric(_))), "{:?}", refused.error);
        assert_eq!(sender.pipe().written(), 0);
        sender.writer.frame_bytes_max = frame_bytes_max;
        sender.send(refused.arguments).map_err(|refused| refused.error)?;
        me.barrier()
    };
    farside::simulate(2, 1, 1, body).unwrap();
}

/// A process that is already lost gets no pipe, because nothing would remove it from the books.
#[test]
fn a_lost_process_gets_no_pipe() {
    let simulation =
        farside::Simulation::new(2, 1, 1).kill(farside_fabric::ProcessId::new(0), Duration::from_millis(1));
    let is_well = std::sync::atomic::AtomicBool::new(false);
    let simulated = simulation.run(|me| {
        if me.id() == WRITER {
            return me.wait_while_serving(|| false);
        }
        me.wait_while_serving(|| !me.lost_processes().is_empty())?;
        let name = PipeName { writer: WRITER, reader: READER, number: 3 };
        let open = PipeMessage {
            name,
            session: 7,
            body: PipeBody::Open { terms: Terms::new(PipeShape::default(), "").unwrap() },
        };
        Meeting(me.process_handle()).take_pipe_message(me.process_of(WRITER), open.clone());
        assert_eq!(me.process_handle().room::<Pipes>().incoming(), 0);
        // Nor does it get an existing pipe.
        let mut reader = me.pipe(WRITER).number(3).reader()?;
        Meeting(me.process_handle()).take_pipe_message(me.process_of(WRITER), open);
        assert!(reader.inlet.session().is_none());
        assert!(matches!(reader.recv(), Err(PipeError::Job(Error::PeerLost { .. }))));
        is_well.store(true, Ordering::Relaxed);
        Ok(())
    });
    assert!(simulated.unwrap().verdict.is_err());
    assert!(is_well.into_inner());
}

/// Both ends name the types of both, whichever comes first.
#[test]
fn ends_that_differ_name_their_types() {
    fn differ<T>(opened: Result<T, PipeError>, types: &str) {
        let error = opened.err().expect("the ends differ").to_string();
        assert!(error.contains(&format!("16 of 4096 there, {types} there; open both")), "{error}");
    }
    farside::simulate(2, 1, 1, |me| {
        if me.id() == WRITER {
            let mut sender = me.pipe(READER).sender::<u64>()?;
            sender.send(1).map_err(|refused| refused.error)?;
            me.barrier()?;
            me.barrier()?;
            differ(me.pipe(READER).number(1).writer()?.write(b"x"), "bytes here, `alloc::string::String`");
        } else {
            me.barrier()?;
            differ(me.pipe(WRITER).receiver::<i64>(), "`i64` here, `u64`");
            let mut receiver = me.pipe(WRITER).number(1).receiver::<String>()?;
            me.barrier()?;
            differ(receiver.recv(), "`alloc::string::String` here, bytes");
        }
        me.barrier()
    })
    .unwrap();
}

/// The limit holds for other processes, however many pipes the process's own workers have opened.
#[test]
fn pipes_of_the_reader_do_not_count_against_writers() {
    let run = farside::Simulation::new(2, 1, 1).remote_memory_limit(64 << 10).run(|me| {
        let pipe = |peer, number| me.pipe(peer).number(number).width(1).message_bytes(40 << 10);
        if me.id() == WRITER {
            me.barrier()?;
            // The first is for an open pipe, the second for none, and there is no memory for a
            // third.
            let mut writers = (2..5).map(|number| pipe(READER, number).writer()).collect::<Result<Vec<_>, _>>()?;
            writers[0].write(b"open")?;
            writers[1].write(b"not yet open")?;
            let refused = writers[2].write(b"too much");
            assert!(matches!(refused, Err(PipeError::Pipe { cause: PipeCause::Memory(_), .. })), "{refused:?}");
            me.barrier()?;
            me.barrier()?;
            // The second is open now, so there is room.
            pipe(READER, 5).writer()?.write(b"now")?;
            return me.barrier();
        }
        let mut own = (0..3).map(|number| pipe(WRITER, number).reader()).collect::<Result<Vec<_>, _>>()?;
        me.barrier()?;
        assert_eq!(*own[2].recv()?, *b"open");
        me.barrier()?;
        let mut second = pipe(WRITER, 3).reader()?;
        assert_eq!(*second.recv()?, *b"not yet open");
        me.barrier()?;
        me.barrier()
    });
    run.unwrap().verdict.unwrap();
}

/// The reader's process says that it has no pipes.
#[test]
fn a_process_without_pipes_is_an_error() {
    farside::simulate(2, 1, 1, |me| {
        if me.id() == WRITER {
            let mut pipe = me.pipe(READER).writer()?;
            assert!(matches!(pipe.try_write(b"x"), Err(PipeError::Pipe { cause: PipeCause::Full { .. }, .. })));
            let process = me.process_handle();
            process.room::<Pipes>().find_absent(process, me.process_of(READER));
            let refused = pipe.write(b"x");
            assert!(matches!(refused, Err(PipeError::Pipe { cause: PipeCause::Absent { .. }, .. })), "{refused:?}");
        }
        me.barrier()
    })
    .unwrap();
}
