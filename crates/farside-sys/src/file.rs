//! Files without names, which are gone when nobody has them open.

use std::fs::File;
use std::io;

use rustix::fs::MemfdFlags;

/// An empty file in memory. It can be written, read and run, and others of the same user reach it under the name that `/proc` gives it while it
/// is open here.
///
/// `name` is what debuggers show. New processes do not inherit it.
///
/// # Errors
/// What the system said.
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
    fn what_is_written_can_be_run() {
        let mut file = nameless("test").unwrap();
        file.write_all(b"#!/bin/sh\nexit 7\n").unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        // Under this name it can be opened for reading, too, which is what an interpreter does.
        assert_eq!(Command::new(path).status().unwrap().code(), Some(7));
    }
}
