//! Brings what the beds need: installed by `apt-get`, if that can be done, and the pieces of the emulated machine
//! unpacked under the target folder.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use farside_testbed::{Failure, ended_with_us, has_program, is_privileged, run};

use super::packages::{beds_lacking, missing, packages};
use super::{Bed, vm_pieces, wheel};

/// How long one run of `apt-get` may take.
const APT_LIMIT: Duration = Duration::from_secs(300);

/// How often `apt-get` is tried: mirrors and locks are sometimes busy for a moment.
const TRIES: usize = 3;

/// Makes every bed but those in `without` ready. Takes no more than a moment when they are.
///
/// # Errors
/// Something is missing and cannot be installed from here: with the command that installs it.
pub(crate) fn setup(without: &[Bed]) -> Result<(), String> {
    let beds = Bed::all_but(without);
    for bed in without {
        println!("xtask: left out, as asked: {bed}");
    }
    install(&beds)?;
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
        return Err("the daemons of the test bed slurm run only as root; do without it: --without slurm".to_owned());
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
            "the test beds {} lack something ({}), and {why}. On Debian, as root:\n\n    {install}\n\nor do without them: \
             --without {}",
            names.join(", "),
            things.join(", "),
            names.join(" --without ")
        ));
    }
    println!("xtask: installing {} for the test beds", packages.join(" "));
    if let Err(failure) = update_lists() {
        // One of many sources may be out of order; what we need may be known from the others.
        println!("xtask: {failure}");
    }
    let arguments: Vec<_> = ["install", "--yes", "--no-install-recommends"].into_iter().chain(packages).collect();
    apt("apt-get install", &arguments)?;
    match missing(beds).first() {
        None => Ok(()),
        Some(need) => Err(format!("{} is installed, but {:?} is not there", need.package, need.thing)),
    }
}

/// Whether packages can be installed from here; if not, why.
fn can_install() -> Result<(), &'static str> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line == "ID=debian") || !has_program("apt-get") {
        return Err("this system is not Debian, whose packages are known here");
    }
    if !is_privileged() {
        return Err("only root can install it");
    }
    Ok(())
}

/// Has `apt-get` learn what packages there are. Needs root.
pub(crate) fn update_lists() -> Result<(), Failure> {
    apt("apt-get update", &["update", "-qq"])
}

/// Runs `apt-get` until it succeeds, a few times.
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

/// `apt-get` that asks nothing and waits for others that install.
pub(crate) fn apt_get() -> Command {
    let mut command = ended_with_us("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "DPkg::Lock::Timeout=120"]);
    command
}
