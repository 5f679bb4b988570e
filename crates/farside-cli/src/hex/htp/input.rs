//! Commands as they come, also while a search is under way.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;

use farside_mcts::games::hex::htp::{Line, Lines};

use super::{IDLE, system};

/// Lines that were read ahead, at most. While there are more, the reader waits, and an interrupt behind them is not seen.
const LINES_AHEAD_MAX: usize = 1024;

/// The standard input, line by line.
pub(super) struct Input {
    lines: Receiver<io::Result<Numbered>>,
    interrupted: Arc<AtomicU64>,
}

/// A line, and how many came before it.
pub(super) struct Numbered {
    pub(super) line: Line,
    number: u64,
}

/// Whether a command was asked to come to an end.
#[derive(Clone, Debug)]
pub(super) struct Interruption {
    /// Written by the thread that reads: how many lines came before the last interrupt. It says nothing about other
    /// memory, so relaxed accesses do.
    before: Arc<AtomicU64>,
    number: u64,
}

impl Interruption {
    /// Only an interrupt that came after the command counts, even if both came before it was carried out.
    pub(super) fn has_come(&self) -> bool {
        self.before.load(Ordering::Relaxed) > self.number
    }
}

impl Input {
    /// Begins to read, on a thread of its own. That thread ends with the input, or with the process.
    pub(super) fn open() -> io::Result<Self> {
        let (sender, lines) = sync_channel(LINES_AHEAD_MAX);
        let interrupted = Arc::new(AtomicU64::new(0));
        let interrupts = interrupted.clone();
        thread::Builder::new().name("htp input".into()).spawn(move || pass_on(io::stdin(), &sender, &interrupts))?;
        Ok(Self { lines, interrupted })
    }

    /// Waits for the next line; `None` when there will be no more. Meanwhile looks after other things, again and again.
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

/// Passes lines on until there are none, or nobody wants them.
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
    fn an_interrupt_is_for_the_commands_before_it() {
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
