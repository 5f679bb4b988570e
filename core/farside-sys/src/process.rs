//! Starting processes that end with their parent, and observing their end.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::time::{ClockId, clock_gettime};

use crate::net::{Interest, wait_ready};
pub use crate::origin::Origin;

/// A process that this one started. Its descriptor becomes readable when the process ends.
#[derive(Debug)]
pub struct Spawned {
    /// The child, to be waited for.
    pub child: Child,
    handle: OwnedFd,
}

impl Spawned {
    /// Asks the process to end, by SIGTERM. Does nothing if it has ended.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn ask_to_end(&self) -> std::io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.handle, Signal::TERM) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Spawned {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Drop for Spawned {
    /// Kills the process if it still runs, and reaps it.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The calls fail only if the process has ended in between.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A handle of any process. Its descriptor becomes readable when the process has ended.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// Opens the process with this number; `None` if there is none.
    ///
    /// # Errors
    /// The operating system's error, usually too many descriptors, or a number that is a thread's.
    pub fn of(pid: i32) -> std::io::Result<Option<Self>> {
        let pid = Pid::from_raw(pid.max(0)).ok_or(std::io::ErrorKind::InvalidInput)?;
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => Ok(Some(Self(handle))),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the process has ended: none of its threads runs any more, in user or kernel
    /// mode.
    pub fn has_ended(&self) -> bool {
        let watched = Interest { fd: self.0.as_fd(), writable: false };
        wait_ready(&[watched], Some(Instant::now())).is_ok_and(|ready| ready == [true])
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Starts `command` with `inherited` open under the same number. The kernel kills the new process
/// when the calling thread ends, even if that thread is killed.
///
/// # Errors
/// The operating system's error, usually a missing program or too many processes.
pub fn spawn(command: &mut Command, inherited: BorrowedFd<'_>) -> std::io::Result<Spawned> {
    spawn_told_by(Signal::KILL, command, inherited)
}

/// Starts `command` like [`spawn`], but asks the new process to end (SIGTERM) when the calling
/// thread ends. This suits programs that clean up their own children and files.
///
/// # Errors
/// The operating system's error, usually a missing program or too many processes.
pub fn spawn_asked(command: &mut Command, inherited: BorrowedFd<'_>) -> std::io::Result<Spawned> {
    spawn_told_by(Signal::TERM, command, inherited)
}

fn spawn_told_by(signal: Signal, command: &mut Command, inherited: BorrowedFd<'_>) -> std::io::Result<Spawned> {
    let parent = rustix::process::getpid();
    let number = inherited.as_raw_fd();
    let prepare = move || {
        // SAFETY: this runs in the new process, where the number still denotes the descriptor that
        // the parent borrowed.
        let inherited = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_setfd(inherited, rustix::io::FdFlags::empty())?;
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // If the parent died before the line above, the new process gets no signal.
        if rustix::process::getppid() != Some(parent) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: `prepare` runs between fork and exec; it makes three system calls, allocates nothing
    // and takes no lock.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn()?;
    let pid = Pid::from_child(&child);
    let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    Ok(Spawned { child, handle })
}

/// Takes ownership of a descriptor that the parent process left open under this number, and marks
/// it close-on-exec. `None` if no such descriptor is open, or `is_meant` finds that a copy of it is
/// another one; then it stays as it is.
///
/// # Safety
/// Nothing else in this process owns a descriptor that `is_meant` accepts, and the caller calls
/// this at most once for it.
pub unsafe fn take_inherited(number: RawFd, is_meant: impl FnOnce(OwnedFd) -> bool) -> Option<OwnedFd> {
    if number < 3 {
        return None;
    }
    // SAFETY: the number is used only to copy and mark the descriptor, if it is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if !is_meant(borrowed.try_clone_to_owned().ok()?) {
        return None;
    }
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).ok()?;
    // SAFETY: the descriptor is open and was accepted, so by the contract nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The processor time that this process has used, in user and kernel mode.
pub fn cpu_time_used() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// The time of the monotonic clock, which all processes of this machine share and which cannot be
/// set. Unlike an [`Instant`], it can be sent to another process.
pub fn monotonic_time() -> Duration {
    clock(ClockId::Monotonic)
}

/// The processor's time stamp counter. It is read in half of the time that a clock takes. Its rate
/// is constant and the same on all processors of a machine, but must be measured.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has this instruction. It reads a register only.
    unsafe { std::arch::x86_64::_rdtsc() }
}

fn clock(which: ClockId) -> Duration {
    let time = clock_gettime(which);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Makes the calling thread another user's, for ever. The other threads stay as they are. Tests
/// find out in this way what other users may do.
///
/// # Errors
/// The system's error, if the thread has not the right to do so.
pub fn set_thread_user(id: u32) -> std::io::Result<()> {
    Ok(rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(id))?)
}

/// The effective user of this process.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns random bytes from the system, suitable for a secret.
///
/// # Errors
/// The operating system's error.
pub fn random_bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// Sets those variables that are not yet set in this process's environment. Does so only if this
/// process has a single thread, because a second one could read the environment at the same time.
/// Returns whether it did. Use it for settings of libraries that are not yet opened.
pub fn set_default_environment(variables: &[(&str, &str)]) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
    if threads > 1 {
        return false;
    }
    for (name, value) in variables {
        if std::env::var_os(name).is_none() {
            // SAFETY: the system reports that this is the only thread, so nothing reads the
            // environment now, and only this thread could start another one.
            unsafe { std::env::set_var(name, value) };
        }
    }
    true
}

/// Bytes of memory that only this process uses, which its end would free. `None` if the system does
/// not report it.
pub fn private_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let kib: u64 =
        text.lines().find_map(|line| line.strip_prefix("Private_Dirty:"))?.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Moves the calling thread, and threads that it starts later, to another network namespace. Tests
/// use this to emulate several hosts. `namespace` is an open file such as `/proc/PID/ns/net`.
///
/// # Errors
/// The operating system's error, usually missing privileges.
pub fn enter_network(namespace: BorrowedFd<'_>) -> std::io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace, Some(rustix::thread::LinkNameSpaceType::Network))?)
}

/// Ends this process at once, as a kill from outside would. Tests use this to check how its peers
/// react.
pub fn kill_self() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}

/// Runs `run` in a forked child of this process, which has this thread alone, and ends with the
/// status that `run` returns, or is killed after a minute. Tests use this to check what becomes of
/// values in a child.
///
/// # Errors
/// The operating system's error.
///
/// # Safety
/// `run` accesses nothing that another thread may be changing at this moment, but by functions that
/// are prepared for a fork, as the allocator of the C library is.
pub unsafe fn in_child(run: impl FnOnce() -> u8) -> std::io::Result<std::process::ExitStatus> {
    // SAFETY: the caller answers for what the child does.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            // A child that hangs ends nevertheless.
            // SAFETY: the call has no preconditions. Without a handler the signal ends the child.
            unsafe { libc::alarm(60) };
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or(101);
            // SAFETY: the call has no preconditions, and runs no code of the program.
            unsafe { libc::_exit(status.into()) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the result.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            Ok(std::os::unix::process::ExitStatusExt::from_raw(status))
        }
    }
}

/// Stops all threads of this process, until it is continued from outside. For such tests as
/// [`kill_self`].
pub fn stop_self() {
    // The signal goes to this thread, so that it stops here. One for the process might stop another
    // thread first, and this one would run on for a moment.
    // SAFETY: the call has no preconditions.
    let _ = unsafe { libc::raise(libc::SIGSTOP) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::MessageSocket;

    #[test]
    fn the_end_of_a_process_is_seen() {
        let (_near, far) = MessageSocket::pair().unwrap();
        let mut spawned = spawn(Command::new("sleep").arg("600"), far.as_fd()).unwrap();
        let ready =
            |deadline| wait_ready(&[Interest { fd: spawned.as_fd(), writable: false }], Some(deadline)).unwrap()[0];
        assert!(!ready(farside_testbed::now()));
        rustix::process::kill_process(Pid::from_child(&spawned.child), Signal::TERM).unwrap();
        assert!(ready(farside_testbed::deadline()));
        assert!(!spawned.child.wait().unwrap().success());
    }

    #[test]
    fn a_process_that_is_asked_to_end_can_clean_up() {
        let (_near, far) = MessageSocket::pair().unwrap();
        // The shell runs its trap when its child has ended.
        let script = "trap 'exit 7' TERM; while :; do sleep 0.01; done";
        let mut spawned = spawn_asked(Command::new("sh").arg("-c").arg(script), far.as_fd()).unwrap();
        // A signal before the trap is set would end the shell without it, so the test waits for the
        // trap.
        let is_caught = |id: u32| {
            let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
            u64::from_str_radix(&caught, 16).unwrap() & (1 << 14) != 0
        };
        farside_testbed::wait_until("the shell sets its trap", || is_caught(spawned.child.id()));
        spawned.ask_to_end().unwrap();
        assert_eq!(spawned.child.wait().unwrap().code(), Some(7));
        spawned.ask_to_end().unwrap();
    }

    #[test]
    fn the_inherited_descriptor_is_open_in_the_new_process() {
        let (near, far) = MessageSocket::pair().unwrap();
        let script = format!("printf hello >&{}", far.as_fd().as_raw_fd());
        let mut spawned = spawn(Command::new("sh").arg("-c").arg(script), far.as_fd()).unwrap();
        assert!(spawned.child.wait().unwrap().success());
        let mut buffer = [0; 16];
        let got = near.receive(&mut buffer).unwrap().unwrap();
        assert_eq!(&buffer[..got.bytes], b"hello");
    }

    #[test]
    fn nothing_is_set_beside_other_threads() {
        // The test runner is a second thread. The case of a single thread: tests/environment.rs.
        assert!(!set_default_environment(&[("FARSIDE_TEST_DEFAULT", "set")]));
        assert_eq!(std::env::var_os("FARSIDE_TEST_DEFAULT"), None);
    }

    /// Other tests write and free memory of this process at the same time, so a child is measured.
    #[test]
    fn private_memory_grows_by_what_is_written() {
        let grown_mib = || {
            let before = private_memory_bytes().unwrap();
            let _written = std::hint::black_box(vec![1_u8; 64 << 20]);
            (private_memory_bytes().unwrap().saturating_sub(before) >> 20) as u8
        };
        // SAFETY: it uses memory of its own, system calls, and the allocator of the C library.
        let status = unsafe { in_child(grown_mib) }.unwrap();
        assert!((60..100).contains(&status.code().unwrap()), "64 MiB are written: {status}");
    }

    #[test]
    fn an_exited_process_is_seen_to_end() {
        let own = ProcessHandle::of(std::process::id() as i32).unwrap().expect("this process runs");
        assert!(!own.has_ended());
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id() as i32;
        let handle = ProcessHandle::of(pid).unwrap().expect("it was just started");
        assert!(!handle.has_ended());
        child.kill().unwrap();
        let watched = Interest { fd: handle.as_fd(), writable: false };
        assert_eq!(wait_ready(&[watched], Some(farside_testbed::deadline())).unwrap(), [true]);
        assert!(
            handle.has_ended() && ProcessHandle::of(pid).unwrap().is_some_and(|handle| handle.has_ended()),
            "the child has not been reaped yet"
        );
        child.wait().unwrap();
        assert!(handle.has_ended() && ProcessHandle::of(pid).unwrap().is_none());
        assert!(ProcessHandle::of(0).is_err() && ProcessHandle::of(-1).is_err());
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let (_near, far) = MessageSocket::pair().unwrap();
        let spawned = spawn(Command::new("sleep").arg("600"), far.as_fd()).unwrap();
        let pid = Pid::from_child(&spawned.child);
        drop(spawned);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
