//! `farside inspect`, with a job that this test program plays.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::{Pod, Zeroable};
use farside::{MakeArrays, Worker};
use farside_inspect::{Element, Expose, Kind, PublishError};
use farside_testbed::{CommandLine, ended_with_us, limit, wait_for, wait_until};
use serde_json::{Value, json};

/// The program, which has `run` of the command as well.
pub(crate) const INSPECT: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside-inspect"));

/// Returns the command in the folder of the program.
pub(crate) fn farside() -> PathBuf {
    let command = Path::new(INSPECT.0).with_file_name("farside");
    assert!(command.exists(), "{} is missing: build it with `cargo build`", command.display());
    command
}

/// The variable that makes this test program play the job.
pub(crate) const PART: &str = "FARSIDE_CLI_INSPECT_TEST_JOB";

/// Plays the job, if its environment says so.
#[test]
fn job() {
    let Ok(part) = std::env::var(PART) else { return };
    // `farside run` decides on the number of processes.
    let body = match &*part {
        STEERED => be_steered,
        SILENT => wait_until_told,
        _ => publish,
    };
    farside::job().run(body).unwrap();
}

/// The part of a job that shows nothing until a file is there, which [`TOLD_BY`] names.
const SILENT: &str = "silent";
const TOLD_BY: &str = "FARSIDE_CLI_INSPECT_TEST_TOLD_BY";

fn wait_until_told(me: &Worker) -> farside::Result<()> {
    let file = std::env::var_os(TOLD_BY).unwrap();
    if me.is_first() {
        me.wait_while_serving(|| Path::new(&file).exists())?;
        me.open_door()?;
    }
    me.wait_while_serving(|| false)
}

/// The rows that each worker has of the view `wide`, and its columns. Elements count from the step
/// times a million on.
const WIDE: u64 = 64;

/// An element of the view `particles`.
#[derive(Clone, Copy, Pod, Zeroable, Element)]
#[repr(C)]
struct Particle {
    position: [f64; 3],
    mass: f32,
    kind: u32,
}

/// The part of a job that can be changed.
pub(crate) const STEERED: &str = "steered";

fn be_steered(me: &Worker) -> farside::Result<()> {
    let (own, count) = (me.id().index(), me.worker_count() as usize);
    let _dt = me.parameter("dt", 0.5, 0.0..=10.0)?;
    let board = me.view::<u32>("board").shape([1, 4]).part_of([count, 4], [own, 0]).writable().open()?;
    let (acted, mut times) = (me.gauge("acted")?, 0.0);
    let _count = me.action("count", move |_| {
        times += 1.0;
        acted.set(times);
        Ok(())
    })?;
    let memory = me.global_array::<u32>(4 * count)?;
    let _memory = me.expose("memory", &memory)?.shape([count, 4])?.writable();
    let _echo = me.probe("echo", Kind::Plain, |me, question| {
        json!({ "said": question, "by": me.id().number() }).to_string().into_bytes()
    })?;
    let particles = me.view("particles").shape([2]).part_of([2 * count], [2 * own]).writable().open()?;
    let mut own_particles = [2 * own as u32, 2 * own as u32 + 1].map(|number| {
        let first = f64::from(number);
        Particle { position: [first, first + 0.25, first + 0.5], mass: number as f32 / 2.0, kind: number + 10 }
    });
    let side = WIDE as usize;
    let wide = me.view::<u64>("wide").shape([side, side]).part_of([side * count, side], [side * own, 0]).open()?;
    let mut row = [0; 4];
    publish_and(me, |step| {
        let first = step * 1_000_000 + own as u64 * WIDE * WIDE;
        wide.publish(step, &(first..first + WIDE * WIDE).collect::<Vec<_>>())?;
        particles.publish_mut(step, &mut own_particles)?;
        board.publish_mut(step, &mut row)
    })
}

fn publish(me: &Worker) -> farside::Result<()> {
    publish_and(me, |_| Ok(()))
}

fn publish_and(me: &Worker, mut more: impl FnMut(u64) -> Result<(), PublishError>) -> farside::Result<()> {
    let (own, count) = (me.id().index(), me.worker_count() as usize);
    let view = me.view::<f64>("heat").shape([2, 4]).part_of([2 * count, 4], [2 * own, 0]).units("K").open()?;
    let cube = me.view::<i32>("cube").shape([1, 2, 2]).part_of([count, 2, 2], [own, 0, 0]).open()?;
    for step in 0.. {
        let values: Vec<f64> = (0..8).map(|place| (own * 8 + place) as f64 + 0.5).collect();
        view.publish(step, &values)?;
        let first = own as i32 * 4;
        cube.publish(step, &[first, first + 1, first + 2, -first - 3])?;
        more(step)?;
        me.barrier()?;
    }
    Ok(())
}

/// The job, which is killed in the end.
pub(crate) struct Job {
    launcher: Child,
    pub(crate) name: String,
}

impl Job {
    pub(crate) fn start() -> Self {
        Self::start_as("plain")
    }

    pub(crate) fn start_as(part: &str) -> Self {
        Self::start_with(part, &[])
    }

    fn start_with(part: &str, settings: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cli-inspect-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut command = ended_with_us(INSPECT.0);
        command.args(["run", "-n", "2"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "inspect::job", "--nocapture", "--quiet"]);
        command.env(PART, part).env("FARSIDE_JOB", &name).envs(settings.iter().copied()).stdout(Stdio::null());
        command.env("FARSIDE_TIMEOUT_S", (2 * limit()).as_secs().to_string());
        Self { launcher: command.spawn().unwrap(), name }
    }

    /// Waits until both processes show all areas.
    pub(crate) fn wait(&mut self) {
        wait_until("the job shows its areas", || {
            assert!(self.launcher.try_wait().unwrap().is_none(), "the job has ended");
            let jobs = farside_viewer::jobs().unwrap();
            if !jobs.iter().any(|job| job.id.name == self.name && job.processes.len() == 2) {
                return false;
            }
            let is_complete = |area: &farside_viewer::AreaInfo| {
                area.parts.len() == 2 && (area.role != farside_viewer::Role::View || area.step().is_some())
            };
            // On a busy machine a process may not answer in time.
            let areas = farside_viewer::Inspector::connect(&self.name).and_then(|job| job.list());
            areas.is_ok_and(|areas| areas.len() >= 2 && areas.iter().all(is_complete))
        });
    }

    pub(crate) fn inspect(&self, question: &str, more: &[&str]) -> String {
        INSPECT.printed(&[&[question, "--job", &self.name, "--timeout", "60"], more].concat())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

pub(crate) fn object(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn a_running_job_is_found_listed_and_read() {
    let mut job = Job::start();
    job.wait();
    let jobs = INSPECT.printed(&["jobs"]);
    let line = jobs.lines().find(|line| line.starts_with(&job.name)).unwrap();
    assert!(line.ends_with("  2 of 2 processes"), "{line}");
    let jobs = INSPECT.printed(&["jobs", "--json"]);
    let found = jobs.lines().map(object).find(|found| found["name"] == json!(job.name)).unwrap();
    assert_eq!(found["process_count"], json!(2));

    let list = job.inspect("list", &[]);
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("cube  i32[2, 2, 2]  step "), "{list}");
    assert!(lines[1].starts_with("heat  f64[4, 4] K  step "), "{list}");
    let list = job.inspect("list", &["--json"]);
    let heat = object(list.lines().nth(1).unwrap());
    assert_eq!((&heat["type"], &heat["units"]), (&json!("f64"), &json!("K")));
    assert_eq!(heat["parts"][1]["origin"], json!([2, 0]));

    let got = job.inspect("get", &["heat[1:3, ::3]"]);
    let (head, rows) = got.split_once('\n').unwrap();
    assert!(head.starts_with("# heat f64[2, 2] K, step "), "{head}");
    assert_eq!(rows.trim_end(), "4.5 7.5\n8.5 11.5");
    let got = job.inspect("get", &["cube"]);
    assert_eq!(got.split_once('\n').unwrap().1.trim_end(), "0 1\n2 -3\n\n4 5\n6 -7");
    let got = object(&job.inspect("get", &["heat[-1, :2]", "--json"]));
    assert_eq!((&got["shape"], &got["values"]), (&json!([2]), &json!([12.5, 13.5])));
    let got = object(&job.inspect("get", &["cube[1, 1, 1]", "--json"]));
    assert_eq!((&got["shape"], &got["values"]), (&json!([]), &json!(-7)));

    let mut steered = Job::start_as(STEERED);
    steered.wait();
    let list = steered.inspect("list", &[]);
    assert!(list.contains("particles  struct {position: f64[3], mass: f32, kind: u32}[4]  step "), "{list}");
    let got = object(&steered.inspect("get", &["particles[3]", "--json"]));
    assert_eq!(got["values"], json!({ "position": [3.0, 3.25, 3.5], "mass": 1.5, "kind": 13 }));
    let got = object(&steered.inspect("get", &["particles[:1]", "--json"]));
    assert_eq!(got["values"], json!([{ "position": [0.0, 0.25, 0.5], "mass": 0.0, "kind": 10 }]));
    let got = steered.inspect("get", &["particles[::3]"]);
    let rows = got.split_once('\n').unwrap().1.trim_end();
    let expected = "## position f64[2, 3]\n0 0.25 0.5\n3 3.25 3.5\n## mass f32[2]\n0 1.5\n## kind u32[2]\n10 13";
    assert_eq!(rows, expected);
    for words in [&["plot", "particles"][..], &["put", "particles[0]", "1"]] {
        let arguments = [&[words[0], "--job", &steered.name], &words[1..]].concat();
        let output = std::process::Command::new(INSPECT.0).args(&arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains("struct"), "{error}");
    }
    drop(steered);

    let path = std::env::temp_dir().join(format!("farside-{}.npy", job.name));
    assert_eq!(job.inspect("get", &["heat", "--npy", path.to_str().unwrap()]), "");
    let file = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let elements: Vec<f64> =
        file[file.len() - 128..].chunks_exact(8).map(|bytes| f64::from_ne_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(elements, (0..16).map(|place| f64::from(place) + 0.5).collect::<Vec<_>>());

    let get = ["get", "--job", &job.name];
    let with = |words: &[&'static str]| [&get[..], words].concat();
    INSPECT.assert_refused(&with(&["heat[a]"]), 2, &["[a]", "number"]);
    INSPECT.assert_refused(&with(&["heat[4]"]), 2, &["outside", "-4 to 3"]);
    INSPECT.assert_refused(&with(&["cold"]), 1, &["cold", "cube, heat"]);
    INSPECT.assert_refused(&with(&["heat", "--step", "0"]), 1, &["step 0", "over"]);
    INSPECT.assert_refused(&["list", "--job", "no such job"], 1, &["no such job", &job.name]);
}

/// A job that shows itself on the network, and a file with its tokens.
#[test]
fn a_job_is_read_over_the_network_with_a_token() {
    let file = std::env::temp_dir().join(format!("farside-cli-tokens-{}", std::process::id()));
    let path = file.to_str().unwrap();
    assert_eq!(INSPECT.printed(&["token", path]), "");
    INSPECT.assert_refused(&["token", path], 1, &[path]);
    let settings = [("FARSIDE_INSPECT", "tcp://127.0.0.1:0"), ("FARSIDE_INSPECT_TOKEN_FILE", path)];
    let mut job = Job::start_with(STEERED, &settings);
    job.wait();
    let jobs = INSPECT.printed(&["jobs"]);
    let line = jobs.lines().find(|line| line.starts_with(&job.name)).unwrap();
    let (_, address) = line.split_once("2 of 2 processes  ").unwrap();
    let at = ["--job", address, "--token-file", path, "--timeout", "60"];
    let ask = |words: &[&str]| INSPECT.printed(&[words, &at[..]].concat());
    assert!(ask(&["put", "board[1, 2]", "7"]).starts_with("done after step "));
    assert!(ask(&["get", "board"]).ends_with("0 0 0 0\n0 0 7 0\n"));
    assert!(ask(&["list"]).contains("parameter from 0 to 10"));
    INSPECT.assert_refused(&["list", "--job", address], 1, &["--token-file"]);
    INSPECT.assert_refused(&["list", "--job", "tcp://nowhere", "--token-file", path], 1, &["tcp://nowhere"]);
    std::fs::remove_file(&file).unwrap();
}

/// A job that is to have a door on the network, and shows nothing, is listed with the reason why it
/// has none. Once it opens its doors, the address is there.
#[test]
fn a_job_that_shows_nothing_says_why_it_is_not_on_the_network() {
    let folder = std::env::temp_dir().join(format!("farside-cli-silent-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [tokens, told] = ["tokens", "told"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    INSPECT.printed(&["token", &tokens]);
    let settings =
        [("FARSIDE_INSPECT", "tcp://127.0.0.1:0"), ("FARSIDE_INSPECT_TOKEN_FILE", &*tokens), (TOLD_BY, &*told)];
    let job = Job::start_with(SILENT, &settings);
    let wait_for_line = |is_wanted: &dyn Fn(&str) -> bool| {
        wait_for("the job is listed", || {
            let jobs = INSPECT.printed(&["jobs"]);
            let line = jobs.lines().find(|line| line.starts_with(&job.name)).unwrap_or_default();
            is_wanted(line).then(|| line.to_owned())
        })
    };
    let line = wait_for_line(&|line| line.contains("2 seen through their launcher"));
    assert!(
        line.ends_with("; no door on the network: process 0 opens it when it shows something or calls `open_door`")
    );
    let jobs = INSPECT.printed(&["jobs", "--json"]);
    let found = jobs.lines().map(object).find(|found| found["name"] == json!(job.name)).unwrap();
    assert_eq!(found["awaits_network"], json!(true));
    std::fs::write(&told, "").unwrap();
    let line = wait_for_line(&|line| line.contains("  tcp://"));
    let (_, address) = line.split_once("  tcp://").unwrap();
    let address = format!("tcp://{address}");
    INSPECT.printed(&["top", &address, "--token-file", &tokens, "--once"]);
    drop(job);
    std::fs::remove_dir_all(&folder).unwrap();
}
