//! The test that exercises libfabric, for beds that run it in surroundings of theirs.

use std::path::{Path, PathBuf};

use crate::steps::cargo;

/// Its package and its name.
const PACKAGE: &str = "farside-fabric";
const TEST: &str = "ofi";

/// The folder where it is to be run.
pub(crate) fn folder() -> Result<PathBuf, String> {
    std::path::absolute(Path::new("crates").join(PACKAGE)).map_err(|error| error.to_string())
}

/// Builds it and returns where it is.
pub(crate) fn build() -> Result<PathBuf, String> {
    let words = ["test", "--package", PACKAGE, "--test", TEST, "--no-run"];
    let line = format!("cargo {}", words.join(" "));
    println!("xtask: {line}");
    let output = cargo().args(words).output().map_err(|error| format!("{line}: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{line}: {}\n{printed}", output.status));
    }
    let path = printed.lines().find_map(executable).ok_or_else(|| format!("{line}: names no program\n{printed}"))?;
    std::path::absolute(path).map_err(|error| format!("{path}: {error}"))
}

/// From `Executable tests/NAME.rs (PATH)`.
fn executable(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("Executable ")?.split_once('(')?.1.strip_suffix(')')
}

#[cfg(test)]
mod tests {
    use super::executable;

    #[test]
    fn cargo_says_where_a_test_is() {
        assert_eq!(executable("  Executable tests/ofi.rs (target/debug/deps/ofi-1)"), Some("target/debug/deps/ofi-1"));
        assert_eq!(executable("    Finished `test` profile (x)"), None);
    }
}
