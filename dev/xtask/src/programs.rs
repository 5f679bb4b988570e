//! The programs that steps and beds run: the tests of the workspace and the command `farside`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::steps::{cargo, line};

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The package.
    pub(crate) package: String,
    /// The name of the target: `all` and the like, or the name of the crate for its unit tests.
    pub(crate) target: String,
    /// The file to run.
    pub(crate) executable: PathBuf,
    /// The folder of the package, in which its tests run.
    pub(crate) folder: PathBuf,
}

/// The programs of the workspace, with the profile of the tests.
///
/// One command builds them all, also where one is wanted. If cargo is asked for some of the
/// packages, the features of their dependencies are others, and it builds most of them again.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The messages of cargo about each of them.
    artifacts: Vec<Value>,
}

impl Programs {
    /// Builds the programs, with the examples that some tests start.
    pub(crate) fn build() -> Result<Self, String> {
        let mut command = cargo();
        command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
        let line = line(&command);
        println!("xtask: {line}");
        let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{line}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{line}: {}", output.status));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        Ok(Self { artifacts: printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() })
    }

    /// Returns all test programs, by package and target.
    pub(crate) fn tests(&self) -> Vec<Program> {
        let is_test = |artifact: &&Value| artifact["profile"]["test"] == true && artifact["executable"].is_string();
        let mut tests: Vec<_> = self.artifacts.iter().filter(is_test).filter_map(program).collect();
        tests.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
        tests
    }

    /// Returns a test program.
    pub(crate) fn test(&self, package: &str, target: &str) -> Result<Program, String> {
        let found = self.tests().into_iter().find(|test| test.package == package && test.target == target);
        found.ok_or_else(|| format!("cargo names no test program {target} of {package}"))
    }

    /// Returns the path of the command `farside`.
    pub(crate) fn farside(&self) -> Result<PathBuf, String> {
        let is_it = |artifact: &&Value| {
            artifact["target"]["name"] == "farside"
                && artifact["target"]["kind"][0] == "bin"
                && artifact["profile"]["test"] == false
        };
        let found = self.artifacts.iter().find(is_it).and_then(|artifact| artifact["executable"].as_str());
        found.map(PathBuf::from).ok_or_else(|| "cargo names no program farside".to_owned())
    }
}

impl Program {
    /// Returns the names of the tests, without those that are marked as ignored: other tests start
    /// these.
    pub(crate) fn names(&self) -> Result<Vec<String>, String> {
        let all = self.listed(&[])?;
        let ignored = self.listed(&["--ignored"])?;
        Ok(all.into_iter().filter(|name| !ignored.contains(name)).collect())
    }

    fn listed(&self, more: &[&str]) -> Result<Vec<String>, String> {
        let mut command = Command::new(&self.executable);
        command.args(["--list", "--format", "terse"]).args(more).current_dir(&self.folder).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("{}: {error}", self.executable.display()))?;
        if !output.status.success() {
            return Err(format!("{}: listing its tests: {}", self.executable.display(), output.status));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        Ok(printed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }
}

/// Reads what cargo says about a program.
fn program(artifact: &Value) -> Option<Program> {
    let folder = Path::new(artifact["manifest_path"].as_str()?).parent()?;
    Some(Program {
        package: folder.file_name()?.to_str()?.to_owned(),
        target: artifact["target"]["name"].as_str()?.to_owned(),
        executable: artifact["executable"].as_str()?.into(),
        folder: folder.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_package() {
        let artifact = |folder: &str, target: &str, kind: &str, executable: Value, is_test: bool| {
            serde_json::json!({
                "manifest_path": format!("{folder}/Cargo.toml"),
                "target": { "name": target, "kind": [kind] },
                "profile": { "test": is_test },
                "executable": executable,
            })
        };
        let artifacts = vec![
            serde_json::json!({ "reason": "build-finished" }),
            artifact("/x/core/b", "all", "test", "of b".into(), true),
            artifact("/x/core/a", "all", "test", "of a".into(), true),
            artifact("/x/core/a", "a", "lib", Value::Null, true),
            artifact("/x/apps/farside-cli", "farside", "bin", "its units".into(), true),
            artifact("/x/apps/farside-cli", "farside", "bin", "the command".into(), false),
        ];
        let programs = Programs { artifacts };
        assert_eq!(programs.test("a", "all").unwrap().executable, Path::new("of a"));
        assert_eq!(programs.test("a", "all").unwrap().folder, Path::new("/x/core/a"));
        assert_eq!(programs.farside(), Ok("the command".into()));
        assert!(programs.test("b", "none").unwrap_err().contains("of b"));
        let packages: Vec<_> = programs.tests().into_iter().map(|test| test.package).collect();
        assert_eq!(packages, ["a", "b", "farside-cli"]);
    }
}
