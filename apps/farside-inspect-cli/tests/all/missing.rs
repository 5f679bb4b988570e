//! Programs that belong to no job: under `mpirun`, and what the command and the Python package say
//! of the elements of a process that is gone.

use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::park_timeout;
use std::time::Duration;

use farside_inspect::Standalone;
use farside_testbed::{ended_with_us, limit, python, run, wait_until};
use serde_json::json;

use crate::inspect::{INSPECT, farside, object};

/// The variable that makes this test program a rank.
const RANK: &str = "FARSIDE_CLI_MISSING_TEST";

/// Shows a row of two, if this process is to be a rank.
#[test]
fn rank() {
    if std::env::var_os(RANK).is_none() {
        return;
    }
    let shown = Standalone::begin().unwrap();
    let rank = shown.rank();
    let view = shown.view::<f64>("field").shape([1, 2]).part_of([2, 2], [rank as usize, 0]).open().unwrap();
    for step in 1.. {
        view.publish(step, &[f64::from(rank) + 1.0; 2]).unwrap();
        // Leaves the processor to others.
        park_timeout(Duration::from_millis(1));
    }
}

/// Programs that another launcher has started, and that end with the test.
struct Ranks(Vec<Child>);

impl Ranks {
    fn start(name: &str) -> Self {
        let start = |rank: u32| {
            let mut command = ended_with_us(std::env::current_exe().unwrap());
            command.args(["--exact", "missing::rank", "--nocapture", "--quiet"]).stdout(Stdio::null());
            command.env(RANK, "1").env("FARSIDE_JOB", name);
            command.env("OMPI_COMM_WORLD_RANK", rank.to_string()).env("OMPI_COMM_WORLD_SIZE", "2");
            command.spawn().unwrap()
        };
        Self((0..2).map(start).collect())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            // It may have ended already.
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// The answer of `farside inspect get` to an area of a job: its status, its output and its errors.
fn get(name: &str, area: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let words = [&["get", "--job", name, "--timeout", "60", area], more].concat();
    let output = INSPECT.command(&words).output().unwrap();
    let [said, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), said, errors)
}

fn wait_until_whole(name: &str) {
    wait_until("both ranks show their rows", || get(name, "field", &[]).0 == Some(0));
}

/// Starts two ranks, and ends one of them when both have shown their rows. Returns their name.
fn without_rank_1() -> (String, Ranks) {
    let name = format!("cli-missing-{}", std::process::id());
    let mut ranks = Ranks::start(&name);
    wait_until_whole(&name);
    ranks.0[1].kill().unwrap();
    ranks.0[1].wait().unwrap();
    (name, ranks)
}

#[test]
fn elements_of_a_process_that_is_gone_are_marked() {
    let (name, _ranks) = without_rank_1();
    let get = |area: &str, more: &[&str]| get(&name, area, more);
    // What is there is printed. The status tells that something is not.
    let (status, said, errors) = get("field", &[]);
    assert_eq!(status, Some(1), "{said}{errors}");
    assert!(said.contains("1 1") || said.contains("1  1"), "{said}");
    assert!(errors.contains("field") && errors.contains("[1:2, 0:2]"), "{errors}");
    let (status, said, errors) = get("field", &["--json"]);
    assert_eq!(status, Some(1), "{said}{errors}");
    let frame = object(&said);
    assert_eq!(frame["values"], json!([[1.0, 1.0], [null, null]]));
    let missing = &frame["missing"];
    assert_eq!((&missing[0]["origin"], &missing[0]["shape"]), (&json!([1, 0]), &json!([1, 2])), "{missing}");
    // What does not touch the part is whole.
    assert_eq!(get("field[0]", &[]).0, Some(0));
}

const SCRIPT: &str = r#"
import sys
import numpy
import farside

with farside.connect(sys.argv[1], timeout=60) as job:
    frame = job.area("field")[...]
    assert len(frame.missing) == 1 and frame[0].tolist() == [1, 1] and numpy.isnan(frame[1]).all(), frame
    assert frame.masked().mask.tolist() == [[False, False], [True, True]], frame.masked()
    assert len(job.area("field")[0].missing) == 0
print("done")
"#;

mod deep {
    use super::*;

    /// Programs of MPI, which are no job, as their own launcher starts them.
    #[test]
    fn programs_under_mpirun_are_seen_as_one() {
        farside_testbed::needs!("mpi");
        let name = format!("cli-mpi-{}", std::process::id());
        let mut command = ended_with_us("mpirun");
        // The programs end with the launcher, which is killed.
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", "2", "setpriv", "--pdeathsig", "KILL", "--"]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "missing::rank", "--nocapture", "--quiet"]).stdout(Stdio::null());
        let ranks = Ranks(vec![command.env(RANK, "1").env("FARSIDE_JOB", &name).spawn().unwrap()]);
        wait_until_whole(&name);
        let (status, said, errors) = get(&name, "field", &["--json"]);
        assert_eq!((status, &object(&said)["values"]), (Some(0), &json!([[1.0, 1.0], [2.0, 2.0]])), "{errors}");
        let jobs = INSPECT.printed(&["jobs"]);
        let line = jobs.lines().find(|line| line.starts_with(&name)).unwrap();
        assert!(line.contains("2 of 2 processes"), "{line}");
        drop(ranks);
    }

    #[test]
    fn elements_of_a_process_that_is_gone_are_not_a_number_in_python() {
        farside_testbed::needs!("python");
        let (name, _ranks) = without_rank_1();
        let mut script = ended_with_us(python().expect("the bed is there"));
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../services/farside-viewer/python");
        script.args(["-B", "-c", SCRIPT, &name]).env("PYTHONPATH", package).env("FARSIDE_COMMAND", farside());
        assert_eq!(run("the script", &mut script, limit()).unwrap(), "done");
    }
}
