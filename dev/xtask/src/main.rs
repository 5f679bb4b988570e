//! The developer's commands: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]

mod arguments;
mod beds;
mod lines;
mod programs;
mod steps;
mod tidy;

use std::process::ExitCode;

use arguments::Arguments;

const USAGE: &str = "usage: cargo xtask COMMAND

  test       every test: set up, then units, documents, jobs of processes, the model checker, the beds
  lint       formatting, clippy, documents, packages and tidy, with warnings denied
  ci         setup, lint and test, as continuous integration runs them
  tidy       [--lower]   the rules that no compiler checks; --lower lowers its allowances
  loom       only the model checker
  lines      the lines of code of each layer, as a table
  pictures   pictures of the demonstrations in a browser, into docs/pictures

test beds (docs/testing.md):
  setup      install what the beds need, or print how
  netns      [--cut MS] [--delay MS] [--loss PERCENT] [--limit S] [-- COMMAND [: COMMAND]]
             two ranks in two network namespaces with a cable between them
  launchers  [--limit S] [-- COMMAND]     four ranks under mpirun, then under srun of a Slurm of its own
  rdma-vm    [--limit S] [-- COMMAND]     a verbs device, soft-RoCE, in an emulated machine
  wheel      [--limit S]                  the tests of libfabric with the library of a Python package

test, ci, setup and launchers take --without BED for each bed to leave out: fabric, mpi, peers,
slurm, netns, rdma-vm, wheel, browser, python
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let arguments = match Arguments::parse(&command, words) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprint!("xtask: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut code = ExitCode::SUCCESS;
    let outcome = match command.as_str() {
        "test" => steps::test(&arguments.without),
        "lint" => steps::lint(),
        "ci" => steps::ci(&arguments.without),
        "tidy" => tidy::check(arguments.allowances),
        "lines" => lines::print(),
        "pictures" => steps::pictures(),
        "loom" => steps::loom(),
        "setup" => beds::setup::setup(&arguments.without),
        "netns" => beds::netns::run(&arguments),
        "launchers" => beds::launchers::run(&arguments),
        "wheel" => beds::wheel::run(&arguments),
        "rdma-vm" => beds::rdma_vm::run(&arguments).map(|status| code = status),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => code,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
