//! Brings what the beds need. `apt-get` installs packages if it can; the pieces of the emulated
//! machine are unpacked under the target folder.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use farside_testbed::{Failure, ended_with_us, has_program, is_privileged, run};

use super::packages::{beds_lacking, missing, packages};
use super::{Bed, vm_pieces, wheel};

/// The time limit of one run of `apt-get`.
const APT_LIMIT: Duration = Duration::from_secs(300);

/// The number of times to try `apt-get`: mirrors and locks are sometimes busy for a moment.
const TRIES: usize = 3;

/// Makes these beds ready. Takes a moment if they are ready.
///
/// # Errors
/// Something is missing and this process cannot install it. The error has the command that does.
pub(crate) fn prepare(beds: &[Bed]) -> Result<(), String> {
    install(beds)?;
    if beds.contains(&Bed::RdmaVm) {
        vm_pieces::fetch()?;
    }
    if beds.contains(&Bed::Wheel) {
        wheel::fetch()?;
    }
    Ok(())
}

/// Installs what is missing for these beds.
pub(crate) fn install(beds: &[Bed]) -> Result<(), String> {
    if beds.contains(&Bed::Slurm) && !is_privileged() {
        return Err(
            "cannot set up the test bed slurm: its daemons run only as root; leave it out with --without slurm"
                .to_owned(),
        );
    }
    let needs = missing(beds);
    if needs.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = packages(&needs).into_iter().collect();
    let install = format!("apt-get update && apt-get install --no-install-recommends {}", packages.join(" "));
    if let Err(why) = can_install() {
        let lacking = beds_lacking(&needs, beds);
        let names = lacking.iter().map(|bed| bed.name()).collect::<Vec<_>>();
        let things: Vec<_> = needs.iter().map(|need| format!("{:?}", need.thing)).collect();
        return Err(format!(
            "cannot set up the test beds {}: {} are missing, and {why}; on Debian, as root:\n\n    {install}\n\nor leave the \
             beds out: --without {}",
            names.join(", "),
            things.join(", "),
            names.join(" --without ")
        ));
    }
    println!("xtask: installing {} for the test beds", packages.join(" "));
    if let Err(failure) = update_lists() {
        // One of many sources may fail, while the others list the packages that we need.
        println!("xtask: {failure}");
    }
    let arguments: Vec<_> = ["install", "--yes", "--no-install-recommends"].into_iter().chain(packages).collect();
    apt("apt-get install", &arguments)?;
    match missing(beds).first() {
        None => Ok(()),
        Some(need) => Err(format!("{} is installed, but {:?} is still missing", need.package, need.thing)),
    }
}

/// Checks whether this process can install packages. The error is the reason why not.
fn can_install() -> Result<(), &'static str> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line == "ID=debian") || !has_program("apt-get") {
        return Err("this system is not Debian");
    }
    if !is_privileged() {
        return Err("only root can install it");
    }
    Ok(())
}

/// Updates the package lists of `apt-get`. Needs root.
pub(crate) fn update_lists() -> Result<(), Failure> {
    apt("apt-get update", &["update", "-qq"])
}

/// Runs `apt-get` until it succeeds, at most [`TRIES`] times.
fn apt(step: &str, arguments: &[&str]) -> Result<(), Failure> {
    let mut tries = 1;
    loop {
        let mut command = apt_get();
        match run(step, command.args(arguments), APT_LIMIT) {
            Ok(_) => return Ok(()),
            Err(failure) if tries == TRIES => return Err(failure),
            Err(failure) => println!("xtask: try {tries} of {TRIES}: {failure}"),
        }
        thread::sleep(Duration::from_secs(5));
        tries += 1;
    }
}

/// Returns a command `apt-get` that asks no questions and waits while another process installs.
pub(crate) fn apt_get() -> Command {
    let mut command = ended_with_us("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "DPkg::Lock::Timeout=120"]);
    command
}
