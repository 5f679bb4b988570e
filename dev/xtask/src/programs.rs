//! The programs that steps and beds run: the tests of the workspace and the command `farside`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::steps::{FEATURES, cargo, line};

/// The target that holds the integration tests of each package.
const INTEGRATION_TESTS: &str = "all";

/// The programs of the workspace, with the profile of the tests.
///
/// One command builds them all, also where one is wanted. If cargo is asked for some of the
/// packages, the features of their dependencies are others, and it builds most of them again.
#[derive(Debug)]
pub(crate) struct Programs {
    /// What cargo says about each of them.
    artifacts: Vec<Value>,
}

impl Programs {
    /// Builds the programs.
    pub(crate) fn build() -> Result<Self, String> {
        let mut command = cargo();
        command.args(["test", "--workspace", "--test", INTEGRATION_TESTS, "--no-run"]).args(FEATURES);
        command.arg("--message-format=json-render-diagnostics");
        let line = line(&command);
        println!("xtask: {line}");
        let output = command.stderr(std::process::Stdio::inherit()).output();
        let output = output.map_err(|error| format!("{line}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{line}: {}", output.status));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        Ok(Self { artifacts: printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() })
    }

    /// Returns the path of the command `farside`.
    pub(crate) fn farside(&self) -> Result<PathBuf, String> {
        self.find("farside-cli", "farside")
    }

    /// Returns the path of the integration tests of a package.
    pub(crate) fn tests_of(&self, package: &str) -> Result<PathBuf, String> {
        self.find(package, INTEGRATION_TESTS)
    }

    fn find(&self, package: &str, target: &str) -> Result<PathBuf, String> {
        let manifest = folder_of(package)?.join("Cargo.toml");
        let is_it = |artifact: &&Value| {
            artifact["manifest_path"].as_str().is_some_and(|path| Path::new(path) == manifest)
                && artifact["target"]["name"] == target
                && artifact["executable"].is_string()
        };
        let found = self.artifacts.iter().find(is_it).and_then(|artifact| artifact["executable"].as_str());
        found.map(PathBuf::from).ok_or_else(|| format!("cargo names no program {target} of {package}"))
    }
}

/// Returns the folder of a package, in which its tests must run.
pub(crate) fn folder_of(package: &str) -> Result<PathBuf, String> {
    std::path::absolute(Path::new("crates").join(package)).map_err(|error| format!("crates/{package}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_package() {
        let artifact = |package: &str, target: &str, executable: Value| {
            let manifest_path = folder_of(package).unwrap().join("Cargo.toml");
            serde_json::json!({ "manifest_path": manifest_path, "target": { "name": target }, "executable": executable })
        };
        let artifacts = vec![
            serde_json::json!({ "reason": "build-finished" }),
            artifact("a", "all", "one".into()),
            artifact("b", "all", Value::Null),
            artifact("farside-cli", "farside", "the command".into()),
        ];
        let programs = Programs { artifacts };
        assert_eq!(programs.tests_of("a"), Ok("one".into()));
        assert_eq!(programs.farside(), Ok("the command".into()));
        assert!(programs.tests_of("b").unwrap_err().contains("of b"));
    }
}
