//! The same operations over libfabric, compared with libfabric's own.

use std::time::Instant;

use farside::global::Symmetric;
use farside::{AccessBytes, MakeArrays, ProcessId, Worker, WorkerId};

use super::notified::Notified;
use super::transfers::{Transfer, TransferKind};
use super::{FEW_SIZES, METRIC, SIGNAL_SIZES, SIZES, bytes_per_s};
use crate::benches::pipe_latency::against_messages;
use crate::benches::size_name;
use crate::kit::*;
use crate::limits::libfabric::{Libfabric, OneSided};

/// Operations of one run by default, and the most bytes of them.
const COUNT_MAX: u64 = 5_000;
const COUNT_MIN: u64 = 30;
const BYTES: u64 = 1 << 29;
/// Size of a word, which is never seen in pieces: its owner carries the operation out. Libfabric's
/// own puts and gets do not promise that.
const WORD_BYTES: usize = 8;
/// Copies between two other processes are slower.
const COPIES_MAX: u64 = 1_000;
/// Workers of a process that put at the same time, and the bytes of their puts.
const THREADS: [u32; 2] = [2, 4];
const TOGETHER_BYTES: usize = 64;

pub(crate) fn cases(fabric: &OfiFabric) -> Vec<Case> {
    let mut cases = Vec::new();
    for way in [TransferKind::Put, TransferKind::Get, TransferKind::StartedPut, TransferKind::StartedGet] {
        for bytes in SIZES {
            let of = fabric.clone();
            let body = move |me: &Worker, options: Options| against_libfabric(me, &of, way, bytes, options);
            cases.push(Case::job(format!("{}/{}", way.name(), size_name(bytes)), 2, body));
        }
    }
    for bytes in FEW_SIZES {
        let name = format!("{}/{}", TransferKind::ThirdParty.name(), size_name(bytes));
        cases.push(Case::job(name, 3, move |me, options| third_party(me, bytes, options)));
    }
    cases.push(Case::job("fetch-add/8B", 2, fetch_add));
    for bytes in SIGNAL_SIZES {
        let of = fabric.clone();
        let body = move |me: &Worker, options: Options| notified(me, &of, bytes, options);
        cases.push(Case::job(format!("notified-put/{}", size_name(bytes)), 2, body));
    }
    for threads in THREADS {
        cases.push(Case::job(format!("threads/{threads}t"), 2, together).threads(threads));
    }
    cases.push(super::checked::case());
    cases
}

fn count(bytes: usize, options: Options) -> u64 {
    options.operations_or((BYTES / bytes as u64).clamp(COUNT_MIN, COUNT_MAX))
}

/// The workers of a job. Worker 0 measures while the others make progress.
pub(super) struct Participants<'w> {
    me: &'w Worker,
    /// A counter at each process of the rounds that it has attended.
    done: Symmetric<u64>,
    times: u64,
}

impl<'w> Participants<'w> {
    /// Creates the participants. Collective.
    pub(super) fn new(me: &'w Worker) -> Result<Self, BenchError> {
        Ok(Self { me, done: me.symmetric(1)?, times: 0 })
    }

    /// Returns what worker 0 measures while the others make progress; they return 0. Collective.
    pub(super) fn attended(&mut self, lead: impl FnOnce() -> Result<f64, BenchError>) -> Result<f64, BenchError> {
        let me = self.me;
        let word = |process| self.done.at(process).map(|values| values.start());
        self.times += 1;
        let times = self.times;
        me.barrier()?;
        if me.id() == WorkerId::new(0) {
            let found = lead()?;
            for process in (1..me.process_count()).map(ProcessId::new) {
                word(process)?.store(me, times)?;
            }
            return Ok(found);
        }
        let own = word(me.process())?;
        Patience::new(me.worker_count()).wait_for(|| match own.load(me) {
            Ok(found) if found >= times => Some(Ok(())),
            Ok(_) => me.progress().err().map(Err),
            Err(error) => Some(Err(error)),
        })??;
        Ok(0.0)
    }

    /// Measures several things in turns. Collective.
    pub(super) fn measure<const THINGS: usize>(
        mut self,
        options: Options,
        mut once: impl FnMut(&mut Self) -> Result<[f64; THINGS], BenchError>,
    ) -> Result<Taken, BenchError> {
        // The first turn makes the connections.
        let taken = in_turns(self.me, options, |_| once(&mut self))?;
        self.done.free(self.me)?;
        Ok(taken)
    }
}

/// Measures puts or gets, one at a time, compared with libfabric's; words also against its
/// messages. Collective.
fn against_libfabric(me: &Worker, fabric: &OfiFabric, way: TransferKind, bytes: usize, options: Options) -> Measured {
    let (one_sided, limit_name) = match way {
        TransferKind::Get | TransferKind::StartedGet => (OneSided::Get, "libfabric's gets"),
        TransferKind::Put | TransferKind::StartedPut | TransferKind::ThirdParty => (OneSided::Put, "libfabric's puts"),
    };
    let count = count(bytes, options);
    let mut libfabric = Libfabric::new(me, fabric, bytes)?;
    let values = me.symmetric::<u8>(bytes)?;
    let there = values.at(ProcessId::new(1))?.start().address();
    let mut transfer = Transfer { me, way, source: there, target: there, data: vec![1; bytes] };
    let taken = Participants::new(me)?.measure(options, |participants| {
        me.barrier()?;
        let leads = me.id() == WorkerId::new(0);
        let limit = match leads {
            true => median(&libfabric.one_by_one(one_sided, bytes, count)?),
            false => libfabric.attend().map(|()| 0.0)?,
        };
        let trip = match leads {
            _ if bytes > WORD_BYTES => 0.0,
            true => median(&libfabric.ask(count)?),
            false => libfabric.answer(count).map(|()| 0.0)?,
        };
        let ns = participants.attended(|| transfer.time(count))?;
        Ok([limit, trip, ns, bytes_per_s(bytes, ns)])
    })?;
    values.free(me)?;
    let word = column("word_ns", "ns", 2).against("libfabric's messages there and back", 1);
    let columns = [column(METRIC, "ns", 2).against(limit_name, 0), column("bytes_per_s", "B/s", 3)];
    Ok(taken.rows(columns.into_iter().chain((bytes <= WORD_BYTES).then_some(word))))
}

/// Measures a copy between two other processes. Collective.
fn third_party(me: &Worker, bytes: usize, options: Options) -> Measured {
    let values = me.symmetric::<u8>(bytes)?;
    let at = |process: u32| values.at(ProcessId::new(process)).map(|values| values.start().address());
    let mut transfer =
        Transfer { me, way: TransferKind::ThirdParty, source: at(1)?, target: at(2)?, data: vec![1; bytes] };
    let count = count(bytes, options).min(COPIES_MAX);
    let taken = Participants::new(me)?.measure(options, |participants| {
        let ns = participants.attended(|| transfer.time(count))?;
        Ok([ns, bytes_per_s(bytes, ns)])
    })?;
    values.free(me)?;
    Ok(taken.rows([column(METRIC, "ns", 0), column("bytes_per_s", "B/s", 1)]))
}

/// Measures puts that all workers of process 0 make at the same time, compared with the rate of one
/// worker alone. Collective.
fn together(me: &Worker, options: Options) -> Measured {
    let values = me.symmetric::<u8>(TOGETHER_BYTES * me.worker_count() as usize)?;
    let place = values.at(ProcessId::new(1))?.at(me.id().index() * TOGETHER_BYTES)?;
    let count = options.operations_or(COUNT_MAX);
    let of = |putters: u32| -> Result<f64, BenchError> {
        me.barrier()?;
        let begun = Instant::now();
        if me.id().number() < putters {
            for _ in 0..count {
                me.put_bytes(place.address(), &[7; TOGETHER_BYTES])?;
            }
        }
        me.barrier()?;
        Ok((u64::from(putters) * count) as f64 / begun.elapsed().as_secs_f64())
    };
    let putters = me.worker_count() / me.process_count();
    let taken = cold(options, |_| Ok([of(putters)?, of(1)?]))?;
    values.free(me)?;
    Ok(taken.rows([column("puts_per_s", "1/s", 0).against("one worker alone", 1)]))
}

/// Measures a fetch-and-add on a word of another process, which carries it out. Collective.
fn fetch_add(me: &Worker, options: Options) -> Measured {
    let values = me.symmetric::<u64>(1)?;
    let word = values.at(ProcessId::new(1))?.start();
    let count = count(size_of::<u64>(), options);
    let taken = Participants::new(me)?.measure(options, |participants| {
        let add = || word.fetch_add(me, 1).map(drop);
        Ok([participants.attended(|| Ok(median(&time_batches(count, ALONE, add)?)))?])
    })?;
    values.free(me)?;
    Ok(taken.rows([column(METRIC, "ns", 0)]))
}

/// Measures data with its signal, to and fro, compared with libfabric's messages. Collective.
fn notified(me: &Worker, fabric: &OfiFabric, bytes: usize, options: Options) -> Measured {
    let mut exchange = Notified::new(me, bytes)?;
    let measured = against_messages(me, fabric, &mut exchange, options.operations_or(COUNT_MAX), options)?;
    exchange.free()?;
    Ok(measured)
}
