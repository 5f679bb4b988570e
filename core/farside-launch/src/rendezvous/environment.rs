//! The variables that other launchers set for the processes that they start.

use farside_sys::process::user_id;
use sha2::{Digest, Sha256};

use crate::error::{RendezvousError, Result};
use crate::settings::{Lookup, variable};

/// The port of process 0. It overrides `MASTER_PORT`, which a program may need for something else.
const PORT: &str = "FARSIDE_PORT";
const MASTER_ADDR: &str = "MASTER_ADDR";
const MASTER_PORT: &str = "MASTER_PORT";
/// The variables that together identify one start of a job under some launcher.
const JOB_NAMES: [&str; 4] = ["SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid"];
/// The range of derived ports. It lies below the ports that systems assign automatically.
const PORT_MIN: u16 = 20_480;
const PORT_COUNT: u16 = 8192;

/// The variables in which a launcher gives a process its number and the number of processes.
struct Family {
    process: &'static str,
    processes: &'static str,
    /// If not empty, the other variables count only if one of these is set as well. They can be set
    /// for other reasons.
    only_with: &'static [&'static str],
}

const FAMILIES: [Family; 3] = [
    Family { process: "RANK", processes: "WORLD_SIZE", only_with: &[] },
    Family { process: "OMPI_COMM_WORLD_RANK", processes: "OMPI_COMM_WORLD_SIZE", only_with: &[] },
    // A batch script has these variables too, but is not one of the processes that `srun` starts.
    Family {
        process: "SLURM_PROCID",
        processes: "SLURM_NTASKS",
        only_with: &["SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", MASTER_ADDR],
    },
];

/// The place of this process in a job, as its launcher says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of this process.
    pub(crate) process: u32,
    /// The number of processes.
    pub(crate) processes: u32,
    /// The machine of process 0.
    host: Option<String>,
    port: Option<u16>,
}

impl Place {
    /// Reads the variables. Returns `None` if no launcher started this process.
    ///
    /// # Errors
    /// [`Error::Rendezvous`](crate::Error::Rendezvous) or
    /// [`Error::JobEnded`](crate::Error::JobEnded) if a variable is invalid.
    pub(crate) fn from_environment(lookup: Lookup<'_>) -> Result<Option<Self>> {
        let is_there = |name: &&str| lookup(name).is_some_and(|text| !text.is_empty());
        let Some(family) = FAMILIES.iter().find(|family| {
            [family.process, family.processes].iter().all(is_there)
                && (family.only_with.is_empty() || family.only_with.iter().any(is_there))
        }) else {
            return Ok(None);
        };
        let (Some(process), Some(processes)) = (variable(lookup, family.process)?, variable(lookup, family.processes)?)
        else {
            return Ok(None);
        };
        if process >= processes {
            return Err(RendezvousError::NoSuchRank { rank: process, processes }.into());
        }
        let port = match variable(lookup, PORT)? {
            Some(port) => Some(port),
            None => variable(lookup, MASTER_PORT)?.or_else(|| derived_port(lookup)),
        };
        Ok(Some(Self { process, processes, host: host(lookup), port }))
    }

    /// Returns the port at which process 0 listens.
    pub(crate) fn port(&self) -> Result<u16> {
        Ok(self.port.ok_or(RendezvousError::NoAddress { what: "MASTER_PORT (or FARSIDE_PORT)" })?)
    }

    /// Returns the address of process 0.
    pub(crate) fn address(&self) -> Result<(String, u16)> {
        let host = self.host.clone().ok_or(RendezvousError::NoAddress { what: MASTER_ADDR })?;
        Ok((host, self.port()?))
    }
}

/// Returns the machine of process 0, if the environment names it.
fn host(lookup: Lookup<'_>) -> Option<String> {
    let text = |name: &str| Some(lookup(name)?.to_str()?.to_owned()).filter(|text| !text.is_empty());
    let listed = |name: &str| first_host(&text(name)?);
    let all_here = || {
        let together = text("OMPI_COMM_WORLD_SIZE")? == text("OMPI_COMM_WORLD_LOCAL_SIZE")?;
        together.then(|| "127.0.0.1".to_owned())
    };
    text(MASTER_ADDR)
        .or_else(all_here)
        .or_else(|| listed("SLURM_STEP_NODELIST"))
        .or_else(|| listed("SLURM_NODELIST"))
        .or_else(|| text("SLURM_LAUNCH_NODE_IPADDR"))
}

/// Derives a port from the name of the job. It is the same for all processes of one start, and is
/// unlikely to be that of another job.
fn derived_port(lookup: Lookup<'_>) -> Option<u16> {
    let names: Vec<_> = JOB_NAMES.iter().filter_map(|name| lookup(name)).collect();
    if names.is_empty() {
        return None;
    }
    let mut digest = Sha256::new().chain_update(user_id().to_le_bytes());
    for name in names {
        digest.update(name.as_encoded_bytes());
        digest.update(b"\0");
    }
    let digest = digest.finalize();
    Some(PORT_MIN + u16::from_le_bytes([digest[0], digest[1]]) % PORT_COUNT)
}

/// Returns the first host of a list in Slurm's notation: `n[01-04,7],login`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (prefix, rest) = list.split_at(end);
    let Some(numbers) = rest.strip_prefix('[') else { return Some(prefix.to_owned()).filter(|host| !host.is_empty()) };
    let (numbers, suffix) = numbers.split_once(']')?;
    let number = numbers.split([',', '-']).next()?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let suffix = suffix.split(',').next().unwrap_or_default();
    // Names with more than one dimension are not parsed; such a job needs MASTER_ADDR.
    (is_number && !suffix.contains('[')).then(|| format!("{prefix}{number}{suffix}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::error::LaunchError as Error;

    fn place(variables: &[(&str, &str)]) -> Result<Option<Place>> {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        Place::from_environment(&|name| variables.get(name).map(Into::into))
    }

    fn found(variables: &[(&str, &str)]) -> (u32, u32, Option<(String, u16)>) {
        let place = place(variables).unwrap().expect("a launcher started this process");
        (place.process, place.processes, place.address().ok())
    }

    #[test]
    fn every_launchers_variables_are_understood() {
        let at = |host: &str, port| Some((host.to_owned(), port));
        let torch = [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "n1"), ("MASTER_PORT", "29500")];
        assert_eq!(found(&torch), (1, 4, at("n1", 29500)));
        let mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(found(&mpi), (0, 2, None));
        let here = [&mpi[..], &[("OMPI_COMM_WORLD_LOCAL_SIZE", "2"), ("FARSIDE_PORT", "7")]].concat();
        assert_eq!(found(&here), (0, 2, at("127.0.0.1", 7)));
        let slurm = [
            ("SLURM_PROCID", "3"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_NODELIST", "n[03-04]"),
        ];
        let (process, processes, address) = found(&slurm);
        let (host, port) = address.unwrap();
        assert_eq!((process, processes, host.as_str()), (3, 8, "n03"));
        assert!((PORT_MIN..PORT_MIN + PORT_COUNT).contains(&port));
        // Farside's own port overrides the one that the program may use itself.
        assert_eq!(found(&[&torch[..], &[("FARSIDE_PORT", "9")]].concat()).2, at("n1", 9));
    }

    #[test]
    fn a_process_without_a_launcher_has_no_place() {
        for variables in [
            &[][..],
            &[("RANK", "1")],
            &[("WORLD_SIZE", "1")],
            &[("MASTER_ADDR", "n1"), ("MASTER_PORT", "1")],
            // A batch script.
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "77")],
        ] {
            assert_eq!(place(variables).unwrap(), None, "{variables:?}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        for (variables, word) in [
            ([("RANK", "x"), ("WORLD_SIZE", "4"), ("MASTER_PORT", "1")], "invalid value \"x\" for RANK"),
            ([("RANK", "1"), ("WORLD_SIZE", "-4"), ("MASTER_PORT", "1")], "invalid value \"-4\" for WORLD_SIZE"),
            ([("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_PORT", "70000")], "invalid value \"70000\" for MASTER_PORT"),
            ([("RANK", "4"), ("WORLD_SIZE", "4"), ("MASTER_PORT", "1")], "4 processes"),
        ] {
            let error = place(&variables).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let alone = place(&[("RANK", "1"), ("WORLD_SIZE", "4")]).unwrap().unwrap();
        for error in [alone.port().unwrap_err(), alone.address().unwrap_err()] {
            assert!(matches!(error, Error::Rendezvous(RendezvousError::NoAddress { .. })), "{error}");
        }
    }

    #[test]
    fn the_first_host_of_a_list_is_found() {
        for (list, first) in [
            ("n1", "n1"),
            ("n1,n2", "n1"),
            ("n[1-4]", "n1"),
            ("n[007,9-12]-ib,x", "n007-ib"),
            ("login,n[1-4]", "login"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
        for list in ["", ",", "n[", "n[]", "n[-4]", "n[x]", "r[1-2]n[3-4]"] {
            assert_eq!(first_host(list), None, "{list}");
        }
    }

    proptest! {
        #[test]
        fn any_list_has_a_first_host_or_none(list in ".{0,40}") {
            let _ = first_host(&list);
        }
    }
}
