//! The memory in which a measuring process leaves its results for the process that started it.
//!
//! It is anonymous memory of the starting process. Children of the same user open it by the name
//! that `/proc` gives it, so no folder keeps a trace of it, however the processes end.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use farside_sys::shm::SharedMemory;

use crate::BenchError;
use crate::metric::{self, Metric};

/// Size of the memory for the results of one case: tens of metrics with tens of samples each take a
/// few KiB.
const BYTES: usize = 64 << 10;

/// Memory for results, owned by the process that waits for them.
#[derive(Debug)]
pub(crate) struct Results(SharedMemory);

impl Results {
    /// # Errors
    /// [`BenchError::Memory`].
    pub(crate) fn new() -> Result<Self, BenchError> {
        Ok(Self(SharedMemory::create("farside-bench-results", BYTES)?))
    }

    /// The path by which another process opens the memory while this process lives.
    pub(crate) fn path(&self) -> PathBuf {
        path_of(std::process::id(), self.0.fd().as_raw_fd())
    }

    /// The descriptor of the memory, for processes to inherit.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Returns the metrics that were left here.
    ///
    /// # Errors
    /// [`BenchError::Results`] if there are none, or they are incomplete.
    pub(crate) fn take(&self) -> Result<Vec<Metric>, BenchError> {
        metric::from_text(&self.text()?)
    }

    /// Returns the text that was left here; an empty one if there is none.
    ///
    /// # Errors
    /// [`BenchError::System`].
    pub(crate) fn text(&self) -> Result<String, BenchError> {
        let path = self.path();
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|cause| BenchError::System { doing: "reading results from", path, cause })?;
        // Zeros follow the text.
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

/// Leaves metrics in the memory at this path.
///
/// # Errors
/// [`BenchError::System`] if the memory does not exist or is too small.
pub(crate) fn leave(metrics: &[Metric], path: &Path) -> Result<(), BenchError> {
    leave_text(&metric::to_text(metrics), path)
}

/// Leaves a text, which replaces an earlier one.
///
/// # Errors
/// [`BenchError::System`] as for [`leave`].
pub(crate) fn leave_text(text: &str, path: &Path) -> Result<(), BenchError> {
    let written =
        OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(format!("{text}\0").as_bytes()));
    written.map_err(|cause| BenchError::System { doing: "writing results to", path: path.into(), cause })
}

/// The path of an open file of a process, for other processes of the same user.
pub(crate) fn path_of(process: u32, descriptor: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/fd/{descriptor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_left_and_taken() {
        let results = Results::new().unwrap();
        assert!(matches!(results.take(), Err(BenchError::Results { .. })));
        let metrics = [Metric::new("rtt_ns", "ns", vec![1.0, 2.0])];
        leave(&metrics, &results.path()).unwrap();
        assert_eq!(results.take().unwrap(), metrics);
        let results = Results::new().unwrap();
        assert_eq!(results.text().unwrap(), "");
        leave_text("all is lost", &results.path()).unwrap();
        leave_text("all is", &results.path()).unwrap();
        assert_eq!(results.text().unwrap(), "all is");
    }

    #[test]
    fn results_that_do_not_fit_are_an_error() {
        let results = Results::new().unwrap();
        let metrics = [Metric::new("rtt_ns", "ns", vec![1.0 / 3.0; BYTES / 16])];
        assert!(matches!(leave(&metrics, &results.path()), Err(BenchError::System { .. })));
        let nowhere = Path::new("/proc/self/fd/9999");
        assert!(matches!(leave(&[], nowhere), Err(BenchError::System { .. })));
    }
}
