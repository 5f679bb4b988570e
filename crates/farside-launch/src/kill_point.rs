//! Points in the protocol at which a test can kill a process.
//!
//! `FARSIDE_KILL=PROCESS:POINT[:NTH]` in the environment of a launched job makes one process kill
//! itself with `SIGKILL`, when it reaches a point for the n-th time (by default the first). So a
//! test can kill a process in the middle of a protocol step, and observe its peers.
//!
//! The points are in set-up and control. Points on the path of calls and messages exist only in
//! builds with debug assertions.

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use farside_fabric::ProcessId;

use crate::error::Result;
use crate::settings::{Lookup, variable};

/// The variable with the process to kill, and the point.
const KILL: &str = "FARSIDE_KILL";

macro_rules! kill_points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)*) => {
        /// A point at which a process can be killed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum KillPoint {
            $($(#[$doc])* $point,)*
        }

        const NAMES: &[(&str, KillPoint)] = &[$(($name, KillPoint::$point),)*];
    };
}

kill_points! {
    /// The coordinator was greeted; there is no endpoint yet.
    GreetingSent = "greeting-sent",
    /// The endpoint is open; no peer was met.
    EndpointOpened = "endpoint-opened",
    /// About to ask a receiver for a ring.
    RingAsking = "ring-asking",
    /// A receiver was asked for a ring.
    RingAsked = "ring-asked",
    /// A ring was made here, and its sender was not told.
    RingMade = "ring-made",
    /// A ring that was asked for stands; nothing was written into it.
    SenderOpened = "sender-opened",
    /// A receiver was asked for one more chunk.
    GrowthAsked = "growth-asked",
    /// One more chunk was granted here, and the sender was not told.
    GrowthMade = "growth-made",
    /// A chunk that was asked for is there; nothing was written into it.
    SenderGrown = "sender-grown",
    /// A ring is given up, and its receiver was not told.
    RingClosing = "ring-closing",
    /// The receiver has run all records of a closed ring and may reuse its memory. The sender was
    /// not told.
    RingClosed = "ring-closed",
    /// A record lies in the ring, without its header.
    RecordReserved = "record-reserved",
    /// Records that were staged are batched, and not published.
    BatchOpen = "batch-open",
    /// A batch of the program's was begun. In builds with debug assertions only.
    BatchBegun = "batch-begun",
    /// A reply slot of the caller's is claimed, and holds no answer. In builds with debug
    /// assertions only.
    ReplyClaimed = "reply-claimed",
    /// A call has come whose buffer is to be read, and it was not.
    BufferFound = "buffer-found",
    /// Its sender was told that it was read, and the function has not run.
    BufferRead = "buffer-read",
    /// A result lies in registered memory, and nothing says so.
    ResultPut = "result-put",
    /// A call on everyone was sent on, and has not run here.
    SentOn = "sent-on",
    /// An owner of memory was asked for some, or to take some back.
    MemoryAsked = "memory-asked",
    /// Memory was given to another process, which was not told.
    MemoryGranted = "memory-granted",
    /// Memory was taken back from another process, which was not told.
    MemoryReleased = "memory-released",
    /// A pipe was asked for, and nothing was written into it.
    PipeAsked = "pipe-asked",
    /// A pipe was made here for a writer, which was not told.
    PipeMade = "pipe-made",
    /// A message lies in its slot of a pipe, without its flag. In builds with debug assertions
    /// only.
    PipeFilled = "pipe-filled",
    /// A message of a pipe was read, and its slot not given back. In builds with debug assertions
    /// only.
    PipeRead = "pipe-read",
    /// An end of a pipe was dropped, and the other was not told.
    PipeLeft = "pipe-left",
    /// Memory for a heap was got at the peer, and nothing was written there.
    HeapMade = "heap-made",
    /// A block of a heap was put across, and its name was not told.
    HeapBlockPut = "heap-block-put",
    /// A block of a heap was opened by its name.
    HeapBlockOpened = "heap-block-opened",
    /// A block of a heap was freed here, and nobody will hear of it.
    HeapBlockFreed = "heap-block-freed",
    /// A list of freed blocks is made, and not sent.
    HeapTagsMade = "heap-tags-made",
    /// A list of freed blocks lies in the initiator's memory.
    HeapTagsPut = "heap-tags-put",
    /// A list of freed blocks was found, and not taken over.
    HeapTagsTaken = "heap-tags-taken",
    /// A peer was asked what it has freed.
    HeapAsked = "heap-asked",
    /// A heap is closed, and its peer was not told.
    HeapClosing = "heap-closing",
    /// A process was told to carry out an operation on memory.
    MoveAsked = "move-asked",
    /// An operation is to be carried out here for another process, and was not begun.
    MoveTaken = "move-taken",
    /// It is over, and who asked for it was not told.
    MoveDone = "move-done",
    /// The coordinator was told that this process is idle.
    RoundReported = "round-reported",
    /// The coordinator said that all is done.
    Finished = "finished",
}

/// The point at which this process is killed.
#[derive(Debug)]
pub struct KillPlan {
    point: KillPoint,
    /// The remaining passes of the point, including the last.
    left: AtomicU32,
}

impl KillPlan {
    /// Reads this process's plan from the environment.
    ///
    /// # Errors
    /// [`Error::JobEnded`](crate::Error::JobEnded) if the variable is invalid.
    pub fn from_environment(lookup: Lookup<'_>, process: ProcessId) -> Result<Option<Self>> {
        let order: Option<Order> = variable(lookup, KILL)?;
        let order = order.filter(|order| order.process == process.number());
        Ok(order.map(|order| Self { point: order.point, left: AtomicU32::new(order.nth) }))
    }

    /// Passes a point. Kills the process if the plan names this pass.
    pub fn pass(&self, point: KillPoint) {
        if point == self.point && self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            farside_sys::process::kill_self();
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
        const FORM: &str = "it is no PROCESS:POINT[:NTH]";
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
            let lookup = |name: &str| (name == KILL).then(|| "1:ring-asked:3".into());
            KillPlan::from_environment(&lookup, ProcessId::new(process)).unwrap()
        };
        assert!(plan(0).is_none());
        assert!(KillPlan::from_environment(&|_| None, ProcessId::new(1)).unwrap().is_none());
        let plan = plan(1).unwrap();
        plan.pass(KillPoint::RingAsking);
        plan.pass(KillPoint::RingAsked);
        plan.pass(KillPoint::RingAsked);
        assert_eq!(plan.left.load(Ordering::Relaxed), 1);
    }
}
