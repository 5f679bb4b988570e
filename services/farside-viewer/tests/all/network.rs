//! Jobs that show themselves on the network.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use farside::Worker;
use farside_inspect::{Expose, JobId};
use farside_testbed::{ended_with_us, hold_still, limit, wait_for, wait_until};
use farside_viewer::{
    At, InspectError, Inspector, Refused, Selection, Target as Wanted, TokenError, create_token_file,
};

use crate::targets::{BOARD, COLUMNS, FIELD, ROWS, Target, patterns};

/// A folder with a file of tokens, one for looking and one for everything.
pub(crate) struct Tokens(PathBuf);

impl Tokens {
    pub(crate) fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("farside-inspect-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let all = Self(folder);
        create_token_file(&all.path("write")).unwrap();
        let text = std::fs::read_to_string(all.path("write")).unwrap();
        all.write("read", &text.lines().filter(|line| line.starts_with("read")).collect::<String>());
        all.write("wrong", "write 0123456789abcdef0123456789abcdef");
        all
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file as private as that of the tokens.
    fn write(&self, name: &str, text: &str) {
        std::fs::copy(self.path("write"), self.path(name)).unwrap();
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Starts a job that shows itself on the network.
    pub(crate) fn start(&self, part: &str) -> Target {
        let file = self.path("write");
        let settings =
            [("FARSIDE_INSPECT", "tcp://127.0.0.1:0"), ("FARSIDE_INSPECT_TOKEN_FILE", file.to_str().unwrap())];
        Target::start(part, &settings)
    }

    pub(crate) fn connect(&self, address: &str, token: &str) -> Result<Inspector, InspectError> {
        Ok(Inspector::connect(Wanted::new(address).token_file(Some(self.path(token))))?.deadline(limit()))
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Connects with the right to write. At the door, silent connections may have all places, and on a
/// busy machine a process may answer too late for one attempt.
fn connect(tokens: &Tokens, address: &str) -> Inspector {
    wait_for("a reader connects", || match tokens.connect(address, "write") {
        Err(InspectError::Silent { .. } | InspectError::Unreached { .. }) => None,
        connected => Some(connected.unwrap()),
    })
}

/// Where the door of process 0 of a job on this machine is on the network.
pub(crate) fn address_of(name: &str) -> String {
    // A job of another test may take the time for answers.
    wait_for("process 0 answers", || {
        let job = farside_viewer::jobs().unwrap().into_iter().find(|job| job.id.name == name)?;
        job.processes.into_iter().find_map(|about| about.network.filter(|_| about.process == 0))
    })
}

fn is_refused(error: &InspectError) -> bool {
    matches!(error, InspectError::Refused { refused: Refused::NoRight, .. })
}

#[test]
fn a_job_is_read_and_changed_over_the_network() {
    let tokens = Tokens::new("steered");
    let mut target = tokens.start("steered");
    target.inspect(2);
    let address = address_of(&target.name);
    let job = connect(&tokens, &address);
    assert_eq!(job.job().name, target.name);
    let all = Selection::all();
    let board = job.open::<u32>("board").unwrap();
    let changed: Vec<u32> = (0..2 * BOARD as u32).collect();
    board.put(&all, &changed).unwrap();
    assert_eq!(board.get(&all, At::Next).unwrap().values, changed);
    job.set("dt", 7.0).unwrap();
    assert_eq!(job.open::<f64>("seen").unwrap().get(&all, At::Next).unwrap().values, [7.0; 2]);
    assert_eq!(job.ask("echo", Some(1), "x").unwrap(), [(1, b"x to 1".to_vec())]);
    let paused = job.pause_at(At::Next).unwrap();
    let step = paused.step().unwrap();
    assert_eq!(paused.go_to_next().unwrap(), Some(step + 1));

    // Who may only look changes nothing, and ends nothing.
    let reader = wait_for("a reader connects", || tokens.connect(&address, "read").ok());
    let seen = reader.open::<f64>("seen").unwrap();
    assert_eq!(seen.get(&all, At::Now).unwrap().values, [7.0; 2]);
    assert!(is_refused(&reader.set("dt", 1.0).unwrap_err()));
    assert!(is_refused(&reader.act("count").unwrap_err()));
    assert!(is_refused(&reader.pause_at(At::Next).unwrap_err()));
    assert!(is_refused(&reader.open::<u32>("board").unwrap().put(&all, &changed).unwrap_err()));
    // The doors take what comes through one connection in its order.
    reader.resume().unwrap();
    assert_eq!(reader.is_paused().unwrap(), Some(Some(step + 1)));
    drop(paused);
    assert!(seen.get(&all, At::Next).unwrap().step.unwrap() > step);
    assert!(target.is_running());
    // The end of the job is heard.
    drop(target);
    wait_until("the end of the job is heard", || seen.get(&all, At::Next).is_err());
    let is_gone = || matches!(tokens.connect(&address, "write"), Err(InspectError::Unreached { .. }));
    wait_until("the door is gone", is_gone);
}

#[test]
fn memory_is_locked_and_written_over_the_network() {
    let tokens = Tokens::new("exposed");
    let mut target = tokens.start("exposed");
    target.inspect(2);
    let address = address_of(&target.name);
    let job = connect(&tokens, &address);
    let reader = wait_for("a reader connects", || tokens.connect(&address, "read").ok());
    let all = Selection::all();
    let pairs = job.open::<u64>("pairs").unwrap();
    pairs.put(&all, &[5; 4 * BOARD]).unwrap();
    let locked = job.lock("pairs").unwrap();
    assert!(is_refused(&reader.lock("pairs").unwrap_err()));
    assert!(is_refused(&reader.open::<u64>("pairs").unwrap().put(&all, &[5; 4 * BOARD]).unwrap_err()));
    drop(locked);
    let values = reader.open::<u64>("pairs").unwrap().get(&all, At::Now).unwrap().values;
    assert!(values.chunks(2 * BOARD).all(|part| part.iter().all(|value| *value == part[0])), "{values:?}");
    assert!(target.is_running());
}

/// The bytes that a [`Relay`] passes on to the door of each connection: more than a connection
/// takes to begin, and fewer than a large put.
const RELAYED: u64 = 64 << 10;

/// Connections to a door that stop in the middle of what their clients send.
struct Relay {
    address: String,
    /// How many connections have stopped.
    stopped: Arc<AtomicUsize>,
}

impl Relay {
    fn start(door: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        let stopped = Arc::<AtomicUsize>::default();
        let (door, count) = (door.trim_start_matches("tcp://").to_owned(), stopped.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&door).unwrap());
                let (mut down, mut up) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut down, &mut up));
                let count = count.clone();
                thread::spawn(move || {
                    let (mut client, mut server) = (client, server);
                    let passed = std::io::copy(&mut (&mut client).take(RELAYED), &mut server);
                    if passed.is_ok_and(|passed| passed == RELAYED) {
                        count.fetch_add(1, Ordering::SeqCst);
                        // The connection stays open.
                        hold_still();
                    }
                });
            }
        });
        Self { address, stopped }
    }
}

/// Readers that stop in the middle of a put keep no other waiting.
#[test]
fn readers_that_stop_in_a_put_keep_no_other_waiting() {
    const STOPPED: usize = 6;
    let tokens = Tokens::new("stopping");
    let mut target = tokens.start("exposed");
    target.inspect(2);
    let door = address_of(&target.name);
    let relay = Relay::start(&door);
    let puts: Vec<_> = (0..STOPPED)
        .map(|_| {
            let job = connect(&tokens, &relay.address);
            thread::spawn(move || {
                let first: Selection = format!("[:{FIELD}]").parse().unwrap();
                job.open::<u64>("field").unwrap().put(&first, &vec![u64::MAX; FIELD])
            })
        })
        .collect();
    wait_until("the readers stop", || relay.stopped.load(Ordering::SeqCst) >= STOPPED);
    let quick = connect(&tokens, &door);
    let (all, pairs) = (Selection::all(), quick.open::<u64>("pairs").unwrap());
    for number in 0..10 {
        pairs.put(&all, &[number; 4 * BOARD]).unwrap();
        assert_eq!(pairs.get(&all, At::Now).unwrap().values.len(), 4 * BOARD);
    }
    let field = quick.open::<u64>("field").unwrap().get(&all, At::Now).unwrap().values;
    assert!(!field.contains(&u64::MAX), "nothing is written of what has not come");
    assert!(puts.iter().all(|put| !put.is_finished()), "the readers have stopped until now");
    assert!(target.is_running());
}

/// A session, and so the page, for a job on the network reads that job alone.
#[test]
fn a_session_reads_a_job_on_the_network() {
    use farside_viewer::session::Session;
    use serde_json::json;

    let tokens = Tokens::new("session");
    let mut target = tokens.start("steered");
    let name = target.inspect(2).job().to_string();
    let wanted = Wanted::new(address_of(&target.name)).token_file(Some(tokens.path("read")));
    let session = Session::new(&wanted, limit());
    let answer = |question: serde_json::Value| session.answer(&question, &[]);
    // On a busy machine, a process may answer too late for one attempt to connect.
    let jobs = wait_for("the session connects", || {
        let head = answer(json!({ "do": "jobs" })).head;
        head["error"].is_null().then_some(head)
    });
    assert_eq!((&jobs["jobs"][0]["name"], &jobs["jobs"][1]), (&json!(target.name), &json!(null)), "{jobs}");
    for job in ["", &name] {
        let got = answer(json!({ "do": "get", "job": job, "area": "seen" }));
        assert_eq!((got.body.len(), &got.head["shape"]), (16, &json!([2])), "{}", got.head);
    }
    let error = answer(json!({ "do": "list", "job": "other" })).head["error"].to_string();
    assert!(error.contains("for the job"), "{error}");
    let error = answer(json!({ "do": "set", "parameter": "dt", "value": 1 })).head["error"].to_string();
    assert!(error.contains("only for looking"), "{error}");
    // A session for jobs of this machine connects to no other.
    let error = Session::new("", limit()).answer(&json!({ "do": "list", "job": wanted.to_string() }), &[]);
    assert!(error.head["error"].to_string().contains("tcp://"), "{}", error.head);
    drop(target);
    wait_until("the end is told", || answer(json!({ "do": "jobs" })).head == json!({ "jobs": [] }));
}

#[test]
fn who_has_no_token_is_refused_later() {
    read_among_others(5);
}

/// A wrong token, no token, bytes that are no greeting, and connections that say nothing: readers
/// with a token get what they want.
fn read_among_others(silent: usize) {
    let tokens = Tokens::new("refused");
    let mut target = tokens.start("pattern");
    target.inspect(2);
    let address = address_of(&target.name);
    wait_until("a wrong token is refused", || {
        let error = tokens.connect(&address, "wrong").unwrap_err();
        matches!(&error, InspectError::Unreached { cause, .. } if cause.contains("token"))
    });
    let error = tokens.connect(&address, "absent").unwrap_err();
    assert!(matches!(error, InspectError::Token(TokenError::Read { .. })), "{error}");
    let error = Inspector::connect(&address).unwrap_err();
    assert!(matches!(error, InspectError::Token(TokenError::None)), "{error}");
    let error = tokens.connect("tcp://127.0.0.1:1", "write").unwrap_err();
    assert!(matches!(error, InspectError::Unreached { .. }), "{error}");
    assert!(error.to_string().contains("when process 0 first shows something"), "{error}");
    let silent: Vec<_> = (0..silent).map(|_| TcpStream::connect(address.trim_start_matches("tcp://"))).collect();
    let mut garbage = TcpStream::connect(address.trim_start_matches("tcp://")).unwrap();
    garbage.write_all(&[9; 100]).unwrap();
    // The other process may take longer to open its door than a reader waits.
    let frame = wait_for("a frame of both processes", || {
        let job = connect(&tokens, &address);
        match job.open::<u64>("pattern").and_then(|area| area.get(&Selection::all(), At::Next)) {
            Err(InspectError::Incomplete { .. } | InspectError::Unreached { .. }) => None,
            got => Some(got.unwrap()).filter(|frame| frame.missing.is_empty()),
        }
    });
    assert!(frame.values == patterns(frame.step.unwrap(), 0..2 * ROWS, 0..COLUMNS));
    garbage.set_read_timeout(Some(limit())).unwrap();
    let _ = garbage.read_to_end(&mut Vec::new());
    drop(silent);
    assert!(target.is_running());
}

mod deep {
    use super::read_among_others;

    /// They have all places at the door until it gives them up, some seconds later.
    #[test]
    fn three_hundred_who_say_nothing_give_way() {
        read_among_others(300);
    }
}

/// These need a machine that is not busy.
mod timing {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn guessing_a_token_is_slow() {
        let tokens = Tokens::new("guessed");
        let mut target = tokens.start("pattern");
        target.inspect(2);
        let begun = Instant::now();
        assert!(tokens.connect(&address_of(&target.name), "wrong").is_err());
        assert!(begun.elapsed() >= Duration::from_millis(500));
    }
}

#[test]
fn a_job_does_not_open_a_door_without_tokens() {
    let mut target = Target::start("brief", &[("FARSIDE_INSPECT", "tcp")]);
    assert!(!target.wait(), "the job says that it has no token");
    let mut target = Target::start("brief", &[("FARSIDE_INSPECT", "tcp://nowhere")]);
    assert!(!target.wait(), "the job says that the setting has no such value");
}

/// A job whose process 0 looks at all of it over the network. Launchers start it as ranks.
#[test]
fn ranks_are_seen_over_the_network() {
    if std::env::var_os("FARSIDE_INSPECT_TOKEN_FILE").is_none() {
        // As an ordinary test, it starts itself with the setting.
        let tokens = Tokens::new("ranks");
        let mut command = ended_with_us(std::env::current_exe().unwrap());
        command.args(["--exact", "network::ranks_are_seen_over_the_network", "--nocapture"]);
        command.env("FARSIDE_INSPECT", "tcp").env("FARSIDE_INSPECT_TOKEN_FILE", tokens.path("write"));
        let ended = command.stdout(Stdio::null()).status().unwrap();
        assert!(ended.success(), "{ended}");
        return;
    }
    farside::job().processes(2).time_limit(2 * limit()).run(show_and_look).unwrap();
}

fn show_and_look(me: &Worker) -> farside::Result<()> {
    let count = me.worker_count() as usize;
    let view = me.view::<f64>("place").shape([1]).part_of([count], [me.id().index()]).open()?;
    let dt = me.parameter("dt", 0.5, 0.0..=9.0)?;
    let seen = me.view::<f64>("seen").shape([1]).part_of([count], [me.id().index()]).open()?;
    let guest = (me.id().number() == 0).then(|| thread::spawn(move || look_at_own_job(count)));
    for step in 0_u64.. {
        view.publish(step, &[f64::from(me.id().number())])?;
        seen.publish(step, &[dt.get()])?;
        let has_ended = guest.as_ref().is_some_and(thread::JoinHandle::is_finished);
        if me.all_reduce(has_ended, |one, other| one || other)? {
            break;
        }
    }
    guest.map_or(Ok(()), |guest| guest.join().map_err(|_| farside::Error::Room("the look failed".into())))
}

fn look_at_own_job(workers: usize) {
    let name = JobId::own().to_string();
    let address = wait_for("process 0 listens", || {
        let jobs = farside_viewer::jobs().unwrap();
        let own = jobs.into_iter().find(|job| job.id.to_string() == name);
        let mut processes = own.into_iter().flat_map(|job| job.processes);
        processes.find_map(|about| about.network.filter(|_| about.process == 0))
    });
    let job = crate::targets::connect(&address.replace('*', "127.0.0.1"));
    wait_until("all processes open their doors", || job.find_parts("seen") >= workers);
    let values = job.open::<f64>("place").unwrap().get(&Selection::all(), At::Next).unwrap().values;
    assert!(values.iter().copied().eq((0..workers).map(|worker| worker as f64)), "{values:?}");
    job.set("dt", 2.0).unwrap();
    let seen = job.open::<f64>("seen").unwrap().get(&Selection::all(), At::Next).unwrap().values;
    assert_eq!(seen, vec![2.0; workers]);
}

/// The questions of tests to a job.
pub(crate) trait Parts {
    /// The number of workers that show an area.
    fn find_parts(&self, name: &str) -> usize;
}

impl Parts for Inspector {
    fn find_parts(&self, name: &str) -> usize {
        self.list()
            .ok()
            .and_then(|areas| Some(areas.into_iter().find(|area| area.name == name)?.parts.len()))
            .unwrap_or(0)
    }
}
