//! The `farside` command.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    farside_cli::main()
}
