//! [`Mailboxes`]: the news for the threads of a process.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use farside_fabric::clock::lock;
use farside_fabric::{ProcessId, WorkerId};

use crate::error::Result;
use crate::invoke::message::{Frame, RingName};
use crate::runtime::extent::Extent;
use crate::runtime::home::Home;

/// The mailboxes of the callable threads of a process.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    boxes: Box<[Mailbox]>,
    /// The starter memory of the process, which has the doorbells of the threads.
    home: Home,
}

/// The notices for one worker, and a counter of its news.
#[derive(Debug, Default)]
struct Mailbox {
    notices: Mutex<VecDeque<Notice>>,
    /// A counter of events that concern the worker. Written by any thread that has news for it,
    /// read by the worker.
    attention: AtomicU32,
}

/// News for a worker.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A new ring leads to this worker.
    RingOpened { ring: RingName, control: Extent, chunks: Vec<Extent> },
    /// A ring that leads to this worker was granted chunks.
    RingGrown { ring: RingName, chunks: Vec<Extent> },
    /// Nothing more will arrive through a ring that leads to this worker.
    RingClosing { ring: RingName },
    /// The process of worker `to` has answered a request about the ring to it.
    WayAnswered { to: WorkerId },
    /// The process of worker `to` asks for the memory of the ring to it.
    WayWanted { to: WorkerId },
    /// A peer that cannot map this process's memory sent records.
    Frame(Frame),
    /// The transfer thread has read the buffer of a call, or has failed to.
    Fetched { fetch: u64, outcome: Result<Vec<u8>> },
    /// A process is lost.
    Lost { process: ProcessId },
}

impl Mailboxes {
    pub(super) fn new(home: Home) -> Self {
        let threads = home.layout().shape().callable_per_process();
        Self { boxes: (0..threads).map(|_| Mailbox::default()).collect(), home }
    }

    /// Puts a notice into the mailbox of a thread of this process and wakes the thread.
    pub(crate) fn notify(&self, local: usize, notice: Notice) {
        lock(&self.boxes[local].notices).push_back(notice);
        self.call_attention(local);
    }

    /// Puts the notice of a lost process into all mailboxes and wakes all threads of this process.
    pub(super) fn notify_of_loss(&self, process: ProcessId) {
        (0..self.boxes.len()).for_each(|local| self.notify(local, Notice::Lost { process }));
        self.ring_callers();
    }

    /// Makes a thread of this process check for news.
    pub(crate) fn call_attention(&self, local: usize) {
        // SYNC: release, for the acquire in `attention`: what the worker must see was written
        // before.
        self.boxes[local].attention.fetch_add(1, Ordering::Release);
        self.home.doorbell(local).ring_if_asleep();
    }

    /// Makes all threads of this process check for news.
    pub(crate) fn call_attention_of_all(&self) {
        (0..self.boxes.len()).for_each(|local| self.call_attention(local));
        self.ring_callers();
    }

    /// Wakes the threads that are not callable.
    fn ring_callers(&self) {
        self.home.doorbell(self.home.layout().shape().callers()).ring_if_asleep();
    }

    #[inline]
    pub(crate) fn attention(&self, local: usize) -> u32 {
        self.boxes[local].attention.load(Ordering::Acquire)
    }

    pub(crate) fn next_notice(&self, local: usize) -> Option<Notice> {
        lock(&self.boxes[local].notices).pop_front()
    }
}
