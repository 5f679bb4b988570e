//! Programs that are no jobs show what they have.

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use bytemuck::{Pod, Zeroable};
use farside_inspect::{Element, ExposeError, Standalone};
use farside_testbed::{ended_with_us, hold_still, limit, scaled, wait_for, wait_until};
use farside_viewer::{At, ElementType, Frame, InspectError, Inspector, Number, Selection};

use crate::targets::{PART, breathe, connect};

/// A place, as an element of its own and as a part of another one.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Element)]
#[repr(C)]
struct Place {
    x: f32,
    y: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Element)]
#[repr(C)]
struct Cell {
    at: Place,
    corners: [Place; 2],
    weights: [[u16; 2]; 3],
    r#type: i32,
}

impl Cell {
    fn of(number: u8) -> Self {
        let place = |y: f32| Place { x: number.into(), y };
        let weights = [[number.into(), 1], [2, 3], [4, 5]];
        Self { at: place(0.5), corners: [place(1.0), place(2.0)], weights, r#type: -i32::from(number) }
    }
}

/// Takes the part of one process: publishes, and changes memory under a lock.
pub(crate) fn play_rank() -> farside::Result<()> {
    let shown = Standalone::begin().map_err(farside::Error::from)?;
    let rank = shown.rank() as usize;
    let view = shown.view::<f64>("field").shape([1, 4]).part_of([2, 4], [rank, 0]).writable().open()?;
    let dt = shown.parameter("dt", 0.5, 0.0..=9.0)?;
    let seen = shown.view::<f64>("seen").shape([1]).part_of([2], [rank]).open()?;
    let memory = shown.expose::<u64>(&format!("memory {rank}"), 64)?.writable();
    let gauge = shown.gauge("gauge")?;
    let cells = shown.view("cells").shape([2]).part_of([4], [2 * rank]).open()?;
    let places = shown.expose::<Place>(&format!("places {rank}"), 3)?;
    places.write(1, &[Place { x: 1.5, y: rank as f32 }]);
    let both = shown.expose_vec("both", vec![1_u32; 6])?.writable().shape([1, 6])?.part_of([2, 6], [rank, 0])?;
    let mut both = both.units("m")?.spacing([1.0, 0.5])?;
    let sums = shown.view::<u32>("sums").shape([1]).part_of([2], [rank]).open()?;
    for (shape, whole, origin) in [([2, 2], [2, 2], [0, 0]), ([2, 3], [2, 3], [0, 1])] {
        let other = shown.expose_vec("other", vec![0_u8; 6])?.shape(shape);
        assert!(matches!(other.and_then(|other| other.part_of(whole, origin)), Err(ExposeError::Shape { .. })));
    }
    assert_eq!(shown.expose_vec("other", vec![7_u8; 6])?.take(), [7; 6]);
    let mut values = [0.0; 4];
    for step in 1_u64.. {
        view.publish_mut(step, &mut values)?;
        seen.publish(step, &[dt.get()])?;
        cells.publish(step, &[0, 1].map(|number| Cell::of(2 * rank as u8 + number)))?;
        sums.publish(step, &[both.with(|both| both.iter().sum())])?;
        gauge.set(step as f64);
        let locked = memory.lock();
        (0..64).for_each(|index| memory.write(index, &[step]));
        drop(locked);
        // Processes that do not wait for each other stay near by the clock.
        breathe();
    }
    Ok(())
}

pub(crate) struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts two processes, as a launcher of MPI would.
fn start(name: &str) -> (Ranks, Inspector) {
    start_with(name, |_| None)
}

/// The same, with the point at which a rank is killed.
pub(crate) fn start_with(name: &str, kill: impl Fn(u32) -> Option<String>) -> (Ranks, Inspector) {
    let start = |rank: u32| {
        let mut command = ended_with_us(std::env::current_exe().unwrap());
        command.args(["--exact", "targets::target", "--nocapture", "--quiet"]).stdout(Stdio::null());
        command.env(PART, "alone").env("FARSIDE_JOB", name);
        command.envs(kill(rank).map(|point| ("FARSIDE_INSPECT_KILL", point)));
        command.env("OMPI_COMM_WORLD_RANK", rank.to_string()).env("OMPI_COMM_WORLD_SIZE", "2");
        command.spawn().unwrap()
    };
    let ranks = Ranks((0..2).map(start).collect());
    let job = wait_for("both processes show what they have", || {
        let found = farside_viewer::jobs().unwrap().into_iter().find(|job| job.id.name == name);
        found.filter(|job| job.processes.len() == 2)?;
        let job = connect(name);
        job.open_any("sums").is_ok_and(|area| area.info().parts.len() == 2).then_some(job)
    });
    (ranks, job)
}

#[test]
fn programs_without_a_job_are_seen_and_changed() {
    let name = format!("alone-{}", std::process::id());
    let (mut ranks, job) = start(&name);
    let all = Selection::all();
    let field = job.open::<f64>("field").unwrap();
    field.put(&all, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).unwrap();
    assert_eq!(field.get(&"[:, 1]".parse().unwrap(), At::Next).unwrap().values, [2.0, 6.0]);
    let seen = job.open::<f64>("seen").unwrap();
    for round in 1..=3 {
        job.set("dt", f64::from(round)).unwrap().unwrap();
        assert_eq!(seen.get(&all, At::Next).unwrap().values, [f64::from(round); 2]);
    }
    let paused = job.pause_at(At::Next).unwrap();
    let step = paused.step().unwrap();
    assert_eq!(paused.go_to_next().unwrap(), Some(step + 1));
    assert_eq!(field.get(&all, At::Now).unwrap().step, Some(step + 1));
    drop(paused);
    for _ in 0..scaled(50) {
        let memory = job.open::<u64>("memory 1").unwrap().get(&all, At::Now).unwrap().values;
        assert!(memory.iter().all(|value| *value == memory[0]), "half of a change was read: {memory:?}");
    }
    let cells = job.open::<Cell>("cells").unwrap();
    assert_eq!(cells.info().element, ElementType::Struct(size_of::<Cell>() as u32));
    let text = "struct {at.x: f32, at.y: f32, corners.0.x: f32, corners.0.y: f32, corners.1.x: f32, corners.1.y: f32, \
        weights: u16[3, 2], type: i32}";
    assert_eq!(cells.info().type_name(), text);
    let frame = cells.get(&"[1:]".parse().unwrap(), At::Next).unwrap();
    assert_eq!(frame.values, [1, 2, 3].map(Cell::of));
    let raw = cells.get_raw(&"[::3]".parse().unwrap(), At::Next).unwrap();
    let columns = raw.columns();
    assert_eq!(columns.len(), 8);
    assert_eq!((columns[6].name.as_str(), &columns[6].shape[..]), ("weights", &[2, 3, 2][..]));
    let weights: Vec<f64> = columns[6].numbers().unwrap().into_iter().map(|number| number.as_f64()).collect();
    assert_eq!(weights, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 3.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert!(matches!(raw.numbers(), Err(InspectError::Structs { .. })));
    let error = job.open::<Place>("cells").unwrap_err();
    assert!(matches!(error, InspectError::Fields { .. }) && error.to_string().contains(text), "{error}");
    let error = job.open::<u32>("cells").unwrap_err();
    assert!(matches!(error, InspectError::Type { .. }), "{error}");
    let places = job.open::<Place>("places 1").unwrap().get(&all, At::Now).unwrap().values;
    assert_eq!(places, [Place::zeroed(), Place { x: 1.5, y: 1.0 }, Place::zeroed()]);
    let error = job.ask("dt", None, "").unwrap_err();
    assert!(matches!(error, InspectError::Refused { .. }), "{error}");
    // A put over several processes comes at one step of all, which its answer names.
    let (both, sums) = (job.open::<u32>("both").unwrap(), job.open::<u32>("sums").unwrap());
    let info = both.info();
    assert_eq!((&info.shape[..], info.units.as_str(), &info.spacing[..]), (&[2, 6][..], "m", &[1.0, 0.5][..]));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let seen = sums.get(&all, At::Next).unwrap().values;
                assert!(seen[0] == seen[1], "a part was written at another step: {seen:?}");
            }
        });
        for round in 2..2 + scaled(4) as u32 {
            let step = both.put(&all, &[round; 12]).unwrap();
            let frame = sums.get(&all, At::Next).unwrap();
            assert!(step.is_some() && frame.step > step);
            assert_eq!(frame.values, [6 * round; 2]);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let one = job.open::<u64>("memory 1").unwrap().put(&"[3]".parse().unwrap(), &[5]).unwrap();
    assert!(one.is_some());
    // Of a process that is killed, the part is marked, and the rest goes on.
    ranks.0[1].kill().unwrap();
    let part = |frame: &Frame<f64>| {
        let [missing] = &frame.missing[..] else { panic!("one part is missing: {:?}", frame.missing) };
        (missing.worker, missing.origin.clone(), missing.shape.clone())
    };
    let is_cut = |frame: &Frame<f64>| !frame.missing.is_empty();
    let frame = wait_for("the end of a process is seen", || field.get(&all, At::Next).ok().filter(is_cut));
    assert_eq!(part(&frame), (Some((1, 1)), vec![1, 0], vec![1, 4]));
    assert_eq!(frame.values[..4], [1.0, 2.0, 3.0, 4.0]);
    assert!(frame.values[4..].iter().all(|value| value.is_nan()));
    assert!(field.get(&all, At::Next).unwrap().step > frame.step);
    assert!(field.get(&"[0]".parse().unwrap(), At::Next).unwrap().missing.is_empty());
    let error = field.get(&"[1]".parse().unwrap(), At::Next).unwrap_err();
    assert!(matches!(error, InspectError::Lost { .. } | InspectError::Incomplete { .. }), "{error}");
    let error = field.put(&all, &[0.0; 8]).unwrap_err();
    assert!(matches!(error, InspectError::Incomplete { missing: 4, .. }), "{error}");
    job.set("dt", 3.0).unwrap().unwrap();
    // An area that is opened now knows no more whose the part was.
    let column = job.open_any("field").unwrap().get_raw(&"[:, 1]".parse().unwrap(), At::Next).unwrap();
    let numbers: Vec<String> = column.numbers().unwrap().iter().map(Number::to_string).collect();
    assert_eq!(numbers, ["2", "-"]);
    assert_eq!(column.missing[0].to_string(), "some worker at [1:2]");
    drop(ranks);
    let error = wait_for("the end of the other one is seen", || field.get(&all, At::Next).err());
    assert!(!matches!(error, InspectError::NotThere { .. }), "{error}");
}

/// The memory that one program exposes: more than 32 bits can number.
const HUGE: usize = (4 << 30) + 5;

/// Exposes it, until it is killed. The system gives it a page when something is written there.
pub(crate) fn play_huge() -> farside::Result<()> {
    let shown = Standalone::begin().map_err(farside::Error::from)?;
    let _memory = shown.expose_vec("huge", vec![0_u8; HUGE])?.writable();
    hold_still();
}

/// The far end of 4 GiB is read and written, and nothing of the rest is touched for that.
#[test]
fn four_gibibytes_are_reached_everywhere() {
    let name = format!("huge-{}", std::process::id());
    let mut command = ended_with_us(std::env::current_exe().unwrap());
    command.args(["--exact", "targets::target", "--nocapture", "--quiet"]).stdout(Stdio::null());
    let _program = Ranks(vec![command.env(PART, "huge").env("FARSIDE_JOB", &name).spawn().unwrap()]);
    let huge = wait_for("the program shows its memory", || {
        let job = Inspector::connect(&*name).map(|job| job.deadline(limit()));
        job.and_then(|job| job.open::<u8>("huge")).ok()
    });
    assert_eq!(huge.info().shape, [HUGE as u64]);
    let part = |text: &str| text.parse::<Selection>().unwrap();
    // Both sides of the first place that has no 32 bits.
    huge.put(&part("[4294967294:4294967299]"), &[1, 2, 3, 4, 5]).unwrap();
    let get = |text: &str| huge.get(&part(text), At::Now).unwrap().values;
    assert_eq!(get("[4294967293:]"), [0, 1, 2, 3, 4, 5, 0, 0]);
    assert_eq!(get("[4294967295::2]"), [2, 4, 0]);
    assert_eq!(get("[::1073741824]"), [0, 0, 0, 0, 3]);
    assert_eq!(get("[-1]"), [0]);
    for wrong in ["[4294967301]", "[9223372036854775807]"] {
        let error = huge.get(&part(wrong), At::Now).unwrap_err();
        assert!(matches!(error, InspectError::Selection(_)), "{wrong}: {error}");
    }
}

/// The server of a page reads each area by a thread of its own, all through one connection.
#[test]
fn a_hundred_readers_wait_through_one_connection() {
    let (_ranks, job) = start(&format!("readers-{}", std::process::id()));
    let field = job.open::<f64>("field").unwrap();
    let pause = job.pause_at(At::Next).unwrap();
    let begun = AtomicU32::new(0);
    let read = || {
        begun.fetch_add(1, Ordering::SeqCst);
        field.get(&Selection::all(), At::Next)
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..100).map(|_| scope.spawn(read)).collect();
        // They come while no step does, and leave room for another question.
        wait_until("all readers ask", || begun.load(Ordering::SeqCst) == 100);
        assert_eq!(job.is_paused().unwrap(), Some(pause.step()));
        drop(pause);
        readers.into_iter().for_each(|reader| drop(reader.join().unwrap().unwrap()));
    });
}
