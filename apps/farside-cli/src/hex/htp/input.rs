//! Reads commands, also during a search.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;

use farside_mcts::games::hex::htp::{Line, Lines};

use super::{IDLE, system};

/// Maximum number of lines read ahead. The reader blocks at this number, and does not see an
/// interrupt behind these lines.
const LINES_AHEAD_MAX: usize = 1024;

/// The standard input, line by line.
pub(super) struct Input {
    lines: Receiver<io::Result<Numbered>>,
    interrupted: Arc<AtomicU64>,
}

/// A line with the number of lines before it.
pub(super) struct Numbered {
    pub(super) line: Line,
    number: u64,
}

/// Tells whether an interrupt has followed a command.
#[derive(Clone, Debug)]
pub(super) struct Interruption {
    /// Number of lines before the last interrupt, written by the thread that reads. It publishes no
    /// other memory, so relaxed accesses suffice.
    before: Arc<AtomicU64>,
    number: u64,
}

impl Interruption {
    /// Returns whether an interrupt has arrived after the command. One that arrived before it does
    /// not count, even if the engine had not yet begun the command.
    pub(super) fn has_come(&self) -> bool {
        self.before.load(Ordering::Relaxed) > self.number
    }
}

impl Input {
    /// Starts a thread that reads the standard input. It ends with the input or with the process.
    pub(super) fn open() -> io::Result<Self> {
        let (sender, lines) = sync_channel(LINES_AHEAD_MAX);
        let interrupted = Arc::new(AtomicU64::new(0));
        let interrupts = interrupted.clone();
        thread::Builder::new().name("htp input".into()).spawn(move || pass_on(io::stdin(), &sender, &interrupts))?;
        Ok(Self { lines, interrupted })
    }

    /// Waits for the next line, and calls `idle` repeatedly meanwhile. Returns `None` at the end of
    /// the input.
    pub(super) fn next(&self, mut idle: impl FnMut() -> farside::Result<()>) -> farside::Result<Option<Numbered>> {
        loop {
            match self.lines.recv_timeout(IDLE) {
                Ok(line) => return line.map(Some).map_err(|cause| system("reading commands", cause)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => idle()?,
            }
        }
    }

    pub(super) fn interruption(&self, command: &Numbered) -> Interruption {
        Interruption { before: self.interrupted.clone(), number: command.number }
    }
}

/// Sends lines to the receiver, until the input ends or the receiver is dropped.
fn pass_on(mut input: impl Read, lines_out: &SyncSender<io::Result<Numbered>>, interrupts: &AtomicU64) {
    let mut lines = Lines::default();
    let mut number = 0;
    let mut bytes = [0; 4096];
    loop {
        let count = match input.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return drop(lines_out.send(Err(error))),
        };
        lines.push(&bytes[..count]);
        while let Some(line) = lines.pop() {
            if line.is_interrupt() {
                interrupts.store(number, Ordering::Relaxed);
            } else if lines_out.send(Ok(Numbered { line, number })).is_err() {
                return;
            } else {
                number += 1;
            }
        }
    }
    if let Some(line) = lines.finish().filter(|line| !line.is_interrupt()) {
        let _ = lines_out.send(Ok(Numbered { line, number }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_applies_to_the_commands_before_it() {
        let (sender, lines) = sync_channel(10);
        let interrupted = Arc::new(AtomicU64::new(0));
        pass_on(&b"name\ngenmove b\n# interrupt\ngenmove w\nname # interrupt\nquit"[..], &sender, &interrupted);
        drop(sender);
        let input = Input { lines, interrupted };
        for (text, is_interrupted) in
            [("name", true), ("genmove b", true), ("genmove w", false), ("name # interrupt", false), ("quit", false)]
        {
            let line = input.next(|| Ok(())).unwrap().unwrap();
            assert_eq!((line.line.text.as_str(), input.interruption(&line).has_come()), (text, is_interrupted));
        }
        assert!(input.next(|| Ok(())).unwrap().is_none());
    }
}
