//! Threads as the kernel sees them.

use std::fs;
use std::path::PathBuf;

/// A thread of this program that others may look at.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The file with the state of the thread.
    stat: PathBuf,
}

impl Observed {
    /// The calling thread.
    pub(crate) fn current() -> Self {
        let thread = fs::read_link("/proc/thread-self").expect("the kernel names the thread");
        Self { stat: PathBuf::from("/proc").join(thread).join("stat") }
    }

    /// Returns whether the thread sleeps until something happens. A thread that runs, or that waits
    /// for a processor, does not.
    pub(crate) fn sleeps(&self) -> bool {
        let stat = fs::read_to_string(&self.stat).unwrap_or_default();
        // The state follows the name, which may contain any character.
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
    }
}
