//! Pipes among many processes: each writes messages to others at random, through a pipe to each
//! (rmalloc and rpipe, slide 41).
//!
//! Case `8B/64/4p`: messages of 8 bytes, with room for 64 bytes of them in each pipe, among four
//! processes. With `unbounded` room a writer never waits for room. `ns` is the time until a process
//! has read all messages for it, divided by the number of messages that it wrote. It writes one
//! after the other, as many at a time as there is room for. With more processes than CPUs each has
//! only a share of a CPU. Open MPI has no equivalent.

pub(super) mod simulated;

use farside::Worker;
use farside_kit::pipe::{PipeReader, PipeWriter};
use farside_kit::prelude::*;

use super::size_name;
use crate::kit::*;

pub(crate) const ABOUT: &str = "messages at random through pipes from each to each (rmalloc and rpipe, slide 41)";

/// Messages of a process in one run by default.
const MESSAGES: u64 = 20_000;
/// The least number of messages through each pipe on average: more than the smaller rooms hold.
const OF_A_PIPE: u64 = 12;
const METRIC: &str = "ns";

/// The size of messages, the number of processes, and the room of each pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    bytes: usize,
    room: Room,
    processes: u32,
}

/// The room in a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// More room than is ever used: for as many messages as fit into 128 KiB, at most a thousand.
    Unbounded,
    Bytes(usize),
}

/// The sizes and rooms of the slide, in all combinations. A pipe has room for at least one message,
/// however long.
const SIZES: [usize; 4] = [8, 64, 1 << 10, 8 << 10];
const ROOMS: [Room; 3] = [Room::Unbounded, Room::Bytes(4096), Room::Bytes(64)];
const PROCESSES: [u32; 5] = [2, 4, 8, 16, 32];
const PROCESSES_OVER_OFI: [u32; 2] = [2, 4];

impl Load {
    /// Returns all loads, for each of these numbers of processes.
    fn all(processes: &[u32]) -> impl Iterator<Item = Self> {
        let loads = SIZES.into_iter().flat_map(|bytes| ROOMS.map(|room| (bytes, room)));
        let of_load =
            |(bytes, room)| processes.iter().map(move |processes| Self { bytes, room, processes: *processes });
        loads.flat_map(of_load)
    }

    fn case(self) -> String {
        let room = match self.room {
            Room::Unbounded => "unbounded".to_owned(),
            Room::Bytes(4096) => "4K".to_owned(),
            Room::Bytes(bytes) => bytes.to_string(),
        };
        format!("{}/{room}/{}p", size_name(self.bytes), self.processes)
    }

    /// Number of messages that each pipe has room for.
    fn width(self) -> usize {
        match self.room {
            Room::Unbounded => ((128 << 10) / self.bytes).min(1000),
            Room::Bytes(room) => (room / self.bytes).max(1),
        }
    }
}

pub(crate) fn cases() -> Vec<Case> {
    cases_of(&PROCESSES)
}

pub(crate) fn over_ofi() -> Vec<Case> {
    cases_of(&PROCESSES_OVER_OFI)
}

fn cases_of(processes: &[u32]) -> Vec<Case> {
    let case = |load: Load| Case::job(load.case(), load.processes, move |me, options| measure(me, load, options));
    Load::all(processes).map(case).collect()
}

fn measure(me: &Worker, load: Load, options: Options) -> Measured {
    let messages = messages(load.processes, MESSAGES, OF_A_PIPE, options);
    repeat(me, load, messages, options)
}

/// Number of messages of each process: its share of `all`, and at least `of_a_pipe` for each pipe.
fn messages(processes: u32, all: u64, of_a_pipe: u64, options: Options) -> u64 {
    let thorough = options.operations_or(all / u64::from(processes));
    if options.operations.is_some() { thorough } else { thorough.max(of_a_pipe * u64::from(processes - 1)) }
}

fn repeat(me: &Worker, load: Load, messages: u64, options: Options) -> Measured {
    let mut traffic = Traffic::new(me, load)?;
    // The first run makes the pipes.
    let taken = warmed(options, |run| Ok([traffic.exchange(messages, run)?]))?;
    Ok(taken.rows([column(METRIC, "ns", 0)]))
}

/// One of the processes that write to each other.
#[derive(Debug)]
struct Traffic<'w> {
    me: &'w Worker,
    /// The pipes by distance, from the next worker on.
    writers: Vec<PipeWriter<'w>>,
    readers: Vec<PipeReader<'w>>,
    data: Vec<u8>,
    /// Sum of the numbers received.
    sum: u64,
    received: u64,
    /// Number of other processes that have written all their messages.
    ended: u32,
}

impl<'w> Traffic<'w> {
    fn new(me: &'w Worker, load: Load) -> Result<Self, BenchError> {
        let pipe = |distance| me.pipe(me.neighbor(distance)).width(load.width()).message_bytes(load.bytes);
        let distances = || 1..me.worker_count();
        let readers = distances().map(|distance| pipe(distance).reader()).collect::<Result<_, _>>()?;
        let writers = distances().map(|distance| pipe(distance).writer()).collect::<Result<_, _>>()?;
        Ok(Self { me, writers, readers, data: vec![0; load.bytes], sum: 0, received: 0, ended: 0 })
    }

    /// Writes `messages` messages, and reads all messages from others. Returns the nanoseconds of
    /// one message. Collective.
    fn exchange(&mut self, messages: u64, seed: u64) -> Result<f64, BenchError> {
        let me = self.me;
        let count = u64::from(me.worker_count());
        (self.sum, self.received, self.ended) = (0, 0, 0);
        let mut random = Splitmix::new(seed * count + u64::from(me.id().number()) + 1);
        let mut sent_sum = 0_u64;
        me.barrier()?;
        let start = me.now();
        for _ in 0..messages {
            let number = random.next();
            sent_sum = sent_sum.wrapping_add(number);
            self.data[..8].copy_from_slice(&number.to_le_bytes());
            self.write((number % (count - 1)) as usize, false)?;
            self.read_all()?;
        }
        // A worker in a collective reads no pipe, and others may wait for room in one. So each
        // worker first reads all its messages.
        (0..self.writers.len()).try_for_each(|to| self.write(to, true))?;
        let others = me.worker_count() - 1;
        self.read_until(|traffic| Ok(traffic.ended == others))?;
        let taken = me.now() - start;
        let received = me.all_reduce(self.received, |a, b| a + b)?;
        if received != messages * count {
            let what = "the number of messages of all pipes";
            return Err(BenchError::WrongSum { what, expected: messages * count, found: received });
        }
        let [expected, found] =
            me.all_reduce([sent_sum, self.sum], |a, b| [0, 1].map(|at: usize| a[at].wrapping_add(b[at])))?;
        if expected != found {
            return Err(BenchError::WrongSum { what: "the messages of all pipes", expected, found });
        }
        let own = taken.as_nanos() as f64 / messages as f64;
        Ok(me.all_reduce(own, |a, b| a + b)? / count as f64)
    }

    /// Writes a message; an empty one marks the end.
    fn write(&mut self, to: usize, ends: bool) -> Result<(), BenchError> {
        if !self.writers[to].ready()? {
            // A worker that waits for room must read, because its reader may be waiting for room,
            // too.
            self.read_until(|traffic| Ok(traffic.writers[to].ready()?))?;
        }
        let length = if ends { 0 } else { self.data.len() };
        Ok(self.writers[to].try_write(&self.data[..length])?)
    }

    /// Reads messages until the condition holds.
    fn read_until(
        &mut self,
        mut condition: impl FnMut(&mut Self) -> Result<bool, BenchError>,
    ) -> Result<(), BenchError> {
        let mut outcome = Ok(());
        self.me.wait_while_serving(|| match self.read_all().and_then(|()| condition(self)) {
            Ok(holds) => holds,
            Err(error) => {
                outcome = Err(error);
                true
            }
        })?;
        outcome
    }

    fn read_all(&mut self) -> Result<(), BenchError> {
        for reader in &mut self.readers {
            while let Some(message) = reader.try_recv()? {
                match message.first_chunk() {
                    Some(number) => {
                        self.sum = self.sum.wrapping_add(u64::from_le_bytes(*number));
                        self.received += 1;
                    }
                    None => self.ended += 1,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_as_the_slide_has_it() {
        let load = |bytes, room| Load { bytes, room, processes: 2 };
        let widths = SIZES.map(|bytes| ROOMS.map(|room| load(bytes, room).width()));
        assert_eq!(widths, [[1000, 512, 8], [1000, 64, 1], [128, 4, 1], [16, 1, 1]]);
        assert_eq!(Load::all(&PROCESSES).count(), SIZES.len() * ROOMS.len() * PROCESSES.len());
        assert_eq!(load(8, Room::Bytes(4096)).case(), "8B/4K/2p");
        assert_eq!(load(8 << 10, Room::Unbounded).case(), "8KiB/unbounded/2p");
    }

    #[test]
    fn small_rooms_are_filled() {
        let options = Options::new().quick(true);
        assert_eq!(messages(2, MESSAGES, OF_A_PIPE, options), 1000);
        assert_eq!(messages(32, MESSAGES, OF_A_PIPE, options), 31 * OF_A_PIPE);
        assert_eq!(messages(32, MESSAGES, OF_A_PIPE, options.operations(Some(7))), 7);
    }

    #[test]
    fn all_messages_arrive() {
        for (bytes, room) in [(8, Room::Bytes(8)), (64, Room::Bytes(64)), (1 << 10, Room::Unbounded)] {
            let load = Load { bytes, room, processes: 3 };
            // More messages than there is room for, so that some writers wait for readers that have
            // finished writing.
            let options = Options::new().quick(true).operations(Some(200));
            let result = farside::simulate(load.processes, 1, 1, |me| Ok(measure(me, load, options).map(drop)?));
            result.unwrap_or_else(|error| panic!("{load:?}: {error}"));
        }
    }
}
