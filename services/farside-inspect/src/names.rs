//! Where doors are: a name of this machine for each process, which says the user, the job and the
//! process. The launcher of `farside run` has `launcher` in the place of the process.
//!
//! `farside-rpc/inspect/USER/NAME/ID/PROCESS` in the abstract namespace of Unix sockets. The name
//! of the job is chosen or that of the program. Jobs of one name differ in the ID: a number made
//! from the name that `mpirun` or `srun` has for the start; otherwise the number of the system's
//! process that started the job's processes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use farside_rpc::Wire;
use farside_sys::process::user_id;

/// The variable that names a job.
pub(crate) const JOB: &str = "FARSIDE_JOB";

const PREFIX: &str = "farside-rpc/inspect/";
/// The name of the launcher in the place of the number of a process.
const OF_LAUNCHER: &str = "launcher";
/// The variable in which Farside's launcher gives its children its number in the system.
const LAUNCHER: &str = "FARSIDE_LAUNCHER";
/// The variables that together name one start of a job by another launcher, and those that its
/// processes alone have.
const STARTS: [&str; 3] = ["SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE"];
pub(crate) const RANKS: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

/// The longest name of a job. An address has 90 bytes.
const NAME_BYTES_MAX: usize = 40;

/// A job that can be inspected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Wire)]
#[wire(crate = "farside_rpc")]
pub struct JobId {
    /// The name: `FARSIDE_JOB` in the job's environment, or the file name of its program.
    pub name: String,
    /// A number that differs between jobs of one name.
    pub id: u32,
}

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.name, self.id)
    }
}

impl JobId {
    /// The job of this process.
    #[must_use]
    pub fn own() -> Self {
        let chosen = std::env::var_os(JOB).filter(|name| !name.is_empty());
        let program = || std::env::current_exe().ok()?.file_name().map(std::ffi::OsStr::to_owned);
        let name = chosen.or_else(program).unwrap_or_default();
        let id = start_number(std::os::unix::process::parent_id(), |name| std::env::var(name).ok());
        Self { name: tidied(&name.to_string_lossy()), id }
    }

    /// The job that this process starts.
    pub(crate) fn started_here(name: &str) -> Self {
        Self { name: tidied(name), id: std::process::id() }
    }

    /// Returns whether it can be the name of a job, and so be shown in a terminal.
    pub fn is_valid(&self) -> bool {
        tidied(&self.name) == self.name
    }

    /// Returns whether a user who wrote this means the job: by name, by ID, or both as `NAME/ID`.
    pub fn is_meant_by(&self, text: &str) -> bool {
        text == self.to_string() || text == self.id.to_string() || tidied(text) == self.name
    }

    /// Where the door of a process is.
    pub fn address(&self, process: u32) -> String {
        format!("shm:inspect/{}/{self}/{process}", user_id())
    }

    /// Where the door of the launcher is.
    pub fn launcher_address(&self) -> String {
        format!("shm:inspect/{}/{self}/{OF_LAUNCHER}", user_id())
    }
}

/// The number of the start of a job. Another launcher gives all its processes the same names in
/// their environment, and a shell may stand between it and a process.
fn start_number(parent: u32, variable: impl Fn(&str) -> Option<String>) -> u32 {
    // Farside's launcher starts the processes itself.
    let is_launched = variable(LAUNCHER).is_some_and(|launcher| launcher == parent.to_string());
    let has_rank = RANKS.iter().any(|(rank, _)| variable(rank).is_some());
    let names: Vec<String> = STARTS.iter().filter_map(|name| variable(name)).collect();
    if is_launched || !has_rank || names.is_empty() {
        return parent;
    }
    // FNV-1a.
    let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    names.join("/").bytes().fold(0x811c_9dc5, hash)
}

/// A name as it stands in an address.
fn tidied(name: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._-".contains(char);
    let name: String = name.chars().take(NAME_BYTES_MAX).map(|char| if is_plain(char) { char } else { '_' }).collect();
    if name.is_empty() { "job".into() } else { name }
}

/// The doors of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundDoors {
    /// The processes that have one.
    pub processes: BTreeSet<u32>,
    /// True if the launcher has one.
    pub has_launcher: bool,
}

/// The jobs of this user on this machine that have doors.
///
/// # Errors
/// The system's error if the table of sockets cannot be read.
pub fn jobs() -> io::Result<BTreeMap<JobId, FoundDoors>> {
    let table = std::fs::read("/proc/net/unix")?;
    Ok(jobs_in(&String::from_utf8_lossy(&table), user_id()))
}

/// Finds the doors of a user in the system's table of Unix sockets.
fn jobs_in(table: &str, user: u32) -> BTreeMap<JobId, FoundDoors> {
    let mut jobs: BTreeMap<JobId, FoundDoors> = BTreeMap::new();
    for line in table.lines() {
        // A connection has the name of its door. The flag marks sockets that listen.
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (Some("00010000"), Some(name)) = (fields.next(), fields.nth(3)) else { continue };
        if let Some((job, process)) = parse(name, user) {
            let doors = jobs.entry(job).or_default();
            match process {
                Some(process) => drop(doors.processes.insert(process)),
                None => doors.has_launcher = true,
            }
        }
    }
    jobs
}

/// The job of a door, and its process; none for the launcher.
fn parse(name: &str, user: u32) -> Option<(JobId, Option<u32>)> {
    let mut parts = name.strip_prefix('@')?.strip_prefix(PREFIX)?.split('/');
    let is_own = parts.next()?.parse() == Ok(user);
    let (name, id) = (parts.next()?, parts.next()?.parse().ok()?);
    let process = match parts.next()? {
        OF_LAUNCHER => None,
        process => Some(process.parse().ok()?),
    };
    let is_door = is_own && parts.next().is_none() && tidied(name) == name;
    is_door.then(|| (JobId { name: name.into(), id }, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_found_in_the_table_of_sockets() {
        let table = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000: 00000002 00000000 00010000 0001 01 1 @farside-rpc/inspect/7/heat/12/0
0000: 00000002 00000000 00010000 0001 01 2 @farside-rpc/inspect/7/heat/12/1
0000: 00000003 00000000 00000000 0001 03 3 @farside-rpc/inspect/7/heat/12/9
0000: 00000002 00000000 00010000 0001 01 4 @farside-rpc/inspect/8/heat/12/2
0000: 00000002 00000000 00010000 0001 01 5 @farside-rpc/inspect/7/heat/13/0
0000: 00000002 00000000 00010000 0001 01 6 @farside-rpc/inspect/7/heat/13/0/1
0000: 00000002 00000000 00010000 0001 01 7 @farside-rpc/inspect/7/h\u{1b}[2J/13/0
0000: 00000002 00000000 00010000 0001 01 8 @farside-rpc/kv
0000: 00000002 00000000 00010000 0001 01 9 /run/farside-rpc/inspect/7/heat/13/5
0000: 00000002 00000000 00010000 0001 01 10 @farside-rpc/inspect/7/heat/13/launcher
0000: 00000002 00000000 00010000 0001 01 11 @farside-rpc/inspect/7/plain/14/launcher
0000: 00000002 00000000 00010000 0001 01 12 @farside-rpc/inspect/7/plain/14/launchers
0000: 00000003 00000000 00000000 0001 03 13";
        let job = |name: &str, id, processes: &[u32], has_launcher| {
            (
                JobId { name: name.into(), id },
                FoundDoors { processes: processes.iter().copied().collect(), has_launcher },
            )
        };
        let expected = [job("heat", 12, &[0, 1], false), job("heat", 13, &[0], true), job("plain", 14, &[], true)];
        assert_eq!(jobs_in(table, 7), BTreeMap::from(expected));
    }

    #[test]
    fn a_start_by_another_launcher_has_a_number() {
        let number = |set: &[(&str, &str)]| {
            let found = |name: &str| set.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
            start_number(5, found)
        };
        let [rank, other, space] = [("PMIX_RANK", "0"), ("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prterun-a-17@1")];
        assert_eq!(number(&[rank]), 5);
        // A batch script, whose programs are no processes of one job.
        assert_eq!(number(&[("SLURM_JOB_ID", "7")]), 5);
        // A child of Farside's launcher, and a program that such a child has started.
        assert_eq!(number(&[rank, space, (LAUNCHER, "5")]), 5);
        let one = number(&[rank, space]);
        assert!(one != 5 && one == number(&[other, space]) && one == number(&[rank, space, (LAUNCHER, "4")]));
        assert_ne!(one, number(&[rank, ("PMIX_NAMESPACE", "prterun-a-17@2")]));
        let step = |step| number(&[("SLURM_PROCID", "1"), ("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", step)]);
        assert_ne!(step("0"), step("1"));
    }

    #[test]
    fn a_job_is_meant_by_its_name_or_number() {
        let job = JobId { name: tidied("my job/2"), id: 12 };
        assert_eq!(job.name, "my_job_2");
        assert!(["my job/2", "my_job_2", "12", "my_job_2/12"].into_iter().all(|text| job.is_meant_by(text)));
        assert!(["", "my_job", "13", "my_job_2/13"].into_iter().all(|text| !job.is_meant_by(text)));
        assert_eq!(tidied(""), "job");
        let longest = JobId { name: tidied(&"é".repeat(99)), id: u32::MAX };
        assert!(longest.address(u32::MAX).len() <= 90 && longest.launcher_address().len() <= 90);
    }
}
