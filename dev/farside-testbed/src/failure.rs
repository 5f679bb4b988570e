//! The failure of a step.

use std::fmt;

/// Number of lines from the end of a step's output that a failure shows.
const LINES_SHOWN: usize = 25;

/// A step that failed: its name, the cause, and the end of what it printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    step: String,
    cause: String,
    tail: Vec<String>,
}

impl Failure {
    /// Creates a failure of `step` with this cause.
    pub fn new(step: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self { step: step.into(), cause: cause.to_string(), tail: Vec::new() }
    }

    /// Adds the end of a log.
    #[must_use]
    pub fn with_log(mut self, log: &str) -> Self {
        let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
        self.tail = lines[lines.len().saturating_sub(LINES_SHOWN)..].to_vec();
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.cause)?;
        for line in &self.tail {
            write!(f, "\n    | {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;

    #[test]
    fn a_failure_shows_the_end_of_the_log() {
        let log: String = (0..100).map(|line| format!("line {line}\n\n")).collect();
        let text = Failure::new("boot", "no answer").with_log(&log).to_string();
        assert!(text.starts_with("boot: no answer\n    | line 75\n") && text.ends_with("| line 99"), "{text}");
    }
}
