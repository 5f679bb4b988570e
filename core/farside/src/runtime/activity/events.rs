//! The events of one thread: a ring of words with one writer and one reader.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_fabric::{ProcessId, WorkerId};

use super::{FunctionId, Timing, Whom};

/// The number of events that are kept.
const EVENTS_MAX: usize = 1 << 16;
/// The number of a call that cannot be paired.
pub(super) const UNPAIRED: u32 = 0;

/// Something that a worker did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The beginning, by the monotonic clock.
    pub at: Duration,
    /// The duration.
    pub time: Duration,
    /// The kind of event.
    pub kind: EventKind,
}

/// The kind of an event. Calls from one worker to another are numbered through from 1; those that
/// have no number cannot be paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The worker made a call.
    Sent {
        /// The receiver.
        to: WorkerId,
        /// The function.
        function: FunctionId,
        /// Where.
        place: u16,
        /// The number of the call.
        number: Option<u32>,
    },
    /// The last call to this worker was refused.
    Refused {
        /// The receiver.
        to: WorkerId,
        /// The number of the call.
        number: Option<u32>,
    },
    /// The worker ran a call.
    Ran {
        /// The sender.
        from: Whom,
        /// The function.
        function: FunctionId,
        /// The number of the call.
        number: Option<u32>,
    },
    /// The worker waited.
    Waited {
        /// The number of the [place](super::Activity::places).
        place: u16,
        /// The process or worker that is waited for.
        whom: Whom,
    },
    /// The worker took part in a collective.
    Collective {
        /// Where.
        place: u16,
    },
    /// The worker wrote memory: [`GlobalPtr::put`](crate::GlobalPtr::put) and its like. When it was
    /// issued, not how long it took.
    Put {
        /// Whose memory it was.
        to: ProcessId,
        /// The number of bytes.
        bytes: u64,
        /// Where.
        place: u16,
    },
    /// The worker wrote a message into a pipe.
    Message {
        /// The reader.
        to: WorkerId,
        /// The number of bytes.
        bytes: u64,
    },
}

/// The events of one worker: [`Activity::take_events`](super::Activity::take_events).
#[derive(Clone, Debug)]
pub struct Taken {
    /// The worker.
    pub worker: WorkerId,
    /// The events, in the order in which they ended.
    pub events: Vec<Event>,
    /// The number of events that were lost so far, because the ring was full.
    pub lost: u64,
}

/// An event as the worker writes it: four words.
///
/// | word | upper half | lower half |
/// |---|---|---|
/// | 0 | begin, in ticks | |
/// | 1 | kind in 8 bits, then the length in ticks | |
/// | 2 | the other worker or process | number of the call |
/// | 3 | place, entry | offset of the function |
///
/// Puts and messages have their bytes in place of entry and offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) other: u32,
    pub(super) number: u32,
    pub(super) place: u16,
    pub(super) function: FunctionId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Sent = 1,
    Refused = 2,
    Ran = 3,
    Waited = 4,
    Collective = 5,
    Put = 6,
    Message = 7,
}

const LENGTH_BITS: u32 = 56;

impl Record {
    /// A put or a message.
    pub(super) fn of_bytes(kind: Kind, now: u64, other: u32, bytes: u64, place: u16) -> Self {
        let function = FunctionId { entry: (bytes >> 32) as u16, offset: bytes as u32 };
        Self { kind, begin: now, end: now, other, number: UNPAIRED, place, function }
    }
}

/// A ring of events.
pub(super) struct Events {
    slots: Box<[[AtomicU64; 4]]>,
    /// The number of events written. Written by the worker.
    written: AtomicU64,
    /// The number of events taken. Written by the reader.
    taken: AtomicU64,
    /// The number of events that found no room. Written by the worker.
    lost: AtomicU64,
}

impl Events {
    pub(super) fn new() -> Self {
        let slot = || std::array::from_fn(|_| AtomicU64::new(0));
        let counter = || AtomicU64::new(0);
        Self { slots: (0..EVENTS_MAX).map(|_| slot()).collect(), written: counter(), taken: counter(), lost: counter() }
    }

    /// Adds an event. Called by one thread only.
    #[inline]
    pub(super) fn push(&self, record: Record) {
        let written = self.written.load(Ordering::Relaxed);
        // SYNC: pairs with the release in `take`: the reader has read the slot.
        if written - self.taken.load(Ordering::Acquire) >= EVENTS_MAX as u64 {
            self.lost.store(self.lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        }
        let Record { kind, begin, end, other, number, place, function } = record;
        let length = end.saturating_sub(begin).min((1 << LENGTH_BITS) - 1);
        let words = [
            begin,
            (kind as u64) << LENGTH_BITS | length,
            u64::from(other) << 32 | u64::from(number),
            u64::from(place) << 48 | u64::from(function.entry) << 32 | u64::from(function.offset),
        ];
        let slot = &self.slots[written as usize % EVENTS_MAX];
        slot.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        // SYNC: pairs with the acquire in `take`: the words are written.
        self.written.store(written + 1, Ordering::Release);
    }

    /// Takes events. Called by one thread at a time.
    pub(super) fn take(&self, worker: WorkerId, max: usize, timing: &Timing) -> Taken {
        let taken = self.taken.load(Ordering::Relaxed);
        // SYNC: pairs with the release in `push`.
        let end = self.written.load(Ordering::Acquire).min(taken.saturating_add(max as u64));
        let event = |number: u64| {
            let slot = &self.slots[number as usize % EVENTS_MAX];
            event(std::array::from_fn(|word| slot[word].load(Ordering::Relaxed)), timing)
        };
        let events = (taken..end).filter_map(event).collect();
        // SYNC: pairs with the acquire in `push`: the slots were read.
        self.taken.store(end, Ordering::Release);
        Taken { worker, events, lost: self.lost.load(Ordering::Relaxed) }
    }
}

fn event(words: [u64; 4], timing: &Timing) -> Option<Event> {
    let function = FunctionId { entry: (words[3] >> 32) as u16, offset: words[3] as u32 };
    let (place, other) = ((words[3] >> 48) as u16, (words[2] >> 32) as u32);
    let number = Some(words[2] as u32).filter(|number| *number != UNPAIRED);
    let (to, whom) = (WorkerId::new(other), Whom::of_number(other));
    let bytes = words[3] & (u64::MAX >> 16);
    let kind = match (words[1] >> LENGTH_BITS) as u8 {
        kind if kind == Kind::Sent as u8 => EventKind::Sent { to, function, place, number },
        kind if kind == Kind::Refused as u8 => EventKind::Refused { to, number },
        kind if kind == Kind::Ran as u8 => EventKind::Ran { from: whom, function, number },
        kind if kind == Kind::Waited as u8 => EventKind::Waited { place, whom },
        kind if kind == Kind::Collective as u8 => EventKind::Collective { place },
        kind if kind == Kind::Put as u8 => EventKind::Put { to: ProcessId::new(other), bytes, place },
        kind if kind == Kind::Message as u8 => EventKind::Message { to, bytes },
        _ => return None,
    };
    let length = words[1] & ((1 << LENGTH_BITS) - 1);
    Some(Event { at: timing.at(words[0]), time: timing.length(length), kind })
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { written, taken, lost, .. } = self;
        let mut events = f.debug_struct("Events");
        events.field("written", written).field("taken", taken).field("lost", lost).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u32) -> Record {
        let function = FunctionId { entry: 7, offset: 0xffff_fff0 };
        Record { kind: Kind::Sent, begin: 5, end: 9, other: 3, number, place: 11, function }
    }

    #[test]
    fn events_come_in_order_and_those_without_room_are_counted() {
        let timing = Timing { now: 100, time: Duration::from_nanos(1100), per_tick: 1.0 };
        let events = Events::new();
        let worker = WorkerId::new(2);
        let take = |max| events.take(worker, max, &timing);
        for round in 0..3_u32 {
            let first = 1 + round * (EVENTS_MAX as u32);
            (0..EVENTS_MAX as u32 + 5).for_each(|number| events.push(record(first + number)));
            let mut numbers = Vec::new();
            for max in [3, usize::MAX, usize::MAX] {
                let taken = take(max);
                assert_eq!((taken.worker, taken.lost), (worker, 5 * u64::from(round + 1)));
                for event in taken.events {
                    let EventKind::Sent { to, function, place, number: Some(number) } = event.kind else {
                        panic!("{event:?}")
                    };
                    assert_eq!((to.number(), place, function), (3, 11, record(1).function));
                    assert_eq!((event.at.as_nanos(), event.time.as_nanos()), (1005, 4));
                    numbers.push(number);
                }
            }
            assert!(numbers.into_iter().eq(first..first + EVENTS_MAX as u32));
        }
    }
}
