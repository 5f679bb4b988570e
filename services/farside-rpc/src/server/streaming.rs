//! [`Streaming`]: a stream of results, as the server sends it.
//!
//! | state | what continues it |
//! |---|---|
//! | its work waits in the queue or runs | a thread of the pool; a turn of the server |
//! | parked: the window is used up | a `Credit` frame; also a `Cancel` frame, the deadline and the end of the connection, which end it |

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::session::{Incoming, Session, guard};
use crate::answer::{DONE, MORE, REFUSED, Refused};
use crate::stream::{Outgoing, WINDOW, drop_quietly};
use farside_connect::frame::{Head, Kind, PIECE_BYTES};
use farside_connect::link::Link;
use farside_connect::{LinkEnd, lock};

/// The bytes of items with which a frame is full.
const FRAME_BYTES: usize = 16 * 1024;
/// After this time, other calls have their turn.
const TURN: Duration = Duration::from_millis(1);

/// A stream of results. Its session knows it until it ends.
pub(super) struct Streaming {
    session: Arc<Session>,
    link: Arc<Link>,
    incoming: Incoming,
    /// Held by the thread that iterates. `None` once the stream has ended.
    items: Mutex<Option<Outgoing>>,
    out: Mutex<Out>,
}

/// The next frame.
struct Out {
    body: Vec<u8>,
    /// The number of items in it.
    count: u64,
    /// The number of frames that the caller allows.
    credit: u64,
    is_parked: bool,
}

impl Streaming {
    /// Makes a stream known. It begins to run with [`run`](Self::run).
    pub(super) fn new(session: &Arc<Session>, link: &Arc<Link>, incoming: &Incoming, items: Outgoing) -> Arc<Self> {
        let stream = Arc::new(Self {
            session: session.clone(),
            link: link.clone(),
            incoming: incoming.clone(),
            items: Mutex::new(Some(items)),
            out: Mutex::new(Out { body: Vec::new(), count: 0, credit: WINDOW, is_parked: false }),
        });
        session.add_stream(incoming.head, stream.clone());
        let waiting = stream.clone();
        session.shared.deadlines.add(session.key(incoming), &session.shared.waker, move || waiting.unpark());
        stream
    }

    /// Sends items until the window is used up, or others have their turn.
    pub(super) fn run(self: &Arc<Self>) {
        let begun = Instant::now();
        let mut items = lock(&self.items);
        let Some(iterator) = items.as_mut() else { return };
        let max = (PIECE_BYTES as u64).min(self.session.shared.policy.bytes_max);
        let mut item = Vec::new();
        let end = loop {
            let now = Instant::now();
            if let Some(end) = self.end(now) {
                break Err(end);
            }
            let mut out = lock(&self.out);
            if out.credit == 0 {
                // It still counts as unfinished work.
                self.session.shared.queue.count_one();
                out.is_parked = true;
                drop((out, items));
                // What ends it may have come before it was parked.
                if self.end(Instant::now()).is_some() {
                    self.unpark();
                }
                return;
            }
            if now - begun >= TURN {
                self.flush(&mut out);
                drop((out, items));
                self.queue();
                return;
            }
            drop(out);
            item.clear();
            match guard(&self.incoming.call, || iterator.encode_next(&mut item)) {
                Ok(false) => break Ok(()),
                Ok(true) if item.len() as u64 > max => {
                    break Err(Refused::TooLarge { is_result: true, bytes: item.len() as u64, max });
                }
                Ok(true) => self.add(&item),
                Err(panicked) => break Err(panicked),
            }
        };
        drop(items);
        self.finish(end);
    }

    /// Has the stream run again, after others.
    fn queue(self: &Arc<Self>) {
        let mut turn = Turn(Some(self.clone()));
        let work = move || {
            if let Some(stream) = turn.0.take() {
                stream.run();
            }
        };
        let Session { shared, number, .. } = &*self.session;
        // A server that has ended runs nothing.
        let _ = shared.queue.add(*number, Box::new(work));
        if shared.options.pool == 0 {
            shared.waker.wake();
        }
    }

    /// Why the stream must end, if it must.
    fn end(&self, now: Instant) -> Option<Refused> {
        self.link.end().map_or_else(|| self.incoming.call.expiry(now), |_| Some(Refused::Cancelled))
    }

    /// Adds an item to the frame. A frame is sent at once while the caller has consumed the others.
    fn add(&self, item: &[u8]) {
        let mut out = lock(&self.out);
        if out.body.len() + item.len() > PIECE_BYTES {
            self.flush(&mut out);
        }
        out.body.extend_from_slice(item);
        out.count += 1;
        if out.credit > WINDOW / 2 || out.body.len() >= FRAME_BYTES {
            self.flush(&mut out);
        }
    }

    /// Sends the frame, if there are items in it and the caller allows one.
    fn flush(&self, out: &mut Out) {
        if out.count == 0 || out.credit == 0 {
            return;
        }
        let head = Head::new(Kind::Item, self.incoming.head.id).with_status(MORE).with_value(out.count);
        if self.link.send(head, &[&out.body]).is_err() {
            self.incoming.call.cancel();
        }
        out.credit -= 1;
        out.count = 0;
        out.body.clear();
    }

    /// Takes credit from the caller.
    pub(super) fn credit(self: &Arc<Self>, count: u64) -> Result<(), LinkEnd> {
        let mut out = lock(&self.out);
        if count > WINDOW - out.credit {
            return Err(LinkEnd::protocol(format_args!("credit for {count} frames that were not sent")));
        }
        out.credit += count;
        // The iterator may take long for its next item. The caller has consumed the others.
        self.flush(&mut out);
        let continues = out.credit > 0;
        drop(out);
        if continues {
            self.unpark();
        }
        Ok(())
    }

    /// Lets the stream run again, if it is parked.
    pub(super) fn unpark(self: &Arc<Self>) {
        if std::mem::take(&mut lock(&self.out).is_parked) {
            self.queue();
            self.session.shared.queue.end_one();
        }
    }

    /// Drops the iterator, and tells the caller how the stream ended.
    fn finish(&self, end: Result<(), Refused>) {
        let Self { session, incoming: Incoming { head, .. }, .. } = self;
        let Some(items) = lock(&self.items).take() else { return };
        drop_quietly(items);
        session.shared.deadlines.remove(session.key(&self.incoming));
        session.forget(*head);
        let counters = &session.entry(*head).counters;
        let counter = if end.is_ok() { &counters.done } else { &counters.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut out = lock(&self.out);
        let head = Head::new(Kind::Item, head.id);
        // A caller that is gone needs no word.
        let _ = match end {
            Ok(()) => self.link.send(head.with_status(DONE).with_value(out.count), &[&out.body]),
            Err(why) => {
                self.flush(&mut out);
                self.link.send(head.with_status(REFUSED), &[&farside_wire::encode(&why, Vec::new())])
            }
        };
        (out.count, out.body) = (0, Vec::new());
    }
}

/// The next run of a stream. Dropping it ends the stream: no thread would run it.
struct Turn(Option<Arc<Streaming>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            stream.finish(Err(Refused::Cancelled));
        }
    }
}

impl fmt::Debug for Streaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").field("call", &self.incoming.head.id).finish_non_exhaustive()
    }
}
