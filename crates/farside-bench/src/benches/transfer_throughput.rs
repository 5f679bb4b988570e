//! Puts between two processes: how many a second through the seam that every transport has, and how many of libfabric's alone.
//!
//! Each put has a buffer of its own, which comes back when it has ended, and so has each of libfabric's own. The puts carry
//! their numbers, and the last one's is looked for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside::{ProcessId, Worker, WorkerId};
use farside_fabric::ofi::{OfiConfig, OfiEndpoint};
use farside_fabric::{Completion, Event, FabricError, Operation, Outcome, RemoteKey, Transport};
use farside_sys::process::random_bytes;

use super::size_name;
use crate::case::Case;
use crate::limits::Yardstick;
use crate::limits::libfabric::{Libfabric, PutStream, Puts, exchange};
use crate::metric::Metric;
use crate::over_ofi::{OfiFabric, address};
use crate::shared::Patience;
use crate::{BenchError, Options};

const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Small puts under way at a time, and large ones: as many as fill libfabric's queues, and the caches with their buffers.
const SMALL_UNDER_WAY: usize = 64;
const LARGE_UNDER_WAY: usize = 8;
const LARGE_BYTES: usize = 256 << 10;
/// What a run moves, when nothing else is asked for.
const BYTES: u64 = 1 << 30;
const COUNT_MAX: u64 = 100_000;

/// How long the first contact may take.
const ATTACH_MAX: Duration = Duration::from_secs(20);

const NAME: &str = "libfabric puts";
const METRIC: &str = "msgs_per_s";

pub(crate) fn cases_over_ofi(fabric: &OfiFabric) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in SIZES {
        let of = fabric.clone();
        let body = move |me: &Worker, options: Options| raw(me, options, &of, bytes);
        cases.push(Case::job(format!("raw/{}", size_name(bytes)), 2, body).over(fabric));
        let of = fabric.clone();
        let body = move |me: &Worker, options: Options| put(me, options, &of, bytes);
        cases.push(Case::job(format!("put/{}", size_name(bytes)), 2, body).over(fabric));
    }
    cases
}

fn puts_of(bytes: usize, options: Options) -> Puts {
    let under_way = if bytes < LARGE_BYTES { SMALL_UNDER_WAY } else { LARGE_UNDER_WAY };
    Puts { bytes, under_way, count: options.operations_or((BYTES / bytes as u64).min(COUNT_MAX)) }
}

fn raw_stream(me: &Worker, fabric: &OfiFabric, puts: Puts) -> Result<PutStream, BenchError> {
    let libfabric = Libfabric::new(me, fabric, puts.area_bytes())?;
    Ok(PutStream { libfabric, puts, bytes_of_each: puts.bytes, name: NAME.into() })
}

/// libfabric's own puts.
fn raw(me: &Worker, options: Options, fabric: &OfiFabric, bytes: usize) -> Result<Vec<Metric>, BenchError> {
    let mut stream = raw_stream(me, fabric, puts_of(bytes, options))?;
    let leads = me.id() == WorkerId::new(0);
    let mut rates = Vec::new();
    for run in 0..=options.runs() {
        me.barrier()?;
        let rate = if leads { stream.lead()? } else { stream.follow().map(|()| 0.0)? };
        // The first run is for the connection to be made and the memory to be touched.
        if run > 0 {
            rates.push(rate);
        }
    }
    me.barrier()?;
    Ok(vec![Metric::new(METRIC, "1/s", rates)])
}

/// Puts through the seam, and libfabric's own in turns.
fn put(me: &Worker, options: Options, fabric: &OfiFabric, bytes: usize) -> Result<Vec<Metric>, BenchError> {
    let puts = puts_of(bytes, options);
    let mut limit = raw_stream(me, fabric, puts)?;
    let mut seam = Seam::new(me, fabric, puts)?;
    let leads = me.id() == WorkerId::new(0);
    let (mut rates, mut limits) = (Vec::new(), Vec::new());
    for run in 0..=options.runs() {
        me.barrier()?;
        let limit = if leads { limit.lead()? } else { limit.follow().map(|()| 0.0)? };
        me.barrier()?;
        let rate = if leads { seam.put()? } else { seam.attend().map(|()| 0.0)? };
        if run > 0 {
            limits.push(limit);
            rates.push(rate);
        }
    }
    me.barrier()?;
    Ok(vec![Metric::new(METRIC, "1/s", rates).against(limit.name(), limits)])
}

/// An end of Farside's transport over libfabric, apart from the job's own.
#[derive(Debug)]
struct Seam {
    end: Arc<OfiEndpoint>,
    peer: ProcessId,
    puts: Puts,
    patience: Patience,
    buffers: Vec<Vec<u8>>,
}

impl Seam {
    /// Joins two ends. Collective.
    fn new(me: &Worker, fabric: &OfiFabric, puts: Puts) -> Result<Self, BenchError> {
        let end = OfiEndpoint::open(OfiConfig {
            process: me.process(),
            process_count: me.process_count(),
            starter_bytes: puts.area_bytes(),
            provider: fabric.provider().map(str::to_owned),
            address: address(),
            device: None,
        })?;
        let cards = exchange(me, end.card().to_vec())?;
        let secret = random_bytes::<16>();
        let secret = secret.map_err(|cause| FabricError::System { doing: "getting random bytes", cause })?;
        let is_root = me.id() == WorkerId::new(0);
        let secret = me.broadcast(WorkerId::new(0), is_root.then_some(secret))?;
        end.introduce(&cards, &secret)?;
        let peer = me.process_of(me.neighbor(1));
        let buffers = vec![vec![1; puts.bytes]; puts.under_way];
        Ok(Self { end, peer, puts, patience: Patience::new(2), buffers })
    }

    /// Puts as fast as they go, and returns how many a second.
    fn put(&mut self) -> Result<f64, BenchError> {
        let Puts { count, under_way, bytes } = self.puts;
        let key = RemoteKey::starter(self.peer, (under_way * bytes) as u64);
        self.end.attach(key, Instant::now() + ATTACH_MAX)?;
        let mut posted: VecDeque<Completion> = VecDeque::with_capacity(under_way);
        let start = Instant::now();
        for at in 0..count {
            let mut data = match self.buffers.pop() {
                Some(data) => data,
                None => self.take_back(&mut posted)?,
            };
            data[..8].copy_from_slice(&at.to_le_bytes());
            let offset = self.puts.offset(at) as u64;
            posted.push_back(self.end.post(key, Operation::Put { offset, data })?);
        }
        while !posted.is_empty() {
            let data = self.take_back(&mut posted)?;
            self.buffers.push(data);
        }
        let elapsed = start.elapsed();
        self.end.send(self.peer, &count.to_le_bytes())?;
        Ok(count as f64 / elapsed.as_secs_f64())
    }

    /// Waits for the oldest put, and takes its buffer back.
    fn take_back(&self, posted: &mut VecDeque<Completion>) -> Result<Vec<u8>, BenchError> {
        let oldest = posted.pop_front().expect("every buffer is here or under way");
        let outcome = self.patience.wait_for(|| {
            let outcome = oldest.try_take();
            if outcome.is_none() {
                self.end.progress();
            }
            outcome
        })?;
        match outcome? {
            Outcome::Put(data) => Ok(data),
            Outcome::Got(_) | Outcome::Previous(_) => unreachable!("a put ends as a put"),
        }
    }

    /// The other side of [`put`](Self::put).
    fn attend(&self) -> Result<(), BenchError> {
        let event = self.patience.wait_for(|| {
            self.end.progress();
            self.end.receive()
        })?;
        let Event::Message { message, .. } = event else {
            return Err(FabricError::Disconnected { process: self.peer }.into());
        };
        debug_assert_eq!(message, self.puts.count.to_le_bytes());
        let last = self.puts.count - 1;
        let mut found = [0; 8];
        let own = self.end.starter();
        own.as_remote().get(self.puts.offset(last) as u64, &mut found, Instant::now())?;
        let found = u64::from_le_bytes(found);
        if found != last {
            return Err(BenchError::WrongSum { what: "the number in the last put", expected: last, found });
        }
        Ok(())
    }
}
