//! A command of the workspace from outside, as scripts see it.

use std::process::{Command, Output};

use crate::limit;

/// A program with a command line, by its path.
#[derive(Clone, Copy, Debug)]
pub struct CommandLine(pub &'static str);

impl CommandLine {
    /// Returns the command with these arguments, to be started.
    ///
    /// Every machine has the loopback device that it uses, and nothing leaves the machine. The
    /// processes of a job wait for each other as long as tests do.
    pub fn command(self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0);
        command.args(arguments).env_remove("FARSIDE_FABRIC").env("FARSIDE_ADDRESS", "127.0.0.1");
        command.env("FARSIDE_TIMEOUT_S", limit().as_secs().to_string());
        command
    }

    /// Runs the command to its end.
    ///
    /// # Panics
    /// If the command cannot be started.
    pub fn output(self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the command can be started")
    }

    /// Returns the standard output of a command.
    ///
    /// # Panics
    /// If the command fails, or writes to the standard error.
    #[track_caller]
    pub fn printed(self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaints.is_empty(), "{arguments:?}: {}: {complaints}", output.status);
        String::from_utf8(output.stdout).expect("the output is text")
    }

    /// Checks that a command is refused.
    ///
    /// # Panics
    /// If its status is another, if it prints a result, or if its reason lacks one of the `words`.
    #[track_caller]
    pub fn assert_refused(self, arguments: &[&str], status: i32, words: &[&str]) {
        let output = self.output(arguments);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {complaints}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(complaints.starts_with("farside: error: "), "{arguments:?}: {complaints}");
        for word in words {
            assert!(complaints.contains(word), "{arguments:?} should say {word:?}: {complaints}");
        }
    }
}
