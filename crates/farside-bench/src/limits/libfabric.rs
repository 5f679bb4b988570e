//! libfabric alone, on the provider that a job uses: a message that goes to and fro, streams of puts, and puts and gets one by
//! one.

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

/// What goes to and fro.
const MESSAGE_BYTES: usize = 8;

/// A stream of puts: so many, each of so many bytes, with so many under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Puts {
    pub(crate) bytes: usize,
    pub(crate) under_way: usize,
    pub(crate) count: u64,
}

impl Puts {
    /// The memory that they go through: each that is under way has a place of its own.
    pub(crate) fn area_bytes(self) -> usize {
        self.bytes * self.under_way
    }

    /// The place of put number `at`.
    pub(crate) fn offset(self, at: u64) -> usize {
        (at % self.under_way as u64) as usize * self.bytes
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OneSided {
    Put,
    Get,
}

/// One end of libfabric, in a job of two workers.
#[derive(Debug)]
pub(crate) struct Libfabric {
    end: RawEnd,
    patience: Patience,
    /// Messages that were waited for so far.
    heard: u64,
}

impl Libfabric {
    /// Joins two ends, with so many bytes to put into. Collective.
    ///
    /// # Errors
    /// Those of the collectives, and of [`RawEnd::open`].
    pub(crate) fn new(me: &Worker, fabric: &OfiFabric, put_bytes: usize) -> Result<Self, BenchError> {
        let mut end = RawEnd::open(fabric.provider(), address().as_deref(), put_bytes)?;
        let cards = exchange(me, end.card()?)?;
        end.introduce(&cards[me.neighbor(1).index()])?;
        Ok(Self::of(end, Patience::new(2)))
    }

    fn of(end: RawEnd, patience: Patience) -> Self {
        Self { end, patience, heard: 0 }
    }

    /// Sends a message and waits for the answer, `trips` times. Returns what each trip takes.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`], and those of libfabric.
    pub(crate) fn ask(&mut self, trips: u64) -> Result<Vec<f64>, BenchError> {
        time_batches(trips, ALONE, || {
            self.send()?;
            self.hear()
        })
    }

    /// The other side of [`ask`](Self::ask).
    ///
    /// # Errors
    /// As there.
    pub(crate) fn answer(&mut self, trips: u64) -> Result<(), BenchError> {
        for _ in 0..trips {
            self.hear()?;
            self.send()?;
        }
        self.flush()
    }

    /// Puts as fast as they go, and returns how many a second.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`], and those of libfabric.
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

    /// Puts or gets so many bytes, `count` times, each when the one before has ended. Returns what each takes.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`], and those of libfabric.
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
    /// As there.
    pub(crate) fn attend(&mut self) -> Result<(), BenchError> {
        self.hear()
    }

    fn send(&mut self) -> Result<(), BenchError> {
        self.poll_until(|end| end.try_send(MESSAGE_BYTES))
    }

    fn hear(&mut self) -> Result<(), BenchError> {
        let heard = self.heard;
        self.heard += 1;
        self.poll_until(|end| Ok(end.received() > heard))
    }

    /// Waits until what was sent has left.
    fn flush(&mut self) -> Result<(), BenchError> {
        self.poll_until(|end| Ok(end.sends_under_way() == 0))
    }

    /// Polls until the condition holds, which is looked at first.
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

/// What each process has for the others, brought to all of them. Collective, with one worker a process.
///
/// # Errors
/// Those of the collectives.
pub(crate) fn exchange<T: Wire>(me: &Worker, own: T) -> Result<Vec<T>, BenchError> {
    let root = WorkerId::new(0);
    let all = me.gather(root, own)?;
    let all = me.broadcast(root, all)?;
    debug_assert_eq!(all.len(), me.process_count() as usize, "every process has one worker");
    Ok(all)
}

/// The two ways of a message there and back.
#[derive(Debug)]
pub(crate) struct RoundTrip {
    pub(crate) libfabric: Libfabric,
    pub(crate) trips: u64,
}

impl Yardstick for RoundTrip {
    fn name(&self) -> &str {
        "libfabric ping-pong x2"
    }

    fn lead(&mut self) -> Result<f64, BenchError> {
        Ok(median(&self.libfabric.ask(self.trips)?))
    }

    fn follow(&mut self) -> Result<(), BenchError> {
        self.libfabric.answer(self.trips)
    }
}

/// A stream of puts, as what it could carry of something else.
#[derive(Debug)]
pub(crate) struct PutStream {
    pub(crate) libfabric: Libfabric,
    pub(crate) puts: Puts,
    /// The bytes that one of the things carried takes.
    pub(crate) bytes_of_each: usize,
    pub(crate) name: String,
}

impl Yardstick for PutStream {
    fn name(&self) -> &str {
        &self.name
    }

    fn lead(&mut self) -> Result<f64, BenchError> {
        Ok(self.libfabric.put(self.puts)? * self.puts.bytes as f64 / self.bytes_of_each as f64)
    }

    fn follow(&mut self) -> Result<(), BenchError> {
        self.libfabric.attend()
    }
}
