//! The developer's commands: `cargo xtask COMMAND`.

mod steps;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND

  test    run every test: units, documents, processes that are started and killed, the model checker
  lint    formatting, clippy, documents, tidiness; all with warnings denied
  ci      what continuous integration runs: lint, then test
  tidy    the rules of the house that no compiler checks
  loom    the model checker alone
";

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    let outcome = match command.as_deref() {
        Some("test") => steps::test(),
        Some("lint") => steps::lint(),
        Some("ci") => steps::lint().and_then(|()| steps::test()),
        Some("tidy") => tidy::check(),
        Some("loom") => steps::loom(),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
