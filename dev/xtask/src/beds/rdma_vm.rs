//! `cargo xtask rdma-vm`: programs of this machine in an emulated machine with a verbs device,
//! soft-RoCE.
//!
//! The emulated machine boots the kernel of Debian and mounts the files of this machine read-only,
//! so it runs the programs that were built here. Its only network is its own.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use farside_testbed::{Echo, Running, ended_with_us};

use super::cpio::Archive;
use super::vm_pieces::{self, Pieces};
use super::{Bed, BedOptions, NamedTests, fabric_test, is_one_search, job_test, quoted, setup, target_dir};
use crate::programs::Programs;

/// The default time limit of a run.
const LIMIT: Duration = Duration::from_secs(1400);

/// How often the machine is started. The emulator crashes now and then on a busy machine. A failure
/// in the emulated machine is not tried again.
const BOOTS: u32 = 3;

/// The address of the verbs device.
const ADDRESS: &str = "10.77.0.1";

/// The number of processors of the emulated machine.
const PROCESSORS: usize = 2;

/// The memory of the emulated machine. An endpoint over verbs takes about a hundred MiB, and two
/// tests with three endpoints each run at a time.
const MEMORY_MIB: usize = 2048;

/// Settings without which the transport refuses verbs. `farside` makes them for the processes that
/// it starts.
const REQUIRED: [&str; 2] = ["FI_OFI_RXM_USE_SRX=1", "FI_MR_CACHE_MONITOR=disabled"];

/// Settings of libfabric and of the tests. A completion queue of soft-RoCE has at most 32767
/// entries, and libfabric derives its size from the expected number of peers.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("RXE_ADDRESS", ADDRESS),
    ("FI_UNIVERSE_SIZE", "16"),
    ("FARSIDE_ADDRESS", ADDRESS),
    ("FARSIDE_TEST_ADDRESS", ADDRESS),
    ("FARSIDE_TEST_PROVIDERS", "verbs;ofi_rxm"),
    ("FARSIDE_TEST_CONNECTED", "verbs"),
    ("TERM", "dumb"),
];

/// Runs the given program or the checks of this bed. Returns the exit status of the guest.
pub(crate) fn run(options: &BedOptions) -> Result<ExitCode, String> {
    setup::install(&[Bed::RdmaVm])?;
    let pieces = vm_pieces::fetch()?;
    let script = if options.program.is_empty() { checks()? } else { given(&options.program)? };
    let begun = Instant::now();
    let home = Home::new()?;
    home.fill(&pieces, &script).map_err(|error| format!("{}: {error}", home.path.display()))?;
    let until = begun + options.limit().unwrap_or(LIMIT);
    let mut machine = boot(&pieces, &home, until)?;
    for _ in 1..BOOTS {
        let Some(signal) = machine.status().and_then(|status| status.signal()) else { break };
        println!("xtask: rdma-vm: the emulator itself crashed (signal {signal}); once more");
        machine = boot(&pieces, &home, until)?;
    }
    let status = fs::read_to_string(home.share().join("status")).unwrap_or_default();
    let status: u8 = status.trim().parse().map_err(|_| machine.failure("the machine ended before its script"))?;
    let verdict = if status == 0 { "passed".to_owned() } else { format!("failed with status {status}") };
    if status == 0 && options.program.is_empty() {
        is_one_search(&fs::read_to_string(home.share().join("search")).unwrap_or_default(), 2)?;
    }
    println!("xtask: rdma-vm: tested on soft-RoCE: {verdict} after {:.1} s", begun.elapsed().as_secs_f64());
    Ok(ExitCode::from(status))
}

/// Runs the emulated machine to its end.
fn boot(pieces: &Pieces, home: &Home, until: Instant) -> Result<Running, String> {
    let echo = Echo::Prefixed("  | ".into());
    let mut machine = Running::start("the emulated machine", &mut emulator(pieces, home), echo)?;
    machine.wait(until)?;
    Ok(machine)
}

/// The time limit of a test of a job: an emulated processor is slow.
const SLOW: &str = "FARSIDE_TIMEOUT_S=150";

/// Tests of jobs between processes that use verbs only.
const OVER_VERBS: [&str; 8] = [
    "calls::a_result_comes_back",
    "global::everything_by_processes",
    "heap::as_processes::blocks_go_across_and_come_back",
    "heap::as_processes::random_histories",
    "movement::everything_by_processes",
    "pipes::as_processes::messages_arrive_whole_and_in_order",
    "pipes::as_processes::offers_are_fetched",
    "sync::a_lock_lets_one_at_a_time",
];

/// Tests of containers between processes that use verbs only.
const CONTAINERS_OVER_VERBS: [&str; 3] =
    ["exchange::trees::by_processes", "map::whole::entries::by_processes", "queue::each_once::by_processes"];

/// Tests of jobs on two machines, which use verbs between them.
const ON_TWO_MACHINES: [&str; 2] = [job_test::ON_TWO_MACHINES, "calls::a_reply_may_be_given_to_a_third"];

/// Tests of bulk data by RDMA between separate programs.
const RPC_BY_RDMA: &str = "rdma::";

/// Returns the tests that this bed alone runs by their names.
pub(crate) fn named_tests() -> impl Iterator<Item = NamedTests> {
    let of_jobs = OVER_VERBS.into_iter().chain(ON_TWO_MACHINES);
    let of_jobs = of_jobs.map(|name| NamedTests::one(job_test::PACKAGE, "all", name));
    let of_containers =
        CONTAINERS_OVER_VERBS.into_iter().map(|name| NamedTests::one(job_test::PACKAGE, "containers", name));
    of_jobs.chain(of_containers).chain([NamedTests::all("farside-rpc", "all", RPC_BY_RDMA)])
}

/// Returns the script of the checks: a search by two processes, every check of the transport, tests
/// of jobs, and tests of bulk data between programs. The search and the jobs need no settings,
/// because their launcher makes them.
///
/// The ping-pong program of libfabric 1.17 is not run: it sometimes crashes here when its peer
/// disconnects.
fn checks() -> Result<String, String> {
    let programs = Programs::build()?;
    let tests_of =
        |package, target| programs.test(package, target).map(|program| program.executable.display().to_string());
    let fabric = programs.test(fabric_test::PACKAGE, "all")?;
    let test = fabric.executable.display().to_string();
    let words = |words: &[&str]| quoted(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    let farside = programs.farside()?.display().to_string();
    let search = words(&[&farside, "hex", "-n", "2", "--fabric", "ofi:verbs", "--seconds", "2", "--json"]);
    let folder = words(&["cd", &fabric.folder.display().to_string()]);
    let tests = words(&["env", REQUIRED[0], REQUIRED[1], &test, fabric_test::MODULE]);
    let program = tests_of(job_test::PACKAGE, "all")?;
    let containers = tests_of(job_test::PACKAGE, "containers")?;
    let job = |setting, program: &str, tests: &[&str]| {
        let options = ["--exact", "--include-ignored", "--test-threads=1"];
        words(&[&["env", SLOW, setting, program], tests, &options].concat())
    };
    let over_verbs = job("FARSIDE_FABRIC=ofi:verbs", &program, &OVER_VERBS);
    let containers = job("FARSIDE_FABRIC=ofi:verbs", &containers, &CONTAINERS_OVER_VERBS);
    let rpc = tests_of("farside-rpc", "all")?;
    let rpc = words(&["env", REQUIRED[1], &rpc, RPC_BY_RDMA, "--test-threads=1"]);
    let on_two_machines = job("FARSIDE_MACHINES=2", &program, &ON_TWO_MACHINES);
    Ok(format!(
        "timeout 60 {search} > /run/share/search || exit
cat /run/share/search
{folder} && {tests} || exit
{over_verbs} || exit
{containers} || exit
{on_two_machines} || exit
{rpc} || exit
"
    ))
}

/// Returns a script that runs the given program in the current folder.
fn given(program: &[String]) -> Result<String, String> {
    let here = std::env::current_dir().map_err(|error| format!("the current folder: {error}"))?;
    let folder = quoted(&["cd".to_owned(), here.display().to_string()]);
    Ok(format!("export {}\n{folder} && {}\n", REQUIRED.join(" "), quoted(program)))
}

/// The folder of a run, which is removed at the end.
#[derive(Debug)]
struct Home {
    path: PathBuf,
}

impl Home {
    fn new() -> Result<Self, String> {
        let runs = target_dir()?.join("beds");
        remove_left(&runs);
        let path = runs.join(format!("{RUN_PREFIX}{}", std::process::id()));
        let home = Self { path };
        fs::create_dir_all(home.share()).map_err(|error| format!("{}: {error}", home.path.display()))?;
        Ok(home)
    }

    /// The folder that the guest can write to.
    fn share(&self) -> PathBuf {
        self.path.join("share")
    }

    fn initial_files(&self) -> PathBuf {
        self.path.join("initramfs")
    }

    fn fill(&self, pieces: &Pieces, script: &str) -> std::io::Result<()> {
        let mut files = Archive::default();
        for folder in ["bin", "modules"] {
            files.folder(folder);
        }
        files.file("bin/busybox", &fs::read(pieces.busybox())?);
        for module in pieces.modules()? {
            let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.file(&format!("modules/{name}"), &fs::read(&module)?);
        }
        files.file("init", include_bytes!("guest-init.sh"));
        fs::write(self.initial_files(), files.finish())?;
        let settings: String = ENVIRONMENT.map(|(name, value)| format!("export {name}='{value}'\n")).concat();
        let device = include_str!("guest-device.sh");
        fs::write(self.share().join("guest.sh"), format!("{settings}{device}{script}"))?;
        fs::write(self.share().join("hosts"), format!("127.0.0.1 localhost\n{ADDRESS} rdma-vm\n"))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The beginning of the name of the folder of a run. The number of the process follows.
const RUN_PREFIX: &str = "vm-run-";

/// Removes the folders of killed runs.
fn remove_left(runs: &Path) {
    for entry in fs::read_dir(runs).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(process) = name.strip_prefix(RUN_PREFIX) else { continue };
        if !Path::new("/proc").join(process).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the command of the emulator. It emulates every instruction: inside a virtual machine,
/// KVM behaves differently from host to host, and sometimes refuses or hangs. The tests are short.
fn emulator(pieces: &Pieces, home: &Home) -> Command {
    let root = pieces.root();
    let mut command = ended_with_us(root.join("usr/bin/qemu-system-x86_64"));
    // The libraries that were unpacked with the emulator, besides the installed ones.
    command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    command.args(["-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max"]);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"]);
    command.args(["-smp", &PROCESSORS.to_string(), "-m", &MEMORY_MIB.to_string()]);
    for firmware in ["usr/share/qemu", "usr/share/seabios"] {
        command.arg("-L").arg(root.join(firmware));
    }
    command.arg("-kernel").arg(pieces.kernel()).arg("-initrd").arg(home.initial_files());
    command.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on audit=0"]);
    let shared =
        |path: &str, tag: &str| format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap");
    command.arg("-virtfs").arg(shared(&home.share().display().to_string(), "share"));
    command.arg("-virtfs").arg(format!("{},readonly=on", shared("/", "hostroot")));
    command
}
