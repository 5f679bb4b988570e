//! Kill points: places where a test can kill or stop a process.
//!
//! `FARSIDE_KILL=PROCESS:POINT[:NTH]` in the environment of a launched job makes one of its
//! processes kill itself. It does so with SIGKILL, when it passes the point for the n-th time (by
//! default the first). So a test can place a death in the middle of a protocol step, and check what
//! becomes of the other processes. `FARSIDE_STOP` does the same with SIGSTOP: the process is still
//! there, and answers nothing.
//!
//! The points are in set-up and control code. On the path of calls and answers, they exist only in
//! builds with debug assertions; other builds contain nothing of them.

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use farside_fabric::ProcessId;

use crate::error::Result;
use crate::settings::{Lookup, variable};

/// The variables that name a process and a point, and what happens there.
const ACTS: [(&str, fn()); 2] =
    [("FARSIDE_KILL", || farside_sys::process::kill_self()), ("FARSIDE_STOP", farside_sys::process::stop_self)];

macro_rules! kill_points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)*) => {
        /// A place in the life of a process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum KillPoint {
            $($(#[$doc])* $point,)*
        }

        const NAMES: &[(&str, KillPoint)] = &[$(($name, KillPoint::$point),)*];
    };
}

kill_points! {
    /// The process has greeted the coordinator; its endpoint is not open yet.
    GreetingSent = "greeting-sent",
    /// The endpoint is open; no peer was contacted.
    EndpointOpened = "endpoint-opened",
    /// The process is about to ask a receiver for a ring.
    RingAsking = "ring-asking",
    /// The process has asked a receiver for a ring.
    RingAsked = "ring-asked",
    /// A ring was made here; its sender was not notified.
    RingMade = "ring-made",
    /// An answer to a request for a ring or a chunk was sent; nothing else has been done since.
    RingAnswered = "ring-answered",
    /// A requested ring is ready; nothing was written into it.
    SenderOpened = "sender-opened",
    /// The process has asked a receiver for one more chunk.
    GrowthAsked = "growth-asked",
    /// One more chunk was granted here; the sender was not notified.
    GrowthMade = "growth-made",
    /// A requested chunk is ready; nothing was written into it.
    SenderGrown = "sender-grown",
    /// A ring is given up; its receiver was not notified.
    RingClosing = "ring-closing",
    /// Everything from a ring that was given up has run, and its memory may be reused; its sender
    /// was not notified.
    RingClosed = "ring-closed",
    /// A ring has room for a staged record, which is not in it.
    RecordReserved = "record-reserved",
    /// Staged records are published, and still counted as staged.
    StagedPublished = "staged-published",
    /// A batch of the program was begun. In builds with debug assertions only.
    BatchBegun = "batch-begun",
    /// A reply slot of the caller is claimed, and holds no answer. In builds with debug assertions
    /// only.
    ReplyClaimed = "reply-claimed",
    /// A call has arrived whose buffer must be read; it was not read yet.
    BufferFound = "buffer-found",
    /// The sender of a call was notified that its buffer was read; the function has not run.
    BufferRead = "buffer-read",
    /// A result is in registered memory; the caller was not notified.
    ResultPut = "result-put",
    /// A broadcast call was forwarded, and has not run here.
    SentOn = "sent-on",
    /// The process has asked an owner for memory, or to take some back.
    MemoryAsked = "memory-asked",
    /// Memory was granted to another process, which was not notified.
    MemoryGranted = "memory-granted",
    /// Memory was taken back from another process, which was not notified.
    MemoryReleased = "memory-released",
    /// The process has asked for a pipe; nothing was written into it.
    PipeAsked = "pipe-asked",
    /// A pipe was made here for a writer, which was not notified.
    PipeMade = "pipe-made",
    /// The writer of a pipe was notified that the pipe is there; nothing else has been done since.
    PipeAnswered = "pipe-answered",
    /// A message is in its slot of a pipe, without its flag. In builds with debug assertions only.
    PipeFilled = "pipe-filled",
    /// A message of a pipe was read; its slot was not released. In builds with debug assertions
    /// only.
    PipeRead = "pipe-read",
    /// An end of a pipe was dropped; the other end was not notified.
    PipeLeft = "pipe-left",
    /// The peer has granted memory for a heap; nothing was written there.
    HeapMade = "heap-made",
    /// A block of a heap was put to the peer; its name was not sent.
    HeapBlockPut = "heap-block-put",
    /// A block of a heap was opened by its name.
    HeapBlockOpened = "heap-block-opened",
    /// A block of a heap was freed here, and no other process will learn of it.
    HeapBlockFreed = "heap-block-freed",
    /// A list of freed blocks is made, and not sent.
    HeapTagsMade = "heap-tags-made",
    /// A list of freed blocks is in the initiator's memory.
    HeapTagsPut = "heap-tags-put",
    /// A list of freed blocks was found; its blocks were not reclaimed.
    HeapTagsTaken = "heap-tags-taken",
    /// The process has asked a peer which blocks it has freed.
    HeapAsked = "heap-asked",
    /// A heap is closed; its peer was not notified.
    HeapClosing = "heap-closing",
    /// The process has asked another to execute an operation on memory.
    MoveAsked = "move-asked",
    /// The process has to execute an operation for another process, and has not begun.
    MoveTaken = "move-taken",
    /// The operation is done; the process that asked for it was not notified.
    MoveDone = "move-done",
    /// The process has reported to the coordinator that it is idle.
    RoundReported = "round-reported",
    /// The coordinator has notified the process that the job is done.
    Finished = "finished",
}

/// Returns the names of all points.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

/// The points at which a process must die or stop.
#[derive(Debug)]
pub struct KillPlan(Vec<Step>);

#[derive(Debug)]
struct Step {
    point: KillPoint,
    /// The number of passes left, including the one that matters.
    left: AtomicU32,
    act: fn(),
}

impl KillPlan {
    /// Reads the plan for this process from the environment.
    ///
    /// # Errors
    /// [`Error::JobEnded`](crate::Error::JobEnded) if a value is invalid.
    pub fn from_environment(lookup: Lookup<'_>, process: ProcessId) -> Result<Option<Self>> {
        let mut steps = Vec::new();
        for (name, act) in ACTS {
            let order: Option<Order> = variable(lookup, name)?;
            let order = order.filter(|order| order.process == process.number());
            steps.extend(order.map(|Order { point, nth, .. }| Step { point, left: AtomicU32::new(nth), act }));
        }
        Ok((!steps.is_empty()).then_some(Self(steps)))
    }

    /// Passes a point. Kills or stops the process if the plan says so.
    pub fn pass(&self, point: KillPoint) {
        for step in &self.0 {
            if point == step.point && step.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                (step.act)();
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    process: u32,
    point: KillPoint,
    nth: u32,
}

impl FromStr for Order {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        const FORM: &str = "expected PROCESS:POINT[:NTH]";
        let mut parts = text.split(':');
        let process = parts.next().and_then(|part| part.parse().ok()).ok_or(FORM)?;
        let name = parts.next().ok_or(FORM)?;
        let (_, point) = *NAMES.iter().find(|(known, _)| *known == name).ok_or("there is no such point")?;
        let nth = parts.next().map_or(Ok(1), str::parse).map_err(|_| FORM)?;
        if nth == 0 || parts.next().is_some() {
            return Err(FORM);
        }
        Ok(Self { process, point, nth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read() {
        let read = |text: &str| text.parse::<Order>();
        let order = |nth| Ok(Order { process: 7, point: KillPoint::RingAsked, nth });
        assert_eq!(read("7:ring-asked"), order(1));
        assert_eq!(read("7:ring-asked:12"), order(12));
        for wrong in ["", "7", "7:", "x:ring-asked", "7:ring", "7:ring-asked:", "7:ring-asked:0", "7:ring-asked:1:1"] {
            read(wrong).unwrap_err();
        }
        for (name, point) in NAMES {
            assert_eq!(read(&format!("0:{name}")), Ok(Order { process: 0, point: *point, nth: 1 }));
        }
    }

    #[test]
    fn only_the_process_named_dies_and_only_when_its_time_has_come() {
        let plan = |process| {
            let lookup = |name: &str| match name {
                "FARSIDE_KILL" => Some("1:ring-asked:3".into()),
                "FARSIDE_STOP" => Some("1:ring-asking:9".into()),
                _ => None,
            };
            KillPlan::from_environment(&lookup, ProcessId::new(process)).unwrap()
        };
        assert!(plan(0).is_none());
        assert!(KillPlan::from_environment(&|_| None, ProcessId::new(1)).unwrap().is_none());
        let plan = plan(1).unwrap();
        plan.pass(KillPoint::RingAsking);
        plan.pass(KillPoint::RingAsked);
        plan.pass(KillPoint::RingAsked);
        let left: Vec<u32> = plan.0.iter().map(|step| step.left.load(Ordering::Relaxed)).collect();
        assert_eq!(left, [1, 8]);
    }
}
