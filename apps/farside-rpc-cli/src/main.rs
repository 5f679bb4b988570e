//! `farside rpc`: looks at a server of remote procedures from outside, and calls it.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    farside_command::run(farside_rpc_cli::run)
}
