//! Physical memory of a process.

use std::fs;
use std::io::{self, ErrorKind};

use crate::BenchError;

const ROLLUP: &str = "/proc/self/smaps_rollup";

/// Physical memory of a process. A page that `n` processes map counts as `1/n` page for each (the
/// system's *proportional set size*). Memory that was reserved and never touched does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    /// All memory.
    pub(crate) bytes: u64,
    /// Memory without the program, its libraries and other files.
    pub(crate) data_bytes: u64,
}

impl Resident {
    /// Returns the memory of this process now.
    ///
    /// # Errors
    /// [`BenchError::System`] if the system does not report the memory, or not in parts.
    pub(crate) fn of_this_process() -> Result<Self, BenchError> {
        let incomplete =
            || io::Error::new(ErrorKind::Unsupported, "it lacks Pss_Anon or Pss_Shmem: Linux 5.4 is needed");
        let read = fs::read_to_string(ROLLUP).and_then(|text| Self::parse(&text).ok_or_else(incomplete));
        read.map_err(|cause| BenchError::System { doing: "reading", path: ROLLUP.into(), cause })
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
        };
        let data_bytes = field("Pss_Anon")?.checked_add(field("Pss_Shmem")?)?;
        Some(Self { bytes: field("Pss")?, data_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
        55b45ded5000-7fffc8126000 ---p 00000000 00:00 0                          [rollup]\n\
        Rss:                1772 kB\n\
        Pss:                 265 kB\n\
        Pss_Dirty:           116 kB\n\
        Pss_Anon:            100 kB\n\
        Pss_File:            149 kB\n\
        Pss_Shmem:            16 kB\n";

    #[test]
    fn the_parts_are_distinguished() {
        assert_eq!(Resident::parse(TEXT), Some(Resident { bytes: 265 << 10, data_bytes: 116 << 10 }));
        for missing in ["Pss:", "Pss_Anon:", "Pss_Shmem:", " kB"] {
            assert_eq!(Resident::parse(&TEXT.replace(missing, "")), None, "{missing}");
        }
        assert_eq!(Resident::parse(&TEXT.replace("265", "18446744073709551615")), None);
    }

    #[test]
    fn memory_that_is_touched_counts() {
        let before = Resident::of_this_process().unwrap();
        let touched = vec![1_u8; 64 << 20];
        let after = Resident::of_this_process().unwrap();
        // Other tests of this process may free memory at the same time.
        assert!(after.data_bytes > before.data_bytes + (32 << 20), "{before:?} {after:?}");
        assert!(after.bytes > after.data_bytes, "{after:?}");
        drop(touched);
    }
}
