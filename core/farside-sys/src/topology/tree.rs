//! Reads the small text files of `/sys` and `/proc` below a root.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::TopologyError;
use super::cpu_set::CpuSet;

/// A folder that contains `sys` and `proc`.
pub(super) struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    pub(super) fn new(root: &'a Path) -> Tree<'a> {
        Tree { root }
    }

    pub(super) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// The text of a file, trimmed. `None` if the kernel or the container hides it.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Result<Option<String>, TopologyError> {
        let path = self.path(path);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if is_hidden(&error) => Ok(None),
            Err(source) => Err(TopologyError::Read { path, source }),
        }
    }

    pub(super) fn cpu_list(&self, path: &str) -> Result<Option<CpuSet>, TopologyError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        let parsed = text.parse().map_err(|source| TopologyError::CpuList { path: self.path(path), source })?;
        Ok(Some(parsed))
    }

    pub(super) fn number(&self, path: &str) -> Result<Option<u64>, TopologyError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.malformed(path, "a number", &text)),
        }
    }

    /// The bytes in the line `MemTotal: N kB` of a `meminfo` file. Other text may precede it in the
    /// line.
    pub(super) fn memory_total(&self, path: &str) -> Result<Option<u64>, TopologyError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        let kilobytes = text
            .lines()
            .find_map(|line| line.split_once("MemTotal:"))
            .and_then(|(_, value)| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
            .and_then(|kilobytes| kilobytes.checked_mul(1024));
        match kilobytes {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(self.malformed(path, "a line \"MemTotal: N kB\"", &text)),
        }
    }

    /// The numbers N of all entries of `folder` that are called `{prefix}N{suffix}`, ascending.
    pub(super) fn numbered<N: FromStr + Ord>(
        &self,
        folder: &str,
        prefix: &str,
        suffix: &str,
    ) -> Result<Vec<N>, TopologyError> {
        let path = self.path(folder);
        let number_of = |entry: io::Result<fs::DirEntry>| -> io::Result<Option<N>> {
            let name = entry?.file_name();
            let digits = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_suffix(suffix));
            Ok(digits.and_then(|digits| digits.parse().ok()))
        };
        let numbers = fs::read_dir(&path).and_then(|entries| {
            entries.filter_map(|entry| number_of(entry).transpose()).collect::<io::Result<Vec<N>>>()
        });
        match numbers {
            Ok(mut numbers) => {
                numbers.sort_unstable();
                Ok(numbers)
            }
            Err(error) if is_hidden(&error) => Ok(Vec::new()),
            Err(source) => Err(TopologyError::Read { path, source }),
        }
    }

    pub(super) fn malformed(&self, path: impl AsRef<Path>, expected: &'static str, text: &str) -> TopologyError {
        TopologyError::Malformed { path: self.path(path), expected, text: text.chars().take(80).collect() }
    }
}

/// Returns whether an error only means that the file is not visible here.
fn is_hidden(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}
