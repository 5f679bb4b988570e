//! Redis, as a peer.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farside_sys::process::{Spawned, spawn_asked};

use crate::kit::*;
use crate::peers::REDIS;

/// The time until it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server. It ends with this.
pub(super) struct Redis {
    process: Spawned,
    socket: PathBuf,
}

/// A connection to it.
pub(super) struct Connection(BufReader<UnixStream>);

fn failed(why: impl std::fmt::Display) -> BenchError {
    BenchError::Peer { program: REDIS, why: why.to_string() }
}

impl Redis {
    /// Starts it. `None` if it is not installed.
    pub(super) fn start() -> Result<Option<Self>, BenchError> {
        let socket = std::env::temp_dir().join(format!("farside-bench-redis-{}", std::process::id()));
        let mut command = Command::new(REDIS);
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let nothing = File::open("/dev/null").map_err(failed)?;
        let process = match spawn_asked(&mut command, nothing.as_fd()) {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        Ok(Some(Self { process, socket }))
    }

    pub(super) fn socket(&self) -> String {
        self.socket.display().to_string()
    }
}

impl Connection {
    /// Connects to the server that was started at a socket.
    pub(super) fn to(socket: &str) -> Result<Self, BenchError> {
        let until = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > until => return Err(failed(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        Ok(Self(BufReader::with_capacity(1 << 20, stream)))
    }

    pub(super) fn set(&mut self, key: &str, value: &[u8]) -> Result<(), BenchError> {
        self.repeat(key, Some(value), 1, 1)
    }

    /// Sets a value, or gets it, again and again.
    pub(super) fn repeat(
        &mut self,
        key: &str,
        value: Option<&[u8]>,
        count: u64,
        in_flight: usize,
    ) -> Result<(), BenchError> {
        let request = match value {
            Some(value) => {
                let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len());
                [head.as_bytes(), value, b"\r\n"].concat()
            }
            None => format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes(),
        };
        let (mut sent, mut answered) = (0, 0);
        let mut answer = Vec::new();
        while answered < count {
            while sent < count && sent - answered < in_flight as u64 {
                self.0.get_mut().write_all(&request).map_err(failed)?;
                sent += 1;
            }
            self.answer(&mut answer, value.is_none())?;
            answered += 1;
        }
        Ok(())
    }

    fn answer(&mut self, answer: &mut Vec<u8>, is_value: bool) -> Result<(), BenchError> {
        let mut line = String::new();
        self.0.read_line(&mut line).map_err(failed)?;
        match (line.trim_end().split_at_checked(1), is_value) {
            (Some(("+", "OK")), false) => Ok(()),
            (Some(("$", bytes)), true) => {
                answer.resize(bytes.parse::<usize>().map_err(failed)? + 2, 0);
                self.0.read_exact(answer).map_err(failed)
            }
            _ => Err(failed(format!("it answered {line:?}"))),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}
