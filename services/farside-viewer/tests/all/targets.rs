//! The jobs that are looked into. This test program plays their parts.

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use farside::{Distribution, MakeArrays, RegisterMemory, Worker};
use farside_inspect::{Expose, ExposeError, Kind};
use farside_testbed::{ended_with_us, hold_still, limit, wait_for, wait_until};
use farside_viewer::{InspectError, Inspector, Target as Wanted};

/// The variable that makes this test program play a part.
pub(crate) const PART: &str = "FARSIDE_INSPECT_TEST_PART";
/// The variable that names the file of a [`Gate`].
const GATE: &str = "FARSIDE_INSPECT_TEST_GATE";
/// The line that a job prints when all its workers show their areas.
const SHOWN: &str = "all is shown";

/// The rows that each worker of `pattern` has, and the columns.
pub(crate) const ROWS: usize = 3;
pub(crate) const COLUMNS: usize = 200;

/// The element of `pattern` at a place and a step.
pub(crate) fn pattern(step: u64, row: u64, column: u64) -> u64 {
    step * 1_000_000 + row * 1000 + column
}

/// The elements of `pattern` at some places and a step, in row-major order.
pub(crate) fn patterns(step: u64, rows: Range<usize>, columns: Range<usize>) -> Vec<u64> {
    let places = rows.flat_map(|row| columns.clone().map(move |column| (row, column)));
    places.map(|(row, column)| pattern(step, row as u64, column as u64)).collect()
}

/// A job that is killed in the end.
pub(crate) struct Target {
    launcher: Child,
    out: BufReader<ChildStdout>,
    is_shown: bool,
    pub(crate) name: String,
}

impl Target {
    pub(crate) fn start(part: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_by(&[], part, settings)
    }

    /// Starts a job of some processes, and connects to it when all its workers show what they have.
    pub(crate) fn inspected(part: &str, processes: usize) -> (Self, Inspector) {
        let mut target = Self::start(part, &[]);
        let job = target.inspect(processes);
        (target, job)
    }

    /// The same as [`start`](Self::start), by a command with its arguments.
    pub(crate) fn start_by(launcher: &[&str], part: &str, settings: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}-{}-{part}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let program = std::env::current_exe().unwrap().into_os_string();
        let mut words = launcher.iter().map(Into::into).chain([program]);
        let mut command = ended_with_us(words.next().unwrap());
        command.args(words);
        command.args(["--exact", "targets::target", "--nocapture", "--quiet"]).stdout(Stdio::piped());
        command.env(PART, part).env("FARSIDE_JOB", &name);
        // No wait of a job ends before those of its test.
        command.env("FARSIDE_TIMEOUT_S", (2 * limit()).as_secs().to_string()).envs(settings.iter().copied());
        let mut launcher = command.spawn().unwrap();
        let out = BufReader::new(launcher.stdout.take().unwrap());
        Self { launcher, out, is_shown: false, name }
    }

    /// Connects to the job when all its workers show what they have.
    pub(crate) fn inspect(&mut self, processes: usize) -> Inspector {
        let mut line = String::new();
        while !self.is_shown {
            line.clear();
            // A job that shows nothing ends by itself.
            assert!(self.out.read_line(&mut line).unwrap() > 0, "{} has ended", self.name);
            self.is_shown = line.contains(SHOWN);
        }
        wait_until(&format!("{} has opened {processes} doors", self.name), || {
            assert!(self.is_running(), "{} has ended", self.name);
            let jobs = farside_viewer::jobs().unwrap();
            jobs.iter().any(|job| job.id.name == self.name && job.processes.len() == processes)
        });
        connect(&self.name)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.launcher.try_wait().unwrap().is_none()
    }

    /// Waits for the end of the job. Returns whether it succeeded.
    pub(crate) fn wait(&mut self) -> bool {
        let ended = || self.launcher.try_wait().unwrap();
        wait_for(&format!("{} ends", self.name), ended).success()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

/// Connects to a job, with a deadline that no question meets. On a busy machine, a process may
/// answer too late for one attempt.
pub(crate) fn connect(job: impl Into<Wanted>) -> Inspector {
    let job = job.into();
    let attempt = || match Inspector::connect(job.clone()) {
        Err(InspectError::Silent { .. } | InspectError::Unreached { .. }) => None,
        connected => Some(connected.unwrap().deadline(limit())),
    };
    wait_for("a reader connects", attempt)
}

/// A place at which programs wait until the test lets them through.
pub(crate) struct Gate(PathBuf);

impl Gate {
    pub(crate) fn new(test: &str) -> Self {
        Self(std::env::temp_dir().join(format!("farside-inspect-{test}-{}.gate", std::process::id())))
    }

    pub(crate) fn setting(&self) -> (&str, &str) {
        (GATE, self.0.to_str().unwrap())
    }

    pub(crate) fn open(&self) {
        std::fs::write(&self.0, "").unwrap();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // It may be shut still.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Waits until the test has opened the gate of this program.
pub(crate) fn pass_gate() {
    let gate = PathBuf::from(std::env::var_os(GATE).expect("the program has a gate"));
    wait_until("the gate is opened", || gate.exists());
}

/// Leaves the processors to others for a moment, which no verdict depends on.
pub(crate) fn breathe() {
    thread::park_timeout(Duration::from_micros(100));
}

/// Plays the part of a job, if its environment says so.
#[test]
pub(crate) fn target() {
    let Ok(part) = std::env::var(PART) else { return };
    // The test ends the job. If it cannot, the job ends by itself.
    let job = farside::job().processes(2).time_limit(2 * limit());
    let ended = match part.as_str() {
        "pattern" => job.run(|me| publish_patterns(me, u64::MAX)),
        "brief" => job.run(|me| publish_patterns(me, 100)),
        "steered" => job.run(be_steered),
        "working" => job.run(crate::activity::work),
        "shy" => job.run(show_one),
        "occupied" => job.run(|me| crate::activity::occupy(me).and_then(|()| show_one(me))),
        "exposed" => job.run(expose_memory),
        "wide" => job.run(show_wide),
        "rare" => job.run(show_rare_forms),
        "stuck" => job.run(stay_at_a_step),
        "threads" => job.threads_per_process(2).run(show_by_threads),
        "contended" => job.processes(1).run(lock_again_and_again),
        "page server" => crate::page::again::play_server(),
        "crowd" => crate::soak::play_crowd(),
        "everything" => crate::failures::play_everything(),
        "alone" => crate::standalone::play_rank(),
        "huge" => crate::standalone::play_huge(),
        "many" => job.run(show_many),
        "ending" => job.run(end_when_told),
        "refused" => job.run(crate::refused::play_refused),
        "unequal" => job.run(crate::refused::play_unequal),
        "refused alone" => crate::refused::play_refused_alone(),
        "probes" => job.run(answer_probes),
        part if part.starts_with("client ") => crate::steering::play_client(part),
        part => panic!("no part {part}"),
    };
    ended.unwrap();
}

/// Waits until all workers show what they have, and tells the test.
pub(crate) fn say_shown(me: &Worker) -> farside::Result<()> {
    me.barrier()?;
    say_shown_by_one(me);
    Ok(())
}

/// Tells the test that worker 0 shows what it has, if this is worker 0.
fn say_shown_by_one(me: &Worker) {
    if me.is_first() {
        println!("{SHOWN}");
    }
}

/// Publishes a pattern that has the step in each element. The workers do not wait for each other,
/// and each is sometimes faster and sometimes slower.
fn publish_patterns(me: &Worker, steps: u64) -> farside::Result<()> {
    let first = me.id().index() * ROWS;
    let whole = [me.worker_count() as usize * ROWS, COLUMNS];
    let view = me.view::<u64>("pattern").shape([ROWS, COLUMNS]).part_of(whole, [first, 0]).units("1").open()?;
    let columns = me.worker_count() as usize * 50;
    let side = me.view::<u64>("side").shape([7, 50]).part_of([7, columns], [0, me.id().index() * 50]).open()?;
    let own = me.view::<f32>(&format!("own {}", me.id().number())).open()?;
    let flags = me.view::<bool>("flags").shape([2]).part_of([4], [me.id().index() * 2]).open()?;
    say_shown(me)?;
    for step in 0..steps {
        view.publish(step, &patterns(step, first..first + ROWS, 0..COLUMNS))?;
        side.publish(step, &patterns(step, 0..7, me.id().index() * 50..(me.id().index() + 1) * 50))?;
        own.publish(step, &[step as f32])?;
        flags.publish(step, &[step % 2 == 0, true])?;
        match (step / 64 + u64::from(me.id().number())) % 3 {
            0 => {}
            1 => thread::yield_now(),
            _ => breathe(),
        }
        // The workers stay near each other.
        if step % 500 == 0 {
            me.barrier()?;
        }
    }
    me.barrier()
}

/// The areas of each worker of `many`.
pub(crate) const MANY: usize = 10_000;

/// Shows as many areas as fit, and one step of them.
fn show_many(me: &Worker) -> farside::Result<()> {
    let gauges: Vec<_> = (0..MANY)
        .map(|number| me.gauge(&format!("gauge {number} of {}", me.id().number())))
        .collect::<Result<_, _>>()?;
    gauges.iter().zip(0..).for_each(|(gauge, number)| gauge.set(f64::from(number)));
    let rest: Vec<_> = (0..).map_while(|number| me.gauge(&format!("rest {number}")).ok()).collect();
    assert_eq!(gauges.len() + rest.len(), 16_384, "the limit of a process");
    drop(rest);
    // With its last area, a name is free again.
    let _last = me.gauge("last")?;
    say_shown(me)?;
    me.wait_while_serving(|| false)
}

/// Publishes the pattern until a reader has set the parameter `end` to 1.
fn end_when_told(me: &Worker) -> farside::Result<()> {
    let first = me.id().index() * ROWS;
    let whole = [me.worker_count() as usize * ROWS, COLUMNS];
    let view = me.view::<u64>("pattern").shape([ROWS, COLUMNS]).part_of(whole, [first, 0]).open()?;
    let end = me.parameter("end", 0.0, 0.0..=1.0)?;
    say_shown(me)?;
    for step in 0.. {
        view.publish(step, &[step; ROWS * COLUMNS])?;
        if end.get() == 1.0 {
            return Ok(());
        }
        me.barrier()?;
    }
    Ok(())
}

/// Worker 0 publishes steps. Worker 1 shows nothing: if the test says so, it computes for so long
/// that it answers no calls meanwhile. Then it waits for worker 0 at each step.
fn show_one(me: &Worker) -> farside::Result<()> {
    if !me.is_first() {
        if std::env::var_os("FARSIDE_INSPECT_TEST_COMPUTES").is_some() {
            hold_still();
        }
        loop {
            me.barrier()?;
        }
    }
    let view = me.view::<u64>("steps").open()?;
    say_shown_by_one(me);
    for step in 0.. {
        view.publish(step, &[step])?;
        breathe();
        me.barrier()?;
    }
    Ok(())
}

/// The elements of a row of `board`.
pub(crate) const BOARD: usize = 16;

/// Publishes at each step what this worker sees of a parameter, of changes and of actions. The
/// workers do not wait for each other, but stay near.
fn be_steered(me: &Worker) -> farside::Result<()> {
    let (own, workers) = (me.id().index(), me.worker_count() as usize);
    let dt = me.parameter("dt", 0.5, 0.0..=1000.0)?;
    let seen = me.view::<f64>("seen").shape([1]).part_of([workers], [own]).open()?;
    let board = me.view::<u32>("board").shape([1, BOARD]).part_of([workers, BOARD], [own, 0]).writable().open()?;
    let acted = me.view::<u64>("acted").shape([1]).part_of([workers], [own]).open()?;
    let fixed = me.view::<f32>("fixed").shape([1]).part_of([workers], [own]).open()?;
    fixed.publish(0, &[1.0])?;
    let residual = me.gauge("residual")?;
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    let _count = me.action("count", move |me| {
        // A collective works here, since all workers are at the same step.
        let sum = me.all_reduce(counted.get(), |a, b| a + b)?;
        assert_eq!(sum, counted.get() * u64::from(me.worker_count()));
        counted.set(counted.get() + 1);
        Ok(())
    })?;
    let _nap = me.action("nap", |_| {
        pass_gate();
        Ok(())
    })?;
    let _fail = me.action("fail", |_| Err(farside::Error::Room("as was asked".into())))?;
    let _probe = me.probe("echo", Kind::Plain, |me, question| {
        assert!(question != "panic", "as was asked");
        format!("{} to {}", question, me.id().number()).into_bytes()
    })?;
    say_shown(me)?;
    let mut row = [0_u32; BOARD];
    for step in 1_u64.. {
        // Changes come in the first publication of a step. The parameter is read behind it.
        board.publish_mut(step, &mut row)?;
        seen.publish(step, &[dt.get()])?;
        acted.publish(step, &[count.get()])?;
        residual.set(1.0 / step as f64);
        if (step / 16 + own as u64).is_multiple_of(3) {
            breathe();
        }
        if step.is_multiple_of(50) {
            me.barrier()?;
        }
    }
    Ok(())
}

/// The elements that each worker has of `field`. Readers copy memory of this size themselves.
pub(crate) const FIELD: usize = 1 << 15;

/// The rows of each worker of `wide`, and its columns.
pub(crate) const WIDE: usize = 1024;

/// Publishes 8 MiB, which readers change.
fn show_wide(me: &Worker) -> farside::Result<()> {
    let whole = [me.worker_count() as usize * WIDE, WIDE];
    let view = me.view::<f64>("wide").shape([WIDE, WIDE]).part_of(whole, [me.id().index() * WIDE, 0]).writable();
    let view = view.open()?;
    say_shown(me)?;
    let mut values = vec![0.0; WIDE * WIDE];
    for step in 0_u64.. {
        view.publish_mut(step, &mut values)?;
        breathe();
        me.barrier()?;
    }
    Ok(())
}

/// The shape of `deep`.
pub(crate) const DEEP: [usize; 8] = [1, 2, 1, 2, 1, 2, 1, 3];

/// Each worker publishes complex numbers, whose real parts are the step, and an array of eight
/// dimensions, whose elements count up.
fn show_rare_forms(me: &Worker) -> farside::Result<()> {
    let (own, workers) = (me.id().index(), me.worker_count() as usize);
    let waves = me.view::<[f32; 2]>("waves").shape([2]).part_of([2 * workers], [2 * own]).kind(Kind::Line).open()?;
    let whole = [workers, 2, 1, 2, 1, 2, 1, 3];
    let deep =
        me.view::<u16>("deep").shape(DEEP).part_of(whole, [own, 0, 0, 0, 0, 0, 0, 0]).kind(Kind::Table).open()?;
    say_shown(me)?;
    let count = DEEP.iter().product::<usize>();
    let numbers: Vec<u16> = (own * count..(own + 1) * count).map(|number| number as u16).collect();
    for step in 0_u64.. {
        waves.publish(step, &[[step as f32, -1.5], [step as f32, own as f32]])?;
        deep.publish(step, &numbers)?;
        breathe();
        me.barrier()?;
    }
    Ok(())
}

/// Exposes memory, and changes two halves of each worker's part to the same values under a lock.
fn expose_memory(me: &Worker) -> farside::Result<()> {
    let array = me.global_array::<u64>(2 * BOARD * me.worker_count() as usize)?;
    let shown = me.expose("pairs", &array)?.shape([2 * me.worker_count() as usize, BOARD])?.writable().units("1")?;
    let shown = shown.origin([1.0, 2.0])?.spacing([0.5, 0.25])?;
    let own = me.register(vec![f64::from(me.id().number()); 4])?;
    let _own = me.expose(&format!("own {}", me.id().number()), &own)?;
    let column = me.register(vec![me.id().number(); 6])?;
    let columns = [2, 3 * me.worker_count() as usize];
    let shown_column = me.expose("columns", &column)?.shape([2, 3])?.part_of(columns, [0, 3 * me.id().index()])?;
    let _column = shown_column.writable();
    let loose = me.symmetric::<u16>(3)?;
    let _loose = me.expose("loose", &loose)?;
    let field = me.symmetric::<u64>(FIELD)?;
    let shown_field = me.expose("field", &field)?.writable();
    let dealt = me.global_array_as::<u32>(8 * me.worker_count() as usize, Distribution::block_cyclic(4))?;
    dealt.local_indices(me).enumerate().for_each(|(place, index)| dealt.local(me).set(place, index as u32));
    let _dealt = me.expose("dealt", &dealt)?.writable();
    let blocks = me.expose("blocks", &dealt)?;
    assert!(matches!(blocks.shape([2, 8]), Err(ExposeError::Shape { .. })));
    let _blocks = me.expose("blocks", &dealt)?.shape([2, me.worker_count() as usize, 2, 2])?;
    let cyclic = me.global_array_as::<u8>(2 * me.worker_count() as usize + 1, Distribution::CYCLIC)?;
    assert!(matches!(me.expose("ragged", &cyclic), Err(ExposeError::Scattered { .. })));
    say_shown(me)?;
    for round in 1_u64.. {
        let locked = shown.lock()?;
        let local = array.local(me);
        // Readers change all elements of a worker to the same value, too.
        let first = local.get(0);
        assert!(local.iter().all(|value| value == first), "half of a change was made: {:?}", local.to_vec());
        (0..2 * BOARD).for_each(|index| local.set(index, round));
        drop(locked);
        if round.is_multiple_of(8) {
            breathe();
        }
        if round.is_multiple_of(32) {
            let _locked = shown_field.lock()?;
            (0..FIELD).for_each(|index| field.here().set(index, round));
        }
        me.progress()?;
    }
    Ok(())
}

/// The last step of worker 1 of `stuck`.
pub(crate) const STUCK_AT: u64 = 20;

/// Worker 0 publishes steps for ever. Worker 1 stops after some, and serves others no more.
fn stay_at_a_step(me: &Worker) -> farside::Result<()> {
    let view = me.view::<u64>("steps").shape([1]).part_of([2], [me.id().index()]).open()?;
    say_shown(me)?;
    for step in 0.. {
        view.publish(step, &[step])?;
        breathe();
        if !me.is_first() && step == STUCK_AT {
            hold_still();
        }
    }
    Ok(())
}

/// The values of each process in the symmetric memory of `threads`.
pub(crate) const PIECE: usize = 12;

/// Two workers of each process publish the pattern, and expose symmetric memory and an array. All
/// workers change the symmetric memory of their process to one value, under its lock.
fn show_by_threads(me: &Worker) -> farside::Result<()> {
    let processes = me.process_count() as usize;
    let piece = me.symmetric::<u64>(PIECE)?;
    let shown = me.expose("piece", &piece)?.shape([4 * processes, 3])?.writable();
    let shown = shown.part_of([4, 3 * processes], [0, 3 * me.process().index()])?;
    assert!(matches!(me.expose("piece", &piece), Err(ExposeError::Taken { .. })), "a worker shows it once");
    let other = me.symmetric::<u64>(PIECE)?;
    assert!(matches!(me.expose("piece", &other), Err(ExposeError::Taken { .. })), "the name is that of other memory");
    // One worker of each process suffices, whichever it is.
    let _of_one = (me.thread_index() == 1).then(|| me.expose("of one", &other)).transpose()?;
    let array = me.global_array::<u32>(2 * me.worker_count() as usize)?;
    let _array = me.expose("array", &array)?;
    array.local(me).set(0, me.id().number());
    array.local(me).set(1, me.id().number());
    // A handle that is dropped takes nothing from the other worker.
    let brief = me.expose("dropped", &piece)?;
    me.barrier()?;
    let _brief = (me.thread_index() == 0).then_some(brief);
    let view = me.view::<u64>("pattern").shape([ROWS, COLUMNS]);
    let whole = [me.worker_count() as usize * ROWS, COLUMNS];
    let view = view.part_of(whole, [me.id().index() * ROWS, 0]).open()?;
    say_shown(me)?;
    for step in 0_u64.. {
        let first = me.id().index() * ROWS;
        view.publish(step, &patterns(step, first..first + ROWS, 0..COLUMNS))?;
        let locked = shown.lock()?;
        let first = piece.here().get(0);
        assert!(piece.here().iter().all(|value| value == first), "another worker is in the middle of a change");
        (0..PIECE).for_each(|index| piece.here().set(index, first + 1));
        drop(locked);
        if step.is_multiple_of(100) {
            me.barrier()?;
        }
    }
    Ok(())
}

/// Locks memory again and again. Counts the locks that waited for readers, which count up in the
/// memory, and those of them that several readers passed.
fn lock_again_and_again(me: &Worker) -> farside::Result<()> {
    let array = me.global_array::<u64>(1)?;
    let shown = me.expose("memory", &array)?.writable();
    let [waited, passed] = ["waited", "passed"].map(|name| me.gauge(name));
    let (waited, passed) = (waited?, passed?);
    say_shown(me)?;
    let mut counts = [0.0; 2];
    loop {
        let before = array.local(me).get(0);
        let locked = shown.lock()?;
        let changes = array.local(me).get(0) - before;
        drop(locked);
        counts[0] += f64::from(changes > 0);
        counts[1] += f64::from(changes > 2);
        passed.set(counts[1]);
        waited.set(counts[0]);
        me.progress()?;
    }
}

/// Describes a tree, of which each worker has some nodes, and a board.
fn answer_probes(me: &Worker) -> farside::Result<()> {
    let node = |id: &str, parent: &str, label: &str, visits: u32, value: f64, owner: u32| {
        format!(
            "{{\"id\":\"{id}\",\"parent\":{parent},\"label\":\"{label}\",\"visits\":{visits},\"value\":{value},\"owner\":{owner}}}"
        )
    };
    let nodes = match me.id().number() {
        0 => [node("r", "null", "", 10, 0.5, 0), node("a", "\"r\"", "a", 6, 0.5, 1)],
        _ => [node("c", "\"a\"", "<i>c</i>", 5, 0.25, 1), node("b", "\"r\"", "b", 4, 1.0, 0)],
    };
    let tree = format!("{{\"nodes\":[{}]}}", nodes.join(","));
    let _tree = me.probe("tree", Kind::Tree, move |_, _| tree.clone().into_bytes())?;
    let board = "{\"size\":3,\"stones\":\"x.....o..\",\"to_move\":\"o\",\"rates\":[null,null,0.5,null,0.625,null,null,null,null],
        \"visits\":[0,0,10,0,30,0,0,0,0],\"line\":[\"b2\",\"c1\"]}";
    let show = |me: &Worker| me.probe("board", Kind::HexBoard, move |_, _| board.as_bytes().to_vec());
    let _board = (me.id().number() == 0).then(|| show(me)).transpose()?;
    say_shown(me)?;
    me.wait_while_serving(|| false)
}
