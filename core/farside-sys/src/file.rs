//! Files without names. The system frees them when the last descriptor is closed.

use std::fs::File;
use std::io;

use rustix::fs::MemfdFlags;

/// Creates an empty file in memory. It can be written, read and executed. While it is open here,
/// other processes of the same user can open it by its path in `/proc`.
///
/// `name` is what debuggers show. New processes do not inherit the descriptor.
///
/// # Errors
/// The operating system's error.
pub fn nameless(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_written_file_can_be_run() {
        let mut file = nameless("test").unwrap();
        file.write_all(b"#!/bin/sh\nexit 7\n").unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        // This path can also be opened for reading, which is what an interpreter does.
        assert_eq!(Command::new(path).status().unwrap().code(), Some(7));
    }
}
