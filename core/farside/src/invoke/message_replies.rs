//! Answers that arrive in messages, and the caller's books by which each message is checked.
//!
//! An answer is a *message reply* if its caller had no free slot, if it is longer than its slot's
//! room, or if the caller's memory is not mapped at the callee. The thread that takes in events
//! collects its pieces in ordinary memory; the caller takes it from there. An answer to a caller of
//! the same process is one piece, which its sender puts there.
//!
//! A message reply takes as much memory as has arrived of it, and goes when its call is taken or
//! given up. A callee waits while more than
//! [`UNSENT_BYTES_MAX`](crate::runtime::outgoing::UNSENT_BYTES_MAX) bytes for one caller are
//! unsent. So memory grows only with results that have arrived and were not taken.
//!
//! No message leads to a write into the starter memory, except to the state of a slot that waits
//! for it, to a doorbell and to arrival bits.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farside_fabric::{ProcessId, WorkerId};

use super::reply::{AnswerPiece, Holder, Mark, ReplyName, SlotState, Status, claim, finish, set_holder};
use super::reply_slots::SlotHandle;
use crate::runtime::process::{Process, lock};

/// The first number of a call without a slot.
const NUMBER_MIN: u32 = 1 << 31;

/// The message replies to one worker, or to all non-worker threads of one process.
#[derive(Debug)]
pub(crate) struct MessageReplies {
    /// For each slot in the starter memory its generation, and the worker that was called. Written
    /// by the owner of the slots, read by threads that take in messages. Other processes cannot
    /// reach them, unlike the slots.
    books: Arc<[AtomicU64]>,
    arrivals: Mutex<Arrivals>,
}

#[derive(Debug, Default)]
struct Arrivals {
    /// Every call without a slot, and every call with a slot whose answer has begun to arrive.
    message_replies: HashMap<SlotHandle, MessageReply>,
    /// The number of calls without a slot so far.
    calls: u64,
    /// Watched message replies of which there is news.
    news: Vec<SlotHandle>,
    /// For each slot of whose `Reply` a mark has come: the generation and the mark's number.
    marked: HashMap<u32, (u32, u32)>,
}

/// An answer that arrives in messages.
#[derive(Debug)]
struct MessageReply {
    /// The worker that was called.
    on: WorkerId,
    holder: Holder,
    /// The number of the last mark, for a call without a slot.
    marked: u32,
    /// The sender of the first piece. Only it may send the others.
    from: Option<ProcessId>,
    /// [`Status::Waiting`] until the answer is complete.
    status: Status,
    total: u64,
    bytes: Vec<u8>,
    /// True if the caller wants news of it.
    is_watched: bool,
}

impl MessageReply {
    fn to_call_of(on: WorkerId) -> Self {
        let (holder, from, status) = (Holder::Called, None, Status::Waiting);
        Self { on, holder, marked: 0, from, status, total: 0, bytes: Vec::new(), is_watched: false }
    }
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The call was given up, or has its answer. Late messages are no fault of their senders.
    Late,
    /// The sender cannot owe the answer.
    Sender,
    /// The piece does not continue what has arrived.
    Piece,
}

impl MessageReplies {
    pub(crate) fn new(slots: usize) -> Self {
        Self { books: (0..slots).map(|_| AtomicU64::new(0)).collect(), arrivals: Mutex::default() }
    }

    /// The books of the slots; see [`book`].
    pub(crate) fn books(&self) -> Arc<[AtomicU64]> {
        self.books.clone()
    }

    /// Registers a call without a slot.
    pub(crate) fn expect(&self, on: WorkerId) -> SlotHandle {
        let mut arrivals = lock(&self.arrivals);
        let number = arrivals.calls;
        arrivals.calls += 1;
        let index = NUMBER_MIN | number as u32;
        let handle = SlotHandle { index, generation: (number >> NUMBER_MIN.trailing_zeros()) as u32 };
        arrivals.message_replies.insert(handle, MessageReply::to_call_of(on));
        handle
    }

    /// The worker called by a call without a slot, and the process that owes the answer. `None` if
    /// the answer is complete, or is not expected.
    pub(crate) fn awaited(&self, handle: SlotHandle) -> Option<(WorkerId, Holder)> {
        let arrivals = lock(&self.arrivals);
        let reply = arrivals.message_replies.get(&handle).filter(|reply| reply.status == Status::Waiting)?;
        Some((reply.on, reply.holder))
    }

    /// Removes a message reply. Returns the worker that was called, the status, and what has
    /// arrived of the result. Pieces that still come are discarded.
    pub(crate) fn take(&self, handle: SlotHandle) -> Option<(WorkerId, Status, Vec<u8>)> {
        let mut arrivals = lock(&self.arrivals);
        let reply = arrivals.message_replies.remove(&handle)?;
        if reply.is_watched {
            arrivals.news.push(handle);
        }
        Some((reply.on, reply.status, reply.bytes))
    }

    /// Makes [`take_news`](Self::take_news) return this message reply now, and again whenever
    /// something about it changes.
    pub(crate) fn watch(&self, handle: SlotHandle) {
        let mut arrivals = lock(&self.arrivals);
        arrivals.news.push(handle);
        if let Some(reply) = arrivals.message_replies.get_mut(&handle) {
            reply.is_watched = true;
        }
    }

    /// Returns whether there is news of a watched message reply.
    pub(crate) fn has_news(&self) -> bool {
        !lock(&self.arrivals).news.is_empty()
    }

    /// The watched message replies of which there is news.
    pub(crate) fn take_news(&self) -> Vec<SlotHandle> {
        std::mem::take(&mut lock(&self.arrivals).news)
    }

    /// Adds a piece of an answer. `state` is that of the call's slot, if it has one: the first
    /// piece claims the slot, and the last marks it. Returns whether the answer is complete.
    fn add(
        &self,
        process: &Process,
        from: ProcessId,
        name: ReplyName,
        piece: AnswerPiece,
        state: Option<&AtomicU64>,
    ) -> Result<bool, Fault> {
        let AnswerPiece { status, total, offset, bytes } = piece;
        let status = Status::of_answer(status).ok_or(Fault::Piece)?;
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= total).ok_or(Fault::Piece)?;
        let mut arrivals = lock(&self.arrivals);
        let Arrivals { message_replies, news, .. } = &mut *arrivals;
        let handle = name.handle();
        let reply = match (message_replies.entry(handle), state) {
            (Entry::Occupied(reply), _) => reply.into_mut(),
            (Entry::Vacant(_), None) => return Err(Fault::Late),
            (Entry::Vacant(unknown), Some(state)) => {
                let on = self.called(name)?;
                check_sender(process, from, on)?;
                if offset != 0 {
                    return Err(Fault::Late);
                }
                // Who answers is the holder, even if a mark of it is still on its way.
                set_holder(state, name.generation, Holder::Process(from));
                if !claim(state, name.generation) {
                    return Err(Fault::Late);
                }
                unknown.insert(MessageReply::to_call_of(on))
            }
        };
        check_sender(process, from, reply.on)?;
        let begun = reply.from.map(|first| (first, reply.total));
        match begun {
            _ if reply.status != Status::Waiting => return Err(Fault::Late),
            Some((first, _)) if first != from => return Err(Fault::Sender),
            Some((_, before)) if before != total => return Err(Fault::Piece),
            _ if offset != reply.bytes.len() as u64 => return Err(Fault::Piece),
            _ => (reply.from, reply.total, reply.holder) = (Some(from), total, Holder::Process(from)),
        }
        match reply.bytes.is_empty() {
            true => reply.bytes = bytes,
            false => reply.bytes.extend_from_slice(&bytes),
        }
        if end < total {
            return Ok(false);
        }
        reply.status = status;
        if reply.is_watched {
            news.push(handle);
        }
        if let Some(state) = state {
            finish(state, SlotState::new(name.generation, Status::MessageReply));
        }
        Ok(true)
    }

    /// Notes that `from` has sent or received the `Reply` of a call. Messages of two processes may
    /// overtake each other: a mark behind a later one changes nothing.
    fn mark(
        &self,
        process: &Process,
        from: ProcessId,
        name: ReplyName,
        number: u32,
        mark: Mark,
        state: Option<&AtomicU64>,
    ) -> Result<(), Fault> {
        let mut arrivals = lock(&self.arrivals);
        let Arrivals { message_replies, news, marked, .. } = &mut *arrivals;
        let handle = name.handle();
        if let Some(state) = state {
            check_sender(process, from, self.called(name)?)?;
            let (generation, last) = marked.entry(name.slot).or_default();
            if *generation != name.generation {
                (*generation, *last) = (name.generation, 0);
            }
            if *last < number {
                *last = number;
                set_holder(state, name.generation, mark.holder(from));
            }
            return Ok(());
        }
        let reply = message_replies.get_mut(&handle).ok_or(Fault::Late)?;
        check_sender(process, from, reply.on)?;
        // Marks that come behind a piece of the answer are old, too.
        if reply.from.is_none() && reply.marked < number {
            (reply.marked, reply.holder) = (number, mark.holder(from));
        }
        if reply.is_watched {
            news.push(handle);
        }
        Ok(())
    }

    /// Returns the worker called by the call of a slot.
    fn called(&self, name: ReplyName) -> Result<WorkerId, Fault> {
        let book = self.books.get(name.slot as usize).ok_or(Fault::Late)?;
        let (generation, on) = read_book(book);
        if generation == name.generation { Ok(on) } else { Err(Fault::Late) }
    }
}

/// The entry of a slot in its owner's books.
pub(crate) fn book(generation: u32, on: WorkerId) -> u64 {
    u64::from(generation) << 32 | u64::from(on.number())
}

/// The generation of a slot, and the worker that was called.
#[inline]
pub(crate) fn read_book(book: &AtomicU64) -> (u32, WorkerId) {
    // Relaxed: the sender of a message about a call has read the call's record, which was published
    // after the entry.
    let entry = book.load(Ordering::Relaxed);
    ((entry >> 32) as u32, WorkerId::new(entry as u32))
}

/// Refuses an answer to a call of `on` by `from`, unless that is the process of `on` or may have
/// got the `Reply` from there. A `Reply` travels only among processes of one binary.
fn check_sender(process: &Process, from: ProcessId, on: WorkerId) -> Result<(), Fault> {
    match process.job.place_of(on) {
        Some((called, _)) if called == from || process.job.is_alike(called) && process.job.is_alike(from) => Ok(()),
        _ => Err(Fault::Sender),
    }
}

/// Returns the message replies under the name of a call of this process, and the index of their
/// owner.
fn message_replies_of(process: &Process, name: ReplyName) -> Option<(&MessageReplies, usize)> {
    let (of, local) = process.shape().answer_place(name.worker)?;
    (of == process.id()).then(|| (&*process.calls.message_replies[local], local))
}

/// Takes a piece of an answer to a call of this process. Pieces come in order.
pub(crate) fn take_piece(process: &Process, from: ProcessId, name: ReplyName, piece: AnswerPiece) {
    let Some((message_replies, local)) = message_replies_of(process, name) else { return };
    match message_replies.add(process, from, name, piece, state_of(process, message_replies, local, name)) {
        Ok(true) => process.home().doorbell(local).ring_if_asleep(),
        Ok(false) => {}
        Err(fault) => report(from, name, fault),
    }
}

/// Notes that `from` has sent or received the `Reply` of a call of this process.
pub(crate) fn take_mark(process: &Process, from: ProcessId, name: ReplyName, number: u32, mark: Mark) {
    let Some((message_replies, local)) = message_replies_of(process, name) else { return };
    match message_replies.mark(process, from, name, number, mark, state_of(process, message_replies, local, name)) {
        // The new holder may be lost already.
        Ok(()) => process.home().doorbell(local).ring_if_asleep(),
        Err(fault) => report(from, name, fault),
    }
}

/// Returns the state of a call's slot; `None` if it has none.
fn state_of<'p>(
    process: &'p Process,
    message_replies: &MessageReplies,
    local: usize,
    name: ReplyName,
) -> Option<&'p AtomicU64> {
    let slot = name.slot as usize;
    (slot < message_replies.books.len()).then(|| process.home().reply_state(local, slot))
}

fn report(from: ProcessId, name: ReplyName, fault: Fault) {
    if fault != Fault::Late {
        tracing::warn!(process = from.number(), ?name, ?fault, "reply: a message was refused");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    use super::*;
    use crate::invoke::message::CallMessage;
    use crate::invoke::reply_slots::ReplyOutcome;
    use crate::job::simulate::share_memory_among;
    use crate::runtime::worker::Worker;

    /// The number of calls in each case. In each case, 256 of them have slots.
    const CALLS: usize = 260;
    /// The calls that messages name: with slots, and without.
    const NAMED: [usize; 6] = [0, 1, 2, 257, 258, 259];

    /// A message of process `from` about a call.
    #[derive(Clone, Debug)]
    struct Sent {
        from: u32,
        call: usize,
        /// Added to the call's generation.
        stale: u32,
        content: Content,
    }

    #[derive(Clone, Debug)]
    enum Content {
        /// With `None` as the offset, the piece continues what has arrived.
        Piece {
            status: u8,
            total: u64,
            offset: Option<u64>,
            bytes: Vec<u8>,
        },
        Mark(u32, Mark),
    }

    fn sent() -> impl Strategy<Value = Sent> {
        let total = prop_oneof![6 => Just(40_u64), 1 => 0_u64..100, 1 => any::<u64>()];
        let offset = prop_oneof![6 => Just(None), 1 => (0_u64..50).prop_map(Some), 1 => any::<u64>().prop_map(Some)];
        let bytes = prop::collection::vec(any::<u8>(), 0..=20);
        let piece = (0_u8..10, total, offset, bytes).prop_map(|(status, total, offset, bytes)| Content::Piece {
            status,
            total,
            offset,
            bytes,
        });
        let mark = prop_oneof![Just(Mark::Received), (0_u32..5).prop_map(|losses| Mark::Sent { losses })];
        let marked = (0_u32..9, mark).prop_map(|(number, mark)| Content::Mark(number, mark));
        let content = prop_oneof![6 => piece, 3 => marked];
        let stale = prop_oneof![9 => Just(0), 1 => 1_u32..3];
        (1_u32..=3, prop::sample::select(&NAMED[..]), stale, content).prop_map(|(from, call, stale, content)| Sent {
            from,
            call,
            stale,
            content,
        })
    }

    /// The expected state of a call, from the messages alone.
    #[derive(Debug)]
    struct Expected {
        holder: Holder,
        /// The largest number of a mark so far.
        marked: u32,
        from: Option<u32>,
        total: u64,
        bytes: Vec<u8>,
        status: Status,
    }

    impl Expected {
        /// Takes the message into account. Workers and processes have the same numbers here, and
        /// process 2 runs another binary.
        fn take(&mut self, on: u32, sent: &Sent, offset: u64) {
            let from = sent.from;
            if sent.stale > 0 || self.status != Status::Waiting || (from != on && (from == 2 || on == 2)) {
                return;
            }
            match &sent.content {
                Content::Mark(number, mark) => {
                    if self.from.is_none() && *number > self.marked {
                        (self.marked, self.holder) = (*number, mark.holder(ProcessId::new(from)));
                    }
                }
                Content::Piece { status, total, bytes, .. } => {
                    let Some(status) = Status::of_answer(*status) else { return };
                    let fits = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= *total);
                    let is_next = offset == self.bytes.len() as u64;
                    let continues = self.from.is_none_or(|first| first == from && self.total == *total);
                    if fits && is_next && continues {
                        (self.from, self.total) = (Some(from), *total);
                        self.holder = Holder::Process(ProcessId::new(from));
                        self.bytes.extend_from_slice(bytes);
                        if self.bytes.len() as u64 == *total {
                            self.status = status;
                        }
                    }
                }
            }
        }
    }

    /// Everything in the starter memory that no message may change: all but doorbells, arrival
    /// bits, and the states of worker 0's slots that messages name.
    fn untouchable(process: &Process, is_named: impl Fn(usize) -> bool) -> Vec<u8> {
        let (home, layout) = (process.home(), process.home().layout());
        let mut ranges = vec![(layout.latches(), layout.bytes())];
        for local in 0..=process.shape().callers() {
            let space = layout.reply_space(local);
            ranges.push((space, space + layout.reply_space_bytes(local)));
            for slot in 0..layout.reply_slots(local) {
                let state = layout.reply_slot(local, slot);
                let state_bytes = if local == 0 && is_named(slot) { 8 } else { 0 };
                ranges.push((state + state_bytes, layout.reply_slot(local, slot + 1)));
            }
        }
        let mut found = Vec::new();
        for (begin, end) in ranges {
            let start = found.len();
            found.resize(start + end - begin, 0);
            let place = home.range(begin, end - begin).unwrap();
            // SAFETY: `range` found the bytes in the mapping of the starter memory; `found` has as
            // many from `start` on.
            unsafe { farside_sys::racy::copy_in(place, found[start..].as_mut_ptr(), end - begin) };
        }
        found
    }

    /// Hands a service message to the process as if a peer had sent it.
    fn hand_over(process: &Process, from: u32, message: Vec<u8>) {
        process.calls.take(process, ProcessId::new(from), message);
    }

    fn message(name: ReplyName, content: &Content, offset: u64) -> Vec<u8> {
        match content.clone() {
            Content::Mark(number, mark) => CallMessage::ReplyMoved { reply: name, number, mark },
            Content::Piece { status, total, bytes, .. } => {
                CallMessage::Reply { reply: name, piece: AnswerPiece { status, total, offset, bytes } }
            }
        }
        .encode()
    }

    /// Reserves [`CALLS`] calls of workers 1 to 3, sends the messages, and compares each call with
    /// what it should have.
    fn check(me: &Worker, messages: &[Sent]) {
        let process = me.process_handle();
        let reserve = |call: usize| {
            let on = 1 + call as u32 % 3;
            (on, me.replies().reserve([8, 100, 5000][call % 3], WorkerId::new(on)))
        };
        let calls: Vec<_> = (0..CALLS).map(reserve).collect();
        let (holder, status) = (Holder::Called, Status::Waiting);
        let begin = || Expected { holder, marked: 0, from: None, total: 0, bytes: Vec::new(), status };
        let mut expected: Vec<_> = (0..CALLS).map(|_| begin()).collect();
        let named = NAMED.map(|call| calls[call].1.0.index as usize);
        let is_named = |slot| named.contains(&slot);
        let before = untouchable(process, is_named);
        for sent in messages {
            let (on, (_, address)) = calls[sent.call];
            let mut name = address.name;
            name.generation = name.generation.wrapping_add(sent.stale);
            let expected = &mut expected[sent.call];
            let offset = match &sent.content {
                Content::Piece { offset: Some(offset), .. } => *offset,
                _ => expected.bytes.len() as u64,
            };
            hand_over(process, sent.from, message(name, &sent.content, offset));
            expected.take(on, sent, offset);
        }
        assert!(untouchable(process, is_named) == before, "a message wrote into the starter memory");
        for ((on, (handle, _)), expected) in calls.into_iter().zip(expected) {
            let on = WorkerId::new(on);
            let mut replies = me.replies();
            match replies.outcome(handle) {
                ReplyOutcome::Waits(called, holder) => {
                    assert_eq!((called, holder, Status::Waiting), (on, expected.holder, expected.status));
                    replies.give_up(handle);
                }
                ReplyOutcome::MessageReply => {
                    assert_eq!(replies.take_message_reply(handle), (on, expected.status, expected.bytes))
                }
                other => panic!("{other:?}, not {expected:?}"),
            }
        }
        assert_eq!(me.replies().in_use(), 0);
    }

    /// Whatever peers send about calls that wait: each call has exactly what those that may answer
    /// it have sent in order, no other memory changes, and nothing leaks.
    #[test]
    fn messages_are_checked_against_the_callers_books() {
        let verdict = share_memory_among(4, &[2], |me| {
            if me.id().number() == 0 {
                let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(300) });
                runner
                    .run(&prop::collection::vec(sent(), 0..60), |messages| {
                        check(me, &messages);
                        Ok(())
                    })
                    .unwrap();
            }
            Ok(())
        });
        verdict.unwrap();
    }

    /// Messages of which a byte behind their kind was changed.
    #[test]
    fn mutilated_messages_write_into_no_memory() {
        let run = |me: &Worker| {
            let process = me.process_handle();
            let mutilated = (sent(), any::<prop::sample::Index>(), any::<u8>());
            let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(300) });
            let outcome = runner.run(&prop::collection::vec(mutilated, 0..60), |messages| {
                let calls: Vec<_> = (0..CALLS).map(|_| me.replies().reserve(8, WorkerId::new(1))).collect();
                let before = untouchable(process, |_| true);
                for (sent, place, byte) in messages {
                    let [mut bytes, other] = [calls[sent.call].1.name.worker, u32::MAX]
                        .map(|worker| message(ReplyName { worker, ..calls[sent.call].1.name }, &sent.content, 0));
                    let kind_bytes = bytes.iter().zip(&other).position(|(a, b)| a != b).unwrap();
                    bytes[kind_bytes + place.index(other.len() - kind_bytes)] ^= byte;
                    hand_over(process, sent.from, bytes);
                }
                assert!(untouchable(process, |_| true) == before, "a message wrote into the starter memory");
                calls.into_iter().for_each(|(handle, _)| me.replies().give_up(handle));
                assert_eq!(me.replies().in_use(), 0);
                Ok(())
            });
            outcome.unwrap();
            Ok(())
        };
        share_memory_among(4, &[2], |me| if me.id().number() == 0 { run(me) } else { Ok(()) }).unwrap();
    }
}
