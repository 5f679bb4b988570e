//! Message sockets between the processes of one machine, which can carry a descriptor with each
//! message; and streams between machines.

pub mod tcp;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// The largest message, in bytes. The kernel's default socket buffers hold dozens of them.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// One end of a connection that transfers whole messages in order. Never blocks.
#[derive(Debug)]
pub struct MessageSocket(OwnedFd);

/// One message received: its length and the descriptor that came with it.
#[derive(Debug)]
pub struct Received {
    /// The number of bytes of the buffer that were filled.
    pub bytes: usize,
    /// The descriptor that travelled with the message.
    pub fd: Option<OwnedFd>,
    /// True if the system dropped a descriptor that travelled with the message, because this
    /// process may open no more files.
    pub fd_is_lost: bool,
}

/// Returns the error of a process that may open no more files.
pub fn too_many_open_files() -> std::io::Error {
    Errno::MFILE.into()
}

/// The identity of the process at the other end, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The user.
    pub uid: u32,
    /// The process; `None` when it is not visible in this process's PID namespace.
    pub pid: Option<i32>,
}

impl MessageSocket {
    /// Creates two connected ends.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn pair() -> std::io::Result<(Self, Self)> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        Ok((Self(a), Self(b)))
    }

    /// Wraps an end that was inherited or received.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Connects to a [`Listener`] by its name.
    ///
    /// # Errors
    /// `ConnectionRefused` when no process listens under this name (any more), or the operating
    /// system's error.
    pub fn connect(name: &[u8]) -> std::io::Result<Self> {
        let socket = seqpacket()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Self(socket))
    }

    /// Connects to a [`Listener`] by the path of its socket.
    ///
    /// # Errors
    /// `NotFound` when nothing is at `path`; `ConnectionRefused` when no process listens there (any
    /// more); otherwise the operating system's error.
    pub fn connect_path(path: &Path) -> std::io::Result<Self> {
        let socket = seqpacket()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Sends one message, optionally with a descriptor.
    ///
    /// # Errors
    /// `WouldBlock` when the peer's buffer is full; `BrokenPipe` or `ConnectionReset` when the peer
    /// is gone; `InvalidInput` for an empty message, which no receiver accepts.
    pub fn send(&self, message: &[u8], fd: Option<BorrowedFd<'_>>) -> std::io::Result<()> {
        debug_assert!(message.len() <= MESSAGE_BYTES_MAX, "the sender respects the limit");
        if message.is_empty() {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                "cannot send an empty message: no receiver accepts one",
            ));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd]);
        if let Some(fds) = &fds {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(fds));
            debug_assert!(fits, "the buffer was made for one descriptor");
        }
        let sent = rustix::net::sendmsg(
            &self.0,
            &[IoSlice::new(message)],
            &mut ancillary,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        )?;
        debug_assert_eq!(sent, message.len(), "a message is sent whole or not at all");
        Ok(())
    }

    /// Receives one message into `buffer`; `None` at the end of the connection.
    ///
    /// # Errors
    /// `WouldBlock` when no message is waiting; `InvalidData` when a message is empty or longer
    /// than `buffer`; otherwise the operating system's error. Only an error for which [`is_end`] is
    /// true means that the connection has ended.
    pub fn receive(&self, buffer: &mut [u8]) -> std::io::Result<Option<Received>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got = rustix::net::recvmsg(
            &self.0,
            &mut [IoSliceMut::new(buffer)],
            &mut ancillary,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        )?;
        let mut fd = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fd = fds.into_iter().next().or(fd);
            }
        }
        if got.flags.contains(ReturnFlags::TRUNC) {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "received a message that is longer than the buffer",
            ));
        }
        if got.bytes == 0 {
            // The system reports both the end and an empty message as zero bytes.
            return match self.other_end_has_finished()? {
                true => Ok(None),
                false => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "received an empty message")),
            };
        }
        let fd_is_lost = fd.is_none() && got.flags.contains(ReturnFlags::CTRUNC);
        Ok(Some(Received { bytes: got.bytes, fd, fd_is_lost }))
    }

    /// Returns whether the other end will send nothing more: it was closed, or has
    /// [finished](Self::finish_sending).
    fn other_end_has_finished(&self) -> std::io::Result<bool> {
        let mut looked_at = [PollFd::new(&self.0, PollFlags::RDHUP)];
        rustix::event::poll(&mut looked_at, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(looked_at[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP))
    }

    /// Ends sending. The other end finds the end of the connection after the last message, and may
    /// still send.
    pub fn finish_sending(&self) {
        // The only failure is that the connection has ended already.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write);
    }

    /// Returns the identity of the process that connected, accepted or listened at the other end.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn peer(&self) -> std::io::Result<PeerIdentity> {
        // Not through `rustix`, whose type cannot express a process without a number.
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` bytes into `found`, and their number into
        // `bytes`. Both are local variables that live during the call.
        let failed = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut bytes,
            )
        };
        if failed != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(PeerIdentity { uid: found.uid, pid: (found.pid > 0).then_some(found.pid) })
    }
}

/// Returns whether an error of a [`MessageSocket`] means that its connection has ended. All other
/// errors are temporary or concern one message, for example a lack of memory or a malformed
/// message.
pub fn is_end(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected)
}

impl AsFd for MessageSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<MessageSocket> for OwnedFd {
    fn from(socket: MessageSocket) -> Self {
        socket.0
    }
}

/// The network namespace of this process. Abstract names and addresses of sockets are the same
/// within one namespace.
///
/// # Errors
/// The operating system's error if `/proc` is not mounted.
pub fn namespace() -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata("/proc/self/ns/net")?.ino())
}

/// Accepts connections under a name in the abstract namespace, which leaves nothing in the file
/// system.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens under `name`.
    ///
    /// # Errors
    /// `AddrInUse` when another process already listens under this name; `InvalidInput` when the
    /// name is too long.
    pub fn bind(name: &[u8]) -> std::io::Result<Self> {
        let socket = seqpacket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        rustix::net::listen(&socket, 1024)?;
        Ok(Self(socket))
    }

    /// Listens under a path in the file system, which the caller removes in the end.
    ///
    /// # Errors
    /// `AddrInUse` when something is at `path` already, also the socket of a process that has
    /// ended; otherwise the operating system's error.
    pub fn bind_path(path: &Path) -> std::io::Result<Self> {
        let socket = seqpacket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, 1024)?;
        Ok(Self(socket))
    }

    /// Accepts one waiting connection.
    ///
    /// # Errors
    /// `WouldBlock` when none is waiting; otherwise the operating system's error.
    pub fn accept(&self) -> std::io::Result<MessageSocket> {
        let socket = rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        Ok(MessageSocket(socket))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn seqpacket() -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The pages of a pipe, by default.
const PIPE_PAGES_MAX: usize = 16;

/// A counter or a pipe that wakes a thread blocked in [`wait_ready`].
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Creates a waker that has not been woken.
    ///
    /// # Errors
    /// The operating system's error, usually too many open files.
    pub fn new() -> std::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Creates a waker whose [`reset`](Self::reset) waits until it is woken.
    ///
    /// # Errors
    /// The operating system's error, usually too many open files.
    pub fn blocking() -> std::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    /// Creates a waker whose two sides are separate: the first is reset and waited for, the second
    /// is woken. A process that holds one side cannot make the other block.
    ///
    /// # Errors
    /// The operating system's error, usually too many open files.
    pub fn pair() -> std::io::Result<(Self, Self)> {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok((Self(read), Self(write)))
    }

    /// Wraps one side of a [pair](Self::pair) that another process sent.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        // The write fails only if the counter is at its maximum or the pipe is full; then the
        // descriptor is readable already. Or the other side of a pair is closed.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable again.
    pub fn reset(&self) {
        // A pair has 8 bytes for each time that it was woken. A read fails only if there are none.
        let mut buffer = [0; 4096];
        for _ in 0..PIPE_PAGES_MAX {
            match rustix::io::read(&self.0, &mut buffer) {
                Ok(bytes) if bytes == buffer.len() => {}
                _ => return,
            }
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A descriptor, and the events to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// True to wait for writability in addition to readability.
    pub writable: bool,
}

/// Blocks until one of the descriptors is readable (or writable, where requested), its peer is
/// gone, or `deadline` has passed. Returns for each descriptor whether it is ready.
///
/// # Errors
/// The operating system's error. A signal is not an error; the call then returns early.
pub fn wait_ready(interests: &[Interest<'_>], deadline: Option<Instant>) -> std::io::Result<Vec<bool>> {
    let mut fds: Vec<PollFd<'_>> = interests
        .iter()
        .map(|interest| {
            let write = if interest.writable { PollFlags::OUT } else { PollFlags::empty() };
            PollFd::from_borrowed_fd(interest.fd, PollFlags::IN | write)
        })
        .collect();
    let timeout = deadline.map(|deadline| {
        let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_secs(1 << 30));
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(_) => Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(Errno::INTR) => Ok(vec![false; interests.len()]),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    fn name(what: &str) -> Vec<u8> {
        format!("farside-test-{what}-{}", std::process::id()).into_bytes()
    }

    #[test]
    fn messages_keep_their_bounds_and_carry_descriptors() {
        let listener = Listener::bind(&name("bounds")).unwrap();
        let near = MessageSocket::connect(&name("bounds")).unwrap();
        let far = listener.accept().unwrap();
        assert_eq!(far.peer().unwrap().pid, Some(std::process::id() as i32));
        near.send(b"one", None).unwrap();
        near.send(b"three", Some(listener.as_fd())).unwrap();
        let mut buffer = [0; 64];
        let first = far.receive(&mut buffer).unwrap().unwrap();
        assert_eq!((&buffer[..first.bytes], first.fd.is_some()), (&b"one"[..], false));
        let second = far.receive(&mut buffer).unwrap().unwrap();
        assert_eq!((&buffer[..second.bytes], second.fd.is_some()), (&b"three"[..], true));
        assert_eq!(far.receive(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(near);
        assert!(far.receive(&mut buffer).unwrap().is_none());
    }

    #[test]
    fn a_message_too_long_for_its_buffer_is_an_error() {
        let (near, far) = MessageSocket::pair().unwrap();
        near.send(&[1; 100], None).unwrap();
        assert_eq!(far.receive(&mut [0; 10]).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    /// The system reports an empty message and the end alike, as zero bytes.
    #[test]
    fn an_empty_message_is_not_the_end() {
        let (near, far) = MessageSocket::pair().unwrap();
        let send_nothing = || rustix::net::send(&near.0, &[], SendFlags::NOSIGNAL).unwrap();
        let mut buffer = [0; 64];
        send_nothing();
        near.send(b"more", None).unwrap();
        let refused = far.receive(&mut buffer).unwrap_err();
        assert!(refused.kind() == ErrorKind::InvalidData && !is_end(&refused), "{refused}");
        assert_eq!(far.receive(&mut buffer).unwrap().unwrap().bytes, 4);
        assert_eq!(far.receive(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        near.finish_sending();
        assert!(far.receive(&mut buffer).unwrap().is_none());
        assert_eq!(near.send(b"", None).unwrap_err().kind(), ErrorKind::InvalidInput);
        drop(far);
        assert!(near.receive(&mut buffer).unwrap().is_none());
    }

    #[test]
    fn a_name_in_use_and_a_name_unused_are_errors() {
        let _first = Listener::bind(&name("twice")).unwrap();
        assert_eq!(Listener::bind(&name("twice")).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert_eq!(MessageSocket::connect(&name("unused")).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_waker_wakes_until_it_is_reset() {
        let (read, write) = Waker::pair().unwrap();
        for times in [1, 2, 100, 20_000] {
            (0..times).for_each(|_| write.wake());
            let look = || {
                let interest = Interest { fd: read.as_fd(), writable: false };
                wait_ready(&[interest], Some(farside_testbed::now())).unwrap()[0]
            };
            assert!(look());
            read.reset();
            assert!(!look(), "{times} times");
        }
        let waker = Waker::new().unwrap();
        let look = || {
            let interest = Interest { fd: waker.as_fd(), writable: false };
            wait_ready(&[interest], Some(farside_testbed::now())).unwrap()[0]
        };
        assert!(!look());
        waker.wake();
        waker.wake();
        assert!(look());
        waker.reset();
        assert!(!look());
    }
}
