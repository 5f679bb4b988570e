//! Two emulated hosts: network namespaces of this machine, joined by a pair of virtual Ethernet
//! devices.
//!
//! Each namespace has no name and is held by a process that reads from a pipe of this process. When
//! this process ends, for whatever reason, so do the holders, and with them the namespaces, the
//! devices and the addresses. Any number of pairs can therefore exist at the same time, all with
//! the same addresses.
//!
//! The two sides share everything except the network: file system, processes, clock, host name.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{Failure, deadline, ending_with_us, is_past, is_privileged, limit, run};

/// The name of the cable's end in each namespace.
const DEVICE: &str = "veth0";

/// Interval at which a waiting function checks for a change.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The place where the processes of a test meet: variables of the rendezvous that any launcher can
/// set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendezvous<'a> {
    /// Number of processes.
    pub world_size: u32,
    /// The side whose first process has rank 0.
    pub master: Side,
    /// The port on which the process of rank 0 listens.
    pub port: u16,
    /// The secret that the processes must present to be admitted.
    pub secret: &'a str,
}

impl Rendezvous<'_> {
    /// Sets the variables that give a process its place in the job.
    pub fn tell(&self, command: &mut Command, rank: u32) {
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", self.world_size.to_string())
            .env("MASTER_ADDR", self.master.address().to_string())
            .env("MASTER_PORT", self.port.to_string())
            .env("FARSIDE_SECRET", self.secret);
    }
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

impl Side {
    /// Both sides, in order.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// This side's address on the cable. Except for the loopback address, each side has no other.
    pub const fn address(self) -> Ipv4Addr {
        match self {
            Self::A => Ipv4Addr::new(10, 77, 0, 1),
            Self::B => Ipv4Addr::new(10, 77, 0, 2),
        }
    }
}

/// Two network namespaces with a cable between them.
#[derive(Debug)]
pub struct Pair {
    a: Holder,
    b: Holder,
}

/// Runs a test whose threads enter namespaces. If this process may do that, the test runs here.
/// Otherwise it runs in another process that may: this test binary, with this test alone.
///
/// # Panics
/// If the test fails in the other process.
pub fn with_privileges(limit: Duration, test: impl FnOnce()) {
    if is_privileged() {
        return test();
    }
    let thread = std::thread::current();
    let name = thread.name().expect("the harness gives a test's thread the test's name");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--"]).args(ending_with_us());
    command.arg(std::env::current_exe().expect("a test binary is a file")).args(["--exact", name, "--nocapture"]);
    if let Err(failure) = run(name, &mut command, limit) {
        panic!("{failure}");
    }
}

/// The success of the kernel in shaping a cable as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shaping {
    /// The cable delays and loses packets as requested.
    Applied,
    /// This kernel has no `netem`; the text is its message.
    Unavailable(String),
}

impl Pair {
    /// Creates both namespaces and the cable. Without privileges this happens in a user namespace,
    /// where the system allows every user to create one.
    ///
    /// # Errors
    /// A program is missing (`unshare`, `nsenter`, `setpriv`: util-linux; `ip`: iproute2), or
    /// namespaces are forbidden.
    pub fn new() -> Result<Self, Failure> {
        let a = Holder::start(None)?;
        let b = Holder::start(Some(&a))?;
        let pair = Self { a, b };
        let other = pair.b.child.id().to_string();
        let add = ["link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", other.as_str()];
        pair.ip(Side::A, &add)?;
        for side in Side::BOTH {
            let address = format!("{}/24", side.address());
            pair.ip(side, &["address", "add", &address, "dev", DEVICE])?;
            pair.ip(side, &["link", "set", "lo", "up"])?;
            pair.ip(side, &["link", "set", DEVICE, "up"])?;
        }
        pair.await_carrier()?;
        Ok(pair)
    }

    /// Builds a command for a program on one side. The program is killed when the thread that
    /// starts it ends.
    pub fn command(&self, side: Side, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.holder(side).enter();
        command.args(ending_with_us()).arg(program);
        command
    }

    /// Opens a side's namespace, for a thread that enters it
    /// (`farside_sys::process::enter_network`). Entering requires privileges; see
    /// [`with_privileges`].
    ///
    /// # Errors
    /// The operating system's error.
    pub fn namespace(&self, side: Side) -> std::io::Result<File> {
        File::open(self.holder(side).namespace())
    }

    /// The processes that run on either side. The list is empty once all commands, and the
    /// processes that these started, have ended.
    pub fn processes(&self) -> Vec<u32> {
        let sides = Side::BOTH.map(|side| std::fs::read_link(self.holder(side).namespace()).ok());
        let holders = Side::BOTH.map(|side| self.holder(side).child.id());
        let all = std::fs::read_dir("/proc").into_iter().flatten();
        let ids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let is_here = |id: &u32| {
            let namespace = std::fs::read_link(format!("/proc/{id}/ns/net")).ok();
            namespace.is_some() && sides.contains(&namespace) && !holders.contains(id)
        };
        ids.filter(is_here).collect()
    }

    /// Takes the cable down: from now on every packet is lost silently.
    ///
    /// # Errors
    /// The message of `ip`.
    pub fn cut(&self) -> Result<(), Failure> {
        self.ip(Side::A, &["link", "set", DEVICE, "down"])
    }

    /// Takes the cable up again.
    ///
    /// # Errors
    /// The message of `ip`.
    pub fn reconnect(&self) -> Result<(), Failure> {
        self.ip(Side::A, &["link", "set", DEVICE, "up"])?;
        self.await_carrier()
    }

    /// Waits until both sides report the cable as up. The kernel reports it up to a second late,
    /// and libfabric ignores the device until then.
    fn await_carrier(&self) -> Result<(), Failure> {
        let deadline = deadline();
        for side in Side::BOTH {
            let mut command = self.command(side, "ip");
            command.args(["-o", "link", "show", "dev", DEVICE, "up"]);
            while !run("ip link show", &mut command, limit())?.contains("state UP") {
                if is_past(deadline) {
                    return Err(Failure::new(
                        "connecting two namespaces",
                        format!("side {side:?} does not report the cable as up"),
                    ));
                }
                std::thread::sleep(LOOK_AGAIN);
            }
        }
        Ok(())
    }

    /// Delays every packet, in both directions, by `delay_ms`, and drops `loss_percent` percent of
    /// them. Replaces earlier values.
    ///
    /// # Errors
    /// `tc` is missing, or fails for another reason than a kernel without `netem`.
    pub fn shape(&self, delay_ms: u32, loss_percent: f32) -> Result<Shaping, Failure> {
        let (delay, loss) = (format!("{delay_ms}ms"), format!("{loss_percent}%"));
        for side in Side::BOTH {
            let mut command = self.command(side, "tc");
            command.args(["qdisc", "replace", "dev", DEVICE, "root", "netem", "delay", &delay, "loss", &loss]);
            match run("tc qdisc replace", &mut command, limit()) {
                Ok(_) => (),
                Err(failure) if failure.to_string().contains("qdisc kind is unknown") => {
                    return Ok(Shaping::Unavailable(failure.to_string()));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(Shaping::Applied)
    }

    fn holder(&self, side: Side) -> &Holder {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }

    fn ip(&self, side: Side, arguments: &[&str]) -> Result<(), Failure> {
        let mut command = self.command(side, "ip");
        run(&format!("ip {} on side {side:?}", arguments.join(" ")), command.args(arguments), limit()).map(|_| ())
    }
}

/// A process that keeps a network namespace alive for as long as this process holds its standard
/// input open.
#[derive(Debug)]
struct Holder {
    child: Child,
    in_user_namespace: bool,
}

impl Holder {
    /// Starts a holder. With `partner`, both namespaces have the same owner, so that a cable can
    /// join them.
    fn start(partner: Option<&Self>) -> Result<Self, Failure> {
        let in_user_namespace = partner.map_or_else(|| !is_privileged(), |other| other.in_user_namespace);
        let mut command = match partner {
            Some(other) if in_user_namespace => {
                let mut command = other.enter();
                command.arg("unshare");
                command
            }
            _ => Command::new("unshare"),
        };
        if in_user_namespace && partner.is_none() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--net", "sh", "-c", "echo ready; exec cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let step = "making a network namespace";
        let mut child = command.spawn().map_err(|error| Failure::new(step, format!("unshare: {error}")))?;
        // No deadline is needed: the holder writes its line or ends at once.
        let mut word = String::new();
        let spoke = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut word));
        let holder = Self { child, in_user_namespace };
        if word.trim() == "ready" {
            return Ok(holder);
        }
        Err(holder.refused(step, spoke))
    }

    fn refused(mut self, step: &str, spoke: Option<std::io::Result<usize>>) -> Failure {
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut errors, &mut said);
        }
        let why = match spoke {
            Some(Err(error)) => error.to_string(),
            _ => "this needs root, or a system that lets every user make user namespaces".to_owned(),
        };
        Failure::new(step, why).with_log(&said)
    }

    fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.child.id()).into()
    }

    /// Builds the beginning of a command that runs in this namespace.
    fn enter(&self) -> Command {
        let namespaces = format!("/proc/{}/ns", self.child.id());
        let mut command = Command::new("nsenter");
        if self.in_user_namespace {
            command.args([&format!("--user={namespaces}/user"), "--preserve-credentials"]);
        }
        command.arg(format!("--net={namespaces}/net"));
        command
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The calls fail only if the holder has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
