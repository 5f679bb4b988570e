//! libfabric alone, on the provider that a job uses: round trips of messages, streams of puts, and
//! single puts and gets.

use std::time::Instant;

use farside::{Wire, Worker, WorkerId};
use farside_fabric::FabricError;
use farside_fabric::ofi::raw::RawEnd;

use super::Yardstick;
use crate::BenchError;
use crate::fabric::{OfiFabric, address};
use crate::shared::Patience;
use crate::stats::median;
use crate::timing::{ALONE, time_batches};

/// Bytes of a message of a round trip.
const MESSAGE_BYTES: usize = 8;

/// A stream of puts: their number, their size, and the number under way at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Puts {
    pub(crate) bytes: usize,
    pub(crate) under_way: usize,
    pub(crate) count: u64,
}

impl Puts {
    /// Bytes of the memory for the puts under way. Each has a place of its own.
    pub(crate) fn area_bytes(self) -> usize {
        self.bytes * self.under_way
    }

    /// The offset of put number `at`.
    pub(crate) fn offset(self, at: u64) -> usize {
        (at % self.under_way as u64) as usize * self.bytes
    }
}

/// The direction of the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OneSided {
    Put,
    Get,
}

/// One end of libfabric in a job of two workers.
#[derive(Debug)]
pub(crate) struct Libfabric {
    end: RawEnd,
    patience: Patience,
    /// Number of messages waited for so far.
    heard: u64,
}

impl Libfabric {
    /// Connects two ends with `bytes` bytes to put into. Collective.
    ///
    /// # Errors
    /// The errors of collectives and of [`RawEnd::open`].
    pub(crate) fn new(me: &Worker, fabric: &OfiFabric, put_bytes: usize) -> Result<Self, BenchError> {
        let mut end = RawEnd::open(fabric.provider(), address().as_deref(), put_bytes)?;
        let cards = exchange(me, end.card()?)?;
        end.introduce(&cards[me.neighbor(1).index()])?;
        Ok(Self::of(end, Patience::new(2)))
    }

    fn of(end: RawEnd, patience: Patience) -> Self {
        Self { end, patience, heard: 0 }
    }

    /// Sends a message and waits for the answer, `trips` times. Returns the time of each trip.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`], and the errors of libfabric.
    pub(crate) fn ask(&mut self, trips: u64) -> Result<Vec<f64>, BenchError> {
        time_batches(trips, ALONE, || {
            self.send()?;
            self.hear()
        })
    }

    /// The other side of [`ask`](Self::ask).
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`], and the errors of libfabric.
    pub(crate) fn answer(&mut self, trips: u64) -> Result<(), BenchError> {
        for _ in 0..trips {
            self.hear()?;
            self.send()?;
        }
        self.flush()
    }

    /// Puts as fast as possible, and returns the rate per second.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`], and the errors of libfabric.
    pub(crate) fn put(&mut self, puts: Puts) -> Result<f64, BenchError> {
        let start = Instant::now();
        for at in 0..puts.count {
            self.poll_until(|end| {
                Ok(end.puts_under_way() < puts.under_way && end.try_put(puts.offset(at), puts.bytes)?)
            })?;
        }
        self.poll_until(|end| Ok(end.puts_under_way() == 0))?;
        let elapsed = start.elapsed();
        self.send()?;
        self.flush()?;
        Ok(puts.count as f64 / elapsed.as_secs_f64())
    }

    /// Puts or gets `bytes` bytes, `count` times, each after the one before has ended. Returns the
    /// time of each.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`], and the errors of libfabric.
    pub(crate) fn one_by_one(&mut self, way: OneSided, bytes: usize, count: u64) -> Result<Vec<f64>, BenchError> {
        let times = time_batches(count, ALONE, || match way {
            OneSided::Put => {
                self.poll_until(|end| end.try_put(0, bytes))?;
                self.poll_until(|end| Ok(end.puts_under_way() == 0))
            }
            OneSided::Get => {
                self.poll_until(|end| end.try_get(0, bytes))?;
                self.poll_until(|end| Ok(end.gets_under_way() == 0))
            }
        })?;
        self.send()?;
        self.flush()?;
        Ok(times)
    }

    /// The other side of [`put`](Self::put) and [`one_by_one`](Self::one_by_one).
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`], and the errors of libfabric.
    pub(crate) fn attend(&mut self) -> Result<(), BenchError> {
        self.hear()
    }

    /// Sends messages of `bytes` bytes as fast as possible. Returns the rate per second, until the
    /// other side has them all.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`], and the errors of libfabric.
    fn stream(&mut self, bytes: usize, count: u64) -> Result<f64, BenchError> {
        let start = Instant::now();
        for _ in 0..count {
            self.poll_until(|end| end.try_send(bytes))?;
        }
        self.flush()?;
        self.hear()?;
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }

    /// The other side of [`stream`](Self::stream).
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`], and the errors of libfabric.
    fn drain(&mut self, count: u64) -> Result<(), BenchError> {
        for _ in 0..count {
            self.hear()?;
        }
        self.send()?;
        self.flush()
    }

    fn send(&mut self) -> Result<(), BenchError> {
        self.poll_until(|end| end.try_send(MESSAGE_BYTES))
    }

    fn hear(&mut self) -> Result<(), BenchError> {
        let heard = self.heard;
        self.heard += 1;
        self.poll_until(|end| Ok(end.received() > heard))
    }

    /// Waits until the messages sent have left.
    fn flush(&mut self) -> Result<(), BenchError> {
        self.poll_until(|end| Ok(end.sends_under_way() == 0))
    }

    /// Polls until the condition holds; checks it first.
    #[inline(always)]
    fn poll_until(
        &mut self,
        mut condition: impl FnMut(&mut RawEnd) -> Result<bool, FabricError>,
    ) -> Result<(), BenchError> {
        let end = &mut self.end;
        self.patience.wait_for(|| match condition(end) {
            Ok(true) => Some(Ok(())),
            Ok(false) => end.poll().err().map(Err),
            Err(error) => Some(Err(error)),
        })??;
        Ok(())
    }
}

/// Gathers a value of each process in all processes. Collective, with one worker a process.
///
/// # Errors
/// The errors of collectives.
pub(crate) fn exchange<T: Wire + Clone>(me: &Worker, own: T) -> Result<Vec<T>, BenchError> {
    let root = WorkerId::new(0);
    let all = me.gather(root, own)?;
    let all = me.broadcast(root, all)?;
    debug_assert_eq!(all.len(), me.process_count() as usize, "every process has one worker");
    Ok(all)
}

/// Traffic of libfabric's own, as a limit.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) libfabric: Libfabric,
    pub(crate) kind: TrafficKind,
    /// The things that a message carries, or the share of a round trip that is the limit.
    pub(crate) factor: f64,
    pub(crate) name: String,
}

/// The kind of the traffic.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TrafficKind {
    /// Round trips, in nanoseconds.
    Trips(u64),
    /// A stream of messages of a size, by their number a second.
    Messages { bytes: usize, count: u64 },
    /// A stream of puts, by their number a second.
    Puts(Puts),
}

impl Traffic {
    /// Round trips of messages, of which this share is the limit.
    pub(crate) fn round_trips(libfabric: Libfabric, trips: u64, share: f64, name: &str) -> Self {
        Self { libfabric, kind: TrafficKind::Trips(trips), factor: share, name: name.into() }
    }
}

impl Yardstick for Traffic {
    fn name(&self) -> &str {
        &self.name
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        let measured = match self.kind {
            TrafficKind::Trips(trips) => median(&self.libfabric.ask(trips)?),
            TrafficKind::Messages { bytes, count } => self.libfabric.stream(bytes, count)?,
            TrafficKind::Puts(puts) => self.libfabric.put(puts)?,
        };
        Ok(self.factor * measured)
    }

    fn answer(&mut self) -> Result<(), BenchError> {
        match self.kind {
            TrafficKind::Trips(trips) => self.libfabric.answer(trips),
            TrafficKind::Messages { count, .. } => self.libfabric.drain(count),
            TrafficKind::Puts(_) => self.libfabric.attend(),
        }
    }
}
