//! A Slurm of one node, inside a cell, for the duration of a test.

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use farside_testbed::{Echo, Failure, Running, ended_with_us, run};

use super::cell;

/// The time limit for the start of a daemon.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The time limit of one question to a daemon.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// The name of the configuration file.
const CONFIGURATION: &str = "slurm.conf";

/// The daemons. They end with the cell at the latest.
#[derive(Debug)]
pub(crate) struct Slurm {
    home: PathBuf,
    daemons: Vec<Running>,
}

impl Slurm {
    /// Starts the authentication service, the controller and the node, and waits until the node
    /// accepts jobs.
    pub(crate) fn start() -> Result<Self, Failure> {
        let home = PathBuf::from(cell::STATE).join("slurm");
        write_files(&home).map_err(|error| Failure::new(format!("writing {}", home.display()), error))?;
        let mut slurm = Self { home, daemons: Vec::new() };
        slurm.start_munge()?;
        for daemon in ["slurmctld", "slurmd"] {
            slurm.daemons.push(Running::start(daemon, slurm.program(daemon).arg("-D"), Echo::Quiet)?);
        }
        let idle = |slurm: &Self| {
            let mut sinfo = slurm.program("sinfo");
            run("sinfo", sinfo.args(["--noheader", "--format=%T"]), ASK_LIMIT).is_ok_and(|state| state.trim() == "idle")
        };
        slurm.wait_until("the node does not become idle", idle)?;
        Ok(slurm)
    }

    /// Returns a command that starts `ranks` ranks.
    pub(crate) fn srun(&self, ranks: usize) -> Command {
        let mut command = self.program("srun");
        command.args(["--ntasks", &ranks.to_string(), "--overcommit", "--oversubscribe", "--mpi=pmix"]);
        command
    }

    fn program(&self, name: &str) -> Command {
        let mut command = ended_with_us(name);
        command.env("SLURM_CONF", self.home.join(CONFIGURATION));
        command
    }

    fn start_munge(&mut self) -> Result<(), Failure> {
        let option = |name: &str, file: &str| format!("--{name}={}", self.home.join(file).display());
        let mut command = ended_with_us("munged");
        // Forced: munged refuses to start because of permissions that do not matter inside a cell.
        command.args(["--foreground", "--force"]);
        command.args([
            option("key-file", "munge/key"),
            option("seed-file", "munge/seed"),
            option("pid-file", "munge/pid"),
            option("socket", "munge.socket"),
        ]);
        self.daemons.push(Running::start("munged", &mut command, Echo::Quiet)?);
        let socket = self.home.join("munge.socket");
        self.wait_until("munged creates no socket", |_| socket.exists())
    }

    /// Waits until a condition holds, for as long as all daemons run.
    fn wait_until(&mut self, otherwise: &str, condition: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + START_LIMIT;
        while !condition(self) {
            for daemon in &mut self.daemons {
                if let Some(status) = daemon.status() {
                    return Err(daemon.failure(format!("ended: {status}")));
                }
            }
            if Instant::now() >= deadline {
                let log: Vec<_> = self.daemons.iter().map(Running::printed).collect();
                let cause = format!("{otherwise} within {} s", START_LIMIT.as_secs());
                return Err(Failure::new("starting Slurm", cause).with_log(&log.join("\n")));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn write_files(home: &Path) -> io::Result<()> {
    for folder in ["munge", "state", "spool"] {
        fs::create_dir_all(home.join(folder))?;
    }
    fs::set_permissions(home.join("munge"), Permissions::from_mode(0o700))?;
    let key = home.join("munge/key");
    let mut secret = [0; 128];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    fs::write(&key, secret)?;
    fs::set_permissions(&key, Permissions::from_mode(0o400))?;
    let cpus = thread::available_parallelism()?.get();
    fs::write(home.join(CONFIGURATION), configuration(&home.display().to_string(), cpus))
}

/// Returns the configuration: one partition with one node, this machine. The network belongs to the
/// cell, so the ports are free.
fn configuration(home: &str, cpus: usize) -> String {
    let (host, temporary) = (cell::HOST, cell::temporary_dir());
    format!(
        "ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
TmpFS={temporary}
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
SlurmctldPort=6817
SlurmdPort=6818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"
    )
}
